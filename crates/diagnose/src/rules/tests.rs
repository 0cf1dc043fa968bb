//! Each class, planted alone; and what must not be taken for it.

mod confusions;

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::*;
use crate::probe::cpu::CpuShares;
use crate::probe::disk::DiskRate;
use crate::probe::group::{Counters, Groups};
use crate::probe::softnet::Softnet;
use crate::probe::tcp::{Segments, Trouble};
use crate::probe::vmstat::VmStat;
use crate::root::{Root, Unseen, Why};
use crate::sampler::Sampler;
use crate::samples::{AcceptQueue, Level, Link, Load, Peer, Role, Thread, Watched};

fn thread(busy: f64) -> Thread {
    Thread { name: "worker".to_owned(), busy, waited: Some(0.0) }
}

fn process(pid: u32, role: Role, busy: &[f64]) -> Watched {
    Watched { pid, role, threads: busy.iter().map(|busy| thread(*busy)).collect(), ..Watched::default() }
}

/// Four CPUs, a service of two threads, a generator in a closed loop, one second.
fn quiet(busy: f64) -> Samples {
    Samples {
        span: Duration::from_secs(1),
        cores: vec![CpuShares { busy, ..CpuShares::default() }; 4],
        cpu_pressure: Some(0.0),
        memory_pressure: Some(0.0),
        io_pressure: Some(0.0),
        vmstat: Some(VmStat::default()),
        trouble: Some(Trouble::default()),
        segments: Some(Segments { sent: 100_000, ..Segments::default() }),
        softnet: Some(Softnet::default()),
        disks: vec![DiskRate { name: "vda".to_owned(), ..DiskRate::default() }],
        processes: vec![process(10, Role::Service, &[busy, busy]), process(11, Role::Generator, &[busy])],
        load: Some(Load {
            connections: 50,
            rate: 1000.0,
            target_rate: None,
            service_time: Duration::from_millis(50),
            was_the_limit: false,
            ..Load::default()
        }),
        ..Samples::default()
    }
}

/// A plant: what is changed about a quiet machine, and what must be found.
type Plant = (Class, fn(&mut Samples));

const PLANTS: [Plant; 17] = [
    (Class::AllCpus, |s| {
        s.cores = vec![CpuShares { busy: 0.97, interrupts: 0.2, ..CpuShares::default() }; 4];
        s.processes[0] = process(10, Role::Service, &[0.9, 0.9, 0.8, 0.8]);
    }),
    (Class::OneThread, |s| s.processes[0] = process(10, Role::Service, &[0.98, 0.05])),
    (Class::Proxy, |s| {
        s.processes[0] = process(10, Role::Service, &[0.98, 0.05]);
        s.processes.push(process(12, Role::Proxy, &[0.97]));
    }),
    (Class::Throttled, |s| {
        s.processes[0].group = Some(Counters {
            periods: 10,
            throttled_periods: 9,
            throttled: Duration::from_millis(600),
            ..Counters::default()
        });
    }),
    (Class::Steal, |s| s.cores = vec![CpuShares { busy: 0.6, steal: 0.35, ..CpuShares::default() }; 4]),
    (Class::Bandwidth, |s| {
        s.links = vec![Link {
            name: "eth0".to_owned(),
            sent_bits_per_s: 9.4e8,
            speed_bits_per_s: Some(1e9),
            ..Link::default()
        }];
    }),
    (Class::PacketLoss, |s| {
        s.segments = Some(Segments { sent: 10_000, retransmitted: 600, ..Segments::default() });
        s.softnet = Some(Softnet { dropped: 40, ..Softnet::default() });
    }),
    (Class::Disk, |s| {
        s.disks[0].utilisation = 0.98;
        s.io_pressure = Some(0.7);
    }),
    (Class::Memory, |s| {
        s.memory_pressure = Some(0.5);
        s.vmstat = Some(VmStat { stalls: 200, major_faults: 900, ..VmStat::default() });
    }),
    (Class::External, |s| {
        s.processes[0].peers = vec![Peer { address: "10.0.0.5:5432".parse().expect("an address"), connections: 8 }];
    }),
    (Class::TooFewConnections, |s| {
        s.processes[0] = process(10, Role::Service, &[0.6, 0.3]);
        s.load = Some(Load { connections: 1, rate: 900.0, service_time: Duration::from_millis(1), ..Load::default() });
    }),
    (Class::TooFewWorkers, |s| s.processes[0].unread_share = Some(0.85)),
    (Class::AcceptQueue, |s| {
        s.trouble = Some(Trouble { listen_overflows: 90, listen_drops: 90, ..Trouble::default() });
        s.load = s.load.map(|load| Load { connects_per_s: Some(154.0), ..load });
        s.processes[0].accept_queue = Some(AcceptQueue { waiting: 3, most: Some(2) });
        s.processes[1].untaken_share = Some(0.94);
    }),
    (Class::OpenFiles, |s| s.processes[0].files = Some(Level { used: 1024, most: 1024 })),
    (Class::Ports, |s| s.ports = Some(Level { used: 28_230, most: 28_232 })),
    (Class::KernelTable, |s| s.conntrack = Some(Level { used: 65_536, most: 65_536 })),
    (Class::Generator, |s| {
        s.load = s.load.map(|load| Load { was_the_limit: true, ..load });
        s.processes[1] = process(11, Role::Generator, &[0.99]);
    }),
];

