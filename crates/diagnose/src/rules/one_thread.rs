//! One thread is busy while CPUs are idle: a single-threaded service, or a proxy with one worker. With one request at a
//! time there is never work for more than one: `too_few` says that.

use super::finding::{Class, Finding, confidence, percent};
use crate::samples::{Role, Samples, Watched};

/// From this share of a CPU on a thread has nothing left to give.
const BUSY: f64 = 0.9;
/// From this share on there is no doubt.
const FULL: f64 = 0.98;
/// Another thread below this share of a CPU could have done some of it.
const OTHER_IDLE: f64 = 0.7;
/// CPUs that must be idle, added up, for one thread to be what limits.
const IDLE_CORES: f64 = 0.3;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let idle = samples.idle_cores().filter(|idle| *idle >= IDLE_CORES)?;
    if samples.load.is_some_and(|load| load.target_rate.is_none() && load.connections <= 1) {
        return None;
    }
    let busy = |process: &&Watched| {
        let [first, rest @ ..] = process.threads.as_slice() else { return false };
        first.busy >= BUSY && rest.first().is_none_or(|second| second.busy < OTHER_IDLE)
    };
    // What stands in front first: behind a full proxy the service is not full.
    let process = samples.with_role(Role::Proxy).chain(samples.with_role(Role::Service)).find(busy)?;
    let first = process.threads.first()?;
    let class = if process.role == Role::Proxy { Class::Proxy } else { Class::OneThread };
    let mut evidence = vec![
        format!("thread {:?} of process {} uses {} of a CPU", first.name, process.pid, percent(first.busy)),
        format!("{idle:.1} of {} CPUs are idle", samples.cores.len()),
    ];
    evidence.extend(process.threads.get(1).map(|next| format!("the next busiest uses {}", percent(next.busy))));
    Some(Finding {
        class,
        confidence: confidence(first.busy, BUSY, FULL),
        evidence,
        counterfactual: format!(
            "spread the work of this thread over {} (more workers): up to {:.1} \
            times the rate",
            samples.cores.len(),
            1.0 + idle
        ),
    })
}
