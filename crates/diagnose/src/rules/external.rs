//! The service waits for something else: hardly any CPU is used anywhere, and no request is worked on.

use super::finding::{Class, Finding, percent};
use crate::samples::{Role, Samples, Thread, Watched};

/// Above this share of all CPUs the answer lies there.
const CPU_BELOW: f64 = 0.6;
/// Above this share of the service time, requests are worked on, not waited for.
const WORKED_BELOW: f64 = 0.3;
/// Disks that are busier than this may be what it waits for.
const DISK_BELOW: f64 = 0.5;
/// A thread that is busier than this has work, not a wait.
const THREAD_BELOW: f64 = 0.8;
/// A thread that waits for a CPU longer than this share of the time does not wait for others.
const WAITED_BELOW: f64 = 0.2;
/// A share of the target rate that is as good as all of it.
const RATE_KEPT: f64 = 0.98;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let busy = samples.busy().filter(|busy| *busy < CPU_BELOW)?;
    let load = samples.load.filter(|load| load.rate > 0.0 && !load.was_the_limit)?;
    let services: Vec<&Watched> = samples.with_role(Role::Service).collect();
    let kept = load.target_rate.is_some_and(|target| load.rate >= RATE_KEPT * target);
    let disk = samples.disks.iter().any(|disk| disk.utilisation >= DISK_BELOW);
    if services.is_empty() || kept || disk || services.iter().any(|process| held_up(process)) {
        return None;
    }
    let used: f64 = services.iter().map(|process| process.cores_used()).sum();
    let worked = used / load.rate / load.service_time.as_secs_f64();
    if !worked.is_finite() || worked >= WORKED_BELOW {
        return None;
    }
    let peer = services.iter().flat_map(|process| &process.peers).max_by_key(|peer| peer.connections);
    let mut evidence = vec![
        format!(
            "a request takes {:.2} ms, of which the service works for {}",
            load.service_time.as_secs_f64() * 1e3,
            percent(worked)
        ),
        format!("CPUs are {} busy, and no disk is", percent(busy)),
    ];
    evidence.extend(peer.map(|peer| format!("it holds {} connections to {}", peer.connections, peer.address)));
    let (confidence, counterfactual) = match peer {
        Some(peer) => {
            let (answers, twice) = (peer.address, peer.connections.saturating_mul(2));
            (
                0.8,
                format!(
                    "if {answers} answers in half the time, or takes {twice} requests at once, the rate up to doubles"
                ),
            )
        }
        // A lock or a sleep looks the same from outside.
        None => (
            0.55,
            "look at what its threads wait for (/proc/PID/task/*/wchan, or a stack dump): a lock, a sleep, a peer"
                .to_owned(),
        ),
    };
    Some(Finding { class: Class::External, confidence, evidence, counterfactual })
}

/// A thread at its limit, or that waits for a CPU, or a group: then it does not wait for others.
fn held_up(process: &Watched) -> bool {
    let throttled = process.group.is_some_and(|group| group.throttled_periods > 0);
    let waited = |thread: &Thread| thread.waited.is_some_and(|share| share >= WAITED_BELOW);
    throttled || process.threads.iter().any(|thread| thread.busy >= THREAD_BELOW || waited(thread))
}
