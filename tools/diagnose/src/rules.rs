//! Bottleneck rules: one module per class, each a pure function from [`Samples`] to a [`Finding`].
//! [`evaluate`] applies all of them.
//!
//! Thresholds are named constants of each rule. A finding is a hypothesis with evidence. Only
//! changing the named limit confirms it, which is the purpose of its counterfactual.
//!
//! Reference `diagnosis`: # Classes of limits
//!
//! What [diagnosis](diagnosis.md) names, and when.
//!
//! - **CPU: all of them**: CPUs 90 % used, and the service demands them. Garbage collection (Java,
//!   .NET) is named from 15 % of its CPU time on
//! - **another process**: the same, with a fifth of the work by unwatched processes, which it names
//! - **CPU: one thread**: a thread uses 90 % of what it could get, the next below 70 %, CPUs are
//!   idle; with one connection: too few connections
//! - **CPU: cgroup**: throttled in 30 % of its periods (`cpu.stat`); the most throttled of its
//!   group and ancestors
//! - **CPU: steal**: 10 % stolen, and hardly any idle
//! - **a lock**: threads hold half of the requests and wait for another thread, use about one CPU
//!   together, and CPUs are idle. 70 % sure when they wait for nothing visible (Go)
//! - **disk**: threads wait for a disk most, and pressure (PSI) confirms it; or a disk is busy 80 %
//!   of the time
//! - **external**: threads wait for a named peer most; or hardly any CPU is used and a request
//!   mostly waits
//! - **too few workers**: on 30 % of the connections a request is unread, or they wait to be
//!   accepted, and the workers wait, but not for a disk or one lock
//! - **too few connections**: fewer connections than CPUs, and a request mostly works
//! - **network: bandwidth**: a link at 85 % of its speed; at unknown speed, unacknowledged
//!   responses on half of the connections and round trips of twice the minimum
//! - **network: loss**: 1 % of the segments retransmitted, spurious ones (D-SACK) not counted
//! - **accept queue**: `ListenOverflows`, of all listeners, grows, and 5 % of the generator's
//!   connections stall or fail because of it
//! - **open files, local ports, kernel tables**: 95 % in use; `TCPAbortOnMemory` grows
//! - **memory**: threads wait for memory (PSI) during reclaim or swapping, or at a cgroup's limit
//! - **the proxy in front**: one busy thread of the proxy; in the lab, and with `--proxy-pid`
//! - **the load generator**: its own judgement; otherwise a thread at 95 %, or its throttled
//!   cgroup. On full CPUs, or with a tenth stolen: 40 % sure
//! - **failures**: 1 % of the requests get the same unexpected status, or lose their connection; 95
//!   % sure from a tenth on, less on full CPUs
//! - **none found**: no finding is 50 % sure; 90 % sure with a kept rate

mod accept_queue;
mod competitor;
mod cpu;
mod cpu_demand;
mod database_waits;
mod disk;
mod external;
mod failures;
pub mod finding;
mod garbage_collection;
mod generator;
mod lock;
mod memory;
mod network;
mod one_thread;
mod tables;
mod thread_states;
mod too_few;
mod withheld;

use hotrow_measure::figures::grouped;

use self::finding::{Finding, LimitClass};
use crate::samples::Samples;

/// The rule of one class.
pub type Rule = fn(&Samples) -> Option<Finding>;

/// All rules. A rule that requires the absence of others, such as `external`, follows them. A lack
/// of files prevents accepting and so fills the accept queue; therefore files come first.
pub const RULES: [Rule; 19] = [
    generator::evaluate,
    tables::open_files,
    accept_queue::evaluate,
    tables::ports,
    tables::conntrack,
    tables::tcp_memory,
    withheld::throttled,
    withheld::steal,
    memory::evaluate,
    competitor::evaluate,
    cpu::evaluate,
    one_thread::evaluate,
    lock::evaluate,
    garbage_collection::evaluate,
    network::evaluate,
    disk::evaluate,
    too_few::evaluate,
    external::evaluate,
    failures::evaluate,
];

