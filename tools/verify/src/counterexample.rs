//! Counterexample: the writes and reads of a key around a violation, in order, in milliseconds
//! relative to the sending of the violating request.

use std::fmt::Write as _;

use crate::history::{KeyState, LogInterval, Ns, WriteOutcome};
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Purge, Requirement};
use crate::rules::{Beside, PriorResponse, Rule, Violation};

/// Lines before the violation; essential ones stay, and of the others the newest.
const LINES_BEFORE_MAX: usize = 40;
/// Lines after the violation.
const LINES_AFTER_MAX: usize = 12;
/// Time shown before the oldest essential event.
const BEFORE_NS: Ns = 20_000_000;

/// Evidence of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The violation.
    pub violation: Violation,
    /// Writes, as far as remembered.
    pub states: Vec<KeyState>,
    /// Reads before and after.
    pub reads: Vec<Observation>,
    /// Purges, as far as remembered.
    pub purges: Vec<Purge>,
}

/// Names for the description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// URLs of the instances.
    pub instances: Vec<String>,
    /// URLs of the balancers.
    pub balancers: Vec<String>,
    /// First version of the run; versions are counted from it.
    pub first_version: u64,
    /// The key as in URLs.
    pub key: String,
    /// The key of the other part to which the rule refers, if any.
    pub beside: String,
}

/// Renders the counterexample.
pub fn render(evidence: &Evidence, names: &Names) -> String {
    let Violation { rule, observation: violating, floor, earlier, beside } = &evidence.violation;
    let renderer = Renderer { names, zero: violating.sent_ns };
    let mut out = format!("violated: {}\n", rule.description());
    _ = writeln!(out, "  key {}, read at {}", names.key, renderer.origin(violating.origin));
    let limit = match rule {
        Rule::Committed => "the newest version begun",
        Rule::Token => "the version of its position",
        _ => "the oldest version allowed",
    };
    _ = writeln!(
        out,
        "  the response shows {}, {limit} is {}",
        renderer.seen(&violating.seen),
        renderer.version(*floor)
    );
    if let Some(Beside { version, .. }) = beside {
        _ = writeln!(
            out,
            "  because it also shows version {} of key {}, which was not committed earlier",
            renderer.version(*version),
            names.beside
        );
    }
    _ = writeln!(
        out,
        "  times in ms relative to the sending of the request; versions are counted from the run's \
         first"
    );
    let needed = evidence
        .states
        .iter()
        .find(|state| state.version == *floor)
        .and_then(|state| state.commit_sent_ns);
    let from = [needed, earlier.map(|earlier| earlier.sent_ns)].into_iter().flatten().min();
    let from = from.unwrap_or(violating.sent_ns).min(violating.sent_ns).saturating_sub(BEFORE_NS);
    let mut lines = renderer.writes(&evidence.states, from, *floor);
    lines.extend(renderer.reads(&evidence.reads, from, violating, earlier.as_ref()));
    let purges = evidence.purges.iter().filter(|purge| purge.received_ns >= from);
    lines.extend(purges.map(|purge| Line {
        at: purge.sent_ns,
        text: renderer.purge(purge),
        needed: false,
    }));
    lines.sort_by_key(|line| line.at);
    let after = lines.split_off(lines.partition_point(|line| line.at <= violating.received_ns));
    let (before, left_out) = shortened(lines);
    if left_out > 0 {
        _ = writeln!(out, "  ({left_out} earlier lines omitted)");
    }
    for Line { at, text, .. } in before.iter().chain(after.iter().take(LINES_AFTER_MAX)) {
        // Writing to a string cannot fail.
        _ = writeln!(out, "  {:>10} {text}", renderer.ms(*at));
    }
    out
}

/// Returns the shown lines before the violation, and the number of omitted ones.
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

/// A line of the counterexample.
struct Line {
    at: Ns,
    text: String,
    /// True if the violation follows from it.
    needed: bool,
}

struct Renderer<'a> {
    names: &'a Names,
    zero: Ns,
}

