//! One thread is busy while CPUs are idle: a single-threaded service, or a proxy with one worker.
//! With one request at a time there is never work for two threads: `too_few` handles that.

use super::cpu_demand::granted;
use super::finding::{Finding, LimitClass, confidence, percent, up_to};
use crate::samples::{Role, Samples, WatchedProcess};

/// CPU share from which a thread has no capacity left.
const BUSY: f64 = 0.9;
/// Share from which it certainly limits.
const FULL: f64 = 0.98;
/// CPU share below which another thread could have taken some of the work.
const OTHER_IDLE: f64 = 0.7;
/// Share of stolen CPU time from which it is reported.
const STEAL_REPORTED: f64 = 0.05;
/// Minimum number of idle CPUs.
const IDLE_CORES: f64 = 0.3;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let idle = samples.idle_cores().filter(|idle| *idle >= IDLE_CORES)?;
    if samples.load.is_some_and(|load| load.target_rate.is_none() && load.connections <= 1) {
        return None;
    }
    let granted = granted(samples);
    let busy = |process: &&WatchedProcess| {
        let [first, rest @ ..] = process.threads.as_slice() else { return false };
        first.busy >= BUSY * granted && rest.first().is_none_or(|second| second.busy < OTHER_IDLE)
    };
    // The proxy first: behind a full proxy the service is not full.
    let process =
        samples.with_role(Role::Proxy).chain(samples.with_role(Role::Service)).find(busy)?;
    let first = process.threads.first()?;
    let class = if process.role == Role::Proxy { LimitClass::Proxy } else { LimitClass::OneThread };
    let mut evidence = vec![
        format!(
            "thread {:?} of process {} uses {} of a CPU",
            first.name,
            process.pid,
            percent(first.busy)
        ),
        format!("{idle:.1} of {} CPUs are idle", samples.cores.len()),
    ];
    if granted < 1.0 - STEAL_REPORTED {
        let stolen = percent(1.0 - granted);
        evidence.push(format!(
            "the hypervisor took {stolen} of the CPU time that was wanted, and so much less is all \
             of it"
        ));
    }
    evidence.extend(
        process.threads.get(1).map(|next| format!("the next busiest uses {}", percent(next.busy))),
    );
    Some(Finding {
        class,
        confidence: confidence(first.busy / granted, BUSY, FULL),
        evidence,
        counterfactual: format!(
            "spread the work of this thread over {} CPUs (more workers or processes){}",
            samples.cores.len(),
            up_to(1.0 + idle)
        ),
    })
}
