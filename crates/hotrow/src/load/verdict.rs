//! What limited a run, in a sentence or two.

use hotrow_diagnose::rules::finding::Class;
use hotrow_load::limited::{self, Cause, Limit, RATE_KEPT};
use hotrow_load::outcome::{End, GONE_SECONDS, Outcome};

use super::text::{counted, duration, known};

/// Answers that lie unread are mentioned from this share of the awaited ones on, and from this time on, in ns.
const UNREAD_TOLD: f64 = 0.1;
const UNREAD_TOLD_NS: u64 = 100_000;

/// One paragraph without line breaks, by what the generator alone knows.
pub(crate) fn sentence(outcome: &Outcome) -> String {
    sentence_beside(outcome, None)
}

/// The same beside a verdict on a limit of this class, which it does not contradict: then the verdict says what limited.
pub(crate) fn sentence_beside(outcome: &Outcome, named: Option<Class>) -> String {
    let mut parts = Vec::new();
    let counts = &outcome.total.counts;
    match outcome.end {
        End::Complete => {}
        End::Interrupted => parts.push("Interrupted: the figures cover the time until then.".to_owned()),
        End::TargetGone => parts.push(format!(
            "Ended early: no connection could be opened any more for {GONE_SECONDS} s; the figures cover the time until then."
        )),
    }
    if counts.sent == 0 {
        parts.push("Nothing was sent.".to_owned());
    } else if counts.ok == 0 {
        parts.push("No request was answered as expected: there is no result.".to_owned());
    }
    match outcome.limit() {
        Limit::NotTheGenerator => {
            let busy = percent(outcome.cpu_share());
            parts.push(format!("The generator was not the limit: its busiest thread used {busy} of a CPU."));
            parts.extend(cause(outcome, named.is_some()));
        }
        limit => parts.push(generator(limit, named.is_none_or(|class| class == Class::Generator))),
    }
    let unread_ns = outcome.unread_ns();
    if let Some(share) = outcome.unread_share().filter(|share| *share >= UNREAD_TOLD && unread_ns >= UNREAD_TOLD_NS)
        && !matches!(outcome.limit(), Limit::Unread(_))
    {
        parts.push(format!(
            "Of the answers that were awaited, {} had come and lay unread: about {} of the mean service time is the generator's.",
            percent(share),
            duration(unread_ns)
        ));
    }
    parts.extend(rate(outcome));
    if counts.unsent > 0 {
        parts.push(format!(
            "{} requests were never sent; where no connection was free in time, the percentiles count them as unanswered.",
            counts.unsent
        ));
    }
    parts.join(" ")
}

/// `named`: whether it is what is called the limit.
fn generator(limit: Limit, named: bool) -> String {
    let was = if named { "The generator was the limit:" } else { "The generator was short of time too:" };
    match limit {
        // Told by whoever asks.
        Limit::NotTheGenerator => String::new(),
        Limit::OwnCpu(share) => format!(
            "{was} a thread of it had no time left (it used {} of a CPU). \
             The rate is a lower bound; add threads, or load from another machine.",
            percent(share)
        ),
        Limit::NoFreeCpu(share) => format!(
            "{was} a thread of it waited {} of the time for a CPU that others used. \
             The rate is a lower bound and the latencies hold this wait; free a CPU for it, or load from another machine.",
            percent(share)
        ),
        Limit::OwnLag(ns) => format!(
            "{was} it sent 1 % of the requests {} late or more though connections were free. \
             Latencies hold this lateness; service times do not.",
            duration(ns)
        ),
        Limit::Stopped(share) => format!(
            "{was} for {} of the time a thread of it was not run when it wanted to be, though no other had its CPU: it was stopped, \
             or a CPU quota or the host of a virtual machine held it back. \
             The rate is a lower bound and the latencies hold this wait.",
            percent(share)
        ),
        Limit::Unread(share) => format!(
            "{was} of the answers that were awaited, {} had come and lay unread in its receive buffers, though its threads were \
             neither busy nor waiting for a CPU: something stopped them (a CPU quota of a container, a virtual machine \
             that was not run). The rate is a lower bound and the latencies hold this wait.",
            percent(share)
        ),
    }
}

/// What set the rate when the generator did not; none where it is said already. `named`: a verdict says what the limit was.
fn cause(outcome: &Outcome, named: bool) -> Option<String> {
    let counts = &outcome.total.counts;
    let places = outcome.places;
    match limited::cause(outcome) {
        Cause::NoneFound if named => {
            Some(format!("The target kept the rate of {:.0} requests/s.", outcome.target_rate.unwrap_or_default()))
        }
        Cause::NoneFound => Some(format!(
            "No limit was found: the target kept the rate of {:.0} requests/s.",
            outcome.target_rate.unwrap_or_default()
        )),
        Cause::TargetOrConnections { mean } if counts.ok > 0 && named => {
            Some(format!("{} in flight, {} each (Little's law).", counted(places, "request"), known(mean)))
        }
        Cause::TargetOrConnections { mean } if counts.ok > 0 => Some(format!(
            "The target or its connections set the rate: {} in flight, {} each (Little's law). More connections \
             tell which: if the rate rises with them, it was the connections.",
            counted(places, "request"),
            known(mean)
        )),
        Cause::ConnectionsBusy { needed, lag_ns } if counts.sent > 0 => {
            let late = format!(
                "no connection was free when requests were due (1 % went out {} late or more)",
                duration(lag_ns)
            );
            let at = "at the service times that were seen this rate keeps";
            let (wanted, room) = (wanted(needed), counted(places, "request"));
            Some(format!(
                "The target or its connections were the limit: {late}; {at} {wanted} in flight, and there is room for {room}."
            ))
        }
        Cause::Failures if counts.ok > 0 => {
            Some("Requests went out in time; it is the answers that failed, or came too late.".to_owned())
        }
        Cause::TargetOrConnections { .. } | Cause::ConnectionsBusy { .. } | Cause::Failures | Cause::Nothing => None,
    }
}

fn wanted(needed: f64) -> String {
    if needed < 10.0 { format!("{needed:.1} requests") } else { format!("{needed:.0} requests") }
}

/// A target rate that was missed, with what was reached.
fn rate(outcome: &Outcome) -> Option<String> {
    let (target, ratio) = (outcome.target_rate?, outcome.rate_ratio()?);
    (ratio < RATE_KEPT && outcome.total.counts.ok > 0).then(|| {
        format!(
            "The target rate was not kept: {:.0} of {target:.0} requests/s ({:.1} %) were answered in time.",
            outcome.throughput_rps(),
            ratio * 100.0
        )
    })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
