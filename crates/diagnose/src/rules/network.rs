//! A link carries what it can, or packets are lost.

use super::finding::{Class, Finding, confidence, percent};
use crate::samples::{Link, Samples};

/// From this share of its speed on a link is full: what is missing are the frames' own bytes.
const FULL_FROM: f64 = 0.85;
/// From this share on there is no doubt.
const FULL: f64 = 0.93;
/// From this share of the segments on that are sent again, loss limits.
const RETRANSMITTED: f64 = 0.01;
/// From this share on there is no doubt.
const RETRANSMITTED_FULL: f64 = 0.05;
/// Fewer segments tell nothing.
const SEGMENTS_MIN: u64 = 1000;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    bandwidth(samples).or_else(|| loss(samples))
}

fn bandwidth(samples: &Samples) -> Option<Finding> {
    let used = |link: &Link| {
        let speed = link.speed_bits_per_s.filter(|speed| *speed > 0.0)?;
        Some(link.received_bits_per_s.max(link.sent_bits_per_s) / speed)
    };
    let links = samples.links.iter().filter_map(|link| Some((link, used(link)?)));
    let (link, share) =
        links.filter(|(_, share)| *share >= FULL_FROM).max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(Finding {
        class: Class::Bandwidth,
        confidence: confidence(share, FULL_FROM, FULL),
        evidence: vec![format!(
            "{} receives {:.1} and sends {:.1} Mbit/s of {:.0} each way ({})",
            link.name,
            link.received_bits_per_s / 1e6,
            link.sent_bits_per_s / 1e6,
            link.speed_bits_per_s.unwrap_or_default() / 1e6,
            percent(share)
        )],
        counterfactual: "half the bytes per answer (compression, fewer fields, 304 answers) or a link twice as fast \
            up to doubles the rate"
            .to_owned(),
    })
}

fn loss(samples: &Samples) -> Option<Finding> {
    let segments = samples.segments.filter(|segments| segments.sent >= SEGMENTS_MIN)?;
    let again = segments.retransmitted as f64 / segments.sent as f64;
    let dropped = samples.softnet.map_or(0, |softnet| softnet.dropped);
    if again < RETRANSMITTED {
        return None;
    }
    let mut evidence = vec![format!(
        "{} of {} segments were sent again ({:.1} %)",
        segments.retransmitted,
        segments.sent,
        again * 100.0
    )];
    if dropped > 0 {
        evidence.push(format!("{dropped} packets found the queue of a CPU full (softnet_stat)"));
    }
    let links = samples.links.iter().filter(|link| link.dropped_per_s > 0.0);
    evidence.extend(links.map(|link| format!("{} dropped {:.0} packets per second", link.name, link.dropped_per_s)));
    Some(Finding {
        class: Class::PacketLoss,
        confidence: confidence(again, RETRANSMITTED, RETRANSMITTED_FULL),
        evidence,
        counterfactual: if dropped > 0 {
            "twice net.core.netdev_max_backlog and net.core.netdev_budget, or interrupts over more CPUs, end the drops"
                .to_owned()
        } else {
            "a lower rate that loses nothing shows whether the loss comes from load; else look at the way between"
                .to_owned()
        },
    })
}
