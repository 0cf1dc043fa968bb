//! Limits that look alike: idle CPUs with waiting threads, or full CPUs. Samples have the rounded
//! numbers of planted bottlenecks on two CPUs; those of a stolen CPU are from a run.

use super::*;
use crate::samples::{Connections, OtherProcess, Wait, WaitReason};

const BACKEND: &str = "10.0.0.5:5432";

/// A closed loop of 32 connections, with these waits of threads.
fn waiting(busy: f64, service: &[f64], waits: &[(WaitReason, f64)]) -> Samples {
    let waits =
        waits.iter().map(|(what, threads)| Wait { what: *what, threads: *threads }).collect();
    let service =
        WatchedProcess { waits, unread_share: Some(0.0), ..process(10, Role::Service, service) };
    Samples {
        cores: vec![CpuShares { busy, ..CpuShares::default() }; 2],
        processes: vec![service, process(11, Role::Generator, &[0.06])],
        load: Some(GeneratorLoad {
            connections: 32,
            rate: 4000.0,
            target_rate: None,
            service_time: Duration::from_millis(8),
            was_the_limit: false,
            ..GeneratorLoad::default()
        }),
        ..quiet(busy)
    }
}

fn first(samples: &Samples) -> (LimitClass, f64) {
    let finding = &evaluate(samples)[0];
    (finding.class, finding.confidence)
}

fn says(samples: &Samples, class: LimitClass) -> Option<f64> {
    evaluate(samples)
        .iter()
        .find(|finding| finding.class == class)
        .map(|finding| finding.confidence)
}

/// The work under a lock: one CPU, spread over all threads.
fn locked() -> Samples {
    waiting(0.62, &[0.035; 32], &[(WaitReason::Lock, 30.0), (WaitReason::Client, 0.6)])
}

#[test]
fn a_lock_is_named_by_the_threads_that_wait_for_each_other() {
    let (class, confidence) = first(&locked());
    assert!(class == LimitClass::Lock && confidence > 0.9, "{:#?}", evaluate(&locked()));
    // Eight workers, and unread requests: more workers would only wait too.
    let mut pool = waiting(0.62, &[0.14; 8], &[(WaitReason::Lock, 6.8)]);
    pool.processes[0].unread_share = Some(0.75);
    assert_eq!((first(&pool).0, says(&pool, LimitClass::TooFewWorkers)), (LimitClass::Lock, None));
    // A kept open loop is at no limit; one limited by the generator proves nothing.
    for change in [
        (|load| GeneratorLoad { target_rate: Some(4000.0), ..load })
            as fn(GeneratorLoad) -> GeneratorLoad,
        |load| GeneratorLoad { was_the_limit: true, ..load },
    ] {
        let mut samples = locked();
        samples.load = samples.load.map(change);
        assert_eq!(says(&samples, LimitClass::Lock), None);
    }
}

/// A sleeping thread does not wait for the peers of its connections.
#[test]
fn sleeping_threads_wait_for_no_peer() {
    let mut samples = waiting(0.1, &[0.01; 3], &[(WaitReason::Time, 2.9)]);
    samples.processes[0].peers = vec![Peer { address: BACKEND.parse().unwrap(), connections: 8 }];
    let external = evaluate(&samples)
        .into_iter()
        .find(|finding| finding.class == LimitClass::External)
        .unwrap();
    assert!(
        !external.counterfactual.contains(BACKEND) && external.counterfactual.contains("a sleep"),
        "{external:#?}"
    );
    assert!(external.evidence.iter().all(|line| !line.contains(BACKEND)), "{external:#?}");
    samples.processes[0].waits.clear();
    let external = evaluate(&samples)
        .into_iter()
        .find(|finding| finding.class == LimitClass::External)
        .unwrap();
    assert!(external.counterfactual.contains(BACKEND), "{external:#?}");
}

