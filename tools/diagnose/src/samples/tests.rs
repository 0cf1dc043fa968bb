use hotrow_measure::clock::Nanos;

use super::*;
use crate::probe::cpu::{CpuStat, CpuTime};
use crate::root::{ProbeErrorKind, Root};
use crate::sampler::Sampler;

fn fixture(name: &str) -> Root {
    Root::at(std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name))
}

#[test]
fn rates_come_from_differences() {
    let mut sampler = Sampler::new(fixture("linux-5.10-debian"), &[]);
    let earlier = sampler.sample(Nanos(0));
    let mut later = sampler.sample(Nanos(2_000_000_000));
    let still = Samples::between(&earlier, &later, |_| Role::Service);
    assert_eq!(
        (still.busy(), still.cpu_pressure),
        (None, Some(0.0)),
        "no tick passed, so there is no share of any"
    );
    later.cpu_pressure.as_mut().unwrap().some += Duration::from_millis(500);
    let CpuStat { cores, .. } = later.cpu.as_mut().unwrap();
    for (_, time) in cores.iter_mut() {
        *time = CpuTime {
            user: time.user + 100,
            softirq: time.softirq + 50,
            steal: time.steal + 10,
            idle: time.idle + 40,
            ..*time
        };
    }
    later.interfaces.as_mut().unwrap()[1].sent.bytes += 250_000_000;
    later.tcp_errors.as_mut().unwrap().listen_overflows += 7;
    later.disks.as_mut().unwrap()[0].busy += Duration::from_secs(1);
    let samples = Samples::between(&earlier, &later, |_| Role::Service);
    assert_eq!(samples.busy(), Some(0.75));
    assert!((samples.steal().unwrap() - 0.05).abs() < 1e-9);
    assert!((samples.idle_cores().unwrap() - 8.0 * 0.2).abs() < 1e-9);
    assert_eq!(samples.cpu_pressure, Some(0.25));
    assert_eq!((samples.links[1].name.as_str(), samples.links[1].sent_bits_per_s), ("eth0", 1e9));
    assert_eq!(samples.tcp_errors.unwrap().listen_overflows, 7);
    assert_eq!(
        samples.disks.iter().map(|d| (d.name.as_str(), d.utilisation)).collect::<Vec<_>>(),
        [("nvme0n1", 0.5)]
    );
    assert_eq!(samples.probe_errors, Vec::new());
}

#[test]
fn threads_are_compared_by_id_and_hidden_ones_are_named_once() {
    let mut sampler = Sampler::new(fixture("linux-4.18-el8"), &[7, 8]);
    let (mut earlier, mut later) = (sampler.sample(Nanos(0)), sampler.sample(Nanos(1_000_000_000)));
    let task = |tid, ms| Task {
        tid,
        name: format!("t{tid}"),
        cpu: Duration::from_millis(ms),
        ..Task::default()
    };
    (earlier.processes[0].cpu, later.processes[0].cpu) =
        (Ok(Duration::ZERO), Ok(Duration::from_millis(1130)));
    earlier.processes[0].tasks = Ok(vec![task(1, 500), task(2, 0)]);
    later.processes[0].tasks = Ok(vec![task(1, 700), task(3, 900)]);
    let samples =
        Samples::between(
            &earlier,
            &later,
            |pid| if pid == 7 { Role::Proxy } else { Role::Service },
        );
    let process = &samples.processes[0];
    assert_eq!(
        (process.pid, process.role, samples.processes.len()),
        (7, Role::Proxy, 1),
        "the other one is not there"
    );
    let busy: Vec<_> =
        process.threads.iter().map(|t| (t.name.as_str(), (t.busy * 10.0).round())).collect();
    assert_eq!(busy, [("t3", 9.0), ("t1", 2.0)]);
    assert!(
        (process.cores_used() - 1.1).abs() < 1e-9,
        "the threads' own, for the process's account agrees"
    );
    later.processes[0].cpu = Ok(Duration::from_millis(1900));
    let ended = Samples::between(&earlier, &later, |_| Role::Service);
    assert!((ended.processes[0].cores_used() - 1.9).abs() < 1e-9, "threads have ended");
    let missing: Vec<&str> =
        samples.probe_errors.iter().map(|probe_error| probe_error.file.as_str()).collect();
    assert_eq!(
        missing,
        ["proc/pressure/cpu", "proc/pressure/memory", "proc/pressure/io", "proc/8/task"]
    );
    assert!(
        samples.probe_errors.iter().all(|probe_error| probe_error.why == ProbeErrorKind::Missing)
    );
}

