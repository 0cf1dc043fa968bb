//! Report of a violation: the writes and reads of its key in order, in milliseconds relative to the
//! sending of the offending request.

use std::fmt::Write as _;

use crate::contract::history::{Histories, Ns};
use crate::contract::observation::{Observation, Outcome, Purge, ReadMode, Seen};
use crate::contract::rules::Violation;

/// Most lines of a report; the newest stay.
const LINES_MAX: usize = 40;
/// Time that a report covers before the oldest relevant event.
const BEFORE_NS: Ns = 20_000_000;

/// Formats a violation with the events around it.
pub(crate) fn explain(
    violation: &Violation,
    histories: &Histories,
    observations: &[Observation],
    purges: &[Purge],
) -> String {
    let offender = &observations[violation.observation];
    let zero = offender.sent_ns;
    let mut lines: Vec<(Ns, String)> = Vec::new();
    let needed =
        histories[offender.key as usize].get(violation.floor).map_or(zero, |state| state.begun_ns);
    let earlier = violation.earlier.map_or(zero, |i| observations[i].sent_ns);
    let from = needed.min(earlier).min(zero).saturating_sub(BEFORE_NS);
    for (version, state) in histories[offender.key as usize].iter() {
        if state.returned_ns >= from && state.begun_ns <= offender.received_ns {
            let what = if state.present { "row" } else { "no row" };
            let took = ms(state.returned_ns, state.begun_ns);
            let text = format!(
                "writer {} commits version {version} ({what}), log end {}; COMMIT took {took}",
                state.writer, state.at
            );
            lines.push((state.begun_ns, text));
        }
    }
    for (i, o) in observations.iter().enumerate().filter(|(_, o)| o.key == offender.key) {
        if o.received_ns >= from && o.sent_ns <= offender.received_ns {
            let mark = match () {
                () if i == violation.observation => "   <== this one",
                () if Some(i) == violation.earlier => "   <== earlier answer that it contradicts",
                () => "",
            };
            lines.push((o.sent_ns, format!("{}{mark}", describe(o))));
        }
    }
    for p in purges.iter().filter(|p| p.key.is_none_or(|k| k == offender.key)) {
        if p.received_ns >= from && p.sent_ns <= offender.received_ns {
            lines.push((
                p.sent_ns,
                format!(
                    "purge at instance {}, answered after {}",
                    p.instance,
                    ms(p.received_ns, p.sent_ns)
                ),
            ));
        }
    }
    lines.sort_by_key(|(at, _)| *at);
    let left_out = lines.len().saturating_sub(LINES_MAX);
    let mut out = format!(
        "rule {:?} broken for key {}: the oldest version allowed is {}\n  times in ms from the \
         sending of the request\n",
        violation.rule, offender.key, violation.floor
    );
    if left_out > 0 {
        _ = writeln!(out, "  ({left_out} earlier lines left out)");
    }
    for (at, text) in &lines[left_out..] {
        _ = writeln!(out, "  {:>10} {text}", ms(*at, zero));
    }
    out
}

/// Formats one answer in a line.
fn describe(o: &Observation) -> String {
    let mode = match o.mode {
        ReadMode::Normal => String::new(),
        ReadMode::Revalidate => " no-cache".to_owned(),
        ReadMode::AtLeast(at) => format!(" min-position {at}"),
        ReadMode::Session { token, version } => {
            format!(" min-position {token} (of an answer with version {version:?})")
        }
    };
    let seen = match &o.seen {
        Seen::Version(version) => format!("version {version}"),
        Seen::Absent => "404".to_owned(),
        Seen::Refused(status) => format!("{status}"),
        Seen::Invented(text) => format!("never written: {text}"),
    };
    let kind = if o.batch {
        "batch"
    } else if o.conditional {
        "conditional read"
    } else {
        "read"
    };
    let outcome = match o.outcome {
        Outcome::None => String::new(),
        other => format!(", {}", format!("{other:?}").to_lowercase()),
    };
    let token = o.token.map_or(String::new(), |t| format!(", position {}", t.at));
    format!(
        "reader {} sends a {kind}{mode} to instance {}; after {} it gets {seen}{outcome}{token}, \
         age {}",
        o.reader,
        o.instance,
        ms(o.received_ns, o.sent_ns),
        o.age_s
    )
}

fn ms(at: Ns, zero: Ns) -> String {
    format!("{:.3}", (at as f64 - zero as f64) / 1e6)
}