/// Idle threads wait on the same call as those that wait for a lock.
#[test]
fn an_idle_pool_is_no_lock() {
    // A runtime with a parked thread per CPU that waits for a database.
    let mut samples =
        waiting(0.2, &[0.1, 0.1], &[(WaitReason::Events, 1.0), (WaitReason::Lock, 1.0)]);
    samples.processes[0].peers = vec![Peer { address: BACKEND.parse().unwrap(), connections: 8 }];
    assert_eq!((first(&samples).0, says(&samples, LimitClass::Lock)), (LimitClass::External, None));
    // The same with a large pool for other work: less confidence, mostly in the lock.
    samples.processes[0].waits.push(Wait { what: WaitReason::Lock, threads: 64.0 });
    assert_eq!(first(&samples).0, LimitClass::External, "{:#?}", evaluate(&samples));
    // A thread that waits for work while its loop is busy.
    let busy = waiting(0.55, &[0.99, 0.0], &[(WaitReason::Lock, 16.0)]);
    assert_eq!(first(&busy).0, LimitClass::OneThread);
}

#[test]
fn the_awaited_peer_decides_among_waiting_threads() {
    let backend = WaitReason::Peer(Some(BACKEND.parse().unwrap()));
    // A pool of four connections to a database, for which the others queue.
    let mut pooled = waiting(0.1, &[0.005; 32], &[(WaitReason::Lock, 27.8), (backend, 3.9)]);
    pooled.processes[0].peers = vec![
        Peer { address: "10.0.0.9:80".parse().unwrap(), connections: 9 },
        Peer { address: BACKEND.parse().unwrap(), connections: 4 },
    ];
    let findings = evaluate(&pooled);
    assert_eq!(
        (findings[0].class, says(&pooled, LimitClass::Lock)),
        (LimitClass::External, None),
        "{findings:#?}"
    );
    assert!(
        findings[0].counterfactual.contains(BACKEND),
        "the one that is waited for: {findings:#?}"
    );
    // A disk that is not busy, but whose group is limited in its writes.
    let mut slow = waiting(0.05, &[0.002; 16], &[(WaitReason::Disk, 15.9)]);
    (slow.io_pressure, slow.disks[0].utilisation) = (Some(0.99), 0.05);
    assert!(
        matches!(first(&slow), (LimitClass::Disk, confidence) if confidence > 0.9),
        "{:#?}",
        evaluate(&slow)
    );
    // Neither of them if the rate is kept.
    for mut samples in [pooled, slow] {
        samples.load =
            samples.load.map(|load| GeneratorLoad { target_rate: Some(load.rate), ..load });
        assert_eq!(first(&samples).0, LimitClass::NoneFound, "{:#?}", evaluate(&samples));
    }
}

#[test]
fn workers_are_too_few_if_more_of_them_would_not_wait() {
    let unread = |what| {
        let mut samples = waiting(0.06, &[0.01; 3], &[(what, 2.9)]);
        samples.processes[0].unread_share = Some(0.94);
        samples
    };
    assert!(matches!(
        first(&unread(WaitReason::Time)),
        (LimitClass::TooFewWorkers, confidence) if confidence > 0.9
    ));
    // It is unknown whether the peer serves more requests at once; that threads wait for it is
    // known.
    let peer = unread(WaitReason::Peer(Some(BACKEND.parse().unwrap())));
    assert_eq!(first(&peer).0, LimitClass::External, "{:#?}", evaluate(&peer));
    assert!(says(&peer, LimitClass::TooFewWorkers).is_some_and(|confidence| confidence < 0.7));
    let mut disk = unread(WaitReason::Disk);
    disk.io_pressure = Some(0.9);
    assert_eq!((first(&disk).0, says(&disk, LimitClass::TooFewWorkers)), (LimitClass::Disk, None));
}

