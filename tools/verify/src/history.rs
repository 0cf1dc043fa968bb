//! The write history of one key: its states in order, each with the interval in which it became
//! visible.
//!
//! Absence of a row is a state like any other. A write of unknown outcome (the connection was lost
//! at COMMIT) is optional: it may be seen, and nothing follows if it is not.

use std::collections::VecDeque;

/// Nanoseconds on the process's clock, shared by writers and readers.
pub type Ns = u64;

/// One second.
pub const SECOND: Ns = 1_000_000_000;

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Its transaction is in progress.
    Open,
    /// COMMIT had returned, or the row was read back, by this time.
    Committed {
        /// That time.
        returned_ns: Ns,
    },
    /// The connection was lost at COMMIT: it may have happened, may still happen, or never will.
    Unknown,
    /// It was rolled back.
    RolledBack,
}

/// Interval of the database's log in which a commit lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogInterval {
    /// Lowest position of a response that can reflect the commit; 0 if unknown.
    pub from: u64,
    /// A position that includes the commit: every response at it reflects the commit. Equal to
    /// `from` where the database reports a commit's exact position.
    pub at: u64,
}

/// One state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// Its version, also in the row's column `version`.
    pub version: u64,
    /// True if there is a row.
    pub present: bool,
    /// Its transaction.
    pub transaction: u64,
    /// Time just before COMMIT was sent; `None` before that.
    pub commit_sent_ns: Option<Ns>,
    /// Outcome of the write.
    pub outcome: WriteOutcome,
    /// Its place in the log, if the writer could learn it. Later commits have later ones.
    pub log: Option<LogInterval>,
}

impl KeyState {
    /// Returns the time by which it was certainly visible.
    pub fn returned_ns(&self) -> Option<Ns> {
        match self.outcome {
            WriteOutcome::Committed { returned_ns } => Some(returned_ns),
            WriteOutcome::Open | WriteOutcome::Unknown | WriteOutcome::RolledBack => None,
        }
    }

    /// Returns whether a response received at `moment` may show it.
    pub fn may_be_seen_by(&self, moment: Ns) -> bool {
        self.outcome != WriteOutcome::RolledBack
            && self.commit_sent_ns.is_some_and(|begun| begun <= moment)
    }
}

/// The states of one key, oldest first, without those that no later check can need.
///
/// A single writer writes a key, one transaction after the other, so versions increase by one.
#[derive(Clone, Debug)]
pub struct History {
    states: VecDeque<KeyState>,
    /// Newest discarded absence. Discarded rows carry their versions themselves.
    pruned_absence: Option<u64>,
}

impl History {
    /// Creates the history of a key whose first state in this run has this version; earlier states
    /// are unknown.
    #[must_use]
    pub fn beginning_at(version: u64, present: bool, returned_ns: Ns) -> Self {
        let first = KeyState {
            version,
            present,
            transaction: 0,
            commit_sent_ns: Some(0),
            outcome: WriteOutcome::Committed { returned_ns },
            log: None,
        };
        Self { states: VecDeque::from([first]), pruned_absence: Some(0) }
    }

    /// Creates the history of a key that has had one state, of version 0, since before time 0 and
    /// position 0.
    #[must_use]
    pub fn starting(present: bool) -> Self {
        let mut history = Self { pruned_absence: None, ..Self::beginning_at(0, present, 0) };
        let returned = WriteOutcome::Committed { returned_ns: 0 };
        history.settle(0, returned, Some(LogInterval { from: 0, at: 0 }));
        history
    }

    /// Returns the newest state, of any outcome.
    pub fn last(&self) -> &KeyState {
        self.states.back().expect("a history begins with a state, and pruning keeps one")
    }

    /// Returns the newest state known to be committed: what a reader of the database sees, or an
    /// older one.
    pub fn last_certain(&self) -> Option<&KeyState> {
        self.states.iter().rev().find(|state| state.returned_ns().is_some())
    }

    /// Returns the version of the next state.
    pub fn next_version(&self) -> u64 {
        self.last().version + 1
    }

    /// Adds a state, which must have the next version.
    pub fn push(&mut self, state: KeyState) {
        debug_assert_eq!(state.version, self.next_version(), "versions increase by one");
        self.states.push_back(state);
    }

    /// Adds the next, uncommitted state and returns its version.
    pub fn stage(&mut self, present: bool, transaction: u64) -> u64 {
        let version = self.next_version();
        self.push(KeyState {
            version,
            present,
            transaction,
            commit_sent_ns: None,
            outcome: WriteOutcome::Open,
            log: None,
        });
        version
    }

    /// Records that COMMIT of that state is about to be sent.
    pub fn begin(&mut self, version: u64, now: Ns) {
        if let Some(state) = self.get_mut(version) {
            state.commit_sent_ns = Some(now);
        }
    }