/// A finding with lower confidence is reported, but the report still states that no limit was
/// found.
const LIKELY_FROM: f64 = 0.5;
/// Reduction of a finding's confidence for each unreadable file, down to [`UNREADABLE_FACTOR_MIN`].
const UNREADABLE_PENALTY: f64 = 0.05;
/// See [`UNREADABLE_PENALTY`].
const UNREADABLE_FACTOR_MIN: f64 = 0.5;

/// Factor from the confidence of a cause to that of the failures that it explains.
const CONSEQUENCE_FACTOR: f64 = 0.9;

/// Applies every rule; returns the most certain finding first. If none is likely, the result
/// includes that no limit was found.
pub fn evaluate(samples: &Samples) -> Vec<Finding> {
    evaluate_some(samples, |_| true)
}

/// The same for the `wanted` classes; "no limit was found" is always possible.
pub fn evaluate_some(samples: &Samples, wanted: impl Fn(LimitClass) -> bool) -> Vec<Finding> {
    let found = RULES.iter().filter_map(|rule| rule(samples));
    let mut findings: Vec<Finding> = found.filter(|finding| wanted(finding.class)).collect();
    garbage_collection::explain(&mut findings, samples);
    rank_failures(&mut findings);
    sort(&mut findings);
    if findings.iter().all(|finding| finding.confidence < LIKELY_FROM) {
        findings.push(none_found(samples));
        sort(&mut findings);
    }
    let sight =
        (1.0 - UNREADABLE_PENALTY * samples.probe_errors.len() as f64).max(UNREADABLE_FACTOR_MIN);
    let files: Vec<_> =
        samples.probe_errors.iter().filter(|error| !error.file.is_empty()).collect();
    for finding in &mut findings {
        finding.confidence *= sight;
        database_waits::notes(samples, finding);
        if let [first, rest @ ..] = files.as_slice() {
            let others =
                if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            finding.evidence.push(format!("not seen: {first}{others}"));
        }
    }
    findings
}

/// Failures that another finding explains are its consequence and rank behind it.
fn rank_failures(findings: &mut [Finding]) {
    let explains = |finding: &&Finding| {
        let causes = [
            LimitClass::OpenFiles,
            LimitClass::AcceptQueue,
            LimitClass::Ports,
            LimitClass::KernelTable,
            LimitClass::PacketLoss,
        ];
        causes.contains(&finding.class) && finding.confidence >= LIKELY_FROM
    };
    let cause = findings.iter().filter(explains).map(|finding| finding.confidence).reduce(f64::max);
    let failures = findings.iter_mut().find(|finding| finding.class == LimitClass::Failures);
    if let (Some(cause), Some(failures)) = (cause, failures) {
        failures.confidence = failures.confidence.min(CONSEQUENCE_FACTOR * cause);
    }
}

/// The order of [`RULES`] decides between equals.
fn sort(findings: &mut [Finding]) {
    findings.sort_by(|one, other| other.confidence.total_cmp(&one.confidence));
}

fn none_found(samples: &Samples) -> Finding {
    let mut evidence = Vec::new();
    evidence.extend(samples.busy().map(|busy| format!("CPUs {:.0} % busy", busy * 100.0)));
    let kept = samples.load.and_then(|load| load.target_rate.map(|target| (load.rate, target)));
    evidence.extend(kept.map(|(rate, target)| {
        format!("{} of {} requests per second were answered", grouped(rate), grouped(target))
    }));
    Finding {
        class: LimitClass::NoneFound,
        confidence: if kept.is_some_and(|(rate, target)| rate >= 0.98 * target) {
            0.9
        } else {
            0.4
        },
        evidence,
        counterfactual: "ask for more: a higher rate, or more connections".to_owned(),
    }
}

#[cfg(test)]
mod tests;
