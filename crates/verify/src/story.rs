//! A violation as a story that a person can follow: what was written to the key and what was read of it, in order, in
//! milliseconds from the moment at which the request was sent whose answer broke the rule.

use std::fmt::Write as _;

use crate::history::{Fate, Ns, State};
use crate::observation::{Observation, Origin, Outcome, Purge, Seen, Wish};
use crate::rules::{Answered, Violation};

/// Lines of a story before the offence; what the verdict rests on stays, and of the rest the newest.
const LINES_BEFORE_MAX: usize = 40;
/// Lines after it.
const LINES_AFTER_MAX: usize = 12;
/// How far back a story goes before the oldest thing that matters.
const BEFORE_NS: Ns = 20_000_000;

/// What is known about the key of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What was broken.
    pub violation: Violation,
    /// What was written, as far as it is remembered.
    pub states: Vec<State>,
    /// What was read, before and after.
    pub reads: Vec<Observation>,
    /// Purges, as far as they are remembered.
    pub purges: Vec<Purge>,
}

/// How names are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// URLs of the instances.
    pub instances: Vec<String>,
    /// URLs of the balancers.
    pub balancers: Vec<String>,
    /// The first version of the run: stories count from it.
    pub first_version: u64,
    /// The key as URLs have it.
    pub key: String,
}

/// Tells the story.
#[must_use]
pub fn tell(evidence: &Evidence, names: &Names) -> String {
    let Violation { rule, observation: offender, floor, earlier } = &evidence.violation;
    let teller = Teller { names, zero: offender.sent_ns };
    let mut out = format!("broken: {}\n", rule.words());
    _ = writeln!(out, "  key {}, asked at {}", names.key, teller.origin(offender.origin));
    _ = writeln!(
        out,
        "  the answer shows {}, {} is {}",
        teller.seen(&offender.seen),
        if *rule == crate::rules::Rule::Committed { "the newest version begun" } else { "the oldest version allowed" },
        teller.version(*floor)
    );
    _ = writeln!(out, "  times in ms from the sending of the request; versions count from the run's first");
    let needed = evidence.states.iter().find(|state| state.version == *floor).and_then(|state| state.begun_ns);
    let from = [needed, earlier.map(|earlier| earlier.sent_ns)].into_iter().flatten().min();
    let from = from.unwrap_or(offender.sent_ns).min(offender.sent_ns).saturating_sub(BEFORE_NS);
    let mut lines = teller.writes(&evidence.states, from, *floor);
    lines.extend(teller.reads(&evidence.reads, from, offender, earlier.as_ref()));
    let purges = evidence.purges.iter().filter(|purge| purge.received_ns >= from);
    lines.extend(purges.map(|purge| Line { at: purge.sent_ns, text: teller.purge(purge), needed: false }));
    lines.sort_by_key(|line| line.at);
    let after = lines.split_off(lines.partition_point(|line| line.at <= offender.received_ns));
    let (before, left_out) = shortened(lines);
    if left_out > 0 {
        _ = writeln!(out, "  ({left_out} earlier lines left out)");
    }
    for Line { at, text, .. } in before.iter().chain(after.iter().take(LINES_AFTER_MAX)) {
        // Writing to a string cannot fail.
        _ = writeln!(out, "  {:>10} {text}", teller.ms(*at));
    }
    out
}

/// The lines before the offence that are told, and how many are not.
fn shortened(mut lines: Vec<Line>) -> (Vec<Line>, usize) {
    let left_out = lines.len().saturating_sub(LINES_BEFORE_MAX);
    let mut to_drop = left_out;
    lines.retain(|line| {
        let dropped = to_drop > 0 && !line.needed;
        to_drop -= usize::from(dropped);
        !dropped
    });
    (lines, left_out)
}

/// One line of a story.
struct Line {
    at: Ns,
    text: String,
    /// The verdict rests on it.
    needed: bool,
}

struct Teller<'a> {
    names: &'a Names,
    zero: Ns,
}

