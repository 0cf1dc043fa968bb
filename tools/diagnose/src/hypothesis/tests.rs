//! Hypotheses are tested on simulated servers with known limits.

use std::time::Duration;

use super::*;

mod planning;

/// The limit of a simulated deployment: requests per second for each change.
struct Server {
    rate: fn(Option<Change>) -> TrialMeasurement,
    /// Relative size of the noise, and its state.
    noise: f64,
    state: u64,
    loads: usize,
}

fn rps(rate_rps: f64) -> TrialMeasurement {
    TrialMeasurement { rate_rps, ..TrialMeasurement::default() }
}

fn server(rate: fn(Option<Change>) -> TrialMeasurement) -> Server {
    Server { rate, noise: 0.02, state: 7, loads: 0 }
}

impl Server {
    fn load(&mut self, change: Option<Change>) -> TrialMeasurement {
        self.loads += 1;
        // A linear congruential generator (Knuth's MMIX); noise in −1…1.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let noise = (self.state >> 33) as f64 / f64::from(1_u32 << 30) - 1.0;
        let measured = (self.rate)(change);
        TrialMeasurement { rate_rps: measured.rate_rps * (1.0 + self.noise * noise), ..measured }
    }
}

fn context() -> Context {
    Context {
        connections: 50,
        connections_max: 10_000,
        threads: 1,
        threads_max: 4,
        target_rps: None,
        target_max_rps: None,
        answered_rps: 1_000.0,
        kept: false,
        keepalive: true,
        get: true,
        local: true,
        cpus: 4,
        idle_cores: Some(2.0),
        generator_busy: 0.5,
        generator_us_per_request: 10.0,
        generator_throttled: false,
        unread_share: None,
        answer_typical: Duration::from_millis(50),
        most_throttled: None,
        quota: false,
    }
}

fn finding(class: LimitClass, confidence: f64) -> Finding {
    Finding {
        class,
        confidence,
        evidence: vec!["seen".to_owned()],
        counterfactual: "more of it".to_owned(),
    }
}

fn prove_with(
    findings: &[LimitClass],
    context: Context,
    mut load: impl FnMut(Option<Change>) -> TrialOutcome,
) -> HypothesisVerdict {
    let findings = findings.iter().map(|class| finding(*class, 0.8)).collect();
    let mut tester = HypothesisTester::new(findings, context);
    let mut outcome = None;
    for _ in 0..200 {
        match tester.next(outcome) {
            TestStep::Done(verdict) => return *verdict,
            TestStep::Load { change, .. } => outcome = Some(load(change)),
        }
    }
    panic!("it does not end: {tester:?}")
}

fn prove(findings: &[LimitClass], context: Context, mut server: Server) -> HypothesisVerdict {
    prove_with(findings, context, |change| TrialOutcome::Measured(server.load(change)))
}

/// More than 50 connections have the given effect; burned CPU time costs nothing.
fn flat(change: Option<Change>) -> TrialMeasurement {
    match change {
        Some(Change::Connections(n)) => rps(1000.0 * (n as f64 / 50.0).min(1.0)),
        _ => rps(1000.0),
    }
}

fn all_cpus(change: Option<Change>) -> TrialMeasurement {
    match change {
        Some(Change::BurnCpus(cores)) => rps(1000.0 * (1.0 - cores / 4.0)),
        other => flat(other),
    }
}

fn by_connections(change: Option<Change>) -> TrialMeasurement {
    match change {
        Some(Change::Connections(n)) => rps(20.0 * n as f64),
        _ => rps(1000.0),
    }
}

fn by_generator(change: Option<Change>) -> TrialMeasurement {
    match change {
        Some(Change::GeneratorThreads(n)) => rps(1000.0 * n as f64),
        Some(Change::BurnGenerator(share)) => rps(1000.0 / (1.0 + share)),
        other => flat(other),
    }
}