#[test]
fn endpoint_samples_have_switches_and_other_processes() {
    let own = std::process::id();
    let mut sampler = Sampler::new(Root::machine(), &[own]);
    let earlier = sampler.sample_endpoint(Nanos(0));
    // At least one context switch of this thread, and a little work.
    let parked = std::thread::scope(|scope| {
        scope.spawn(|| (0..1 << 20).fold(0_u64, |sum, n| sum ^ n)).join()
    });
    let later = sampler.sample_endpoint(Nanos(1_000_000_000));
    let samples = Samples::between(&earlier, &later, |_| Role::Service);
    let process = &samples.processes[0];
    assert!(
        parked.is_ok() && process.waits_per_s.is_some() && process.preempted_per_s.is_some(),
        "{process:?}"
    );
    assert!(process.cores.is_some_and(|cores| cores >= 0.0), "{process:?}");
    assert!(
        samples.others.iter().all(|other| other.pid != own && other.cores > 0.0),
        "{:?}",
        samples.others
    );
    let brief =
        Samples::between(&earlier, &sampler.sample(Nanos(2_000_000_000)), |_| Role::Service);
    assert_eq!((brief.processes[0].waits_per_s, brief.others), (None, Vec::new()));
}

#[test]
fn other_network_namespaces_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/linux-4.18-el8/proc/net");
    for place in [
        "proc/net",
        "proc/7/net",
        "proc/8/net",
        "proc/self/ns",
        "proc/7/ns",
        "proc/8/ns",
        "proc/9/ns",
    ] {
        let place = folder.path().join(place);
        std::fs::create_dir_all(&place).unwrap();
        let namespace = place.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        if place.ends_with("ns") {
            let name = if ["7", "8"].contains(&namespace.as_str()) { "net:[2]" } else { "net:[1]" };
            std::os::unix::fs::symlink(name, place.join("net")).unwrap();
        } else {
            for file in ["snmp", "netstat"] {
                std::fs::copy(fixtures.join(file), place.join(file)).unwrap();
            }
        }
    }
    let mut sampler = Sampler::new(Root::at(folder.path()), &[7, 8, 9]);
    let (earlier, mut later) = (sampler.sample(Nanos(0)), sampler.sample(Nanos(1_000_000_000)));
    assert_eq!(later.other_namespaces.len(), 1, "7 and 8 share one, 9 is where this process is");
    later.tcp_errors.as_mut().unwrap().listen_overflows += 3;
    later.other_namespaces[0].1.as_mut().unwrap().listen_overflows += 4;
    later.other_namespaces[0].0.as_mut().unwrap().retransmitted += 5;
    let samples = Samples::between(&earlier, &later, |_| Role::Service);
    assert_eq!(samples.tcp_errors.unwrap().listen_overflows, 7);
    assert_eq!(samples.segments.unwrap().retransmitted, 5);
}

/// With the mount option `hidepid` a user sees only its own processes; without `/proc` nothing is
/// visible.
#[test]
fn hidden_processes_are_reported_and_lower_the_confidence() {
    let folder = tempfile::tempdir().unwrap();
    let put = |pid: &str| {
        let line = "1 (a) S 0 1 1 0 -1 4194560 1 2 3 4 150 50 7 3 20 0 1 0 98 1000 321 0\n";
        std::fs::create_dir_all(folder.path().join("proc").join(pid)).unwrap();
        std::fs::write(folder.path().join("proc").join(pid).join("stat"), line).unwrap();
    };
    let look = |root: &Root| {
        let mut sampler = Sampler::new(root.clone(), &[]);
        Samples::between(
            &sampler.sample_endpoint(Nanos(0)),
            &sampler.sample_endpoint(Nanos(1_000_000_000)),
            |_| Role::Service,
        )
    };
    put("self");
    let hidden = look(&Root::at(folder.path()));
    put("1");
    let open = look(&Root::at(folder.path()));
    let named = |samples: &Samples| {
        samples.probe_errors.iter().any(|probe_error| probe_error.file == "proc/1/stat")
    };
    assert_eq!((named(&hidden), named(&open)), (true, false));
    assert_eq!(hidden.probe_errors.len(), open.probe_errors.len() + 1);
    let one = Samples {
        probe_errors: hidden
            .probe_errors
            .into_iter()
            .filter(|one| one.file == "proc/1/stat")
            .collect(),
        ..open.clone()
    };
    let none = Samples { probe_errors: Vec::new(), ..open };
    let confidence = |samples: &Samples| crate::rules::evaluate(samples)[0].confidence;
    assert!(confidence(&one) < confidence(&none));
    let mut nowhere = look(&Root::at("/nonexistent"));
    crate::survey::survey(&Root::at("/nonexistent"), &mut nowhere);
    assert!(
        nowhere.probe_errors.len() > 10
            && nowhere
                .probe_errors
                .iter()
                .all(|probe_error| probe_error.why == ProbeErrorKind::Missing),
        "{nowhere:?}"
    );
    assert!(
        confidence(&nowhere) < 0.6 * confidence(&none),
        "{:?}",
        crate::rules::evaluate(&nowhere)
    );
}
