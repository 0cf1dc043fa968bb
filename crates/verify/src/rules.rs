//! The contract (docs/consistency.md) as a checker of one key: what was written and what was read go in, violations come
//! out. Pure: no I/O, no clock. It knows nothing of how the service keeps the contract.
//!
//! Each rule gives, for each answer, the oldest version that it may show. A row names its version. A 404 names none, so it
//! stands for whichever absence the rules allow.
//!
//! Answers are judged in the order of their receipt. One that is handed in late is judged against all that was received
//! before its own request was sent, but those judged meanwhile are not judged again for it.

use std::collections::{BTreeMap, VecDeque};

use crate::history::{History, Ns, SECOND};
use crate::observation::{Observation, Origin, Outcome, Purge, Seen, Wish};

#[cfg(test)]
mod tests;

/// What the contract says; each names what an answer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// What is answered was committed.
    Committed,
    /// Point 1.
    Monotonic,
    /// Point 2.
    Fresh,
    /// Point 2: what `Age` tells.
    Age,
    /// Point 1: `no-cache`.
    NoCache,
    /// Point 3, with a token.
    Session,
    /// Point 3, with the position of a commit.
    OwnWrite,
    /// Purge.
    Purged,
    /// Point 4.
    Convergent,
}

/// All rules, for counts.
pub const RULES: [Rule; 9] = [
    Rule::Committed,
    Rule::Monotonic,
    Rule::Fresh,
    Rule::Age,
    Rule::NoCache,
    Rule::Session,
    Rule::OwnWrite,
    Rule::Purged,
    Rule::Convergent,
];

impl Rule {
    /// A short name for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Monotonic => "monotonic",
            Self::Fresh => "fresh",
            Self::Age => "age",
            Self::NoCache => "no_cache",
            Self::Session => "session",
            Self::OwnWrite => "own_write",
            Self::Purged => "purged",
            Self::Convergent => "convergent",
        }
    }

    /// What it demands, in a sentence.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Committed => "every answer is a state that was committed, or the documented refusal",
            Self::Monotonic => {
                "point 1, monotonic: a request received after an answer with version v was fully sent never gets an older \
                 version of that key from that instance"
            }
            Self::Fresh => {
                "point 2, fresh: a read that begins more than max_staleness after COMMIT returned sees the change, or is \
                 marked stale, or gets 503 or 504"
            }
            Self::Age => {
                "point 2, Age: an answer is behind the database by no more than its Age says (rounded to seconds)"
            }
            Self::NoCache => "point 1, no-cache: the answer is read from the database after the request arrived",
            Self::Session => {
                "point 3, sessions: with the Hotrow-Position of an earlier answer as Hotrow-Min-Position, an answer of any \
                 instance is at least as new"
            }
            Self::OwnWrite => {
                "point 3, read your writes: with the position of a commit as Hotrow-Min-Position, the answer reflects every \
                 commit up to it"
            }
            Self::Purged => {
                "what is read after a purge was answered was read from the database after the purge was sent"
            }
            Self::Convergent => {
                "point 4, convergent: when writes stop, every key equals the database within max_staleness"
            }
        }
    }
}

/// `Age` is rounded to whole seconds.
const AGE_ROUNDING_NS: Ns = SECOND / 2;

/// What the contract leaves to the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// `cache.max_staleness`.
    pub max_staleness_ns: Ns,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// The answer that broke it.
    pub observation: Observation,
    /// The oldest version that the rule allows; for [`Rule::Committed`], the newest that had been begun.
    pub floor: u64,
    /// The earlier answer that the rule refers to, if it is one.
    pub earlier: Option<Answered>,
}

/// An answer that was newer than all before of its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The version it showed.
    pub version: u64,
    /// When its request was sent.
    pub sent_ns: Ns,
    /// When it was received.
    pub received_ns: Ns,
    /// Who read it.
    pub reader: u16,
}

/// What came of judging one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The first rule that it breaks.
    pub violation: Option<Violation>,
    /// The rules that had something to say.
    pub applied: Vec<Rule>,
    /// How long a commit had returned when the request was sent whose answer did not show it; 0 if it showed all.
    pub lag_ns: Ns,
}

/// What must be remembered of one key to judge later answers.
#[derive(Clone, Debug)]
pub struct KeyJudge {
    /// What was written.
    pub history: History,
    /// Per instance, in the order of their receipt and of their versions.
    answered: BTreeMap<Origin, VecDeque<Answered>>,
    /// Purges that concern the key, per instance, in the order in which they were answered.
    purges: BTreeMap<Origin, VecDeque<Purge>>,
}

/// The oldest version that a rule allows, and the earlier answer that says so.
struct Floor {
    rule: Rule,
    version: u64,
    earlier: Option<Answered>,
}

impl KeyJudge {
    /// Nothing has been answered yet.
    #[must_use]
    pub fn new(history: History) -> Self {
        Self { history, answered: BTreeMap::new(), purges: BTreeMap::new() }
    }

    /// Notes a purge of the key or of its collection. Must come before the answers to requests that were sent after it.
    pub fn purge(&mut self, purge: Purge) {
        self.purges.entry(purge.origin).or_default().push_back(purge);
    }

