use hotrow_measure::clock::Nanos;

use super::*;
use crate::probe::cpu::{CpuStat, CpuTime};
use crate::root::{Root, Why};
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
    assert_eq!((still.busy(), still.cpu_pressure), (None, Some(0.0)), "no tick passed, so there is no share of any");
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
    later.trouble.as_mut().unwrap().listen_overflows += 7;
    later.disks.as_mut().unwrap()[0].busy += Duration::from_secs(1);
    let samples = Samples::between(&earlier, &later, |_| Role::Service);
    assert_eq!(samples.busy(), Some(0.75));
    assert!((samples.steal().unwrap() - 0.05).abs() < 1e-9);
    assert!((samples.idle_cores().unwrap() - 8.0 * 0.2).abs() < 1e-9);
    assert_eq!(samples.cpu_pressure, Some(0.25));
    assert_eq!((samples.links[1].name.as_str(), samples.links[1].sent_bits_per_s), ("eth0", 1e9));
    assert_eq!(samples.trouble.unwrap().listen_overflows, 7);
    assert_eq!(samples.disks.iter().map(|d| (d.name.as_str(), d.utilisation)).collect::<Vec<_>>(), [("nvme0n1", 0.5)]);
    assert_eq!(samples.unseen, Vec::new());
}

#[test]
fn threads_are_compared_by_id_and_what_is_unseen_is_named_once() {
    let mut sampler = Sampler::new(fixture("linux-4.18-el8"), &[7, 8]);
    let (mut earlier, mut later) = (sampler.sample(Nanos(0)), sampler.sample(Nanos(1_000_000_000)));
    let task = |tid, ms| Task { tid, name: format!("t{tid}"), cpu: Duration::from_millis(ms), ..Task::default() };
    earlier.processes[0].tasks = Ok(vec![task(1, 500), task(2, 0)]);
    later.processes[0].tasks = Ok(vec![task(1, 700), task(3, 900)]);
    let samples = Samples::between(&earlier, &later, |pid| if pid == 7 { Role::Proxy } else { Role::Service });
    let process = &samples.processes[0];
    assert_eq!((process.pid, process.role, samples.processes.len()), (7, Role::Proxy, 1), "the other one is not there");
    let busy: Vec<_> = process.threads.iter().map(|t| (t.name.as_str(), (t.busy * 10.0).round())).collect();
    assert_eq!(busy, [("t3", 9.0), ("t1", 2.0)]);
    assert!((process.cores_used() - 1.1).abs() < 1e-9);
    let missing: Vec<&str> = samples.unseen.iter().map(|unseen| unseen.file.as_str()).collect();
    assert_eq!(missing, ["proc/pressure/cpu", "proc/pressure/memory", "proc/pressure/io", "proc/8/task"]);
    assert!(samples.unseen.iter().all(|unseen| unseen.why == Why::Missing));
}
