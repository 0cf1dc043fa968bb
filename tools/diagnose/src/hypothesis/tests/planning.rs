//! Choice of trials, and their limits.

use super::*;

#[test]
fn a_rate_with_many_failures_is_not_compared() {
    for (share, conclusion) in [(0.005, Conclusion::Confirmed), (0.2, Conclusion::Inconclusive)] {
        let failing = |change: Option<Change>| {
            let more = matches!(change, Some(Change::Connections(n)) if n > 50);
            TrialOutcome::Measured(TrialMeasurement {
                failed_share: if more { share } else { 0.0 },
                ..flat(change)
            })
        };
        let verdict = prove_with(&[LimitClass::External], context(), failing);
        assert_eq!(verdict.conclusion, conclusion, "{verdict:#?}");
        assert_eq!(
            verdict.why == "with this change 20 % failed",
            conclusion == Conclusion::Inconclusive,
            "{}",
            verdict.why
        );
    }
    // A rate with the same failures as before is compared.
    let always =
        |change| TrialOutcome::Measured(TrialMeasurement { failed_share: 0.2, ..flat(change) });
    assert_eq!(
        prove_with(&[LimitClass::External], context(), always).conclusion,
        Conclusion::Confirmed
    );
}

#[test]
fn cpus_are_burned_only_if_that_distinguishes_hypotheses() {
    let no_burning = |change| match change {
        Some(Change::BurnCpus(_)) => panic!("{change:?}"),
        other => TrialOutcome::Measured(flat(other)),
    };
    let few = Context { threads_max: 3, ..context() };
    let asked = Context { target_rps: Some(5000.0), ..context() };
    let full = Context { idle_cores: Some(0.05), ..context() };
    for (class, context, why) in [
        (LimitClass::AllCpus, Context { local: false, ..context() }, "generator's CPUs"),
        (LimitClass::Competitor, Context { local: false, ..context() }, "generator's CPUs"),
        (LimitClass::AllCpus, few.clone(), "3 of the 4 CPUs"),
        (LimitClass::Competitor, few.clone(), "3 of the 4 CPUs"),
        (LimitClass::OneThread, few, "3 of the 4 CPUs"),
        (LimitClass::AllCpus, full.clone(), "not testable here: all CPUs are in use"),
        (LimitClass::Competitor, full, "not testable here: all CPUs are in use"),
        // Idle CPUs at a requested rate do not show how many are idle when responses set the pace.
        (LimitClass::OneThread, asked, "at the asked rate only"),
        (
            LimitClass::Lock,
            Context { generator_throttled: true, ..context() },
            "holds the generator up",
        ),
    ] {
        let verdict = prove_with(&[class], context, no_burning);
        assert_eq!(
            (verdict.finding.class, verdict.conclusion),
            (class, Conclusion::Inconclusive),
            "{verdict:#?}"
        );
        assert!(verdict.why.contains(why), "{}", verdict.why);
    }
}

#[test]
fn no_trial_is_planned_twice() {
    for connections in 2..10 {
        let crowd = Context { connections, ..context() };
        let verdict =
            prove_with(&[LimitClass::OpenFiles], crowd, |_| TrialOutcome::Measured(rps(500.0)));
        let mut changes: Vec<&str> =
            verdict.trials.iter().map(|trials| trials.change.as_str()).collect();
        let all = changes.len();
        changes.dedup();
        assert!(all > 0 && changes.len() == all, "{verdict:#?}");
    }
}

/// Three workers. The single observation of unread bytes may miss some, and connections may be
/// distributed unevenly: neither implies another limit.
#[test]
fn too_few_workers_are_not_refuted_by_a_bad_observation() {
    let ten_are_too_many = |change: Option<Change>| match change {
        Some(Change::Connections(11)) => {
            TrialMeasurement { unread_share: Some(0.7), ..rps(1000.0) }
        }
        other => TrialMeasurement { unread_share: Some(0.8), ..flat(other) },
    };
    let uneven = |change: Option<Change>| match change {
        Some(Change::Connections(4)) => TrialMeasurement { unread_share: Some(0.4), ..rps(670.0) },
        other => TrialMeasurement { unread_share: Some(0.94), ..flat(other) },
    };
    for (share, rate) in
        [(0.8, ten_are_too_many as fn(Option<Change>) -> TrialMeasurement), (0.94, uneven)]
    {
        let context = Context { unread_share: Some(share), ..context() };
        let verdict =
            prove(&[LimitClass::TooFewWorkers, LimitClass::External], context, server(rate));
        let said = (verdict.finding.class, verdict.conclusion);
        assert_eq!(said, (LimitClass::TooFewWorkers, Conclusion::Inconclusive), "{verdict:#?}");
    }
    // Of four connections on three workers one more may be unread; and one observation may miss one
    // of three.
    let three = |change: Option<Change>| match change {
        Some(Change::Connections(4)) => {
            TrialMeasurement { unread_share: Some(0.25), ..rps(1000.0) }
        }
        Some(Change::Connections(3)) => TrialMeasurement { unread_share: Some(0.0), ..rps(1000.0) },
        other => TrialMeasurement { unread_share: Some(0.95), ..flat(other) },
    };
    for unread in [0.94, 0.96] {
        let context = Context { unread_share: Some(unread), ..context() };
        let verdict =
            prove(&[LimitClass::TooFewWorkers, LimitClass::External], context, server(three));
        assert_eq!(
            (verdict.finding.class, verdict.conclusion),
            (LimitClass::TooFewWorkers, Conclusion::Confirmed),
            "{verdict:#?}"
        );
    }
    // All were accepted at once, and yet the rate fell: there are more workers than that.
    let more_workers = |change: Option<Change>| match change {
        Some(Change::Connections(11)) => TrialMeasurement { unread_share: Some(0.0), ..rps(200.0) },
        other => TrialMeasurement { unread_share: Some(0.8), ..flat(other) },
    };
    let context = Context { unread_share: Some(0.8), ..context() };
    let verdict =
        prove(&[LimitClass::TooFewWorkers, LimitClass::External], context, server(more_workers));
    assert_eq!(verdict.finding.class, LimitClass::External, "{verdict:#?}");
}