    /// Judges one answer, and remembers it for those to come.
    pub fn judge(&mut self, observation: &Observation, terms: &Terms) -> Judgement {
        let candidates: Vec<u64> = match &observation.seen {
            Seen::Refused(_) | Seen::PositionRefused | Seen::SomeRow => return Judgement::default(),
            Seen::Invented(_) => Vec::new(),
            Seen::Version(version) if self.is_real(*version, observation.received_ns) => vec![*version],
            Seen::Version(_) => Vec::new(),
            Seen::Absent => self.history.absences(observation.received_ns).collect(),
        };
        let mut judgement = Judgement { applied: vec![Rule::Committed], ..Judgement::default() };
        let violation =
            |rule, floor, earlier| Some(Violation { rule, observation: observation.clone(), floor, earlier });
        let Some(&latest) = candidates.last() else {
            let newest = self.history.newest_begun(observation.received_ns);
            judgement.violation = violation(Rule::Committed, newest, None);
            return judgement;
        };
        let mut highest = 0;
        for floor in self.floors(observation, terms) {
            judgement.applied.push(floor.rule);
            if latest >= floor.version {
                highest = highest.max(floor.version);
            } else if judgement.violation.is_none() {
                judgement.violation = violation(floor.rule, floor.version, floor.earlier);
            }
        }
        // The oldest that all rules allow: of a 404 no more is claimed than it says.
        let version = candidates.iter().copied().find(|version| *version >= highest).unwrap_or(latest);
        judgement.lag_ns = self.lag_ns(observation, latest);
        self.remember(observation, version);
        judgement
    }

    /// Whether an answer received then may show a row of that version.
    fn is_real(&self, version: u64, received_ns: Ns) -> bool {
        // A forgotten row was judged by its own bytes.
        let seen = |state: &crate::history::State| state.present && state.may_be_seen_by(received_ns);
        self.history.is_forgotten(version) || self.history.get(version).is_some_and(seen)
    }

    fn floors(&self, observation: &Observation, terms: &Terms) -> Vec<Floor> {
        let mut floors = Vec::with_capacity(4);
        let mut add = |rule, version, earlier| floors.push(Floor { rule, version, earlier });
        let sent = observation.sent_ns;
        if let Some(earlier) = self.newest_answered(observation) {
            add(Rule::Monotonic, earlier.version, Some(earlier));
        }
        if observation.outcome != Outcome::Stale {
            add(Rule::Fresh, self.history.certain_before(sent.saturating_sub(terms.max_staleness_ns)), None);
        }
        if let (Outcome::Hit | Outcome::Stale, Some(age_s)) = (observation.outcome, observation.age_s) {
            let age = u64::from(age_s) * SECOND + AGE_ROUNDING_NS;
            add(Rule::Age, self.history.certain_before(sent.saturating_sub(age)), None);
        }
        match observation.wish {
            Wish::Any => {}
            Wish::NoCache => add(Rule::NoCache, self.history.certain_before(sent), None),
            Wish::Session { floor, .. } => add(Rule::Session, floor, None),
            Wish::OwnWrite { floor, .. } => add(Rule::OwnWrite, floor, None),
        }
        let purges = self.purges.get(&observation.origin);
        if let Some(purge) = purges.and_then(|all| all.iter().rev().find(|purge| purge.received_ns < sent)) {
            add(Rule::Purged, self.history.certain_before(purge.sent_ns), None);
        }
        floors
    }

    /// The newest answer of this instance that was received before this request was sent.
    fn newest_answered(&self, observation: &Observation) -> Option<Answered> {
        let answered = self.answered.get(&observation.origin)?;
        let before = answered.partition_point(|answered| answered.received_ns < observation.sent_ns);
        before.checked_sub(1).and_then(|last| answered.get(last)).copied()
    }

    /// How long the oldest commit that the answer did not show had returned when it was asked for.
    fn lag_ns(&self, observation: &Observation, version: u64) -> Ns {
        if observation.outcome == Outcome::Stale {
            return 0;
        }
        let hidden = self.history.iter().filter(|state| state.version > version);
        let returned = hidden.filter_map(crate::history::State::returned_ns).min();
        returned.map_or(0, |returned| observation.sent_ns.saturating_sub(returned))
    }

    fn remember(&mut self, observation: &Observation, version: u64) {
        let Observation { origin: origin @ Origin::Instance(_), sent_ns, received_ns, reader, .. } = *observation
        else {
            return;
        };
        let answered = self.answered.entry(origin).or_default();
        let at = answered.partition_point(|other| other.received_ns <= received_ns);
        if at.checked_sub(1).and_then(|last| answered.get(last)).is_some_and(|newest| newest.version >= version) {
            return;
        }
        // Those received later that say less say nothing any more.
        while answered.get(at).is_some_and(|later| later.version <= version) {
            answered.remove(at);
        }
        answered.insert(at, Answered { version, sent_ns, received_ns, reader });
    }

    /// Forgets what cannot matter for answers to requests that are sent at `horizon` or later.
    pub fn forget_before(&mut self, horizon: Ns, terms: &Terms) {
        // Besides the bound, an `Age` of a second or two shall be checked.
        let reach = terms.max_staleness_ns.saturating_add(3 * SECOND);
        self.history.forget_before(horizon.saturating_sub(reach));
        for answered in self.answered.values_mut() {
            while answered.get(1).is_some_and(|second| second.received_ns < horizon) {
                answered.pop_front();
            }
        }
        for purges in self.purges.values_mut() {
            while purges.get(1).is_some_and(|second| second.received_ns < horizon) {
                purges.pop_front();
            }
        }
    }

    /// The purges that are remembered.
    pub fn purges(&self) -> impl Iterator<Item = &Purge> {
        self.purges.values().flatten()
    }
}
