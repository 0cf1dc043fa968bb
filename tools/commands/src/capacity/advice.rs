//! Recommendations, in the order of common practice (docs/capacity.md): keep-alive, connections,
//! CPU, workers, bandwidth, the external system. Pure.

use hotrow_diagnose::hypothesis::CONNECTIONS_RISE;
use hotrow_diagnose::rules::finding::{Finding, LimitClass};

/// CPU share from which more workers would only compete for the CPUs.
const CPU_LEFT_BELOW: f64 = 0.8;

/// The inputs of the recommendations.
pub(super) struct AdviceInput<'a> {
    pub(super) keepalive: bool,
    /// Connections in use, and the number that the rate keeps busy when none was free in time.
    pub(super) connections: usize,
    pub(super) connections_wanted: Option<f64>,
    /// More connections were tried without a higher rate.
    pub(super) more_connections_tried: bool,
    /// Busy share of all CPUs; none when unknown or of another machine.
    pub(super) cpu_busy: Option<f64>,
    /// The service's processes were watched.
    pub(super) service_seen: bool,
    /// Rate ratio of twice the connections in a test; none without a test.
    pub(super) more_connections_brought: Option<f64>,
    /// Findings that tests did not refute.
    pub(super) findings: &'a [Finding],
    /// The class that tests confirmed.
    pub(super) confirmed: Option<LimitClass>,
    /// Returns whether tests refuted a class, suspected or not.
    pub(super) refuted: &'a dyn Fn(LimitClass) -> bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) topic: &'static str,
    pub(super) status: AdviceStatus,
    pub(super) text: String,
}

/// The status of a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdviceStatus {
    /// Do this first.
    ToDo,
    /// Not the limit, as far as observed.
    Ok,
    /// Not observed.
    Unknown,
}

