//! Requests are refused or fail: a rate limit, overload protection, a proxy without an answer, or a
//! limit of connections. What is refused costs the service little, so its resources look idle.

use hotrow_measure::figures::grouped;

use super::cpu_demand::taken;
use super::finding::{Finding, LimitClass, confidence, percent};
use crate::samples::{FailureKind, GeneratorLoad, Role, Samples};

/// Share of failed requests that counts.
const FAILED: f64 = 0.01;
/// Share from which failures certainly limit.
const FAILED_FULL: f64 = 0.1;
/// Share from which whatever is busy is busy with failing.
const FAILED_MOST: f64 = 0.5;
/// Confidence then: above that of every other finding about the machine.
const MOST_CONFIDENCE: f64 = 0.97;
/// Busy share of the CPUs from which fewer failures may be their consequence.
const CPUS_BUSY: f64 = 0.9;
/// Confidence factor then.
const CPUS_BUSY_FACTOR: f64 = 0.7;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let load = samples.load?;
    let failures = load.failures.filter(|failures| failures.share >= FAILED)?;
    let certainty = match taken(samples) {
        Some(taken) if taken >= CPUS_BUSY => CPUS_BUSY_FACTOR,
        _ => 1.0,
    };
    let share = percent(failures.share);
    let what = match failures.kind {
        FailureKind::Status(status) => format!("{share} of the requests were answered {status}"),
        FailureKind::Closed => format!("on {share} of the requests the connection was closed"),
        FailureKind::Reset => format!("on {share} of the requests the connection was reset"),
    };
    let sure = match failures.share {
        FAILED_MOST.. => MOST_CONFIDENCE,
        share => confidence(share, FAILED, FAILED_FULL) * certainty,
    };
    Some(Finding {
        class: LimitClass::Failures,
        confidence: sure,
        evidence: vec![
            what,
            format!("{}, {}", sender(samples), reason(failures.kind)),
            format!("{} requests/s were answered as expected", grouped(load.rate)),
        ],
        counterfactual: counterfactual(&load),
    })
}

/// Returns the process that sent them, as far as it is watched.
fn sender(samples: &Samples) -> String {
    let mut in_front = samples.with_role(Role::Proxy).chain(samples.with_role(Role::Service));
    match in_front.next() {
        Some(process) => {
            format!("process {}, which received the requests, ended them so", process.pid)
        }
        None => "the target ended them so".to_owned(),
    }
}

/// Returns the usual reason: RFC 9110 section 15, RFC 6585 section 4.
fn reason(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Status(429) => "as a rate limit does",
        FailureKind::Status(502 | 504) => "as a proxy does that gets no answer from behind",
        FailureKind::Status(503) => {
            "as overload protection does, a limit of requests, or a proxy without a backend"
        }
        FailureKind::Status(500..) => "as after an error inside; its log says which",
        FailureKind::Status(_) => "as for a wrong request",
        FailureKind::Closed | FailureKind::Reset => "as at a limit of connections or requests",
    }
}

fn counterfactual(load: &GeneratorLoad) -> String {
    let below = grouped(0.7 * load.rate);
    format!(
        "a higher limit there; below {below} requests/s, or with a quarter of the connections, \
         the failures end"
    )
}