#[test]
fn true_hypotheses_are_confirmed() {
    let nearly_full = Context { idle_cores: Some(0.5), ..context() };
    for (class, context, server) in [
        (LimitClass::TooFewConnections, context(), server(by_connections)),
        (LimitClass::AllCpus, nearly_full.clone(), server(all_cpus)),
        (LimitClass::Competitor, nearly_full, server(all_cpus)),
        (LimitClass::OneThread, context(), server(flat)),
        (LimitClass::Lock, context(), server(flat)),
        (LimitClass::Throttled, context(), server(flat)),
        (LimitClass::External, context(), server(flat)),
        (LimitClass::Disk, context(), server(flat)),
        (LimitClass::Proxy, context(), server(flat)),
        (LimitClass::Generator, context(), server(by_generator)),
        (
            LimitClass::Generator,
            Context { generator_throttled: true, ..context() },
            server(by_generator),
        ),
        (
            LimitClass::Throttled,
            Context { quota: true, ..context() },
            server(
                |change| if change == Some(Change::Quota(0.8)) { rps(810.0) } else { flat(change) },
            ),
        ),
        (
            LimitClass::Bandwidth,
            context(),
            server(|change| if change == Some(Change::Head) { rps(5000.0) } else { flat(change) }),
        ),
        (
            LimitClass::TooFewWorkers,
            Context { unread_share: Some(0.8), ..context() },
            server(|change| match change {
                Some(Change::Connections(11)) => {
                    TrialMeasurement { unread_share: Some(0.0), ..rps(980.0) }
                }
                other => TrialMeasurement { unread_share: Some(0.8), ..flat(other) },
            }),
        ),
        (
            LimitClass::AcceptQueue,
            Context { keepalive: false, ..context() },
            server(|change| match change {
                Some(Change::Keepalive | Change::Connections(12)) => rps(2000.0),
                _ => TrialMeasurement { failed_share: 0.1, overflows_per_s: 50.0, ..rps(500.0) },
            }),
        ),
        (
            LimitClass::OpenFiles,
            context(),
            server(|change| match change {
                Some(Change::Connections(12)) => rps(400.0),
                _ => TrialMeasurement { failed_share: 0.5, ..rps(500.0) },
            }),
        ),
        (
            LimitClass::NoneFound,
            Context { target_rps: Some(1000.0), kept: true, ..context() },
            server(
                |change| if change == Some(Change::Rate(1.3)) { rps(1300.0) } else { rps(1000.0) },
            ),
        ),
    ] {
        let verdict = prove(&[class], context, server);
        assert_eq!(
            (verdict.finding.class, verdict.conclusion),
            (class, Conclusion::Confirmed),
            "{verdict:#?}"
        );
        assert!(
            verdict.finding.confidence >= CONFIRMED_CONFIDENCE_MIN && !verdict.trials.is_empty(),
            "{verdict:#?}"
        );
        assert!(verdict.noise.is_some_and(|noise| noise.share() < 0.05), "{verdict:#?}");
    }
}

/// The first finding is wrong. The right one is tested next, even if only the trial raises it.
#[test]
fn a_wrong_first_guess_leads_to_the_right_one() {
    let full = Context { idle_cores: Some(0.05), ..context() };
    let nearly_full = Context { idle_cores: Some(0.9), ..context() };
    for (guesses, context, server, right) in [
        (
            &[LimitClass::External][..],
            context(),
            server(by_connections),
            LimitClass::TooFewConnections,
        ),
        (
            &[LimitClass::OneThread, LimitClass::TooFewConnections],
            context(),
            server(by_connections),
            LimitClass::TooFewConnections,
        ),
        (
            &[LimitClass::NoneFound],
            context(),
            server(by_connections),
            LimitClass::TooFewConnections,
        ),
        (&[LimitClass::Lock], nearly_full, server(all_cpus), LimitClass::AllCpus),
        (
            &[LimitClass::Generator, LimitClass::AllCpus],
            full,
            server(all_cpus),
            LimitClass::AllCpus,
        ),
        (
            &[LimitClass::Generator, LimitClass::OneThread],
            context(),
            server(flat),
            LimitClass::OneThread,
        ),
        (
            &[LimitClass::TooFewConnections, LimitClass::External],
            context(),
            server(flat),
            LimitClass::External,
        ),
        (
            // Busy with other work, at a rate that is easily kept.
            &[LimitClass::AllCpus],
            Context { target_rps: Some(1000.0), kept: true, ..context() },
            server(|change| rps(if change == Some(Change::Rate(1.3)) { 1300.0 } else { 1000.0 })),
            LimitClass::NoneFound,
        ),
        (
            &[LimitClass::Bandwidth, LimitClass::OneThread],
            context(),
            server(flat),
            LimitClass::OneThread,
        ),
    ] {
        let full_machine = matches!(right, LimitClass::AllCpus);
        let context = if full_machine { Context { threads: 4, ..context } } else { context };
        let verdict = prove(guesses, context, server);
        let settled = (verdict.finding.class, verdict.conclusion);
        if guesses == [LimitClass::Generator, LimitClass::AllCpus] {
            // With full CPUs and no thread to add, nothing distinguishes the generator from
            // the target beside it.
            assert_eq!(settled, (LimitClass::Generator, Conclusion::Inconclusive), "{verdict:#?}");
        } else {
            assert_eq!(settled, (right, Conclusion::Confirmed), "{verdict:#?}");
            assert!(
                verdict.trials.iter().any(|trials| trials.conclusion == Conclusion::Refuted),
                "{verdict:#?}"
            );
        }
    }
}

/// Half of the CPUs are idle. That burned slices delay the one working thread does not make the
/// CPUs the limit.
#[test]
fn burned_slices_on_a_single_thread_do_not_confirm_the_cpus() {
    let met = |part: f64| {
        move |change: Option<Change>| match change {
            Some(Change::BurnCpus(cores)) => {
                TrialOutcome::Measured(rps(1000.0 * (1.0 - part * cores / 4.0)))
            }
            other => TrialOutcome::Measured(flat(other)),
        }
    };
    let verdict = prove_with(&[LimitClass::Lock], context(), met(0.6));
    assert_eq!(
        (verdict.finding.class, verdict.conclusion),
        (LimitClass::Lock, Conclusion::Inconclusive),
        "{verdict:#?}"
    );
    let verdict = prove_with(&[LimitClass::Lock], context(), met(1.0));
    assert_eq!(
        (verdict.finding.class, verdict.conclusion),
        (LimitClass::Lock, Conclusion::Refuted),
        "{verdict:#?}"
    );
}

