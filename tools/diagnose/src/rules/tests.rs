//! Each class planted alone, and situations that must not be mistaken for it.

mod confusions;
mod database;

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::*;
use crate::probe::cpu::CpuShares;
use crate::probe::disk::DiskRate;
use crate::probe::group::{GroupCounters, Groups};
use crate::probe::memory::VmStat;
use crate::probe::network::Softnet;
use crate::probe::tcp::{Segments, TcpErrors};
use crate::root::{ProbeError, ProbeErrorKind, Root};
use crate::sampler::Sampler;
use crate::samples::{
    AcceptQueue, FailureKind, Failures, GeneratorLoad, Link, Occupancy, Peer, Role, Thread,
    WatchedProcess,
};

fn thread(busy: f64) -> Thread {
    Thread { name: "worker".to_owned(), busy, waited: Some(0.0) }
}

fn process(pid: u32, role: Role, busy: &[f64]) -> WatchedProcess {
    WatchedProcess {
        pid,
        role,
        threads: busy.iter().map(|busy| thread(*busy)).collect(),
        ..WatchedProcess::default()
    }
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
        tcp_errors: Some(TcpErrors::default()),
        segments: Some(Segments { sent: 100_000, ..Segments::default() }),
        softnet: Some(Softnet::default()),
        disks: vec![DiskRate { name: "vda".to_owned(), ..DiskRate::default() }],
        processes: vec![
            process(10, Role::Service, &[busy, busy]),
            process(11, Role::Generator, &[busy]),
        ],
        load: Some(GeneratorLoad {
            connections: 50,
            rate: 1000.0,
            target_rate: None,
            service_time: Duration::from_millis(50),
            was_the_limit: false,
            ..GeneratorLoad::default()
        }),
        ..Samples::default()
    }
}

/// A plant: the change of a quiet machine, and the expected finding.
type Plant = (LimitClass, fn(&mut Samples));

const PLANTS: [Plant; 18] = [
    (LimitClass::Failures, |s| {
        s.load = s.load.map(|load| GeneratorLoad {
            failures: Some(Failures { share: 0.12, kind: FailureKind::Status(503) }),
            ..load
        });
    }),
    (LimitClass::AllCpus, |s| {
        s.cores = vec![CpuShares { busy: 0.97, interrupts: 0.2, ..CpuShares::default() }; 4];
        s.processes[0] = process(10, Role::Service, &[0.9, 0.9, 0.8, 0.8]);
    }),
    (LimitClass::OneThread, |s| s.processes[0] = process(10, Role::Service, &[0.98, 0.05])),
    (LimitClass::Proxy, |s| {
        s.processes[0] = process(10, Role::Service, &[0.98, 0.05]);
        s.processes.push(process(12, Role::Proxy, &[0.97]));
    }),
    (LimitClass::Throttled, |s| {
        s.processes[0].group = Some(GroupCounters {
            periods: 10,
            throttled_periods: 9,
            throttled: Duration::from_millis(600),
            ..GroupCounters::default()
        });
    }),
    (LimitClass::Steal, |s| {
        s.cores = vec![CpuShares { busy: 0.6, steal: 0.35, ..CpuShares::default() }; 4]
    }),
    (LimitClass::Bandwidth, |s| {
        s.links = vec![Link {
            name: "eth0".to_owned(),
            sent_bits_per_s: 9.4e8,
            speed_bits_per_s: Some(1e9),
            ..Link::default()
        }];
    }),
    (LimitClass::PacketLoss, |s| {
        s.segments = Some(Segments { sent: 10_000, retransmitted: 600, ..Segments::default() });
        s.softnet = Some(Softnet { dropped: 40, ..Softnet::default() });
    }),
    (LimitClass::Disk, |s| {
        s.disks[0].utilisation = 0.98;
        s.io_pressure = Some(0.7);
    }),
    (LimitClass::Memory, |s| {
        s.memory_pressure = Some(0.5);
        s.vmstat = Some(VmStat { stalls: 200, major_faults: 900, ..VmStat::default() });
    }),
    (LimitClass::External, |s| {
        s.processes[0].peers =
            vec![Peer { address: "10.0.0.5:5432".parse().expect("an address"), connections: 8 }];
    }),
    (LimitClass::TooFewConnections, |s| {
        s.processes[0] = process(10, Role::Service, &[0.6, 0.3]);
        s.load = Some(GeneratorLoad {
            connections: 1,
            rate: 900.0,
            service_time: Duration::from_millis(1),
            ..GeneratorLoad::default()
        });
    }),
    (LimitClass::TooFewWorkers, |s| s.processes[0].unread_share = Some(0.85)),
    (LimitClass::AcceptQueue, |s| {
        s.tcp_errors =
            Some(TcpErrors { listen_overflows: 90, listen_drops: 90, ..TcpErrors::default() });
        s.load = s.load.map(|load| GeneratorLoad { connects_per_s: Some(154.0), ..load });
        s.processes[0].accept_queue = Some(AcceptQueue { waiting: 3, most: Some(2) });
        s.processes[1].untaken_share = Some(0.94);
    }),
    (LimitClass::OpenFiles, |s| s.processes[0].files = Some(Occupancy { used: 1024, most: 1024 })),
    (LimitClass::Ports, |s| s.ports = Some(Occupancy { used: 28_230, most: 28_232 })),
    (LimitClass::KernelTable, |s| s.conntrack = Some(Occupancy { used: 65_536, most: 65_536 })),
    (LimitClass::Generator, |s| {
        s.load = s.load.map(|load| GeneratorLoad { was_the_limit: true, ..load });
        s.processes[1] = process(11, Role::Generator, &[0.99]);
    }),
];

