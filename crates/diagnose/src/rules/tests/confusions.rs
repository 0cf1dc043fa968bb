//! Limits that look alike: CPUs idle and threads waiting, or CPUs full. Samples are written after what planted bottlenecks
//! show on two CPUs, in round numbers; those of a CPU that is stolen are of a run.

use super::*;
use crate::samples::{Connections, Other, Wait, WaitFor};

const BACKEND: &str = "10.0.0.5:5432";

/// A closed loop of 32 connections, in which threads wait so.
fn waiting(busy: f64, service: &[f64], waits: &[(WaitFor, f64)]) -> Samples {
    let waits = waits.iter().map(|(what, threads)| Wait { what: *what, threads: *threads }).collect();
    let service = Watched { waits, unread_share: Some(0.0), ..process(10, Role::Service, service) };
    Samples {
        cores: vec![CpuShares { busy, ..CpuShares::default() }; 2],
        processes: vec![service, process(11, Role::Generator, &[0.06])],
        load: Some(Load {
            connections: 32,
            rate: 4000.0,
            target_rate: None,
            service_time: Duration::from_millis(8),
            was_the_limit: false,
            ..Load::default()
        }),
        ..quiet(busy)
    }
}

fn first(samples: &Samples) -> (Class, f64) {
    let finding = &judge(samples)[0];
    (finding.class, finding.confidence)
}

fn says(samples: &Samples, class: Class) -> Option<f64> {
    judge(samples).iter().find(|finding| finding.class == class).map(|finding| finding.confidence)
}

/// A lock's work: one CPU, spread over all threads.
fn locked() -> Samples {
    waiting(0.62, &[0.035; 32], &[(WaitFor::Lock, 30.0), (WaitFor::Client, 0.6)])
}

#[test]
fn a_lock_is_named_by_the_threads_that_wait_for_each_other() {
    let (class, confidence) = first(&locked());
    assert!(class == Class::Lock && confidence > 0.9, "{:#?}", judge(&locked()));
    // Eight workers, and requests that lie unread: more workers would only wait too.
    let mut pool = waiting(0.62, &[0.14; 8], &[(WaitFor::Lock, 6.8)]);
    pool.processes[0].unread_share = Some(0.75);
    assert_eq!((first(&pool).0, says(&pool, Class::TooFewWorkers)), (Class::Lock, None));
    // An open loop that is kept is at no limit, and one that the generator held back tells nothing.
    for change in [(|load| Load { target_rate: Some(4000.0), ..load }) as fn(Load) -> Load, |load| Load {
        was_the_limit: true,
        ..load
    }] {
        let mut samples = locked();
        samples.load = samples.load.map(change);
        assert_eq!(says(&samples, Class::Lock), None);
    }
}

/// One that sleeps does not wait for those to whom it holds connections.
#[test]
fn sleepers_wait_for_nobody() {
    let mut samples = waiting(0.1, &[0.01; 3], &[(WaitFor::Time, 2.9)]);
    samples.processes[0].peers = vec![Peer { address: BACKEND.parse().unwrap(), connections: 8 }];
    let external = judge(&samples).into_iter().find(|finding| finding.class == Class::External).unwrap();
    assert!(!external.counterfactual.contains(BACKEND) && external.counterfactual.contains("a sleep"), "{external:#?}");
    assert!(external.evidence.iter().all(|line| !line.contains(BACKEND)), "{external:#?}");
    samples.processes[0].waits.clear();
    let external = judge(&samples).into_iter().find(|finding| finding.class == Class::External).unwrap();
    assert!(external.counterfactual.contains(BACKEND), "{external:#?}");
}

/// Threads that have nothing to do wait on the same call as those that want a lock.
#[test]
fn an_idle_pool_is_no_lock() {
    // A runtime with a thread per CPU, parked, that waits for a database.
    let mut samples = waiting(0.2, &[0.1, 0.1], &[(WaitFor::Events, 1.0), (WaitFor::Lock, 1.0)]);
    samples.processes[0].peers = vec![Peer { address: BACKEND.parse().unwrap(), connections: 8 }];
    assert_eq!((first(&samples).0, says(&samples, Class::Lock)), (Class::External, None));
    // The same with a large pool for other things: a doubt, and less of one than of the peer.
    samples.processes[0].waits.push(Wait { what: WaitFor::Lock, threads: 64.0 });
    assert_eq!(first(&samples).0, Class::External, "{:#?}", judge(&samples));
    // One that waits for work while its loop is busy.
    let busy = waiting(0.55, &[0.99, 0.0], &[(WaitFor::Lock, 16.0)]);
    assert_eq!(first(&busy).0, Class::OneThread);
}

