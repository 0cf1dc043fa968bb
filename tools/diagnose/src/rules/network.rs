//! A link is at its capacity, or packets are lost.

use super::cpu_demand::cpus_free;
use super::finding::{Finding, LimitClass, confidence, percent};
use super::thread_states::rate_kept;
use crate::samples::{Link, Role, Samples, WatchedProcess};

/// Share of its speed from which a link is full; frame overhead is the rest.
const FULL_FROM: f64 = 0.85;
/// Share from which it certainly is.
const FULL: f64 = 0.93;
/// Share of the clients' connections with unacknowledged data, from which a link without known
/// speed is full.
const UNSENT: f64 = 0.5;
/// Share from which it certainly is.
const UNSENT_FULL: f64 = 0.9;
/// Above this CPU share, or with a thread above [`THREAD_BELOW`], the CPU may be the limit.
const CPU_BELOW: f64 = 0.8;
/// See [`CPU_BELOW`].
const THREAD_BELOW: f64 = 0.9;
/// Ratio of round-trip time to its minimum that shows queueing in front of the link, rather than
/// distance.
const QUEUED: f64 = 2.0;
/// Confidence factor without round-trip times.
const QUEUE_FACTOR: f64 = 0.7;
/// Traffic below this does not count as use of a link, in bits per second.
const CARRIED_BITS_PER_S: f64 = 1e6;
/// The loopback is no link between generator and target.
const LOOPBACK: &str = "lo";
/// Share of retransmitted segments from which loss limits.
const RETRANSMITTED: f64 = 0.01;
/// Share from which it certainly limits.
const RETRANSMITTED_FULL: f64 = 0.05;
/// Minimum number of segments for a judgement.
const SEGMENTS_MIN: u64 = 1000;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    bandwidth(samples).or_else(|| queued(samples)).or_else(|| loss(samples))
}

fn bandwidth(samples: &Samples) -> Option<Finding> {
    let used = |link: &Link| {
        let speed = link.speed_bits_per_s.filter(|speed| *speed > 0.0)?;
        Some(link.received_bits_per_s.max(link.sent_bits_per_s) / speed)
    };
    let links = samples.links.iter().filter_map(|link| Some((link, used(link)?)));
    let (link, share) = links
        .filter(|(_, share)| *share >= FULL_FROM)
        .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(Finding {
        class: LimitClass::Bandwidth,
        confidence: confidence(share, FULL_FROM, FULL),
        evidence: vec![format!(
            "{} receives {:.1} and sends {:.1} Mbit/s of {:.0} each way ({})",
            link.name,
            link.received_bits_per_s / 1e6,
            link.sent_bits_per_s / 1e6,
            link.speed_bits_per_s.unwrap_or_default() / 1e6,
            percent(share)
        )],
        counterfactual: FEWER_BYTES.to_owned(),
    })
}

const FEWER_BYTES: &str = "half the bytes per answer (compression, fewer fields, 304 answers) or a \
                           link twice as fast up to doubles the rate";

/// A link on the path that this machine cannot query: responses remain unacknowledged while CPUs
/// are idle and the generator reads.
fn queued(samples: &Samples) -> Option<Finding> {
    let busy = samples.busy().filter(|_| cpus_free(samples, CPU_BELOW))?;
    let services = || samples.with_role(Role::Service);
    let unsent = services().filter_map(|process| process.unsent_share).fold(0.0, f64::max);
    let held_up = |process: &WatchedProcess| {
        process.threads.iter().any(|thread| thread.busy >= THREAD_BELOW)
            || process.group.is_some_and(|group| group.throttled_periods > 0)
    };
    let links = samples.links.iter().filter(|link| link.name != LOOPBACK);
    let carried = |link: &Link| link.received_bits_per_s.max(link.sent_bits_per_s);
    let link = links.max_by(|one, other| carried(one).total_cmp(&carried(other)));
    let link = link.filter(|link| carried(link) >= CARRIED_BITS_PER_S)?;
    let limited = rate_kept(samples) || samples.load.is_some_and(|load| load.was_the_limit);
    if unsent < UNSENT || limited || services().any(held_up) {
        return None;
    }
    let trips = samples
        .connections
        .filter(|connections| connections.count > 0 && !connections.rtt_min.is_zero());
    let times = trips.map(|trips| trips.rtt.as_secs_f64() / trips.rtt_min.as_secs_f64());
    if times.is_some_and(|times| times < QUEUED) {
        return None;
    }
    let mut evidence = vec![
        format!(
            "on {} of the connections, answers wait until the link has carried those before them",
            percent(unsent)
        ),
        format!(
            "{} carries {:.1} Mbit/s, and CPUs are {} busy",
            link.name,
            carried(link) / 1e6,
            percent(busy)
        ),
    ];
    evidence.extend(trips.map(|trips| {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        format!(
            "a round trip takes {:.2} ms, the shortest took {:.2} ms: segments queue",
            ms(trips.rtt),
            ms(trips.rtt_min)
        )
    }));
    Some(Finding {
        class: LimitClass::Bandwidth,
        confidence: confidence(unsent, UNSENT, UNSENT_FULL)
            * if times.is_some() { 1.0 } else { QUEUE_FACTOR },
        evidence,
        counterfactual: FEWER_BYTES.to_owned(),
    })
}

fn loss(samples: &Samples) -> Option<Finding> {
    let segments = samples.segments.filter(|segments| segments.sent >= SEGMENTS_MIN)?;
    let errors = samples.tcp_errors.unwrap_or_default();
    // Tail loss probes (RFC 8985) are also sent when only the response is slow, and a full accept
    // queue drops segments that the path carried.
    let here =
        samples.processes.iter().any(|process| matches!(process.role, Role::Service | Role::Proxy));
    let dropped_here = if here { errors.listen_drops } else { 0 };
    let lost =
        segments.retransmitted.saturating_sub(errors.sent_for_nothing).saturating_sub(dropped_here);
    let again = lost as f64 / segments.sent as f64;
    let dropped = samples.softnet.map_or(0, |softnet| softnet.dropped);
    if again < RETRANSMITTED {
        return None;
    }
    let mut evidence = vec![format!(
        "{lost} of {} segments were lost and sent again ({:.1} %), besides {} that were sent again \
         for nothing or that a listener dropped",
        segments.sent,
        again * 100.0,
        segments.retransmitted - lost
    )];
    if dropped > 0 {
        evidence.push(format!("{dropped} packets found the queue of a CPU full (softnet_stat)"));
    }
    let links = samples.links.iter().filter(|link| link.dropped_per_s > 0.0);
    evidence.extend(
        links.map(|link| {
            format!("{} dropped {:.0} packets per second", link.name, link.dropped_per_s)
        }),
    );
    Some(Finding {
        class: LimitClass::PacketLoss,
        confidence: confidence(again, RETRANSMITTED, RETRANSMITTED_FULL),
        evidence,
        counterfactual: if dropped > 0 {
            "twice net.core.netdev_max_backlog and net.core.netdev_budget, or interrupts over more \
             CPUs, end the drops"
                .to_owned()
        } else {
            "a lower rate that loses nothing shows whether the loss comes from load; else look at \
             the way between"
                .to_owned()
        },
    })
}