#[test]
fn each_planted_limit_is_named_first() {
    for (class, plant) in PLANTS {
        let mut samples = quiet(0.1);
        plant(&mut samples);
        let findings = judge(&samples);
        let first = &findings[0];
        assert_eq!(first.class, class, "{findings:#?}");
        assert!(first.confidence > 0.75 && first.confidence <= 0.95, "{class:?}: {}", first.confidence);
        assert!(
            !first.evidence.is_empty()
                && first
                    .evidence
                    .iter()
                    .all(|words| words.contains(|c: char| c.is_ascii_digit()) || class == Class::Generator)
        );
        assert!(!first.counterfactual.is_empty() && !first.class.words().is_empty());
    }
}

/// What a container counted, as the copies of its files have it.
#[test]
fn a_recorded_container_is_throttled() {
    for (tree, held_up) in [("container-v1", "250 of 1000 periods"), ("container-v2", "80 of 200 periods")] {
        let root = Root::at(std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(tree));
        let mut samples = quiet(0.1);
        samples.processes[0].group = Groups::of(&root, "self").ok().map(|groups| groups.counters());
        let found = judge(&samples).into_iter().find(|finding| finding.class == Class::Throttled);
        // A quarter of the periods is not enough to be the limit, two fifths are.
        assert_eq!(found.is_some(), tree == "container-v2", "{found:?}");
        assert!(found.is_none_or(|finding| finding.evidence[0].contains(held_up)));
    }
}

/// Whatever this machine is doing: something is said of it, with a confidence.
#[test]
fn this_machine_is_judged() {
    let mut sampler = Sampler::new(Root::machine(), &[std::process::id()]);
    let (first, second) = (sampler.sample(Nanos(0)), sampler.sample(Nanos(100_000_000)));
    let findings = judge(&Samples::between(&first, &second, |_| Role::Service));
    assert!(findings.iter().all(|finding| finding.confidence > 0.0 && finding.confidence < 1.0), "{findings:?}");
    assert!(!findings.is_empty());
}

#[test]
fn without_a_limit_none_is_found() {
    let mut samples = quiet(0.3);
    samples.load = samples.load.map(|load| Load { target_rate: Some(1000.0), ..load });
    let findings = judge(&samples);
    assert_eq!((findings.len(), findings[0].class), (1, Class::NoneFound), "{findings:#?}");
    assert!(findings[0].confidence > 0.8);
    let nothing = judge(&Samples::default());
    assert_eq!((nothing[0].class, nothing[0].confidence), (Class::NoneFound, 0.4), "and nothing is claimed");
}