impl Renderer<'_> {
    fn writes(&self, states: &[KeyState], from: Ns, floor: u64) -> Vec<Line> {
        let render = |state: &KeyState| {
            let begun = state.commit_sent_ns?;
            let what = if state.present { "a row" } else { "no row" };
            let ended = match state.outcome {
                WriteOutcome::Committed { returned_ns } => {
                    format!("COMMIT returned at {}", self.ms(returned_ns))
                }
                WriteOutcome::Unknown => {
                    "the connection was lost at COMMIT: it may have happened".to_owned()
                }
                WriteOutcome::Open => "COMMIT has not returned yet".to_owned(),
                WriteOutcome::RolledBack => "it was rolled back".to_owned(),
            };
            let log = match state.log {
                Some(LogInterval { from, at }) if from == at => format!(", position {at}"),
                Some(LogInterval { from: 0, at }) => format!(", position up to {at}"),
                Some(LogInterval { from, at }) => format!(", position {from} to {at}"),
                None => String::new(),
            };
            let version = self.version(state.version);
            let text = format!("commit of version {version} ({what}{log}); {ended}");
            let over = state.returned_ns().is_some_and(|returned| returned < from);
            (!over && begun > 0).then_some(Line { at: begun, text, needed: state.version == floor })
        };
        states.iter().filter_map(render).collect()
    }

    fn reads(
        &self,
        reads: &[Observation],
        from: Ns,
        violating: &Observation,
        earlier: Option<&PriorResponse>,
    ) -> Vec<Line> {
        let render = |read: &Observation| {
            let is_earlier =
                earlier.is_some_and(|e| (e.sent_ns, e.reader) == (read.sent_ns, read.reader));
            let mark = match () {
                () if read == violating => "   <== this one",
                () if is_earlier => "   <== although this response came before",
                () => "",
            };
            let line = || Line {
                at: read.sent_ns,
                text: format!("{}{mark}", self.read(read)),
                needed: !mark.is_empty(),
            };
            (read.received_ns >= from).then(line)
        };
        let mut lines: Vec<Line> = reads.iter().filter_map(render).collect();
        let missing = |e: &&PriorResponse| {
            !reads.iter().any(|read| (e.sent_ns, e.reader) == (read.sent_ns, read.reader))
        };
        lines.extend(earlier.filter(missing).map(|e| {
            let text = format!(
                "reader {} reads; at {} it has version {}   <== although this response came before",
                e.reader,
                self.ms(e.received_ns),
                self.version(e.version)
            );
            Line { at: e.sent_ns, text, needed: true }
        }));
        lines
    }

    fn read(&self, read: &Observation) -> String {
        let requirement = match read.requirement {
            Requirement::Any => String::new(),
            Requirement::NoCache => " with no-cache".to_owned(),
            Requirement::Strict => " with Hotrow-Min-Position: now".to_owned(),
            Requirement::Session { position, .. } => {
                format!(" with the token {position} of an earlier response")
            }
            Requirement::OwnWrite { position, .. } => {
                format!(" with the position {position} of a commit")
            }
            Requirement::Followed { position, is_sent: true } => {
                format!(" with the position {position} of an event")
            }
            Requirement::Followed { position, is_sent: false } => {
                format!(" after an event of position {position}")
            }
        };
        if read.form == Form::Copy {
            return format!(
                "reader {} finds {} in its near cache of {}",
                read.reader,
                self.seen(&read.seen),
                self.origin(read.origin)
            );
        }
        if read.form == Form::FollowedCopy {
            return format!(
                "follower {} of {} finds a copy of {}{requirement}",
                read.reader,
                self.origin(read.origin),
                self.seen(&read.seen)
            );
        }
        let outcome = if read.outcome == Outcome::None { "" } else { read.outcome.name() };
        let age = read.age_s.map_or(String::new(), |age| format!(", age {age}"));
        let position =
            read.position.map_or(String::new(), |position| format!(", position {position}"));
        format!(
            "reader {} sends a {} read{requirement} to {}; at {} it has {} \
             ({outcome}{age}{position})",
            read.reader,
            read.form.name(),
            self.origin(read.origin),
            self.ms(read.received_ns),
            self.seen(&read.seen)
        )
    }

    fn purge(&self, purge: &Purge) -> String {
        format!(
            "purge at {}, completed at {}",
            self.origin(purge.origin),
            self.ms(purge.received_ns)
        )
    }

    fn seen(&self, seen: &Claim) -> String {
        match seen {
            Claim::Version(version) => format!("version {}", self.version(*version)),
            Claim::Absent => "404".to_owned(),
            Claim::Refused(status) => status.to_string(),
            Claim::PositionRefused => "400 for the position".to_owned(),
            Claim::UnknownVersion => "a row of unknown version".to_owned(),
            Claim::Invalid(what) => format!("invalid content: {what}"),
        }
    }

    fn origin(&self, origin: Origin) -> String {
        let (names, at) = match origin {
            Origin::Instance(at) => (&self.names.instances, at),
            Origin::Balancer(at) => (&self.names.balancers, at),
        };
        names.get(usize::from(at)).cloned().unwrap_or_else(|| format!("{origin:?}"))
    }

    /// Versions are large; the distance from the run's first is shown.
    fn version(&self, version: u64) -> String {
        match version.checked_sub(self.names.first_version) {
            Some(since) => format!("#{since}"),
            None => format!("{version} from before the run"),
        }
    }

    fn ms(&self, at: Ns) -> String {
        format!("{:.3}", (at as f64 - self.zero as f64) / 1e6)
    }
}

#[cfg(test)]
mod tests;