#[test]
fn who_is_waited_for_decides_among_waiting_threads() {
    let backend = WaitFor::Peer(Some(BACKEND.parse().unwrap()));
    // A pool of four connections to a database, for which the others queue.
    let mut pooled = waiting(0.1, &[0.005; 32], &[(WaitFor::Lock, 27.8), (backend, 3.9)]);
    pooled.processes[0].peers = vec![
        Peer { address: "10.0.0.9:80".parse().unwrap(), connections: 9 },
        Peer { address: BACKEND.parse().unwrap(), connections: 4 },
    ];
    let findings = judge(&pooled);
    assert_eq!((findings[0].class, says(&pooled, Class::Lock)), (Class::External, None), "{findings:#?}");
    assert!(findings[0].counterfactual.contains(BACKEND), "the one that is waited for: {findings:#?}");
    // A disk that is not busy itself, but whose group may do so many writes and no more.
    let mut slow = waiting(0.05, &[0.002; 16], &[(WaitFor::Disk, 15.9)]);
    (slow.io_pressure, slow.disks[0].utilisation) = (Some(0.99), 0.05);
    assert!(matches!(first(&slow), (Class::Disk, confidence) if confidence > 0.9), "{:#?}", judge(&slow));
    // Neither of them when the rate is kept.
    for mut samples in [pooled, slow] {
        samples.load = samples.load.map(|load| Load { target_rate: Some(load.rate), ..load });
        assert_eq!(first(&samples).0, Class::NoneFound, "{:#?}", judge(&samples));
    }
}

#[test]
fn workers_are_too_few_when_they_wait_for_what_more_of_them_would_not_wait_for() {
    let unread = |what| {
        let mut samples = waiting(0.06, &[0.01; 3], &[(what, 2.9)]);
        samples.processes[0].unread_share = Some(0.94);
        samples
    };
    assert!(matches!(first(&unread(WaitFor::Time)), (Class::TooFewWorkers, confidence) if confidence > 0.9));
    // Of somebody else it is not known whether he takes more at once; that he is waited for is.
    let peer = unread(WaitFor::Peer(Some(BACKEND.parse().unwrap())));
    assert_eq!(first(&peer).0, Class::External, "{:#?}", judge(&peer));
    assert!(says(&peer, Class::TooFewWorkers).is_some_and(|confidence| confidence < 0.7));
    let mut disk = unread(WaitFor::Disk);
    disk.io_pressure = Some(0.9);
    assert_eq!((first(&disk).0, says(&disk, Class::TooFewWorkers)), (Class::Disk, None));
}

#[test]
fn a_full_machine_is_the_services_or_somebody_elses() {
    let full = |others: &[(&str, f64)], service: f64| {
        let mut samples = waiting(1.0, &[service / 2.0; 2], &[]);
        samples.processes[0].threads.iter_mut().for_each(|thread| thread.waited = Some(1.0 - thread.busy));
        let other = |(name, cores): &(&str, f64)| Other { pid: 99, name: (*name).to_owned(), cores: *cores };
        samples.others = others.iter().map(other).collect();
        samples
    };
    assert_eq!(first(&full(&[("bash", 0.02)], 1.9)).0, Class::AllCpus);
    let disturbed = full(&[("cc1plus", 0.5), ("ld", 0.5)], 0.9);
    assert!(matches!(first(&disturbed), (Class::Competitor, confidence) if confidence > 0.9), "{disturbed:#?}");
    assert!(says(&disturbed, Class::AllCpus).is_some_and(|confidence| confidence < 0.6));
    // What the kernel's own threads do, they do for those who use the network.
    assert_eq!(first(&full(&[("[ksoftirqd/0]", 0.8)], 1.1)).0, Class::AllCpus);
    // A child of a minute that a shell has just heard of counts for no more than there is.
    assert_eq!(first(&full(&[("sh", 30.0)], 1.7)).0, Class::AllCpus);
    // Nobody looked for others, or nobody is disturbed by them.
    assert_eq!(says(&full(&[], 0.9), Class::Competitor), None);
    let mut elsewhere = disturbed;
    elsewhere.processes.remove(0);
    assert_eq!(says(&elsewhere, Class::Competitor), None);
}

