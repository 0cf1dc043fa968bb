//! Description of a run's bottleneck, in a sentence or two.

use hotrow_diagnose::rules::finding::LimitClass;
use hotrow_load::bottleneck::{self, Bottleneck, RATE_KEPT, RateCause};
use hotrow_load::outcome::{Outcome, RunEnd, UNREACHABLE_SECONDS};

use crate::format::{counted, duration, known};

/// Share of awaited responses from which unread ones are reported, together with the next value.
const UNREAD_SHARE_REPORTED: f64 = 0.1;
const UNREAD_NS_REPORTED: u64 = 100_000;

/// Returns one paragraph from the generator's own measurements.
pub fn sentence(outcome: &Outcome) -> String {
    sentence_beside(outcome, None)
}

/// Returns the paragraph shown beside a verdict on a limit of this class, without contradicting it.
pub fn sentence_beside(outcome: &Outcome, named: Option<LimitClass>) -> String {
    let mut parts = Vec::new();
    let counts = &outcome.total.counts;
    match outcome.end {
        RunEnd::Complete => {}
        RunEnd::Interrupted => {
            parts.push("Interrupted: the figures cover the time until then.".to_owned())
        }
        RunEnd::TargetUnreachable => parts.push(format!(
            "Ended early: no connection could be opened for {UNREACHABLE_SECONDS} s; the figures \
             cover the time until then."
        )),
    }
    if counts.sent == 0 {
        parts.push("Nothing was sent.".to_owned());
    } else if counts.ok == 0 {
        parts.push("No request was answered as expected: there is no result.".to_owned());
    }
    match outcome.limit() {
        Bottleneck::NotGenerator => {
            let busy = percent(outcome.cpu_share());
            parts.push(format!(
                "The generator was not the limit: its busiest thread used {busy} of a CPU."
            ));
            parts.extend(cause(outcome, named.is_some()));
        }
        limit => {
            parts.push(generator(limit, named.is_none_or(|class| class == LimitClass::Generator)))
        }
    }
    let unread_ns = outcome.unread_ns();
    if let Some(share) = outcome
        .unread_share()
        .filter(|share| *share >= UNREAD_SHARE_REPORTED && unread_ns >= UNREAD_NS_REPORTED)
        && !matches!(outcome.limit(), Bottleneck::Unread(_))
    {
        parts.push(format!(
            "Of the awaited responses, {} had arrived and were unread: about {} of the mean \
             service time is the generator's.",
            percent(share),
            duration(unread_ns)
        ));
    }
    parts.extend(rate(outcome));
    if counts.unsent > 0 {
        parts.push(format!(
            "{} requests were never sent; where no connection was free in time, the percentiles \
             count them as unanswered.",
            counts.unsent
        ));
    }
    parts.join(" ")
}

/// `named`: whether the generator is the reported limit.
fn generator(limit: Bottleneck, named: bool) -> String {
    let was =
        if named { "The generator was the limit:" } else { "The generator was short of time too:" };
    match limit {
        // The caller reports this case.
        Bottleneck::NotGenerator => String::new(),
        Bottleneck::OwnCpu(share) => format!(
            "{was} a thread of it had no time left (it used {} of a CPU). \
             The rate is a lower bound; add threads, or load from another machine.",
            percent(share)
        ),
        Bottleneck::NoFreeCpu(share) => format!(
            "{was} a thread of it waited {} of the time for a CPU that others used. The rate is a \
             lower bound and the latencies include this wait; free a CPU for it, or load from \
             another machine.",
            percent(share)
        ),
        Bottleneck::OwnLag(ns) => format!(
            "{was} it sent 1 % of the requests {} late or more although connections were free. \
             Latencies include this lateness; service times do not.",
            duration(ns)
        ),
        Bottleneck::HeldBack(share) => format!(
            "{was} for {} of the time a thread of it was ready but not running, although no other \
             thread had its CPU: it was stopped, or a CPU quota or the host of a virtual machine \
             delayed it. The rate is a lower bound and the latencies include this wait.",
            percent(share)
        ),
        Bottleneck::Unread(share) => format!(
            "{was} of the awaited responses, {} had arrived and were unread in its receive \
             buffers, although its threads were neither busy nor waiting for a CPU: something \
             stopped them (a CPU quota of a container, a virtual machine that was not running). \
             The rate is a lower bound and the latencies include this wait.",
            percent(share)
        ),
    }
}

/// Describes what set the rate when the generator did not; `None` when already stated. `named`: a
/// verdict states the limit.
fn cause(outcome: &Outcome, named: bool) -> Option<String> {
    let counts = &outcome.total.counts;
    let places = outcome.max_in_flight;
    match bottleneck::cause(outcome) {
        RateCause::NoneFound if named => Some(format!(
            "The target kept the rate of {:.0} requests/s.",
            outcome.target_rate.unwrap_or_default()
        )),
        RateCause::NoneFound => Some(format!(
            "No limit was found: the target kept the rate of {:.0} requests/s.",
            outcome.target_rate.unwrap_or_default()
        )),
        RateCause::TargetOrConnections { mean } if counts.ok > 0 && named => Some(format!(
            "{} in flight, {} each (Little's law).",
            counted(places, "request"),
            known(mean)
        )),
        RateCause::TargetOrConnections { mean } if counts.ok > 0 => Some(format!(
            "The target or its connections set the rate: {} in flight, {} each (Little's law). \
             More connections show which: if the rate rises with them, it was the connections.",
            counted(places, "request"),
            known(mean)
        )),
        RateCause::ConnectionsBusy { needed, lag_ns } if counts.sent > 0 => {
            let late = format!(
                "no connection was free when requests were due (1 % went out {} late or more)",
                duration(lag_ns)
            );
            let at = "at the observed service times this rate keeps";
            let wanted = wanted(needed);
            let room = counted(places, "request");
            Some(format!(
                "The target or its connections were the limit: {late}; {at} {wanted} in flight, \
                 and there is room for {room}."
            ))
        }
        RateCause::Failures if counts.ok > 0 => {
            Some("Requests were sent in time; the responses failed or arrived too late.".to_owned())
        }
        RateCause::TargetOrConnections { .. }
        | RateCause::ConnectionsBusy { .. }
        | RateCause::Failures
        | RateCause::Nothing => None,
    }
}

fn wanted(needed: f64) -> String {
    if needed < 10.0 { format!("{needed:.1} requests") } else { format!("{needed:.0} requests") }
}

/// Describes a missed target rate with the reached one.
fn rate(outcome: &Outcome) -> Option<String> {
    let target = outcome.target_rate?;
    let ratio = outcome.rate_ratio()?;
    (ratio < RATE_KEPT && outcome.total.counts.ok > 0).then(|| {
        format!(
            "The target rate was not kept: {:.0} of {target:.0} requests/s ({:.1} %) were answered \
             in time.",
            outcome.throughput_rps(),
            ratio * 100.0
        )
    })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
