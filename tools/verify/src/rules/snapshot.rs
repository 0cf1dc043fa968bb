//! The rule `snapshot`: the parts of one response are the database at one point of its log.
//!
//! The moment of that point is unknown, but each state has an interval in which it can have been
//! the newest one: from the sending of its COMMIT to the return of the next one of its key. A point
//! at which every part may be the newest state is sought among the beginnings of these intervals.
//! There, what a transaction did to one part it must have done to all: rows that one transaction
//! changes show its number together, and appear and disappear together.

use crate::history::{History, KeyState, Ns};
use crate::observation::{Claim, Observation};
use crate::rules::{Beside, Rule, Violation};

/// One part of a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotPart {
    /// What the response states of a key.
    pub observation: Observation,
    /// The key's history.
    pub history: History,
}

/// A snapshot to be checked.
#[derive(Debug)]
pub struct Snapshot {
    parts: Vec<SnapshotPart>,
    /// For each part the states that it may mean, oldest first.
    states: Vec<Vec<Shown>>,
}

/// A state that a part may mean.
#[derive(Clone, Copy, Debug)]
struct Shown {
    version: u64,
    /// Its transaction; 0 if unknown.
    transaction: u64,
    /// Time from which it may have been the newest of its key.
    from: Ns,
    /// Time until which it may.
    until: Ns,
}

impl Snapshot {
    /// Creates the check of a response; `None` if it makes no claim, as a refusal, or one that
    /// violates `committed` already.
    #[must_use]
    pub fn new(parts: Vec<SnapshotPart>) -> Option<Self> {
        let parts: Vec<SnapshotPart> = parts
            .into_iter()
            .filter(|part| part.observation.seen != Claim::UnknownVersion)
            .collect();
        let states: Vec<Vec<Shown>> = parts.iter().map(SnapshotPart::states).collect();
        let is_complete = states.len() > 1 && states.iter().all(|of_part| !of_part.is_empty());
        is_complete.then_some(Self { parts, states })
    }

    /// Returns the violation, if there is no such point.
    #[must_use]
    pub fn check(&self) -> Option<Violation> {
        let mut moments = self.states.iter().flatten().map(|shown| shown.from);
        if moments.any(|moment| self.is_whole_at(moment)) {
            return None;
        }
        let all = || 0..self.parts.len();
        let pairs = all().flat_map(|newer| all().map(move |older| (newer, older)));
        // Parts of rows contradict each other in pairs. Absences may do so only together.
        let found = pairs.clone().find_map(|(newer, older)| self.contradiction(newer, older));
        Some(found.unwrap_or_else(|| self.violation(0, 1, self.states[0][0].version)))
    }

    /// Returns whether each part may be the newest state at that time, with whole transactions.
    fn is_whole_at(&self, moment: Ns) -> bool {
        let at = |shown: &&Shown| shown.from <= moment && moment <= shown.until;
        let possible: Vec<Vec<Shown>> =
            self.states.iter().map(|of| of.iter().filter(at).copied().collect()).collect();
        if possible.iter().any(Vec::is_empty) {
            return false;
        }
        // Where a part has two possible states, nothing follows from either.
        let certain = possible.iter().filter(|of_part| of_part.len() == 1).flatten();
        certain.filter(|shown| shown.transaction != 0).all(|shown| {
            self.parts.iter().zip(&possible).all(|(part, possible)| {
                let changed = part.version_of(shown.transaction);
                changed.is_none_or(|version| possible.iter().any(|other| other.version >= version))
            })
        })
    }

    /// Returns how the oldest meaning of one part contradicts the newest one of another.
    fn contradiction(&self, newer: usize, older: usize) -> Option<Violation> {
        let (shown, other) = (self.states[newer].first()?, self.states[older].last()?);
        let part = &self.parts[older];
        let together = part.version_of(shown.transaction).filter(|_| shown.transaction != 0);
        let before = part.history.certain_before(shown.from);
        let floor = before.max(together.unwrap_or(0));
        (floor > other.version).then(|| self.violation(newer, older, floor))
    }

    fn violation(&self, newer: usize, older: usize, floor: u64) -> Violation {
        let version = self.states[newer][0].version;
        Violation {
            rule: Rule::Snapshot,
            observation: self.parts[older].observation.clone(),
            floor,
            earlier: None,
            beside: Some(Beside { key: self.parts[newer].observation.key, version }),
        }
    }
}

impl SnapshotPart {
    /// Returns the version that a transaction gave the key, unless it was rolled back.
    fn version_of(&self, transaction: u64) -> Option<u64> {
        let made = |state: &&KeyState| {
            state.transaction == transaction && state.may_be_seen_by(self.observation.received_ns)
        };
        self.history.iter().rev().find(made).map(|state| state.version)
    }

    fn states(&self) -> Vec<Shown> {
        let received = self.observation.received_ns;
        let versions: Vec<u64> = match &self.observation.seen {
            Claim::Version(version) => vec![*version],
            Claim::Absent => self.history.absences(received).collect(),
            Claim::Refused(_)
            | Claim::PositionRefused
            | Claim::UnknownVersion
            | Claim::Invalid(_) => Vec::new(),
        };
        versions.into_iter().filter_map(|version| self.shown(version)).collect()
    }

    fn shown(&self, version: u64) -> Option<Shown> {
        let later = self.history.iter().filter(|state| state.version > version);
        let until = later.filter_map(KeyState::returned_ns).min().unwrap_or(Ns::MAX);
        if self.history.is_pruned(version) {
            return Some(Shown { version, transaction: 0, from: 0, until });
        }
        let state = self.history.get(version)?;
        let from = state.commit_sent_ns.filter(|_| state.may_be_seen_by(Ns::MAX))?;
        Some(Shown { version, transaction: state.transaction, from, until })
    }
}