#[test]
fn a_link_that_nobody_can_ask_is_full_when_answers_queue_in_front_of_it() {
    let queue = |rtt_ms: u64, link: &str| {
        let mut samples = waiting(0.05, &[0.01; 16], &[(WaitFor::Client, 15.9)]);
        samples.processes[0].unsent_share = Some(0.98);
        let carried = Link { received_bits_per_s: 95e6, name: link.to_owned(), ..Link::default() };
        samples.links = vec![carried, Link { name: "lo".to_owned(), sent_bits_per_s: 1e9, ..Link::default() }];
        let (rtt, rtt_min) = (Duration::from_millis(rtt_ms), Duration::from_millis(20));
        samples.connections = Some(Connections { count: 16, rtt, rtt_min, ..Connections::default() });
        samples
    };
    let full = queue(90, "eth0");
    assert!(matches!(first(&full), (Class::Bandwidth, confidence) if confidence > 0.9), "{:#?}", judge(&full));
    // A way that is long, not full; and a loopback, which has no bandwidth to speak of.
    assert_eq!(says(&queue(21, "eth0"), Class::Bandwidth), None);
    assert_eq!(says(&queue(90, "lo"), Class::Bandwidth), None);
    // Nobody looked at round trips: less sure.
    let mut blind = full.clone();
    blind.connections = None;
    assert!(says(&blind, Class::Bandwidth).is_some_and(|confidence| confidence < 0.7));
    // A service that is too slow itself, or a generator that does not read.
    let mut slow = full.clone();
    slow.processes[0].threads[0].busy = 0.95;
    assert_eq!(says(&slow, Class::Bandwidth), None);
    let mut unread = full;
    unread.load = unread.load.map(|load| Load { was_the_limit: true, ..load });
    assert_eq!(says(&unread, Class::Bandwidth), None);
}

#[test]
fn one_request_at_a_time_never_needs_a_second_thread() {
    let mut samples = waiting(0.55, &[0.96], &[(WaitFor::Client, 0.03)]);
    let service_time = Duration::from_micros(250);
    samples.load = Some(Load { connections: 1, rate: 3900.0, service_time, ..Load::default() });
    assert_eq!((first(&samples).0, says(&samples, Class::OneThread)), (Class::TooFewConnections, None));
    // With two there could be; and an open loop may bring many at once on one connection.
    samples.load = samples.load.map(|load| Load { connections: 2, ..load });
    assert!(says(&samples, Class::OneThread).is_some());
}

/// Others' work takes nothing from a service that does not want it.
#[test]
fn who_waits_for_something_else_is_not_held_up_by_full_cpus() {
    let busy = |mut samples: Samples| {
        samples.cores = vec![CpuShares { busy: 1.0, ..CpuShares::default() }; 2];
        samples.others = vec![Other { pid: 99, name: "rustc".to_owned(), cores: 1.9 }];
        for thread in samples.processes.iter_mut().flat_map(|process| &mut process.threads) {
            thread.waited = Some(0.03);
        }
        samples
    };
    let mut workers = waiting(1.0, &[0.01; 3], &[(WaitFor::Time, 2.9)]);
    workers.processes[0].unread_share = Some(0.94);
    assert_eq!(first(&busy(workers)).0, Class::TooFewWorkers);
    let mut backend = waiting(1.0, &[0.001; 32], &[(WaitFor::Peer(None), 31.8)]);
    backend.processes[0].peers = vec![Peer { address: BACKEND.parse().unwrap(), connections: 32 }];
    assert_eq!(first(&busy(backend)).0, Class::External);
    assert_eq!(first(&busy(locked())).0, Class::Lock);
    let mut kept = busy(waiting(1.0, &[0.003; 16], &[(WaitFor::Client, 16.0)]));
    kept.load =
        kept.load.map(|load| Load { target_rate: Some(load.rate), service_time: Duration::from_micros(150), ..load });
    kept.processes[0].threads.iter_mut().for_each(|thread| thread.waited = Some(0.002));
    assert_eq!(first(&kept).0, Class::NoneFound, "{:#?}", judge(&kept));
    // A generator that its own group holds up, whoever fills the machine; not when the service is in that group too.
    let mut throttled = busy(waiting(1.0, &[0.01; 32], &[]));
    throttled.load = throttled.load.map(|load| Load { was_the_limit: true, ..load });
    let group = Some(Counters { periods: 12, throttled_periods: 12, ..Counters::default() });
    throttled.processes[1].group = group;
    assert!(
        matches!(first(&throttled), (Class::Generator, confidence) if confidence > 0.9),
        "{:#?}",
        judge(&throttled)
    );
    let moves = &judge(&throttled)[0].counterfactual;
    assert!(moves.contains("a larger quota") && !moves.contains("thread"), "{moves}");
    throttled.processes[0].group = group;
    assert_eq!(first(&throttled).0, Class::Throttled, "{:#?}", judge(&throttled));
}