#[test]
fn a_full_machine_is_attributed_to_the_service_or_a_competitor() {
    let full = |others: &[(&str, f64)], service: f64| {
        let mut samples = waiting(1.0, &[service / 2.0; 2], &[]);
        samples.processes[0]
            .threads
            .iter_mut()
            .for_each(|thread| thread.waited = Some(1.0 - thread.busy));
        let other = |(name, cores): &(&str, f64)| OtherProcess {
            pid: 99,
            name: (*name).to_owned(),
            processes: 1,
            cores: *cores,
        };
        samples.others = others.iter().map(other).collect();
        samples
    };
    assert_eq!(first(&full(&[("bash", 0.02)], 1.9)).0, LimitClass::AllCpus);
    let disturbed = full(&[("cc1plus", 0.5), ("ld", 0.5)], 0.9);
    assert!(
        matches!(first(&disturbed), (LimitClass::Competitor, confidence) if confidence > 0.9),
        "{disturbed:#?}"
    );
    assert!(says(&disturbed, LimitClass::AllCpus).is_some_and(|confidence| confidence < 0.6));
    // Work of kernel threads is done for processes that use the network.
    assert_eq!(first(&full(&[("[ksoftirqd/0]", 0.8)], 1.1)).0, LimitClass::AllCpus);
    // A child of a minute that a shell has just reaped counts for no more CPU than the machine has.
    assert_eq!(first(&full(&[("sh", 30.0)], 1.7)).0, LimitClass::AllCpus);
    // Other processes were not examined, or disturb no process.
    assert_eq!(says(&full(&[], 0.9), LimitClass::Competitor), None);
    let mut elsewhere = disturbed;
    elsewhere.processes.remove(0);
    assert_eq!(says(&elsewhere, LimitClass::Competitor), None);
}

#[test]
fn a_link_without_a_known_bandwidth_is_full_when_answers_queue_before_it() {
    let queue = |rtt_ms: u64, link: &str| {
        let mut samples = waiting(0.05, &[0.01; 16], &[(WaitReason::Client, 15.9)]);
        samples.processes[0].unsent_share = Some(0.98);
        let carried = Link { received_bits_per_s: 95e6, name: link.to_owned(), ..Link::default() };
        samples.links =
            vec![carried, Link { name: "lo".to_owned(), sent_bits_per_s: 1e9, ..Link::default() }];
        let (rtt, rtt_min) = (Duration::from_millis(rtt_ms), Duration::from_millis(20));
        samples.connections =
            Some(Connections { count: 16, rtt, rtt_min, ..Connections::default() });
        samples
    };
    let full = queue(90, "eth0");
    assert!(
        matches!(first(&full), (LimitClass::Bandwidth, confidence) if confidence > 0.9),
        "{:#?}",
        evaluate(&full)
    );
    // A long path, not a full one; and a loopback, which has no relevant bandwidth.
    assert_eq!(says(&queue(21, "eth0"), LimitClass::Bandwidth), None);
    assert_eq!(says(&queue(90, "lo"), LimitClass::Bandwidth), None);
    // Without round-trip times: lower confidence.
    let mut blind = full.clone();
    blind.connections = None;
    assert!(says(&blind, LimitClass::Bandwidth).is_some_and(|confidence| confidence < 0.7));
    // A service that is too slow, or a generator that does not read.
    let mut slow = full.clone();
    slow.processes[0].threads[0].busy = 0.95;
    assert_eq!(says(&slow, LimitClass::Bandwidth), None);
    let mut unread = full;
    unread.load = unread.load.map(|load| GeneratorLoad { was_the_limit: true, ..load });
    assert_eq!(says(&unread, LimitClass::Bandwidth), None);
}

#[test]
fn one_request_at_a_time_never_needs_a_second_thread() {
    let mut samples = waiting(0.55, &[0.96], &[(WaitReason::Client, 0.03)]);
    let service_time = Duration::from_micros(250);
    samples.load = Some(GeneratorLoad {
        connections: 1,
        rate: 3900.0,
        service_time,
        ..GeneratorLoad::default()
    });
    assert_eq!(
        (first(&samples).0, says(&samples, LimitClass::OneThread)),
        (LimitClass::TooFewConnections, None)
    );
    // With two connections it could; and an open loop may send several requests at once on one.
    samples.load = samples.load.map(|load| GeneratorLoad { connections: 2, ..load });
    assert!(says(&samples, LimitClass::OneThread).is_some());
}