#[test]
fn an_unchangeable_limit_is_not_testable_and_names_a_manual_test() {
    for class in
        [LimitClass::Steal, LimitClass::Memory, LimitClass::PacketLoss, LimitClass::KernelTable]
    {
        let verdict = prove_with(&[class], context(), |change| panic!("{change:?}"));
        assert_eq!(
            (verdict.finding.class, verdict.conclusion),
            (class, Conclusion::Inconclusive),
            "{verdict:#?}"
        );
        assert!(
            verdict.why.contains("test it") || verdict.why.contains("repeat"),
            "{}",
            verdict.why
        );
    }
    // A reached limit does not show which limit it is.
    let far = Context { local: false, idle_cores: None, ..context() };
    let verdict = prove(&[LimitClass::External], far, server(flat));
    assert_eq!(verdict.conclusion, Conclusion::Inconclusive, "{verdict:#?}");
    let head = |change: Option<Change>| match change {
        Some(Change::Head) => TrialOutcome::Impossible("405".to_owned()),
        other => TrialOutcome::Measured(flat(other)),
    };
    let verdict = prove_with(&[LimitClass::Bandwidth], context(), head);
    assert_eq!(
        (verdict.conclusion, verdict.why.as_str()),
        (Conclusion::Inconclusive, "405"),
        "{verdict:#?}"
    );
    let kept = Context { target_rps: Some(1000.0), kept: true, ..context() };
    let verdict = prove_with(&[LimitClass::OneThread], kept, |change| panic!("{change:?}"));
    assert!(
        verdict.conclusion == Conclusion::Inconclusive && verdict.why.contains("was kept"),
        "{verdict:#?}"
    );
    let asked =
        Context { target_rps: Some(1000.0), kept: true, target_max_rps: Some(1100.0), ..context() };
    assert_eq!(
        prove(&[LimitClass::NoneFound], asked, server(flat)).conclusion,
        Conclusion::Inconclusive
    );
}

/// With kept connections, some are dropped while they are opened, and then hundreds of times as
/// many answers arrive.
#[test]
fn dropped_connections_are_weighed_against_answers() {
    let listener = |change: Option<Change>| match change {
        Some(Change::Keepalive) => TrialMeasurement { overflows_per_s: 60.0, ..rps(30_000.0) },
        _ => TrialMeasurement { overflows_per_s: 140.0, ..rps(190.0) },
    };
    let each = Context { keepalive: false, ..context() };
    let verdict = prove(&[LimitClass::AcceptQueue], each, server(listener));
    assert_eq!(verdict.conclusion, Conclusion::Confirmed, "{verdict:#?}");
    assert!(
        verdict.why.contains("0.2 dropped connections per 100 answers instead of 7"),
        "{}",
        verdict.why
    );
}

#[test]
fn an_effect_without_a_change_of_its_cause_is_not_confirmed() {
    let each = Context { keepalive: false, ..context() };
    let elsewhere = |change: Option<Change>| match change {
        Some(Change::Keepalive) => TrialMeasurement { overflows_per_s: 2.0, ..rps(30_000.0) },
        _ => TrialMeasurement { overflows_per_s: 2.0, ..rps(190.0) },
    };
    let verdict = prove(&[LimitClass::AcceptQueue], each.clone(), server(elsewhere));
    assert_eq!(verdict.conclusion, Conclusion::Refuted, "{verdict:#?}");
    let fails_instead = |change: Option<Change>| match change {
        None => TrialMeasurement { overflows_per_s: 140.0, ..rps(190.0) },
        _ => TrialMeasurement { failed_share: 0.4, ..rps(190.0) },
    };
    let verdict = prove(&[LimitClass::AcceptQueue], each, server(fails_instead));
    assert_eq!(verdict.conclusion, Conclusion::Inconclusive, "{verdict:#?}");
}

#[test]
fn an_interrupted_test_keeps_its_measurements() {
    let mut loads = 0;
    let verdict = prove_with(&[LimitClass::External, LimitClass::AllCpus], context(), |change| {
        loads += 1;
        if loads > 4 {
            TrialOutcome::Over("interrupted".to_owned())
        } else {
            TrialOutcome::Measured(flat(change))
        }
    });
    assert_eq!(
        (verdict.conclusion, verdict.why.as_str()),
        (Conclusion::Inconclusive, "interrupted"),
        "{verdict:#?}"
    );
    // Sufficient measurements are not discarded.
    let mut loads = 0;
    let verdict = prove_with(&[LimitClass::TooFewConnections], context(), |change| {
        loads += 1;
        if loads > 4 {
            TrialOutcome::Over("interrupted".to_owned())
        } else {
            TrialOutcome::Measured(by_connections(change))
        }
    });
    assert_eq!(verdict.conclusion, Conclusion::Confirmed);
    assert_eq!(
        prove_with(&[], context(), |_| TrialOutcome::Over(String::new())).conclusion,
        Conclusion::Inconclusive
    );
}