/// As a virtual machine of a busy host was seen: a quarter of each CPU stolen, while a thread wanted all of one.
#[test]
fn what_the_hypervisor_takes_is_not_idle() {
    let stolen = |busy: f64, steal: f64, service: &[f64], waits: &[(WaitFor, f64)]| {
        let mut samples = waiting(busy, service, waits);
        samples.cores = vec![CpuShares { busy, steal, ..CpuShares::default() }; 2];
        samples
    };
    let mut one = stolen(0.32, 0.27, &[0.6, 0.0], &[(WaitFor::Connection, 1.0)]);
    one.processes[0].unread_share = Some(0.78);
    assert_eq!((first(&one).0, says(&one, Class::TooFewWorkers)), (Class::OneThread, None), "{:#?}", judge(&one));
    assert_eq!(says(&one, Class::External), None);
    // A full machine, and a generator that found no free CPU on it.
    let mut full = stolen(0.55, 0.44, &[0.03; 32], &[]);
    full.load = full.load.map(|load| Load { was_the_limit: true, ..load });
    assert_eq!((first(&full).0, says(&full, Class::Generator)), (Class::Steal, Some(0.4)));
    // One that was stopped by nobody here while CPUs were idle.
    let mut stopped = stolen(0.4, 0.12, &[0.8], &[]);
    stopped.load = Some(Load {
        connections: 1,
        rate: 2000.0,
        service_time: Duration::from_micros(500),
        was_the_limit: true,
        target_rate: None,
        ..Load::default()
    });
    assert_eq!((first(&stopped).0, says(&stopped, Class::Generator)), (Class::TooFewConnections, Some(0.4)));
    // A generator that found no CPU for a moment, and kept its rate.
    let mut kept = stolen(0.05, 0.05, &[0.003; 16], &[(WaitFor::Client, 16.0)]);
    kept.processes[0].threads.iter_mut().for_each(|thread| thread.waited = Some(0.0));
    let service_time = Duration::from_micros(150);
    kept.load = kept.load.map(|load| Load { target_rate: Some(load.rate), service_time, was_the_limit: true, ..load });
    assert_eq!((first(&kept).0, says(&kept, Class::Generator)), (Class::NoneFound, Some(0.4)), "{:#?}", judge(&kept));
}

/// The kernel counts for all listeners together. A tiny backlog, as it was seen, and what is none.
#[test]
fn a_few_overflows_are_weighed_against_what_they_hold_up() {
    let overflows = |count, connects_per_s, queue: Option<[u64; 2]>, untaken: Option<f64>| {
        let mut samples = waiting(0.3, &[0.2; 4], &[]);
        samples.trouble = Some(Trouble { listen_overflows: count, listen_drops: count, ..Trouble::default() });
        samples.load = samples.load.map(|load| Load { connections: 50, connects_per_s, ..load });
        let queue = queue.map(|[waiting, most]| AcceptQueue { waiting, most: Some(most) });
        (samples.processes[0].accept_queue, samples.processes[1].untaken_share) = (queue, untaken);
        samples
    };
    let sure = |samples: &Samples| says(samples, Class::AcceptQueue).unwrap_or(0.0);
    let tiny = overflows(90, Some(154.0), Some([3, 2]), Some(0.94));
    assert!(first(&tiny).0 == Class::AcceptQueue && sure(&tiny) > 0.9, "{:#?}", judge(&tiny));
    // The queue was met when one had just been accepted; or nothing of either could be seen.
    assert!(sure(&overflows(90, Some(154.0), Some([1, 2]), Some(0.94))) > 0.9);
    assert!(sure(&overflows(90, None, None, None)) > 0.7);
    // A few, of which nothing is held up; many of another listener; or of one that we loaded no more when it was looked at.
    assert!(sure(&overflows(2, Some(900.0), Some([0, 128]), Some(0.0))) < 0.3);
    assert!(sure(&overflows(400, Some(900.0), Some([0, 128]), Some(0.0))) < 0.5);
    assert_eq!(sure(&overflows(400, Some(0.0), Some([0, 128]), Some(0.0))), 0.0, "all are kept");
    // Connections that are kept, and that nobody took in when all were opened at once.
    assert!(sure(&overflows(9, Some(0.0), Some([129, 128]), Some(0.5))) > 0.9);
    // As few as there are, and some of them fail for good.
    let mut failing = overflows(5, Some(20.0), None, None);
    failing.load = failing.load.map(|load| Load { failed_connects_per_s: 5.0, ..load });
    assert!(sure(&failing) > 0.8);
    // Without a load nobody is known to suffer.
    let nobody = Samples { load: None, ..overflows(400, None, None, None) };
    assert!(sure(&nobody) > 0.5 && sure(&nobody) < 0.6);
}
