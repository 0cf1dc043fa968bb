//! The checker: histories and observations in, violations out. It knows the contract
//! (docs/consistency.md) and nothing of how the service keeps it.
//!
//! Per observation, each rule yields the oldest version that may be answered. A row names its
//! version. A 404 does not: it counts as any absence that the rules allow, unless its token
//! determines which.

use std::collections::{BTreeMap, HashMap};

use crate::contract::history::{Histories, History, Ns, SECOND};
use crate::contract::observation::{Observation, Outcome, Purge, ReadMode, Seen};

#[cfg(test)]
mod tests;

/// A rule of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// No body, status or absence that was never committed, or not yet when the answer was
    /// received.
    Committed,
    /// Point 1: not older than an answer that this instance had sent before this request.
    Monotonic,
    /// Point 2: shows each commit that returned more than `max_staleness` before, or is marked
    /// stale.
    Fresh,
    /// `Age` is an upper bound of the answer's age, to half a second.
    Age,
    /// A `no-cache` read shows every commit that returned before it was sent.
    NoCache,
    /// Point 3: the answer is the state at its own token; where an engine's tokens are not exact,
    /// no newer than it.
    Token,
    /// Point 3: the answer reflects every commit up to the requested position.
    MinPosition,
    /// Point 3: not older than the answer whose token was sent.
    Session,
    /// A read after a purge's answer shows the database as of the purge's request or later.
    Purged,
}

/// All rules, for counts.
pub(crate) const RULES: [Rule; 9] = [
    Rule::Committed,
    Rule::Monotonic,
    Rule::Fresh,
    Rule::Age,
    Rule::NoCache,
    Rule::Token,
    Rule::MinPosition,
    Rule::Session,
    Rule::Purged,
];

/// `Age` is rounded to whole seconds.
const AGE_ROUNDING: Ns = SECOND / 2;

/// Conditions of this run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) max_staleness_ns: Ns,
    /// Log that the histories' positions refer to; only tokens of this log are judged. `None`: none
    /// are.
    pub(crate) log: Option<u64>,
    /// True if an answer is the state at its token; otherwise the token is an upper bound.
    pub(crate) tokens_are_exact: bool,
    /// True if a request with a position may be refused with 400.
    pub(crate) tokens_may_end: bool,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    /// Index of the observation.
    pub(crate) observation: usize,
    /// The oldest version that the rule allows.
    pub(crate) floor: u64,
    /// Index of the earlier answer that the rule refers to, if any.
    pub(crate) earlier: Option<usize>,
}

/// Result of a check.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) violations: Vec<Violation>,
    /// Number of observations that each rule applied to.
    pub(crate) applied: BTreeMap<Rule, u64>,
    /// Longest time from a commit's return to the sending of a request whose answer did not show
    /// it.
    pub(crate) worst_lag_ns: Ns,
}

/// Checks all observations.
pub(crate) fn check(
    histories: &Histories,
    observations: &[Observation],
    purges: &[Purge],
    terms: &Terms,
) -> Report {
    let mut report = Report::default();
    let mut by_key: HashMap<u32, Vec<usize>> = HashMap::new();
    for (i, observation) in observations.iter().enumerate() {
        by_key.entry(observation.key).or_default().push(i);
    }
    for (key, mut indexes) in by_key {
        indexes.sort_by_key(|i| observations[*i].received_ns);
        let Some(history) = histories.get(key as usize) else { continue };
        let purged = purges.iter().filter(|p| p.key.is_none_or(|k| k == key));
        let mut check = KeyCheck {
            history,
            observations,
            terms,
            answered: HashMap::new(),
            purges: purged.copied().collect(),
            report: &mut report,
        };
        check.purges.sort_by_key(|purge| purge.received_ns);
        indexes.into_iter().for_each(|i| check.observe(i));
    }
    report.violations.sort_by_key(|v| observations[v.observation].received_ns);
    report
}

struct KeyCheck<'a> {
    history: &'a History,
    observations: &'a [Observation],
    terms: &'a Terms,
    /// Per instance, in the order of receipt: answers newer than all before, with their versions.
    answered: HashMap<u8, Vec<(Ns, u64, usize)>>,
    purges: Vec<Purge>,
    report: &'a mut Report,
}

/// Oldest version that a rule allows, and the earlier answer that implies it.
struct Floor {
    rule: Rule,
    version: u64,
    earlier: Option<usize>,
}

