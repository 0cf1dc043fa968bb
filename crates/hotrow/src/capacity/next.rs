//! What to do next, in the order in which those who read such results do it (docs/capacity.md): keep-alive,
//! connections, CPU, workers, bandwidth, the external system. Pure.

use hotrow_diagnose::rules::finding::{Class, Finding};
use hotrow_diagnose::verdict::CONNECTIONS_RISE;

/// From this share of all CPUs on, more workers would only wait for each other.
const CPU_LEFT_BELOW: f64 = 0.8;

/// What is known when the question comes up.
pub(super) struct Facts<'a> {
    pub(super) keepalive: bool,
    /// Connections in use, and how many the rate keeps busy where none was free in time.
    pub(super) connections: usize,
    pub(super) connections_wanted: Option<f64>,
    /// More connections were tried and brought nothing.
    pub(super) more_connections_tried: bool,
    /// Share of all CPUs that was busy; none when it was not seen, or is another machine's.
    pub(super) cpu_busy: Option<f64>,
    /// Whether the service's processes were looked at.
    pub(super) service_seen: bool,
    /// How many times the rate twice the connections brought in a test; none where no test tells.
    pub(super) more_connections_brought: Option<f64>,
    /// What tests did not refute.
    pub(super) findings: &'a [Finding],
    /// What they confirmed.
    pub(super) confirmed: Option<Class>,
    /// What they refuted, suspected or not.
    pub(super) refuted: &'a dyn Fn(Class) -> bool,
}

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) what: &'static str,
    pub(super) state: State,
    pub(super) words: String,
}

/// Whether there is something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// This first.
    Do,
    /// Not the limit, as far as was seen.
    Fine,
    /// Nothing was seen of it.
    Unseen,
}

impl State {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Do => "to do",
            Self::Fine => "fine",
            Self::Unseen => "not seen",
        }
    }
}

/// All six, in their order.
pub(super) fn next(facts: &Facts<'_>) -> [Advice; 6] {
    [keepalive(facts), connections(facts), cpu(facts), workers(facts), bandwidth(facts), external(facts)]
}

fn advice(what: &'static str, state: State, words: impl Into<String>) -> Advice {
    Advice { what, state, words: words.into() }
}

/// What to change, of the first finding of one of these classes.
fn found(facts: &Facts<'_>, classes: &[Class]) -> Option<String> {
    let finding = facts.findings.iter().find(|finding| classes.contains(&finding.class))?;
    let how = match facts.confirmed {
        Some(class) if class == finding.class => "confirmed: ",
        // There is one limit at a time: what stands beside it was not tested.
        Some(_) => "only suspected: ",
        None => "",
    };
    Some(format!("{how}{}: {}", finding.class.words(), finding.counterfactual))
}

/// That one of these was suspected, tested and refuted: what else would be told, that nothing was seen of it, is not so.
fn refuted(facts: &Facts<'_>, classes: &[Class]) -> Option<String> {
    let class = classes.iter().find(|class| (facts.refuted)(**class))?;
    Some(format!("it was tested, and is not the limit: {}", class.words()))
}

fn keepalive(facts: &Facts<'_>) -> Advice {
    if facts.keepalive {
        advice("keep-alive", State::Fine, "connections are kept")
    } else {
        advice("keep-alive", State::Do, "each request opens a connection; measure once more without --no-keepalive")
    }
}

fn connections(facts: &Facts<'_>) -> Advice {
    let what = "connections";
    let tables = [Class::TooFewConnections, Class::AcceptQueue, Class::OpenFiles, Class::Ports, Class::KernelTable];
    if let Some(words) = found(facts, &tables) {
        return advice(what, State::Do, words);
    }
    match facts.connections_wanted {
        _ if facts.more_connections_tried => advice(what, State::Fine, "more of them brought no more"),
        _ if let Some(times) = facts.more_connections_brought => {
            let (state, more) =
                if times >= CONNECTIONS_RISE { (State::Do, ": try more with -c") } else { (State::Fine, "") };
            advice(what, state, format!("tested: twice as many brought {times:.2} times the rate{more}"))
        }
        Some(wanted) if wanted > facts.connections as f64 => advice(
            what,
            State::Do,
            format!(
                "the rate keeps {wanted:.0} requests in flight, and there is room for {}: try more with -c; \
                     if the rate stays, it was not them",
                facts.connections
            ),
        ),
        Some(_) => advice(
            what,
            State::Do,
            format!("none of {} was free at times: try twice as many with -c", facts.connections),
        ),
        None => advice(what, State::Fine, format!("one of {} was always free in time", facts.connections)),
    }
}

fn cpu(facts: &Facts<'_>) -> Advice {
    let classes = [Class::Throttled, Class::Steal, Class::AllCpus, Class::OneThread, Class::Proxy];
    match (found(facts, &classes), facts.cpu_busy) {
        (Some(words), _) => advice("CPU", State::Do, words),
        (None, _) if let Some(words) = refuted(facts, &classes) => advice("CPU", State::Fine, words),
        (None, Some(busy)) => {
            advice("CPU", State::Fine, format!("{:.0} % busy, and no thread alone at its limit", busy * 100.0))
        }
        (None, None) => advice("CPU", State::Unseen, "look at it on the target's machine: at 100 % it is the limit"),
    }
}