#[test]
fn each_planted_limit_is_named_first() {
    for (class, plant) in PLANTS {
        let mut samples = quiet(0.1);
        plant(&mut samples);
        let findings = evaluate(&samples);
        let first = &findings[0];
        assert_eq!(first.class, class, "{findings:#?}");
        assert!(
            first.confidence > 0.75 && first.confidence <= 0.95,
            "{class:?}: {}",
            first.confidence
        );
        assert!(
            !first.evidence.is_empty()
                && first.evidence.iter().all(|words| words.contains(|c: char| c.is_ascii_digit())
                    || class == LimitClass::Generator)
        );
        assert!(!first.counterfactual.is_empty() && !first.class.words().is_empty());
    }
}

/// The counters of a container, from copies of its files.
#[test]
fn a_recorded_container_is_throttled() {
    for (tree, held_up) in
        [("container-v1", "250 of 1000 periods"), ("container-v2", "80 of 200 periods")]
    {
        let root = Root::at(
            std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(tree),
        );
        let mut samples = quiet(0.1);
        samples.processes[0].group = Groups::of(&root, "self").ok().map(|groups| groups.counters());
        let found =
            evaluate(&samples).into_iter().find(|finding| finding.class == LimitClass::Throttled);
        // A quarter of the periods is not enough for a limit; two fifths are.
        assert_eq!(found.is_some(), tree == "container-v2", "{found:?}");
        assert!(found.is_none_or(|finding| finding.evidence[0].contains(held_up)));
    }
}

/// On every machine there is a finding with a confidence.
#[test]
fn this_machine_is_judged() {
    let mut sampler = Sampler::new(Root::machine(), &[std::process::id()]);
    let (first, second) = (sampler.sample(Nanos(0)), sampler.sample(Nanos(100_000_000)));
    let findings = evaluate(&Samples::between(&first, &second, |_| Role::Service));
    assert!(
        findings.iter().all(|finding| finding.confidence > 0.0 && finding.confidence < 1.0),
        "{findings:?}"
    );
    assert!(!findings.is_empty());
}

#[test]
fn without_a_limit_none_is_found() {
    let mut samples = quiet(0.3);
    samples.load = samples.load.map(|load| GeneratorLoad { target_rate: Some(1000.0), ..load });
    let findings = evaluate(&samples);
    assert_eq!((findings.len(), findings[0].class), (1, LimitClass::NoneFound), "{findings:#?}");
    assert!(findings[0].confidence > 0.8);
    let nothing = evaluate(&Samples::default());
    assert_eq!(
        (nothing[0].class, nothing[0].confidence),
        (LimitClass::NoneFound, 0.4),
        "and nothing is claimed"
    );
}

