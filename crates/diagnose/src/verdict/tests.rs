//! Suspicions are tested on simulated servers whose limit is known.

use super::*;

/// What limits a simulated set-up: requests per second for each change.
struct Server {
    rate: fn(Option<Change>) -> Measured,
    /// Relative size of the noise, and its state.
    noise: f64,
    state: u64,
    loads: usize,
}

fn rps(rate_rps: f64) -> Measured {
    Measured { rate_rps, ..Measured::default() }
}

fn server(rate: fn(Option<Change>) -> Measured) -> Server {
    Server { rate, noise: 0.02, state: 7, loads: 0 }
}

impl Server {
    fn load(&mut self, change: Option<Change>) -> Measured {
        self.loads += 1;
        // A linear congruential generator (Knuth's MMIX); noise in −1…1.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = (self.state >> 33) as f64 / f64::from(1_u32 << 30) - 1.0;
        let measured = (self.rate)(change);
        Measured { rate_rps: measured.rate_rps * (1.0 + self.noise * noise), ..measured }
    }
}

fn scene() -> Scene {
    Scene {
        connections: 50,
        connections_max: 10_000,
        threads: 1,
        threads_max: 4,
        asked_rps: None,
        asked_most_rps: None,
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

fn finding(class: Class, confidence: f64) -> Finding {
    Finding { class, confidence, evidence: vec!["seen".to_owned()], counterfactual: "more of it".to_owned() }
}

fn prove_with(findings: &[Class], scene: Scene, mut load: impl FnMut(Option<Change>) -> Heard) -> Verdict {
    let findings = findings.iter().map(|class| finding(*class, 0.8)).collect();
    let (mut prover, mut heard) = (Prover::new(findings, scene), None);
    for _ in 0..200 {
        match prover.next(heard) {
            Step::Done(verdict) => return *verdict,
            Step::Load { change, .. } => heard = Some(load(change)),
        }
    }
    panic!("it does not end: {prover:?}")
}

fn prove(findings: &[Class], scene: Scene, mut server: Server) -> Verdict {
    prove_with(findings, scene, |change| Heard::Measured(server.load(change)))
}

/// More connections than 50 bring what they bring, burning CPUs costs nothing.
fn flat(change: Option<Change>) -> Measured {
    match change {
        Some(Change::Connections(n)) => rps(1000.0 * (n as f64 / 50.0).min(1.0)),
        _ => rps(1000.0),
    }
}

fn all_cpus(change: Option<Change>) -> Measured {
    match change {
        Some(Change::BurnCpus(cores)) => rps(1000.0 * (1.0 - cores / 4.0)),
        other => flat(other),
    }
}

fn by_connections(change: Option<Change>) -> Measured {
    match change {
        Some(Change::Connections(n)) => rps(20.0 * n as f64),
        _ => rps(1000.0),
    }
}

fn by_generator(change: Option<Change>) -> Measured {
    match change {
        Some(Change::GeneratorThreads(n)) => rps(1000.0 * n as f64),
        Some(Change::BurnGenerator(share)) => rps(1000.0 / (1.0 + share)),
        other => flat(other),
    }
}

#[test]
fn what_is_true_is_confirmed() {
    let full = Scene { idle_cores: Some(0.05), ..scene() };
    for (class, scene, server) in [
        (Class::TooFewConnections, scene(), server(by_connections)),
        (Class::AllCpus, full.clone(), server(all_cpus)),
        (Class::Competitor, full, server(all_cpus)),
        (Class::OneThread, scene(), server(flat)),
        (Class::Lock, scene(), server(flat)),
        (Class::Throttled, scene(), server(flat)),
        (Class::External, scene(), server(flat)),
        (Class::Disk, scene(), server(flat)),
        (Class::Proxy, scene(), server(flat)),
        (Class::Generator, scene(), server(by_generator)),
        (Class::Generator, Scene { generator_throttled: true, ..scene() }, server(by_generator)),
        (
            Class::Throttled,
            Scene { quota: true, ..scene() },
            server(|change| if change == Some(Change::Quota(0.8)) { rps(810.0) } else { flat(change) }),
        ),
        (
            Class::Bandwidth,
            scene(),
            server(|change| if change == Some(Change::Head) { rps(5000.0) } else { flat(change) }),
        ),
        (
            Class::TooFewWorkers,
            Scene { unread_share: Some(0.8), ..scene() },
            server(|change| match change {
                Some(Change::Connections(11)) => Measured { unread_share: Some(0.0), ..rps(980.0) },
                other => Measured { unread_share: Some(0.8), ..flat(other) },
            }),
        ),
        (
            Class::AcceptQueue,
            Scene { keepalive: false, ..scene() },
            server(|change| match change {
                Some(Change::Keepalive | Change::Connections(12)) => rps(2000.0),
                _ => Measured { failed_share: 0.1, overflows_per_s: 50.0, ..rps(500.0) },
            }),
        ),
        (
            Class::OpenFiles,
            scene(),
            server(|change| match change {
                Some(Change::Connections(12)) => rps(400.0),
                _ => Measured { failed_share: 0.5, ..rps(500.0) },
            }),
        ),
        (
            Class::NoneFound,
            Scene { asked_rps: Some(1000.0), kept: true, ..scene() },
            server(|change| if change == Some(Change::Rate(1.3)) { rps(1300.0) } else { rps(1000.0) }),
        ),
    ] {
        let verdict = prove(&[class], scene, server);
        assert_eq!((verdict.finding.class, verdict.proof), (class, Proof::Confirmed), "{verdict:#?}");
        assert!(verdict.finding.confidence >= CONFIRMED_LEAST && !verdict.tried.is_empty(), "{verdict:#?}");
        assert!(verdict.noise.is_some_and(|noise| noise.share() < 0.05), "{verdict:#?}");
    }
}

/// What is named first is wrong; what is right comes next, also when only the trial shows it.
#[test]
fn a_wrong_first_guess_leads_to_the_right_one() {
    let full = Scene { idle_cores: Some(0.05), ..scene() };
    let nearly_full = Scene { idle_cores: Some(0.9), ..scene() };
    for (guesses, scene, server, right) in [
        (&[Class::External][..], scene(), server(by_connections), Class::TooFewConnections),
        (&[Class::OneThread, Class::TooFewConnections], scene(), server(by_connections), Class::TooFewConnections),
        (&[Class::NoneFound], scene(), server(by_connections), Class::TooFewConnections),
        (&[Class::Lock], nearly_full, server(all_cpus), Class::AllCpus),
        (&[Class::Generator, Class::AllCpus], full, server(all_cpus), Class::AllCpus),
        (&[Class::Generator, Class::OneThread], scene(), server(flat), Class::OneThread),
        (&[Class::TooFewConnections, Class::External], scene(), server(flat), Class::External),
        (
            // Busy with something else, at a rate that is easily kept.
            &[Class::AllCpus],
            Scene { asked_rps: Some(1000.0), kept: true, ..scene() },
            server(|change| rps(if change == Some(Change::Rate(1.3)) { 1300.0 } else { 1000.0 })),
            Class::NoneFound,
        ),
        (&[Class::Bandwidth, Class::OneThread], scene(), server(flat), Class::OneThread),
    ] {
        let full_machine = matches!(right, Class::AllCpus);
        let scene = if full_machine { Scene { threads: 4, ..scene } } else { scene };
        let verdict = prove(guesses, scene, server);
        let settled = (verdict.finding.class, verdict.proof);
        if guesses == [Class::Generator, Class::AllCpus] {
            // With full CPUs and no thread to add, nothing tells the generator from the target beside it.
            assert_eq!(settled, (Class::Generator, Proof::NotTestable), "{verdict:#?}");
        } else {
            assert_eq!(settled, (right, Proof::Confirmed), "{verdict:#?}");
            assert!(verdict.tried.iter().any(|tried| tried.proof == Proof::Refuted), "{verdict:#?}");
        }
    }
}

/// Half of the CPUs are idle: that the slices meet the one thread that works does not make the CPUs the limit.
#[test]
fn slices_that_meet_a_single_thread_accuse_no_cpus() {
    let met = |part: f64| {
        move |change: Option<Change>| match change {
            Some(Change::BurnCpus(cores)) => Heard::Measured(rps(1000.0 * (1.0 - part * cores / 4.0))),
            other => Heard::Measured(flat(other)),
        }
    };
    let verdict = prove_with(&[Class::Lock], scene(), met(0.6));
    assert_eq!((verdict.finding.class, verdict.proof), (Class::Lock, Proof::NotTestable), "{verdict:#?}");
    let verdict = prove_with(&[Class::Lock], scene(), met(1.0));
    assert_eq!((verdict.finding.class, verdict.proof), (Class::Lock, Proof::Refuted), "{verdict:#?}");
}

#[test]
fn when_all_are_refuted_none_is_named_with_certainty() {
    let verdict = prove(&[Class::TooFewConnections, Class::Generator, Class::Bandwidth], scene(), server(flat));
    assert_eq!(verdict.proof, Proof::Refuted, "{verdict:#?}");
    assert!(verdict.finding.confidence <= REFUTED_MOST && verdict.why.contains("refuted too"), "{verdict:#?}");
    let hidden = prove(&[Class::NoneFound], scene(), server(flat));
    assert_eq!(hidden.proof, Proof::Refuted);
    assert!(hidden.why.contains("there is a limit"), "{hidden:#?}");
    let many = [Class::Generator; 10];
    let bounded = prove(&many, scene(), server(flat));
    assert_eq!(bounded.proof, Proof::Refuted);
    let tested = bounded.tried.iter().filter(|tried| matches!(tried.change.as_str(), text if text.contains("threads")));
    assert_eq!(tested.count(), GUESSES_MAX);
}

#[test]
fn noise_that_hides_the_effect_is_told() {
    let mut high = false;
    let wild = |change: Option<Change>| {
        if change.is_none() {
            high = !high;
        }
        Heard::Measured(rps(if change.is_none() && high { 2000.0 } else { 1000.0 }))
    };
    let verdict = prove_with(&[Class::OneThread], scene(), wild);
    assert_eq!(verdict.proof, Proof::NotTestable, "{verdict:#?}");
    assert!(verdict.why.contains("too noisy: the same load gave 1000 to 2000 requests/s"), "{}", verdict.why);
}

/// Five servers of each kind on a machine with as much noise as a small virtual one has.
#[test]
fn usual_noise_leads_to_no_wrong_verdict() {
    let full = Scene { idle_cores: Some(0.05), ..scene() };
    let mut confirmed = 0;
    for state in 0..20 {
        for (class, scene, rate) in [
            (Class::TooFewConnections, scene(), by_connections as fn(Option<Change>) -> Measured),
            (Class::AllCpus, full.clone(), all_cpus),
            (Class::OneThread, scene(), flat),
            (Class::Generator, scene(), by_generator),
        ] {
            let verdict = prove(&[class], scene, Server { noise: 0.05, state, ..server(rate) });
            assert_eq!(verdict.finding.class, class, "{verdict:#?}");
            assert_ne!(verdict.proof, Proof::Refuted, "{verdict:#?}");
            confirmed += usize::from(verdict.proof == Proof::Confirmed);
        }
    }
    assert!(confirmed >= 72, "{confirmed} of 80");
}

#[test]
fn a_generator_that_is_full_hides_what_the_target_would_do() {
    let full = |change: Option<Change>| {
        let generator_limited = matches!(change, Some(Change::Connections(_)));
        Heard::Measured(Measured { generator_limited, ..rps(1000.0) })
    };
    let verdict = prove_with(&[Class::External], scene(), full);
    assert_eq!(verdict.proof, Proof::NotTestable, "{verdict:#?}");
    assert!(verdict.why.contains("the generator was the limit"), "{}", verdict.why);
}

/// Nor is it the target that was measured when the generator was the limit with and without the change.
#[test]
fn a_generator_that_is_always_full_confirms_nothing() {
    let full = |change| Heard::Measured(Measured { generator_limited: true, ..flat(change) });
    for class in [Class::External, Class::OneThread, Class::NoneFound] {
        let verdict = prove_with(&[class], scene(), full);
        assert_eq!(verdict.proof, Proof::NotTestable, "{verdict:#?}");
        assert!(verdict.why.contains("the generator was the limit"), "{}", verdict.why);
    }
    // Slices that keep the generator from running say nothing of the target.
    let slowed = |change: Option<Change>| {
        let burnt = matches!(change, Some(Change::BurnCpus(_)));
        Heard::Measured(Measured { generator_limited: burnt, ..all_cpus(change) })
    };
    let verdict = prove_with(&[Class::Lock], scene(), slowed);
    assert_eq!((verdict.finding.class, verdict.proof), (Class::Lock, Proof::NotTestable), "{verdict:#?}");
}

#[test]
fn a_rate_of_which_much_fails_is_not_compared() {
    for (share, proof) in [(0.005, Proof::Confirmed), (0.2, Proof::NotTestable)] {
        let failing = |change: Option<Change>| {
            let more = matches!(change, Some(Change::Connections(n)) if n > 50);
            Heard::Measured(Measured { failed_share: if more { share } else { 0.0 }, ..flat(change) })
        };
        let verdict = prove_with(&[Class::External], scene(), failing);
        assert_eq!(verdict.proof, proof, "{verdict:#?}");
        assert_eq!(verdict.why == "with this change 20 % failed", proof == Proof::NotTestable, "{}", verdict.why);
    }
    // What fails as it did before is compared.
    let always = |change| Heard::Measured(Measured { failed_share: 0.2, ..flat(change) });
    assert_eq!(prove_with(&[Class::External], scene(), always).proof, Proof::Confirmed);
}

#[test]
fn cpus_are_taken_only_where_that_tells_something() {
    let no_burning = |change| match change {
        Some(Change::BurnCpus(_)) => panic!("{change:?}"),
        other => Heard::Measured(flat(other)),
    };
    let few = Scene { threads_max: 3, ..scene() };
    let asked = Scene { asked_rps: Some(5000.0), ..scene() };
    for (class, scene, why) in [
        (Class::AllCpus, Scene { local: false, ..scene() }, "generator's CPUs"),
        (Class::Competitor, Scene { local: false, ..scene() }, "generator's CPUs"),
        (Class::AllCpus, few.clone(), "3 of the 4 CPUs"),
        (Class::Competitor, few.clone(), "3 of the 4 CPUs"),
        (Class::OneThread, few, "3 of the 4 CPUs"),
        // Idle at a rate that was asked for says not how many are idle when answers set the pace.
        (Class::OneThread, asked, "at the asked rate only"),
        (Class::Lock, Scene { generator_throttled: true, ..scene() }, "holds the generator up"),
    ] {
        let verdict = prove_with(&[class], scene, no_burning);
        assert_eq!((verdict.finding.class, verdict.proof), (class, Proof::NotTestable), "{verdict:#?}");
        assert!(verdict.why.contains(why), "{}", verdict.why);
    }
}

#[test]
fn no_trial_is_planned_twice() {
    for connections in 2..10 {
        let crowd = Scene { connections, ..scene() };
        let verdict = prove_with(&[Class::OpenFiles], crowd, |_| Heard::Measured(rps(500.0)));
        let mut changes: Vec<&str> = verdict.tried.iter().map(|tried| tried.change.as_str()).collect();
        let all = changes.len();
        changes.dedup();
        assert!(all > 0 && changes.len() == all, "{verdict:#?}");
    }
}

/// Three workers. The one look at what lies unread may find less than there is, and connections may be spread unevenly: neither says that
/// it is something else.
#[test]
fn workers_are_not_acquitted_by_a_bad_look() {
    let ten_are_too_many = |change: Option<Change>| match change {
        Some(Change::Connections(11)) => Measured { unread_share: Some(0.7), ..rps(1000.0) },
        other => Measured { unread_share: Some(0.8), ..flat(other) },
    };
    let uneven = |change: Option<Change>| match change {
        Some(Change::Connections(4)) => Measured { unread_share: Some(0.4), ..rps(670.0) },
        other => Measured { unread_share: Some(0.94), ..flat(other) },
    };
    for (share, rate) in [(0.8, ten_are_too_many as fn(Option<Change>) -> Measured), (0.94, uneven)] {
        let scene = Scene { unread_share: Some(share), ..scene() };
        let verdict = prove(&[Class::TooFewWorkers, Class::External], scene, server(rate));
        let said = (verdict.finding.class, verdict.proof);
        assert_eq!(said, (Class::TooFewWorkers, Proof::NotTestable), "{verdict:#?}");
    }
    // One more of four connections may be unread on three workers; and one look may miss one of three.
    let three = |change: Option<Change>| match change {
        Some(Change::Connections(4)) => Measured { unread_share: Some(0.25), ..rps(1000.0) },
        Some(Change::Connections(3)) => Measured { unread_share: Some(0.0), ..rps(1000.0) },
        other => Measured { unread_share: Some(0.95), ..flat(other) },
    };
    for unread in [0.94, 0.96] {
        let scene = Scene { unread_share: Some(unread), ..scene() };
        let verdict = prove(&[Class::TooFewWorkers, Class::External], scene, server(three));
        assert_eq!((verdict.finding.class, verdict.proof), (Class::TooFewWorkers, Proof::Confirmed), "{verdict:#?}");
    }
    // All were taken at once, and yet less was done: there are more workers than that.
    let more_workers = |change: Option<Change>| match change {
        Some(Change::Connections(11)) => Measured { unread_share: Some(0.0), ..rps(200.0) },
        other => Measured { unread_share: Some(0.8), ..flat(other) },
    };
    let scene = Scene { unread_share: Some(0.8), ..scene() };
    let verdict = prove(&[Class::TooFewWorkers, Class::External], scene, server(more_workers));
    assert_eq!(verdict.finding.class, Class::External, "{verdict:#?}");
}

#[test]
fn what_cannot_be_changed_from_here_is_not_testable_and_says_how() {
    for class in [Class::Steal, Class::Memory, Class::PacketLoss, Class::KernelTable] {
        let verdict = prove_with(&[class], scene(), |change| panic!("{change:?}"));
        assert_eq!((verdict.finding.class, verdict.proof), (class, Proof::NotTestable), "{verdict:#?}");
        assert!(verdict.why.contains("test it") || verdict.why.contains("repeat"), "{}", verdict.why);
    }
    // That a limit is reached says not which.
    let far = Scene { local: false, idle_cores: None, ..scene() };
    let verdict = prove(&[Class::External], far, server(flat));
    assert_eq!(verdict.proof, Proof::NotTestable, "{verdict:#?}");
    let head = |change: Option<Change>| match change {
        Some(Change::Head) => Heard::Impossible("405".to_owned()),
        other => Heard::Measured(flat(other)),
    };
    let verdict = prove_with(&[Class::Bandwidth], scene(), head);
    assert_eq!((verdict.proof, verdict.why.as_str()), (Proof::NotTestable, "405"), "{verdict:#?}");
    let kept = Scene { asked_rps: Some(1000.0), kept: true, ..scene() };
    let verdict = prove_with(&[Class::OneThread], kept, |change| panic!("{change:?}"));
    assert!(verdict.proof == Proof::NotTestable && verdict.why.contains("was kept"), "{verdict:#?}");
    let asked = Scene { asked_rps: Some(1000.0), kept: true, asked_most_rps: Some(1100.0), ..scene() };
    assert_eq!(prove(&[Class::NoneFound], asked, server(flat)).proof, Proof::NotTestable);
}

/// As where connections are kept: some are dropped while they are opened, and then hundreds of times the answers come.
#[test]
fn dropped_connections_are_weighed_against_answers() {
    let listener = |change: Option<Change>| match change {
        Some(Change::Keepalive) => Measured { overflows_per_s: 60.0, ..rps(30_000.0) },
        _ => Measured { overflows_per_s: 140.0, ..rps(190.0) },
    };
    let each = Scene { keepalive: false, ..scene() };
    let verdict = prove(&[Class::AcceptQueue], each, server(listener));
    assert_eq!(verdict.proof, Proof::Confirmed, "{verdict:#?}");
    assert!(verdict.why.contains("0.2 dropped connections per 100 answers instead of 7"), "{}", verdict.why);
}

#[test]
fn what_a_change_leaves_as_it_was_is_not_what_it_ended() {
    let each = Scene { keepalive: false, ..scene() };
    let elsewhere = |change: Option<Change>| match change {
        Some(Change::Keepalive) => Measured { overflows_per_s: 2.0, ..rps(30_000.0) },
        _ => Measured { overflows_per_s: 2.0, ..rps(190.0) },
    };
    let verdict = prove(&[Class::AcceptQueue], each.clone(), server(elsewhere));
    assert_eq!(verdict.proof, Proof::Refuted, "{verdict:#?}");
    let fails_instead = |change: Option<Change>| match change {
        None => Measured { overflows_per_s: 140.0, ..rps(190.0) },
        _ => Measured { failed_share: 0.4, ..rps(190.0) },
    };
    let verdict = prove(&[Class::AcceptQueue], each, server(fails_instead));
    assert_eq!(verdict.proof, Proof::NotTestable, "{verdict:#?}");
}

#[test]
fn it_can_be_broken_off_and_keeps_what_it_has() {
    let mut loads = 0;
    let verdict = prove_with(&[Class::External, Class::AllCpus], scene(), |change| {
        loads += 1;
        if loads > 4 { Heard::Over("interrupted".to_owned()) } else { Heard::Measured(flat(change)) }
    });
    assert_eq!((verdict.proof, verdict.why.as_str()), (Proof::NotTestable, "interrupted"), "{verdict:#?}");
    // What was measured often enough is not thrown away.
    let mut loads = 0;
    let verdict = prove_with(&[Class::TooFewConnections], scene(), |change| {
        loads += 1;
        if loads > 4 { Heard::Over("interrupted".to_owned()) } else { Heard::Measured(by_connections(change)) }
    });
    assert_eq!(verdict.proof, Proof::Confirmed);
    assert_eq!(prove_with(&[], scene(), |_| Heard::Over(String::new())).proof, Proof::NotTestable);
}