#[test]
fn with_all_refuted_none_is_named_with_certainty() {
    let verdict = prove(
        &[LimitClass::TooFewConnections, LimitClass::Generator, LimitClass::Bandwidth],
        context(),
        server(flat),
    );
    assert_eq!(verdict.conclusion, Conclusion::Refuted, "{verdict:#?}");
    assert!(
        verdict.finding.confidence <= REFUTED_CONFIDENCE_MAX && verdict.why.contains("refuted too"),
        "{verdict:#?}"
    );
    let hidden = prove(&[LimitClass::NoneFound], context(), server(flat));
    assert_eq!(hidden.conclusion, Conclusion::Refuted);
    assert!(hidden.why.contains("there is a limit"), "{hidden:#?}");
    let many = [LimitClass::Generator; 10];
    let bounded = prove(&many, context(), server(flat));
    assert_eq!(bounded.conclusion, Conclusion::Refuted);
    let tested = bounded
        .trials
        .iter()
        .filter(|trials| matches!(trials.change.as_str(), text if text.contains("threads")));
    assert_eq!(tested.count(), HYPOTHESES_MAX);
}

#[test]
fn noise_that_hides_the_effect_is_reported() {
    let mut high = false;
    let wild = |change: Option<Change>| {
        if change.is_none() {
            high = !high;
        }
        TrialOutcome::Measured(rps(if change.is_none() && high { 2000.0 } else { 1000.0 }))
    };
    let verdict = prove_with(&[LimitClass::OneThread], context(), wild);
    assert_eq!(verdict.conclusion, Conclusion::Inconclusive, "{verdict:#?}");
    assert!(
        verdict.why.contains("too noisy: the same load gave 1000 to 2000 requests/s"),
        "{}",
        verdict.why
    );
}

/// Five servers of each kind on a machine with the noise of a small virtual one.
#[test]
fn usual_noise_leads_to_no_wrong_verdict() {
    let nearly_full = Context { idle_cores: Some(0.5), ..context() };
    let mut confirmed = 0;
    for state in 0..20 {
        for (class, context, rate) in [
            (
                LimitClass::TooFewConnections,
                context(),
                by_connections as fn(Option<Change>) -> TrialMeasurement,
            ),
            (LimitClass::AllCpus, nearly_full.clone(), all_cpus),
            (LimitClass::OneThread, context(), flat),
            (LimitClass::Generator, context(), by_generator),
        ] {
            let verdict = prove(&[class], context, Server { noise: 0.05, state, ..server(rate) });
            assert_eq!(verdict.finding.class, class, "{verdict:#?}");
            assert_ne!(verdict.conclusion, Conclusion::Refuted, "{verdict:#?}");
            confirmed += usize::from(verdict.conclusion == Conclusion::Confirmed);
        }
    }
    assert!(confirmed >= 72, "{confirmed} of 80");
}

#[test]
fn a_full_generator_hides_the_targets_behaviour() {
    let full = |change: Option<Change>| {
        let generator_limited = matches!(change, Some(Change::Connections(_)));
        TrialOutcome::Measured(TrialMeasurement { generator_limited, ..rps(1000.0) })
    };
    let verdict = prove_with(&[LimitClass::External], context(), full);
    assert_eq!(verdict.conclusion, Conclusion::Inconclusive, "{verdict:#?}");
    assert!(verdict.why.contains("the generator was the limit"), "{}", verdict.why);
}

/// The target was not measured either if the generator was the limit both with and without the
/// change.
#[test]
fn a_generator_that_is_always_full_confirms_nothing() {
    let full = |change| {
        TrialOutcome::Measured(TrialMeasurement { generator_limited: true, ..flat(change) })
    };
    for class in [LimitClass::External, LimitClass::OneThread, LimitClass::NoneFound] {
        let verdict = prove_with(&[class], context(), full);
        assert_eq!(verdict.conclusion, Conclusion::Inconclusive, "{verdict:#?}");
        assert!(verdict.why.contains("the generator was the limit"), "{}", verdict.why);
    }
    // Slices that delay the generator show nothing about the target.
    let slowed = |change: Option<Change>| {
        let burnt = matches!(change, Some(Change::BurnCpus(_)));
        TrialOutcome::Measured(TrialMeasurement { generator_limited: burnt, ..all_cpus(change) })
    };
    let verdict = prove_with(&[LimitClass::Lock], context(), slowed);
    assert_eq!(
        (verdict.finding.class, verdict.conclusion),
        (LimitClass::Lock, Conclusion::Inconclusive),
        "{verdict:#?}"
    );
}
