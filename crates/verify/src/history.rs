//! What was written to one key: its states in order, each with the moments between which it became visible.
//!
//! That there is no row is a state like any other. A write whose outcome nobody knows (the connection was lost at COMMIT)
//! stays a *maybe*: it may be seen, and nothing follows from its not being seen.

use std::collections::VecDeque;

/// Nanoseconds on the one clock of this process, which writers and readers share.
pub type Ns = u64;

/// One second.
pub const SECOND: Ns = 1_000_000_000;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its transaction is under way.
    Open,
    /// COMMIT had returned at this moment, or the row was read back then.
    Committed {
        /// That moment.
        returned_ns: Ns,
    },
    /// The connection was lost at COMMIT: it may have happened, may happen still, or never.
    Unknown,
    /// It was rolled back.
    Undone,
}

/// One state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Its number; rows carry it in their column `version`.
    pub version: u64,
    /// Whether there is a row.
    pub present: bool,
    /// The transaction that made it.
    pub transaction: u64,
    /// Just before COMMIT was sent; none while that is still to come.
    pub begun_ns: Option<Ns>,
    /// What became of it.
    pub fate: Fate,
    /// The log's end with this commit in it, where the writer could learn it.
    pub position: Option<u64>,
}

impl State {
    /// The moment by which it certainly was visible.
    #[must_use]
    pub fn returned_ns(&self) -> Option<Ns> {
        match self.fate {
            Fate::Committed { returned_ns } => Some(returned_ns),
            Fate::Open | Fate::Unknown | Fate::Undone => None,
        }
    }

    /// Whether an answer received at `moment` may show it.
    #[must_use]
    pub fn may_be_seen_by(&self, moment: Ns) -> bool {
        self.fate != Fate::Undone && self.begun_ns.is_some_and(|begun| begun <= moment)
    }
}

/// The states of one key, oldest first; those on which no later judgement can depend are forgotten.
///
/// One writer writes a key, one transaction after the other, so versions rise by one from state to state.
#[derive(Clone, Debug)]
pub struct History {
    states: VecDeque<State>,
    /// The newest forgotten absence. Rows that are forgotten name their versions themselves.
    forgotten_absence: Option<u64>,
}

impl History {
    /// A key whose first state of this run has this version. Before that, there may have been anything.
    #[must_use]
    pub fn beginning_at(version: u64, present: bool, returned_ns: Ns) -> Self {
        let fate = Fate::Committed { returned_ns };
        let first = State { version, present, transaction: 0, begun_ns: Some(0), fate, position: None };
        Self { states: VecDeque::from([first]), forgotten_absence: Some(0) }
    }

    /// The newest state, whatever became of it.
    #[must_use]
    pub fn last(&self) -> &State {
        self.states.back().expect("a history begins with a state, and forgetting keeps one")
    }

    /// The newest state that is known to be committed: what a reader of the database sees, or an older one.
    #[must_use]
    pub fn last_certain(&self) -> Option<&State> {
        self.states.iter().rev().find(|state| state.returned_ns().is_some())
    }

    /// Adds the next state, not yet committed, and returns its version.
    pub fn stage(&mut self, present: bool, transaction: u64) -> u64 {
        let version = self.last().version + 1;
        self.states.push_back(State {
            version,
            present,
            transaction,
            begun_ns: None,
            fate: Fate::Open,
            position: None,
        });
        version
    }

    /// COMMIT of that state is about to be sent.
    pub fn begin(&mut self, version: u64, now: Ns) {
        if let Some(state) = self.get_mut(version) {
            state.begun_ns = Some(now);
        }
    }

    /// Notes what became of that state.
    pub fn settle(&mut self, version: u64, fate: Fate, position: Option<u64>) {
        if let Some(state) = self.get_mut(version) {
            (state.fate, state.position) = (fate, position);
        }
    }

    /// The state of that version; none if it is forgotten or still to come.
    #[must_use]
    pub fn get(&self, version: u64) -> Option<&State> {
        self.states.get(self.index(version)?)
    }

    fn get_mut(&mut self, version: u64) -> Option<&mut State> {
        let index = self.index(version)?;
        self.states.get_mut(index)
    }

    fn index(&self, version: u64) -> Option<usize> {
        usize::try_from(version.checked_sub(self.states.front()?.version)?).ok()
    }

    /// All states that are remembered.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &State> {
        self.states.iter()
    }

    /// Whether that version is older than all that is remembered.
    #[must_use]
    pub fn is_forgotten(&self, version: u64) -> bool {
        self.states.front().is_some_and(|first| version < first.version)
    }

    /// The newest version that certainly was visible before `moment`; 0 if what is remembered does not tell.
    #[must_use]
    pub fn certain_before(&self, moment: Ns) -> u64 {
        let visible = |state: &&State| state.returned_ns().is_some_and(|returned| returned < moment);
        self.states.iter().rev().find(visible).map_or(0, |state| state.version)
    }

    /// The newest version that the log up to `position` contains for certain; 0 if none is known to.
    #[must_use]
    pub fn certain_at(&self, position: u64) -> u64 {
        let contained = |state: &&State| {
            state.returned_ns().is_some() && state.position.is_some_and(|position_of_it| position_of_it <= position)
        };
        self.states.iter().rev().find(contained).map_or(0, |state| state.version)
    }

    /// The version that this transaction gave the key, if it committed.
    #[must_use]
    pub fn of_transaction(&self, transaction: u64) -> Option<u64> {
        let made = |state: &&State| state.transaction == transaction && state.returned_ns().is_some();
        self.states.iter().rev().find(made).map(|state| state.version)
    }

    /// The absences that an answer received at `moment` may show, oldest first.
    pub fn absences(&self, moment: Ns) -> impl Iterator<Item = u64> {
        let kept = self.states.iter().filter(move |state| !state.present && state.may_be_seen_by(moment));
        self.forgotten_absence.into_iter().chain(kept.map(|state| state.version))
    }

    /// The newest version that an answer received at `moment` may show.
    #[must_use]
    pub fn newest_begun(&self, moment: Ns) -> u64 {
        self.states.iter().rev().find(|state| state.may_be_seen_by(moment)).map_or(0, |state| state.version)
    }

    /// Whether a commit was under way within `near` of the time from `from` to `to`.
    #[must_use]
    pub fn changed_near(&self, from: Ns, to: Ns, near: Ns) -> bool {
        let (from, to) = (from.saturating_sub(near), to.saturating_add(near));
        self.states.iter().rev().any(|state| {
            let began_in_time = state.begun_ns.is_some_and(|begun| 0 < begun && begun <= to);
            began_in_time && state.returned_ns().is_some_and(|returned| returned >= from)
        })
    }

    /// Forgets what no floor at or after `horizon` can need: all before the newest state that was certain by then.
    pub fn forget_before(&mut self, horizon: Ns) {
        let keep_from = self.certain_before(horizon);
        while self.states.front().is_some_and(|state| state.version < keep_from) {
            let forgotten = self.states.pop_front();
            let absence = forgotten.filter(|state| !state.present && state.fate != Fate::Undone);
            self.forgotten_absence = absence.map(|state| state.version).or(self.forgotten_absence);
        }
    }
}
