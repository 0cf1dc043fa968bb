//! Connections come faster than they are accepted. The kernel counts connections that found a queue full, of all listeners of a network
//! namespace together: a few of them hold up few of ours, or are somebody else's.

use super::finding::{Class, Finding, confidence, percent};
use crate::samples::{AcceptQueue, Load, Role, Samples};

/// Fewer connections a second that found a queue full limit nothing.
const OVERFLOWS_PER_S: f64 = 0.5;
/// From this rate on there are many.
const OVERFLOWS_FULL_PER_S: f64 = 10.0;
/// Whoever finds the queue full tries again after so long at least (TCP_RTO_MIN in include/net/tcp.h; a second for the first segment).
const RETRY_S: f64 = 0.2;
/// From this share of the generator's connections on, that stand still or fail, the queue limits.
const HURT: f64 = 0.05;
/// From this share on there is no doubt.
const HURT_FULL: f64 = 0.3;
/// A smaller share is not worth a word.
const HURT_TOLD: f64 = 0.005;
/// From this share on, of connections that nobody takes in, they are what overflows.
const SHOWS: f64 = 0.02;
/// What is left of the confidence when neither the target's queue nor the generator's connections could be seen.
const UNSEEN_DOUBT: f64 = 0.8;
/// The same when they were seen and show nothing of it: it is another listener, or it has passed.
const UNCONFIRMED_DOUBT: f64 = 0.5;
/// The same when nobody tells of a load that is held up.
const NO_LOAD_DOUBT: f64 = 0.6;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let trouble = samples.trouble?;
    let per_s = trouble.listen_overflows as f64 / samples.span.as_secs_f64();
    if !per_s.is_finite() || per_s < OVERFLOWS_PER_S {
        return None;
    }
    let (queue, untaken) = (queue(samples), untaken(samples));
    let mut evidence = vec![format!(
        "{} times a segment found the queue of a listener full, and {} were dropped (ListenOverflows, ListenDrops)",
        trouble.listen_overflows, trouble.listen_drops
    )];
    let sure = match samples.load {
        Some(load) => {
            let hurt = hurt(load, per_s, untaken).filter(|hurt| *hurt >= HURT_TOLD)?;
            evidence.push(words(load, per_s, untaken));
            let failed = failed(load, per_s).is_some_and(|share| share >= SHOWS);
            graded(hurt) * doubt(queue, untaken, failed)
        }
        None => confidence(per_s, OVERFLOWS_PER_S, OVERFLOWS_FULL_PER_S) * NO_LOAD_DOUBT,
    };
    evidence.extend(queue.map(|queue| match queue.most {
        Some(most) => format!("{} connections wait in the target's queue, which drops beyond {most}", queue.waiting),
        None => format!("{} connections wait in the target's queue", queue.waiting),
    }));
    Some(Finding {
        class: Class::AcceptQueue,
        confidence: sure,
        evidence,
        counterfactual:
            "twice the queue (listen's backlog and net.core.somaxconn), or more threads that accept, ends the drops"
                .to_owned(),
    })
}

/// The fullest queue of what is loaded.
fn queue(samples: &Samples) -> Option<AcceptQueue> {
    let loaded = samples.processes.iter().filter(|process| matches!(process.role, Role::Service | Role::Proxy));
    loaded.filter_map(|process| process.accept_queue).max_by_key(|queue| (queue.is_full(), queue.waiting))
}

/// Share of the generator's connections that nobody takes in, 0 to 1.
fn untaken(samples: &Samples) -> Option<f64> {
    samples.with_role(Role::Generator).filter_map(|process| process.untaken_share).reduce(f64::max)
}

/// Share of the generator's connections that fail or stand still for it, 0 to 1; none where they cannot be meant.
fn hurt(load: Load, per_s: f64, untaken: Option<f64>) -> Option<f64> {
    // Each makes a connection stand still for that time at least; but who opens none finds no queue full.
    let opens = load.connects_per_s.is_none_or(|tried| tried > 0.0);
    let still = (opens && load.connections > 0).then(|| (per_s * RETRY_S / load.connections as f64).min(1.0));
    [untaken, failed(load, per_s), still].into_iter().flatten().reduce(f64::max)
}

/// Share of the new connections that may have failed for it: no more than found it full.
fn failed(load: Load, per_s: f64) -> Option<f64> {
    load.connects_per_s.filter(|tried| *tried > 0.0).map(|tried| load.failed_connects_per_s.min(per_s) / tried)
}

fn graded(hurt: f64) -> f64 {
    if hurt < HURT { 0.5 * hurt / HURT } else { confidence(hurt, HURT, HURT_FULL) }
}

/// Whether it is the target's queue that overflows: 1 when it shows.
fn doubt(queue: Option<AcceptQueue>, untaken: Option<f64>, failed: bool) -> f64 {
    let full = queue.is_some_and(AcceptQueue::is_full);
    let seen = queue.is_some_and(|queue| queue.most.is_some()) || untaken.is_some();
    match full || failed || untaken.is_some_and(|share| share >= SHOWS) {
        true => 1.0,
        false if seen => UNCONFIRMED_DOUBT,
        false => UNSEEN_DOUBT,
    }
}

fn words(load: Load, per_s: f64, untaken: Option<f64>) -> String {
    let opened = load.connects_per_s.map(|tried| {
        format!(
            "{per_s:.1} a second, while the generator opens {tried:.0} (of which {:.1} fail)",
            load.failed_connects_per_s
        )
    });
    let opened = opened.unwrap_or_else(|| format!("{per_s:.1} a second"));
    match untaken {
        Some(share) => format!("{opened}; {} of its connections nobody has taken in", percent(share)),
        None => opened,
    }
}