fn workers(facts: &Facts<'_>) -> Advice {
    let what = "workers";
    match (found(facts, &[Class::TooFewWorkers]), facts.cpu_busy) {
        (Some(words), _) => advice(what, State::Do, words),
        (None, _) if let Some(words) = refuted(facts, &[Class::TooFewWorkers]) => advice(what, State::Fine, words),
        (None, Some(busy)) if facts.service_seen && busy < CPU_LEFT_BELOW => advice(
            what,
            State::Fine,
            "no requests lay unread; as many as cores for work of the CPU, 3 to 8 times as many where they wait",
        ),
        (None, Some(_)) if facts.service_seen => advice(what, State::Fine, "CPUs are busy: more would not help"),
        _ => advice(what, State::Unseen, "as many as cores for work of the CPU, 3 to 8 times as many where they wait"),
    }
}

fn bandwidth(facts: &Facts<'_>) -> Advice {
    let classes = [Class::Bandwidth, Class::PacketLoss];
    match found(facts, &classes) {
        Some(words) => advice("bandwidth", State::Do, words),
        None if let Some(words) = refuted(facts, &classes) => advice("bandwidth", State::Fine, words),
        None if facts.findings.is_empty() => {
            advice("bandwidth", State::Unseen, "bytes per answer × rate, beside the link's speed")
        }
        None => advice("bandwidth", State::Fine, "no link whose speed is known was full, and no segments were lost"),
    }
}

fn external(facts: &Facts<'_>) -> Advice {
    let what = "external system";
    let classes = [Class::External, Class::Disk, Class::Memory];
    match found(facts, &classes) {
        Some(words) => advice(what, State::Do, words),
        None if let Some(words) = refuted(facts, &classes) => advice(what, State::Fine, words),
        None if facts.service_seen => advice(what, State::Fine, "its requests are not mostly waited for"),
        None => advice(
            what,
            State::Unseen,
            "what the service asks (a database): its times, and how many it answers at once",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::State::{Fine, Unseen};
    use super::*;

    fn finding(class: Class) -> Finding {
        Finding { class, confidence: 0.9, evidence: Vec::new(), counterfactual: "twice of it".to_owned() }
    }

    const FACTS: Facts<'static> = Facts {
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

    fn to_do(facts: &Facts<'_>) -> Vec<&'static str> {
        next(facts).iter().filter(|advice| advice.state == State::Do).map(|advice| advice.what).collect()
    }

    #[test]
    fn each_finding_is_advised_at_its_place() {
        for (class, what) in [
            (Class::AllCpus, "CPU"),
            (Class::TooFewWorkers, "workers"),
            (Class::Bandwidth, "bandwidth"),
            (Class::External, "external system"),
            (Class::AcceptQueue, "connections"),
        ] {
            let findings = [finding(class)];
            let facts = Facts { findings: &findings, ..FACTS };
            assert_eq!(to_do(&facts), [what], "{class:?}");
            assert!(next(&facts).iter().any(|advice| advice.words.contains("twice of it")));
        }
        assert_eq!(to_do(&FACTS), Vec::<&str>::new());
        assert_eq!(to_do(&Facts { keepalive: false, ..FACTS }), ["keep-alive"]);
        assert_eq!(to_do(&Facts { connections_wanted: Some(80.0), ..FACTS }), ["connections"]);
        let tried = Facts { connections_wanted: Some(80.0), more_connections_tried: true, ..FACTS };
        assert_eq!(to_do(&tried), Vec::<&str>::new());
    }

    /// What a trial refuted is not advised, and nothing else is said of it either.
    #[test]
    fn the_advice_follows_the_tests() {
        let findings = [finding(Class::OneThread), finding(Class::External)];
        let facts = Facts {
            connections_wanted: Some(80.0),
            more_connections_brought: Some(1.02),
            findings: &findings,
            confirmed: Some(Class::OneThread),
            refuted: &|class| class == Class::TooFewWorkers,
            ..FACTS
        };
        let words = next(&facts).map(|advice| (advice.state, advice.words));
        assert!(words[1].0 == Fine && words[1].1.contains("twice as many brought 1.02"), "{words:?}");
        assert!(words[2].1.starts_with("confirmed: CPU: one thread"), "{words:?}");
        assert!(words[3].0 == Fine && words[3].1.contains("tested, and is not the limit"), "{words:?}");
        assert!(words[5].1.starts_with("only suspected: external"), "{words:?}");
    }

    #[test]
    fn what_was_not_seen_is_not_called_fine() {
        let states = next(&Facts { cpu_busy: None, service_seen: false, ..FACTS }).map(|advice| advice.state);
        assert_eq!(states, [Fine, Fine, Unseen, Unseen, Unseen, Unseen]);
    }
}