/// Half of what a rule asks for is not enough for it.
#[test]
fn weak_signs_are_no_findings() {
    let weak: [fn(&mut Samples); 13] = [
        |s| s.cores = vec![CpuShares { busy: 0.85, ..CpuShares::default() }; 4],
        |s| s.processes[0] = process(10, Role::Service, &[0.85, 0.1]),
        // Two busy threads are no single one.
        |s| s.processes[0] = process(10, Role::Service, &[0.95, 0.9]),
        |s| s.processes[0].group = Some(Counters { periods: 3, throttled_periods: 3, ..Counters::default() }),
        |s| s.cores = vec![CpuShares { busy: 0.3, steal: 0.3, ..CpuShares::default() }; 4],
        |s| s.links = vec![Link { sent_bits_per_s: 9.4e8, speed_bits_per_s: None, ..Link::default() }],
        |s| {
            // The other side had them, or a full queue dropped them.
            s.segments = Some(Segments { sent: 3_000, retransmitted: 80, ..Segments::default() });
            s.trouble = Some(Trouble { sent_for_nothing: 40, listen_drops: 35, ..Trouble::default() });
        },
        |s| s.segments = Some(Segments { sent: 50, retransmitted: 50, ..Segments::default() }),
        |s| s.disks[0].utilisation = 0.99,
        |s| s.memory_pressure = Some(0.5),
        |s| s.processes[0].files = Some(Level { used: 900, most: 1024 }),
        |s| s.ports = Some(Level { used: 0, most: 0 }),
        // A generator that is busy and knows better.
        |s| s.processes[1] = process(11, Role::Generator, &[0.99]),
    ];
    for (at, plant) in weak.into_iter().enumerate() {
        let mut samples = quiet(0.2);
        samples.load = samples.load.map(|load| Load { target_rate: Some(1000.0), ..load });
        plant(&mut samples);
        assert_eq!(judge(&samples)[0].class, Class::NoneFound, "plant {at}: {:#?}", judge(&samples));
    }
}

#[test]
fn what_is_unseen_lowers_the_confidence_and_is_told() {
    let mut samples = quiet(0.97);
    let sure = judge(&samples)[0].confidence;
    samples.unseen = vec![Unseen { file: "proc/8/task".to_owned(), why: Why::Forbidden }; 2];
    let finding = &judge(&samples)[0];
    assert!((finding.confidence - sure * 0.9).abs() < 1e-9);
    assert!(
        finding.evidence.last().is_some_and(|e| e.contains("/proc/8/task: this user may not") && e.ends_with("1 more"))
    );
    samples.unseen.resize(100, samples.unseen[0].clone());
    assert!((judge(&samples)[0].confidence - sure * 0.5).abs() < 1e-9);
}

#[test]
fn waiting_for_nobody_in_sight_is_said_with_less_confidence() {
    let finding = &judge(&quiet(0.05))[0];
    assert_eq!(finding.class, Class::External);
    assert!(finding.confidence < 0.6 && finding.counterfactual.contains("lock"), "{finding:?}");
}

/// What looks like too few workers, or like waiting for others, and is not.
#[test]
fn who_is_held_up_waits_for_nobody() {
    let unread = |change: fn(&mut Samples)| {
        let mut samples = quiet(0.1);
        samples.processes[0].unread_share = Some(0.85);
        change(&mut samples);
        judge(&samples).iter().any(|finding| finding.class == Class::TooFewWorkers)
    };
    assert!(unread(|_| {}));
    assert!(!unread(|s| s.processes[0].group = Some(Counters { throttled_periods: 1, ..Counters::default() })));
    assert!(!unread(|s| s.disks[0].utilisation = 0.6));
    assert!(!unread(|s| s.memory_pressure = Some(0.2)));
    let mut samples = quiet(0.1);
    samples.processes[0].threads[1].waited = Some(0.5);
    assert!(judge(&samples).iter().all(|finding| finding.class != Class::External));
}

#[test]
fn on_a_full_machine_the_generator_is_hardly_the_limit() {
    let mut samples = quiet(0.97);
    samples.load = samples.load.map(|load| Load { was_the_limit: true, ..load });
    let findings = judge(&samples);
    let generator = findings.iter().find(|finding| finding.class == Class::Generator);
    assert_eq!((findings[0].class, generator.map(|finding| finding.confidence)), (Class::AllCpus, Some(0.4)));
}

#[test]
fn no_samples_make_a_rule_panic() {
    let spans = [Duration::ZERO, Duration::from_secs(1)];
    for (span, (_, plant)) in spans.into_iter().flat_map(|span| PLANTS.map(|plant| (span, plant))) {
        let mut samples = quiet(0.0);
        plant(&mut samples);
        samples.span = span;
        samples.load = samples.load.map(|load| Load { rate: 0.0, service_time: Duration::ZERO, ..load });
        samples.cores.truncate(usize::from(span.is_zero()));
        assert!(judge(&samples).iter().all(|f| (0.0..=1.0).contains(&f.confidence)), "{samples:?}");
    }
}
