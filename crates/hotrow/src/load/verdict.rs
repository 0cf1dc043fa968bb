//! What limited a run, in a sentence.

use hotrow_load::limited::{Limit, RATE_KEPT};
use hotrow_load::outcome::{End, GONE_SECONDS, Outcome};

/// One paragraph without line breaks.
pub(super) fn sentence(outcome: &Outcome) -> String {
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
    parts.push(limit(outcome));
    if let Some(ratio) = outcome.rate_ratio().filter(|ratio| *ratio < RATE_KEPT && counts.ok > 0) {
        parts.push(format!("The target rate was not kept: {:.1} % of it was answered in time.", ratio * 100.0));
    }
    if counts.unsent > 0 {
        parts.push(format!(
            "{} requests were never sent; where no connection was free in time, the percentiles count them as unanswered.",
            counts.unsent
        ));
    }
    parts.join(" ")
}

fn limit(outcome: &Outcome) -> String {
    let ratio = |share: f64| format!("{:.0} %", share * 100.0);
    match outcome.limit() {
        Limit::NotTheGenerator => {
            format!("The generator was not the limit: its busiest thread used {} of a CPU.", ratio(outcome.cpu_share()))
        }
        Limit::OwnCpu(share) => format!(
            "The generator was the limit: a thread of it had no time left (it used {} of a CPU). \
             The rate is a lower bound; add threads, or load from another machine.",
            ratio(share)
        ),
        Limit::NoFreeCpu(share) => format!(
            "The generator was the limit: a thread of it waited {} of the time for a CPU that others used. \
             The rate is a lower bound and the latencies hold this wait; free a CPU for it, or load from another machine.",
            ratio(share)
        ),
        Limit::OwnLag(ns) => format!(
            "The generator was the limit: it sent 1 % of the requests {:.1} ms late or more though connections were free. \
             Latencies hold this lateness; service times do not.",
            ns as f64 / 1e6
        ),
    }
}