impl KeyCheck<'_> {
    fn observe(&mut self, index: usize) {
        let observation = &self.observations[index];
        let candidates = match &observation.seen {
            Seen::Refused(503 | 504) => return,
            Seen::Refused(400) if self.terms.tokens_may_end && observation.mode.has_position() => {
                return;
            }
            Seen::Refused(_) | Seen::Invented(_) => {
                return self.violate(Rule::Committed, index, 0, None);
            }
            Seen::Version(version) => vec![*version],
            Seen::Absent => self.absences(observation),
        };
        *self.report.applied.entry(Rule::Committed).or_default() += 1;
        let newest = self.history.begun_by(observation.received_ns);
        let real = |version: &u64| {
            let present = matches!(observation.seen, Seen::Version(_));
            *version <= newest
                && self.history.get(*version).is_some_and(|state| state.present == present)
        };
        let candidates: Vec<u64> = candidates.into_iter().filter(real).collect();
        let Some(&latest) = candidates.last() else {
            return self.violate(Rule::Committed, index, newest, None);
        };
        self.check_token(index, &candidates);
        let floors = self.floors(observation);
        let mut highest = 0;
        for floor in floors {
            *self.report.applied.entry(floor.rule).or_default() += 1;
            if latest < floor.version {
                self.violate(floor.rule, index, floor.version, floor.earlier);
            } else {
                highest = highest.max(floor.version);
            }
        }
        // The oldest version that all rules allow, because a 404 claims no more than an absence.
        let certain = candidates.len() == 1;
        let version = candidates.into_iter().find(|v| *v >= highest).unwrap_or(latest);
        self.note(index, version, certain);
    }

    /// Returns the versions that a 404 may mean, ascending.
    fn absences(&self, observation: &Observation) -> Vec<u64> {
        if let Some(version) = self.version_at_token(observation)
            && self.history.get(version).is_some_and(|state| !state.present)
        {
            return vec![version];
        }
        self.history
            .iter()
            .filter(|(_, state)| !state.present)
            .map(|(version, _)| version)
            .collect()
    }

    /// Returns the version that the answer's own token determines. A batch's token is the largest
    /// of several.
    fn version_at_token(&self, observation: &Observation) -> Option<u64> {
        let token = observation.token.filter(|token| Some(token.log) == self.terms.log)?;
        (self.terms.tokens_are_exact && !observation.batch)
            .then(|| self.history.newest_at(token.at))
    }

    fn check_token(&mut self, index: usize, candidates: &[u64]) {
        let observation = &self.observations[index];
        let Some(token) = observation.token.filter(|token| Some(token.log) == self.terms.log)
        else {
            return;
        };
        *self.report.applied.entry(Rule::Token).or_default() += 1;
        let newest = self.history.newest_at(token.at);
        let agrees = if self.terms.tokens_are_exact && !observation.batch {
            candidates.contains(&newest)
        } else {
            // A batch's token is the largest of several: no record of the batch is newer.
            candidates.iter().any(|version| *version <= newest)
        };
        if !agrees {
            self.violate(Rule::Token, index, newest, None);
        }
    }

    fn floors(&self, observation: &Observation) -> Vec<Floor> {
        let mut floors = Vec::with_capacity(4);
        let mut add = |rule, version, earlier| floors.push(Floor { rule, version, earlier });
        let sent = observation.sent_ns;
        if let Some((version, earlier)) = self.newest_answered(observation) {
            add(Rule::Monotonic, version, Some(earlier));
        }
        if observation.outcome != Outcome::Stale {
            add(
                Rule::Fresh,
                self.history.returned_before(sent.saturating_sub(self.terms.max_staleness_ns)),
                None,
            );
        }
        if matches!(observation.outcome, Outcome::Hit | Outcome::Stale) {
            let age = u64::from(observation.age_s) * SECOND + AGE_ROUNDING;
            add(Rule::Age, self.history.returned_before(sent.saturating_sub(age)), None);
        }
        match observation.mode {
            ReadMode::Normal => {}
            ReadMode::Revalidate => add(Rule::NoCache, self.history.returned_before(sent), None),
            ReadMode::AtLeast(at) => add(Rule::MinPosition, self.history.at(at), None),
            ReadMode::Session { token, version } => {
                add(Rule::MinPosition, self.history.at(token), None);
                version.into_iter().for_each(|version| add(Rule::Session, version, None));
            }
        }
        let last = self.purges.partition_point(|purge| purge.received_ns < sent);
        let mut purges =
            self.purges[..last].iter().rev().filter(|purge| purge.instance == observation.instance);
        if let Some(purge) = purges.next() {
            add(Rule::Purged, self.history.returned_before(purge.sent_ns), None);
        }
        floors
    }

    /// Returns the newest version in an answer of this instance received before this request was
    /// sent.
    fn newest_answered(&self, observation: &Observation) -> Option<(u64, usize)> {
        let answered = self.answered.get(&observation.instance)?;
        let before = answered.partition_point(|(received, _, _)| *received < observation.sent_ns);
        answered[..before].last().map(|(_, version, index)| (*version, *index))
    }

    fn note(&mut self, index: usize, version: u64, certain: bool) {
        let observation = &self.observations[index];
        if let (true, Some(next)) = (certain, self.history.get(version + 1)) {
            let lag = observation.sent_ns.saturating_sub(next.returned_ns);
            self.report.worst_lag_ns = self.report.worst_lag_ns.max(lag);
        }
        let answered = self.answered.entry(observation.instance).or_default();
        if answered.last().is_none_or(|(_, newest, _)| *newest < version) {
            answered.push((observation.received_ns, version, index));
        }
    }

    fn violate(&mut self, rule: Rule, observation: usize, floor: u64, earlier: Option<usize>) {
        self.report.violations.push(Violation { rule, observation, floor, earlier });
    }
}

/// Returns the number of reads with a change of their key in progress within `near`.
pub(crate) fn reads_near_changes(
    histories: &Histories,
    observations: &[Observation],
    near: Ns,
) -> usize {
    let is_near = |o: &&Observation| {
        histories
            .get(o.key as usize)
            .is_some_and(|h| h.changed_near(o.sent_ns, o.received_ns, near))
    };
    observations.iter().filter(is_near).count()
}