/// Other processes take nothing from a service that does not need it.
#[test]
fn a_service_that_waits_is_not_limited_by_full_cpus() {
    let busy = |mut samples: Samples| {
        samples.cores = vec![CpuShares { busy: 1.0, ..CpuShares::default() }; 2];
        samples.others =
            vec![OtherProcess { pid: 99, name: "rustc".to_owned(), processes: 2, cores: 1.9 }];
        for thread in samples.processes.iter_mut().flat_map(|process| &mut process.threads) {
            thread.waited = Some(0.03);
        }
        samples
    };
    let mut workers = waiting(1.0, &[0.01; 3], &[(WaitReason::Time, 2.9)]);
    workers.processes[0].unread_share = Some(0.94);
    assert_eq!(first(&busy(workers)).0, LimitClass::TooFewWorkers);
    let mut backend = waiting(1.0, &[0.001; 32], &[(WaitReason::Peer(None), 31.8)]);
    backend.processes[0].peers = vec![Peer { address: BACKEND.parse().unwrap(), connections: 32 }];
    assert_eq!(first(&busy(backend)).0, LimitClass::External);
    assert_eq!(first(&busy(locked())).0, LimitClass::Lock);
    let mut kept = busy(waiting(1.0, &[0.003; 16], &[(WaitReason::Client, 16.0)]));
    kept.load = kept.load.map(|load| GeneratorLoad {
        target_rate: Some(load.rate),
        service_time: Duration::from_micros(150),
        ..load
    });
    kept.processes[0].threads.iter_mut().for_each(|thread| thread.waited = Some(0.002));
    assert_eq!(first(&kept).0, LimitClass::NoneFound, "{:#?}", evaluate(&kept));
    // A generator throttled by its own group, on a machine that is full or not; not if the
    // service is in that group too.
    let mut throttled = busy(waiting(1.0, &[0.01; 32], &[]));
    throttled.load = throttled.load.map(|load| GeneratorLoad { was_the_limit: true, ..load });
    let group =
        Some(GroupCounters { periods: 12, throttled_periods: 12, ..GroupCounters::default() });
    throttled.processes[1].group = group;
    assert!(
        matches!(first(&throttled), (LimitClass::Generator, confidence) if confidence > 0.9),
        "{:#?}",
        evaluate(&throttled)
    );
    let moves = &evaluate(&throttled)[0].counterfactual;
    assert!(moves.contains("a larger quota") && !moves.contains("thread"), "{moves}");
    throttled.processes[0].group = group;
    assert_eq!(first(&throttled).0, LimitClass::Throttled, "{:#?}", evaluate(&throttled));
}

/// As observed on a virtual machine of a busy host: a quarter of each CPU stolen, while a thread
/// needed all of one.
#[test]
fn stolen_time_is_not_idle() {
    let stolen = |busy: f64, steal: f64, service: &[f64], waits: &[(WaitReason, f64)]| {
        let mut samples = waiting(busy, service, waits);
        samples.cores = vec![CpuShares { busy, steal, ..CpuShares::default() }; 2];
        samples
    };
    let mut one = stolen(0.32, 0.27, &[0.6, 0.0], &[(WaitReason::Connection, 1.0)]);
    one.processes[0].unread_share = Some(0.78);
    assert_eq!(
        (first(&one).0, says(&one, LimitClass::TooFewWorkers)),
        (LimitClass::OneThread, None),
        "{:#?}",
        evaluate(&one)
    );
    assert_eq!(says(&one, LimitClass::External), None);
    // A full machine, and a generator without a free CPU.
    let mut full = stolen(0.55, 0.44, &[0.03; 32], &[]);
    full.load = full.load.map(|load| GeneratorLoad { was_the_limit: true, ..load });
    assert_eq!(
        (first(&full).0, says(&full, LimitClass::Generator)),
        (LimitClass::Steal, Some(0.4))
    );
    // A generator that was held back while CPUs were idle.
    let mut stopped = stolen(0.4, 0.12, &[0.8], &[]);
    stopped.load = Some(GeneratorLoad {
        connections: 1,
        rate: 2000.0,
        service_time: Duration::from_micros(500),
        was_the_limit: true,
        target_rate: None,
        ..GeneratorLoad::default()
    });
    assert_eq!(
        (first(&stopped).0, says(&stopped, LimitClass::Generator)),
        (LimitClass::TooFewConnections, Some(0.4))
    );
    // A generator that found no CPU for a moment, and kept its rate.
    let mut kept = stolen(0.05, 0.05, &[0.003; 16], &[(WaitReason::Client, 16.0)]);
    kept.processes[0].threads.iter_mut().for_each(|thread| thread.waited = Some(0.0));
    let service_time = Duration::from_micros(150);
    kept.load = kept.load.map(|load| GeneratorLoad {
        target_rate: Some(load.rate),
        service_time,
        was_the_limit: true,
        ..load
    });
    assert_eq!(
        (first(&kept).0, says(&kept, LimitClass::Generator)),
        (LimitClass::NoneFound, Some(0.4)),
        "{:#?}",
        evaluate(&kept)
    );
}

