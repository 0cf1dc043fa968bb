//! Histories of the writers: per key every state in order, with the time range in which it became
//! visible.

/// Nanoseconds since the run began. Writers and readers share this clock.
pub(crate) type Ns = u64;

/// One second.
pub(crate) const SECOND: Ns = 1_000_000_000;

/// One state of one key, present or absent. Its index in the history is its version, which rows
/// carry in their column `version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// True if the key has a row.
    pub(crate) present: bool,
    /// Time just before COMMIT was sent.
    pub(crate) begun_ns: Ns,
    /// Time just after COMMIT returned.
    pub(crate) returned_ns: Ns,
    /// Lowest token of an answer that can reflect the commit.
    pub(crate) from: u64,
    /// End of the log with this commit in it: an answer at this position reflects the commit. Equal
    /// to `from` where the database gives a commit's exact position.
    pub(crate) at: u64,
    /// Id of the writer.
    pub(crate) writer: u8,
}

/// States of one key, oldest first. One writer writes a key, so times and log positions grow with
/// the index.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    states: Vec<State>,
}

impl History {
    /// Creates the history of a key whose first state predates the run.
    pub(crate) fn starting(present: bool) -> Self {
        Self {
            states: vec![State {
                present,
                begun_ns: 0,
                returned_ns: 0,
                from: 0,
                at: 0,
                writer: u8::MAX,
            }],
        }
    }

    /// Appends the next state and returns its version.
    pub(crate) fn push(&mut self, state: State) -> u64 {
        if let Some(last) = self.states.last() {
            assert!(
                last.returned_ns <= state.begun_ns && last.at <= state.at && state.from <= state.at,
                "a key's commits do not overlap"
            );
        }
        self.states.push(state);
        self.states.len() as u64 - 1
    }

    /// Returns the version of the next state.
    pub(crate) fn next_version(&self) -> u64 {
        self.states.len() as u64
    }

    /// Returns the state of a version.
    pub(crate) fn get(&self, version: u64) -> Option<&State> {
        self.states.get(usize::try_from(version).ok()?)
    }

    /// Returns the newest state.
    pub(crate) fn last(&self) -> &State {
        self.states.last().expect("a history starts with a state")
    }

    /// Iterates over all states with their versions.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &State)> {
        self.states.iter().enumerate().map(|(i, state)| (i as u64, state))
    }

    /// Returns the newest version whose COMMIT had returned before `moment`.
    pub(crate) fn returned_before(&self, moment: Ns) -> u64 {
        last(self.states.partition_point(|s| s.returned_ns < moment))
    }

    /// Returns the newest version whose COMMIT had been sent by `moment`, the newest that can be
    /// read then.
    pub(crate) fn begun_by(&self, moment: Ns) -> u64 {
        last(self.states.partition_point(|s| s.begun_ns <= moment))
    }

    /// Returns the oldest version that an answer at the log position `at` may show.
    pub(crate) fn at(&self, at: u64) -> u64 {
        last(self.states.partition_point(|s| s.at <= at))
    }

    /// Returns the newest version that an answer with the token `at` may show.
    pub(crate) fn newest_at(&self, at: u64) -> u64 {
        last(self.states.partition_point(|s| s.from <= at))
    }

    /// Returns true if a change of the key was in progress less than `near` before `from` or after
    /// `to`.
    pub(crate) fn changed_near(&self, from: Ns, to: Ns, near: Ns) -> bool {
        let first = self.states.partition_point(|s| s.returned_ns.saturating_add(near) < from);
        // Version 0 is the initial state, not a change.
        self.states.get(first.max(1)).is_some_and(|s| s.begun_ns <= to.saturating_add(near))
    }
}

fn last(count: usize) -> u64 {
    count.saturating_sub(1) as u64
}

/// Histories of all keys, indexed by key.
pub(crate) type Histories = Vec<History>;