impl Teller<'_> {
    fn writes(&self, states: &[State], from: Ns, floor: u64) -> Vec<Line> {
        let tell = |state: &State| {
            let begun = state.begun_ns?;
            let what = if state.present { "a row" } else { "no row" };
            let ended = match state.fate {
                Fate::Committed { returned_ns } => format!("COMMIT returned at {}", self.ms(returned_ns)),
                Fate::Unknown => "the connection was lost at COMMIT: it may have happened".to_owned(),
                Fate::Open => "COMMIT has not returned yet".to_owned(),
                Fate::Undone => "it was rolled back".to_owned(),
            };
            let text = format!("commit of version {} ({what}); {ended}", self.version(state.version));
            let over = state.returned_ns().is_some_and(|returned| returned < from);
            (!over && begun > 0).then_some(Line { at: begun, text, needed: state.version == floor })
        };
        states.iter().filter_map(tell).collect()
    }

    fn reads(&self, reads: &[Observation], from: Ns, offender: &Observation, earlier: Option<&Answered>) -> Vec<Line> {
        let tell = |read: &Observation| {
            let is_earlier = earlier.is_some_and(|e| (e.sent_ns, e.reader) == (read.sent_ns, read.reader));
            let mark = match () {
                () if read == offender => "   <== this one",
                () if is_earlier => "   <== although this was answered before",
                () => "",
            };
            let line =
                || Line { at: read.sent_ns, text: format!("{}{mark}", self.read(read)), needed: !mark.is_empty() };
            (read.received_ns >= from).then(line)
        };
        let mut lines: Vec<Line> = reads.iter().filter_map(tell).collect();
        let missing = |e: &&Answered| !reads.iter().any(|read| (e.sent_ns, e.reader) == (read.sent_ns, read.reader));
        lines.extend(earlier.filter(missing).map(|e| {
            let text = format!(
                "reader {} reads; at {} it has version {}   <== although this was answered before",
                e.reader,
                self.ms(e.received_ns),
                self.version(e.version)
            );
            Line { at: e.sent_ns, text, needed: true }
        }));
        lines
    }

    fn read(&self, read: &Observation) -> String {
        let wish = match read.wish {
            Wish::Any => String::new(),
            Wish::NoCache => " with no-cache".to_owned(),
            Wish::Session { position, .. } => format!(" with the token {position} of an earlier answer"),
            Wish::OwnWrite { position, .. } => format!(" with the position {position} of a commit"),
        };
        let outcome = if read.outcome == Outcome::None { "" } else { read.outcome.name() };
        let age = read.age_s.map_or(String::new(), |age| format!(", age {age}"));
        let position = read.position.map_or(String::new(), |position| format!(", position {position}"));
        format!(
            "reader {} sends a {} read{wish} to {}; at {} it has {} ({outcome}{age}{position})",
            read.reader,
            read.form.name(),
            self.origin(read.origin),
            self.ms(read.received_ns),
            self.seen(&read.seen)
        )
    }

    fn purge(&self, purge: &Purge) -> String {
        format!("purge at {}, answered at {}", self.origin(purge.origin), self.ms(purge.received_ns))
    }

    fn seen(&self, seen: &Seen) -> String {
        match seen {
            Seen::Version(version) => format!("version {}", self.version(*version)),
            Seen::Absent => "404".to_owned(),
            Seen::Refused(status) => status.to_string(),
            Seen::PositionRefused => "400 for the position".to_owned(),
            Seen::SomeRow => "a row of a version that cannot be told".to_owned(),
            Seen::Invented(what) => format!("what nobody wrote: {what}"),
        }
    }

    fn origin(&self, origin: Origin) -> String {
        let (names, at) = match origin {
            Origin::Instance(at) => (&self.names.instances, at),
            Origin::Balancer(at) => (&self.names.balancers, at),
        };
        names.get(usize::from(at)).cloned().unwrap_or_else(|| format!("{origin:?}"))
    }

    /// Versions are large; what is told is their distance from the run's first.
    fn version(&self, version: u64) -> String {
        match version.checked_sub(self.names.first_version) {
            Some(since) => format!("#{since}"),
            None => format!("{version} of before the run"),
        }
    }

    fn ms(&self, at: Ns) -> String {
        format!("{:.3}", (at as f64 - self.zero as f64) / 1e6)
    }
}

#[cfg(test)]
mod tests;