impl AdviceStatus {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::ToDo => "to do",
            Self::Ok => "ok",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns all six recommendations, in order.
pub(super) fn advise(facts: &AdviceInput<'_>) -> [Advice; 6] {
    [
        keepalive(facts),
        connections(facts),
        cpu(facts),
        workers(facts),
        bandwidth(facts),
        external(facts),
    ]
}

fn advice(topic: &'static str, status: AdviceStatus, words: impl Into<String>) -> Advice {
    Advice { topic, status, text: words.into() }
}

/// Returns the change for the first finding of one of these classes.
fn found(facts: &AdviceInput<'_>, classes: &[LimitClass]) -> Option<String> {
    let finding = facts.findings.iter().find(|finding| classes.contains(&finding.class))?;
    let how = match facts.confirmed {
        Some(class) if class == finding.class => "confirmed: ",
        // There is one limit at a time: the others were not tested.
        Some(_) => "only suspected: ",
        None => "",
    };
    Some(format!("{how}{}: {}", finding.class.words(), finding.counterfactual))
}

/// Returns a class that was tested and refuted; "not observed" would be wrong for it.
fn refuted(facts: &AdviceInput<'_>, classes: &[LimitClass]) -> Option<String> {
    let class = classes.iter().find(|class| (facts.refuted)(**class))?;
    Some(format!("tested and not the limit: {}", class.words()))
}

fn keepalive(facts: &AdviceInput<'_>) -> Advice {
    if facts.keepalive {
        advice("keep-alive", AdviceStatus::Ok, "connections are kept")
    } else {
        advice(
            "keep-alive",
            AdviceStatus::ToDo,
            "each request opens a connection; measure once more without --no-keepalive",
        )
    }
}

fn connections(facts: &AdviceInput<'_>) -> Advice {
    let topic = "connections";
    let tables = [
        LimitClass::TooFewConnections,
        LimitClass::AcceptQueue,
        LimitClass::OpenFiles,
        LimitClass::Ports,
        LimitClass::KernelTable,
    ];
    if let Some(words) = found(facts, &tables) {
        return advice(topic, AdviceStatus::ToDo, words);
    }
    match facts.connections_wanted {
        _ if facts.more_connections_tried => {
            advice(topic, AdviceStatus::Ok, "more of them brought no more")
        }
        _ if let Some(times) = facts.more_connections_brought => {
            let (status, more) = if times >= CONNECTIONS_RISE {
                (AdviceStatus::ToDo, ": try more with -c")
            } else {
                (AdviceStatus::Ok, "")
            };
            advice(
                topic,
                status,
                format!("tested: twice as many brought {times:.2} times the rate{more}"),
            )
        }
        Some(wanted) if wanted > facts.connections as f64 => advice(
            topic,
            AdviceStatus::ToDo,
            format!(
                "the rate keeps {wanted:.0} requests in flight, and there is room for {}: try more \
                 with -c; if the rate stays, it was not them",
                facts.connections
            ),
        ),
        Some(_) => advice(
            topic,
            AdviceStatus::ToDo,
            format!("none of {} was free at times: try twice as many with -c", facts.connections),
        ),
        None => advice(
            topic,
            AdviceStatus::Ok,
            format!("one of {} was always free in time", facts.connections),
        ),
    }
}

fn cpu(facts: &AdviceInput<'_>) -> Advice {
    let classes = [
        LimitClass::Throttled,
        LimitClass::Steal,
        LimitClass::AllCpus,
        LimitClass::OneThread,
        LimitClass::Proxy,
    ];
    match (found(facts, &classes), facts.cpu_busy) {
        (Some(words), _) => advice("CPU", AdviceStatus::ToDo, words),
        (None, _) if let Some(words) = refuted(facts, &classes) => {
            advice("CPU", AdviceStatus::Ok, words)
        }
        (None, Some(busy)) => advice(
            "CPU",
            AdviceStatus::Ok,
            format!("{:.0} % busy, and no thread alone at its limit", busy * 100.0),
        ),
        (None, None) => advice(
            "CPU",
            AdviceStatus::Unknown,
            "check it on the target's machine: at 100 % it is the limit",
        ),
    }
}

fn workers(facts: &AdviceInput<'_>) -> Advice {
    let topic = "workers";
    match (found(facts, &[LimitClass::TooFewWorkers]), facts.cpu_busy) {
        (Some(words), _) => advice(topic, AdviceStatus::ToDo, words),
        (None, _) if let Some(words) = refuted(facts, &[LimitClass::TooFewWorkers]) => {
            advice(topic, AdviceStatus::Ok, words)
        }
        (None, Some(busy)) if facts.service_seen && busy < CPU_LEFT_BELOW => advice(
            topic,
            AdviceStatus::Ok,
            "no requests were left unread; as many as cores for work of the CPU, 3 to 8 times as \
             many where they wait",
        ),
        (None, Some(_)) if facts.service_seen => {
            advice(topic, AdviceStatus::Ok, "CPUs are busy: more would not help")
        }
        _ => advice(
            topic,
            AdviceStatus::Unknown,
            "as many as cores for work of the CPU, 3 to 8 times as many where they wait",
        ),
    }
}

fn bandwidth(facts: &AdviceInput<'_>) -> Advice {
    let classes = [LimitClass::Bandwidth, LimitClass::PacketLoss];
    match found(facts, &classes) {
        Some(words) => advice("bandwidth", AdviceStatus::ToDo, words),
        None if let Some(words) = refuted(facts, &classes) => {
            advice("bandwidth", AdviceStatus::Ok, words)
        }
        None if facts.findings.is_empty() => advice(
            "bandwidth",
            AdviceStatus::Unknown,
            "compare bytes per answer × rate with the link's speed",
        ),
        None => advice(
            "bandwidth",
            AdviceStatus::Ok,
            "no link whose speed is known was full, and no segments were lost",
        ),
    }
}

fn external(facts: &AdviceInput<'_>) -> Advice {
    let topic = "external system";
    let classes = [LimitClass::External, LimitClass::Disk, LimitClass::Memory];
    match found(facts, &classes) {
        Some(words) => advice(topic, AdviceStatus::ToDo, words),
        None if let Some(words) = refuted(facts, &classes) => {
            advice(topic, AdviceStatus::Ok, words)
        }
        None if facts.service_seen => {
            advice(topic, AdviceStatus::Ok, "its requests are not mostly waited for")
        }
        None => advice(
            topic,
            AdviceStatus::Unknown,
            "what the service asks (a database): its times, and how many it answers at once",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::AdviceStatus::{Ok, Unknown};
    use super::*;

    fn finding(class: LimitClass) -> Finding {
        Finding {
            class,
            confidence: 0.9,
            evidence: Vec::new(),
            counterfactual: "twice of it".to_owned(),
        }
    }

    const FACTS: AdviceInput<'static> = AdviceInput {
        keepalive: true,
        connections: 50,
        connections_wanted: None,
        more_connections_tried: false,
        cpu_busy: Some(0.3),
        service_seen: true,
        more_connections_brought: None,
        findings: &[],
        confirmed: None,
        refuted: &|_| false,
    };

    fn to_do(facts: &AdviceInput<'_>) -> Vec<&'static str> {
        advise(facts)
            .iter()
            .filter(|advice| advice.status == AdviceStatus::ToDo)
            .map(|advice| advice.topic)
            .collect()
    }

    #[test]
    fn each_finding_has_its_advice() {
        for (class, topic) in [
            (LimitClass::AllCpus, "CPU"),
            (LimitClass::TooFewWorkers, "workers"),
            (LimitClass::Bandwidth, "bandwidth"),
            (LimitClass::External, "external system"),
            (LimitClass::AcceptQueue, "connections"),
        ] {
            let findings = [finding(class)];
            let facts = AdviceInput { findings: &findings, ..FACTS };
            assert_eq!(to_do(&facts), [topic], "{class:?}");
            assert!(advise(&facts).iter().any(|advice| advice.text.contains("twice of it")));
        }
        assert_eq!(to_do(&FACTS), Vec::<&str>::new());
        assert_eq!(to_do(&AdviceInput { keepalive: false, ..FACTS }), ["keep-alive"]);
        assert_eq!(
            to_do(&AdviceInput { connections_wanted: Some(80.0), ..FACTS }),
            ["connections"]
        );
        let tried =
            AdviceInput { connections_wanted: Some(80.0), more_connections_tried: true, ..FACTS };
        assert_eq!(to_do(&tried), Vec::<&str>::new());
    }

    /// Refuted classes are not recommended, and are reported as refuted.
    #[test]
    fn advice_follows_the_tests() {
        let findings = [finding(LimitClass::OneThread), finding(LimitClass::External)];
        let facts = AdviceInput {
            connections_wanted: Some(80.0),
            more_connections_brought: Some(1.02),
            findings: &findings,
            confirmed: Some(LimitClass::OneThread),
            refuted: &|class| class == LimitClass::TooFewWorkers,
            ..FACTS
        };
        let words = advise(&facts).map(|advice| (advice.status, advice.text));
        assert!(words[1].0 == Ok && words[1].1.contains("twice as many brought 1.02"), "{words:?}");
        assert!(words[2].1.starts_with("confirmed: CPU: one thread"), "{words:?}");
        assert!(words[3].0 == Ok && words[3].1.contains("tested and not the limit"), "{words:?}");
        assert!(words[5].1.starts_with("only suspected: external"), "{words:?}");
    }

    #[test]
    fn unobserved_resources_are_not_called_fine() {
        let states = advise(&AdviceInput { cpu_busy: None, service_seen: false, ..FACTS })
            .map(|advice| advice.status);
        assert_eq!(states, [Ok, Ok, Unknown, Unknown, Unknown, Unknown]);
    }
}