/// Half of a rule's threshold is not enough.
#[test]
fn weak_signs_are_no_findings() {
    let weak: [fn(&mut Samples); 13] = [
        |s| s.cores = vec![CpuShares { busy: 0.85, ..CpuShares::default() }; 4],
        |s| s.processes[0] = process(10, Role::Service, &[0.85, 0.1]),
        // Two busy threads are not a single one.
        |s| s.processes[0] = process(10, Role::Service, &[0.95, 0.9]),
        |s| {
            s.processes[0].group =
                Some(GroupCounters { periods: 3, throttled_periods: 3, ..GroupCounters::default() })
        },
        |s| s.cores = vec![CpuShares { busy: 0.3, steal: 0.3, ..CpuShares::default() }; 4],
        |s| {
            s.links =
                vec![Link { sent_bits_per_s: 9.4e8, speed_bits_per_s: None, ..Link::default() }]
        },
        |s| {
            // The other side had them, or a full queue dropped them.
            s.segments = Some(Segments { sent: 3_000, retransmitted: 80, ..Segments::default() });
            s.tcp_errors =
                Some(TcpErrors { sent_for_nothing: 40, listen_drops: 35, ..TcpErrors::default() });
        },
        |s| s.segments = Some(Segments { sent: 50, retransmitted: 50, ..Segments::default() }),
        |s| s.disks[0].utilisation = 0.99,
        |s| s.memory_pressure = Some(0.5),
        |s| s.processes[0].files = Some(Occupancy { used: 900, most: 1024 }),
        |s| s.ports = Some(Occupancy { used: 0, most: 0 }),
        // A busy generator that was not the limit.
        |s| s.processes[1] = process(11, Role::Generator, &[0.99]),
    ];
    for (at, plant) in weak.into_iter().enumerate() {
        let mut samples = quiet(0.2);
        samples.load = samples.load.map(|load| GeneratorLoad { target_rate: Some(1000.0), ..load });
        plant(&mut samples);
        assert_eq!(
            evaluate(&samples)[0].class,
            LimitClass::NoneFound,
            "plant {at}: {:#?}",
            evaluate(&samples)
        );
    }
}

#[test]
fn invisible_data_lowers_the_confidence_and_is_reported() {
    let mut samples = quiet(0.97);
    let sure = evaluate(&samples)[0].confidence;
    samples.probe_errors =
        vec![
            ProbeError { file: "proc/8/task".to_owned(), why: ProbeErrorKind::PermissionDenied };
            2
        ];
    let finding = &evaluate(&samples)[0];
    assert!((finding.confidence - sure * 0.9).abs() < 1e-9);
    assert!(finding.evidence.last().is_some_and(|e| e.contains(
        "/proc/8/task: this user may not"
    ) && e.ends_with("1 more")));
    samples.probe_errors.resize(100, samples.probe_errors[0].clone());
    assert!((evaluate(&samples)[0].confidence - sure * 0.5).abs() < 1e-9);
}

#[test]
fn waiting_for_an_unknown_peer_has_less_confidence() {
    let finding = &evaluate(&quiet(0.05))[0];
    assert_eq!(finding.class, LimitClass::External);
    assert!(finding.confidence < 0.6 && finding.counterfactual.contains("lock"), "{finding:?}");
}

/// Situations that resemble too few workers, or waits for other systems.
#[test]
fn throttled_threads_wait_for_no_peer() {
    let unread = |change: fn(&mut Samples)| {
        let mut samples = quiet(0.1);
        samples.processes[0].unread_share = Some(0.85);
        change(&mut samples);
        evaluate(&samples).iter().any(|finding| finding.class == LimitClass::TooFewWorkers)
    };
    assert!(unread(|_| {}));
    assert!(!unread(|s| s.processes[0].group =
        Some(GroupCounters { throttled_periods: 1, ..GroupCounters::default() })));
    assert!(!unread(|s| s.disks[0].utilisation = 0.6));
    assert!(!unread(|s| s.memory_pressure = Some(0.2)));
    let mut samples = quiet(0.1);
    samples.processes[0].threads[1].waited = Some(0.5);
    assert!(evaluate(&samples).iter().all(|finding| finding.class != LimitClass::External));
}

#[test]
fn on_a_full_machine_the_generator_is_hardly_the_limit() {
    let mut samples = quiet(0.97);
    samples.load = samples.load.map(|load| GeneratorLoad { was_the_limit: true, ..load });
    let findings = evaluate(&samples);
    let generator = findings.iter().find(|finding| finding.class == LimitClass::Generator);
    assert_eq!(
        (findings[0].class, generator.map(|finding| finding.confidence)),
        (LimitClass::AllCpus, Some(0.4))
    );
}

#[test]
fn no_samples_make_a_rule_panic() {
    let spans = [Duration::ZERO, Duration::from_secs(1)];
    for (span, (_, plant)) in spans.into_iter().flat_map(|span| PLANTS.map(|plant| (span, plant))) {
        let mut samples = quiet(0.0);
        plant(&mut samples);
        samples.span = span;
        samples.load = samples.load.map(|load| GeneratorLoad {
            rate: 0.0,
            service_time: Duration::ZERO,
            ..load
        });
        samples.cores.truncate(usize::from(span.is_zero()));
        assert!(
            evaluate(&samples).iter().all(|f| (0.0..=1.0).contains(&f.confidence)),
            "{samples:?}"
        );
    }
}
