//! Connections arrive faster than they are accepted. The kernel counts connections that found a
//! full queue for all listeners of a network namespace together; few of them delay few of the
//! generator's, or belong to another program.

use super::finding::{Finding, LimitClass, confidence, percent};
use crate::samples::{AcceptQueue, GeneratorLoad, Role, Samples};

/// Fewer connections per second that found a full queue limit nothing.
const OVERFLOWS_PER_S: f64 = 0.5;
/// Rate from which there are many.
const OVERFLOWS_FULL_PER_S: f64 = 10.0;
/// Shortest time before a connection that found the queue full retries (TCP_RTO_MIN in
/// include/net/tcp.h; a second for the first segment).
const RETRY_S: f64 = 0.2;
/// Share of the generator's connections, stalled or failed, from which the queue limits.
const AFFECTED: f64 = 0.05;
/// Share from which it certainly limits.
const AFFECTED_FULL: f64 = 0.3;
/// Smaller shares are not reported.
const AFFECTED_REPORTED: f64 = 0.005;
/// Share of connections not accepted from which they are what overflows.
const SHOWS: f64 = 0.02;
/// Confidence factor when neither the target's queue nor the generator's connections are visible.
const UNSEEN_FACTOR: f64 = 0.8;
/// Confidence factor when they are visible and show nothing: another listener overflows, or the
/// overflow has ended.
const UNCONFIRMED_FACTOR: f64 = 0.5;
/// Confidence factor without information on the load.
const NO_LOAD_FACTOR: f64 = 0.6;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let errors = samples.tcp_errors?;
    let per_s = errors.listen_overflows as f64 / samples.span.as_secs_f64();
    if !per_s.is_finite() || per_s < OVERFLOWS_PER_S {
        return None;
    }
    let (queue, unaccepted_share) = (queue(samples), unaccepted_share(samples));
    let mut evidence = vec![format!(
        "{} times a segment found the queue of a listener full, and {} were dropped \
         (ListenOverflows, ListenDrops)",
        errors.listen_overflows, errors.listen_drops
    )];
    let sure = match samples.load {
        Some(load) => {
            let affected_share = affected_share(load, per_s, unaccepted_share)
                .filter(|affected_share| *affected_share >= AFFECTED_REPORTED)?;
            evidence.push(words(load, per_s, unaccepted_share));
            let failed = failed(load, per_s).is_some_and(|share| share >= SHOWS);
            graded(affected_share) * certainty(queue, unaccepted_share, failed)
        }
        None => confidence(per_s, OVERFLOWS_PER_S, OVERFLOWS_FULL_PER_S) * NO_LOAD_FACTOR,
    };
    evidence.extend(queue.map(|queue| match queue.most {
        Some(most) => format!(
            "{} connections wait in the target's queue, which drops beyond {most}",
            queue.waiting
        ),
        None => format!("{} connections wait in the target's queue", queue.waiting),
    }));
    Some(Finding {
        class: LimitClass::AcceptQueue,
        confidence: sure,
        evidence,
        counterfactual:
            "twice the queue (listen's backlog and net.core.somaxconn), or more threads that \
             accept, ends the drops"
                .to_owned(),
    })
}

/// Returns the fullest queue of the load's target.
fn queue(samples: &Samples) -> Option<AcceptQueue> {
    let loaded = samples
        .processes
        .iter()
        .filter(|process| matches!(process.role, Role::Service | Role::Proxy));
    loaded
        .filter_map(|process| process.accept_queue)
        .max_by_key(|queue| (queue.is_full(), queue.waiting))
}

/// Returns the share of the generator's connections that are not accepted, 0 to 1.
fn unaccepted_share(samples: &Samples) -> Option<f64> {
    samples.with_role(Role::Generator).filter_map(|process| process.untaken_share).reduce(f64::max)
}

/// Returns the share of the generator's connections that fail or stall because of the queue, 0 to
/// 1; `None` when they cannot be affected.
fn affected_share(load: GeneratorLoad, per_s: f64, unaccepted_share: Option<f64>) -> Option<f64> {
    // Each overflow stalls a connection for at least that time; but without new connections there
    // is no overflow.
    let opens = load.connects_per_s.is_none_or(|tried| tried > 0.0);
    let still = (opens && load.connections > 0)
        .then(|| (per_s * RETRY_S / load.connections as f64).min(1.0));
    [unaccepted_share, failed(load, per_s), still].into_iter().flatten().reduce(f64::max)
}

/// Returns the share of the new connections that may have failed because of it: no more than found
/// it full.
fn failed(load: GeneratorLoad, per_s: f64) -> Option<f64> {
    load.connects_per_s
        .filter(|tried| *tried > 0.0)
        .map(|tried| load.failed_connects_per_s.min(per_s) / tried)
}

fn graded(affected_share: f64) -> f64 {
    if affected_share < AFFECTED {
        0.5 * affected_share / AFFECTED
    } else {
        confidence(affected_share, AFFECTED, AFFECTED_FULL)
    }
}

/// Returns whether the target's queue is the one that overflows: 1 when that is visible.
fn certainty(queue: Option<AcceptQueue>, unaccepted_share: Option<f64>, failed: bool) -> f64 {
    let full = queue.is_some_and(AcceptQueue::is_full);
    let seen = queue.is_some_and(|queue| queue.most.is_some()) || unaccepted_share.is_some();
    match full || failed || unaccepted_share.is_some_and(|share| share >= SHOWS) {
        true => 1.0,
        false if seen => UNCONFIRMED_FACTOR,
        false => UNSEEN_FACTOR,
    }
}

fn words(load: GeneratorLoad, per_s: f64, unaccepted_share: Option<f64>) -> String {
    let opened = load.connects_per_s.map(|tried| {
        format!(
            "{per_s:.1} a second, while the generator opens {tried:.0} (of which {:.1} fail)",
            load.failed_connects_per_s
        )
    });
    let opened = opened.unwrap_or_else(|| format!("{per_s:.1} a second"));
    match unaccepted_share {
        Some(share) => format!("{opened}; {} of its connections are not accepted", percent(share)),
        None => opened,
    }
}