/// The kernel counts for all listeners together. A small backlog, as observed, and situations
/// without one.
#[test]
fn a_few_overflows_are_weighed_against_the_affected_connections() {
    let overflows =
        |count, connects_per_s, queue: Option<[u64; 2]>, unaccepted_share: Option<f64>| {
            let mut samples = waiting(0.3, &[0.2; 4], &[]);
            samples.tcp_errors = Some(TcpErrors {
                listen_overflows: count,
                listen_drops: count,
                ..TcpErrors::default()
            });
            samples.load =
                samples.load.map(|load| GeneratorLoad { connections: 50, connects_per_s, ..load });
            let queue = queue.map(|[waiting, most]| AcceptQueue { waiting, most: Some(most) });
            (samples.processes[0].accept_queue, samples.processes[1].untaken_share) =
                (queue, unaccepted_share);
            samples
        };
    let sure = |samples: &Samples| says(samples, LimitClass::AcceptQueue).unwrap_or(0.0);
    let tiny = overflows(90, Some(154.0), Some([3, 2]), Some(0.94));
    assert!(
        first(&tiny).0 == LimitClass::AcceptQueue && sure(&tiny) > 0.9,
        "{:#?}",
        evaluate(&tiny)
    );
    // The queue was observed just after an accept; or neither queue nor connections were visible.
    assert!(sure(&overflows(90, Some(154.0), Some([1, 2]), Some(0.94))) > 0.9);
    assert!(sure(&overflows(90, None, None, None)) > 0.7);
    // A few overflows without an affected connection; many of another listener; or of one that was
    // no longer loaded when it was observed.
    assert!(sure(&overflows(2, Some(900.0), Some([0, 128]), Some(0.0))) < 0.3);
    assert!(sure(&overflows(400, Some(900.0), Some([0, 128]), Some(0.0))) < 0.5);
    assert_eq!(sure(&overflows(400, Some(0.0), Some([0, 128]), Some(0.0))), 0.0, "all are kept");
    // Kept connections, not accepted when all were opened at once.
    assert!(sure(&overflows(9, Some(0.0), Some([129, 128]), Some(0.5))) > 0.9);
    // As few as there are, and some of them fail permanently.
    let mut failing = overflows(5, Some(20.0), None, None);
    failing.load = failing.load.map(|load| GeneratorLoad { failed_connects_per_s: 5.0, ..load });
    assert!(sure(&failing) > 0.8);
    // Without a load, no affected connection is known.
    let without_load = Samples { load: None, ..overflows(400, None, None, None) };
    assert!(sure(&without_load) > 0.5 && sure(&without_load) < 0.6);
}

/// A pool of four sleeping workers in a virtual machine, which sleeps in futexes: twelve of sixteen
/// requests lie unread. More workers help, so it is no lock.
#[test]
fn workers_asleep_in_futexes_are_too_few_and_no_lock() {
    let mut pool = waiting(0.05, &[0.02, 0.01, 0.01, 0.01], &[(WaitReason::Lock, 4.0)]);
    pool.processes[0].unread_share = Some(0.75);
    assert_eq!(first(&pool).0, LimitClass::TooFewWorkers, "{:#?}", evaluate(&pool));
}

/// Files are used up, so connections are closed: the files are the cause.
#[test]
fn failures_rank_behind_their_cause() {
    let mut samples = waiting(0.2, &[0.1], &[]);
    samples.load = samples.load.map(|load| GeneratorLoad {
        failures: Some(Failures { share: 0.5, kind: FailureKind::Closed }),
        ..load
    });
    assert_eq!(first(&samples).0, LimitClass::Failures);
    samples.processes[0].files = Some(Occupancy { used: 1020, most: 1024 });
    assert_eq!(first(&samples).0, LimitClass::OpenFiles);
}