    /// Records the outcome of that state, and its place in the log if known.
    pub fn settle(&mut self, version: u64, outcome: WriteOutcome, log: Option<LogInterval>) {
        if let Some(state) = self.get_mut(version) {
            (state.outcome, state.log) = (outcome, log);
        }
    }

    /// Returns the state of that version; `None` if it is discarded or in the future.
    pub fn get(&self, version: u64) -> Option<&KeyState> {
        self.states.get(self.index(version)?)
    }

    fn get_mut(&mut self, version: u64) -> Option<&mut KeyState> {
        let index = self.index(version)?;
        self.states.get_mut(index)
    }

    fn index(&self, version: u64) -> Option<usize> {
        usize::try_from(version.checked_sub(self.states.front()?.version)?).ok()
    }

    /// Returns all remembered states.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &KeyState> {
        self.states.iter()
    }

    /// Returns whether that version is older than all remembered ones.
    pub fn is_pruned(&self, version: u64) -> bool {
        self.states.front().is_some_and(|first| version < first.version)
    }

    /// Returns the newest version that was certainly visible before `moment`; 0 if unknown.
    pub fn certain_before(&self, moment: Ns) -> u64 {
        let visible =
            |state: &&KeyState| state.returned_ns().is_some_and(|returned| returned < moment);
        self.states.iter().rev().find(visible).map_or(0, |state| state.version)
    }

    /// Returns the newest version that the log up to `position` certainly contains; 0 if unknown.
    pub fn certain_at(&self, position: u64) -> u64 {
        let contained = |state: &&KeyState| {
            state.returned_ns().is_some() && state.log.is_some_and(|log| log.at <= position)
        };
        self.states.iter().rev().find(contained).map_or(0, |state| state.version)
    }

    /// Returns the same of the commits that were sent by `moment`.
    pub fn certain_at_and_sent(&self, position: u64, moment: Ns) -> u64 {
        let contained = |state: &&KeyState| {
            state.returned_ns().is_some()
                && state.may_be_seen_by(moment)
                && state.log.is_some_and(|log| log.at <= position)
        };
        self.states.iter().rev().find(contained).map_or(0, |state| state.version)
    }

    /// Returns the newest version that a response with this token may show; `None` if unknown.
    pub fn newest_at(&self, token: u64) -> Option<u64> {
        let possible = |state: &&KeyState| {
            state.may_be_seen_by(Ns::MAX) && state.log.is_none_or(|log| log.from <= token)
        };
        self.states.iter().rev().find(possible).map(|state| state.version)
    }

    /// Returns the version that this transaction gave the key, if it committed.
    pub fn of_transaction(&self, transaction: u64) -> Option<u64> {
        let made =
            |state: &&KeyState| state.transaction == transaction && state.returned_ns().is_some();
        self.states.iter().rev().find(made).map(|state| state.version)
    }

    /// Returns the absences that a response received at `moment` may show, oldest first.
    pub fn absences(&self, moment: Ns) -> impl Iterator<Item = u64> {
        let kept =
            self.states.iter().filter(move |state| !state.present && state.may_be_seen_by(moment));
        self.pruned_absence.into_iter().chain(kept.map(|state| state.version))
    }

    /// Returns the newest version that a response received at `moment` may show.
    pub fn newest_commit_sent(&self, moment: Ns) -> u64 {
        self.states
            .iter()
            .rev()
            .find(|state| state.may_be_seen_by(moment))
            .map_or(0, |state| state.version)
    }

    /// Returns whether a commit was in progress within `near` of the interval from `from` to `to`.
    pub fn changed_near(&self, from: Ns, to: Ns, near: Ns) -> bool {
        let (from, to) = (from.saturating_sub(near), to.saturating_add(near));
        let over = |state: &KeyState| state.returned_ns().is_some_and(|returned| returned < from);
        // Commits return in the order of their versions.
        self.states.iter().rev().take_while(|state| !over(state)).any(|state| {
            let began_in_time = state.commit_sent_ns.is_some_and(|begun| 0 < begun && begun <= to);
            began_in_time && state.returned_ns().is_some()
        })
    }

    /// Discards states that no floor at or after `horizon` can need: all before the newest one
    /// certain by then.
    pub fn prune_before(&mut self, horizon: Ns) {
        let keep_from = self.certain_before(horizon);
        while self.states.front().is_some_and(|state| state.version < keep_from) {
            let forgotten = self.states.pop_front();
            let absence = forgotten
                .filter(|state| !state.present && state.outcome != WriteOutcome::RolledBack);
            self.pruned_absence = absence.map(|state| state.version).or(self.pruned_absence);
        }
    }
}
