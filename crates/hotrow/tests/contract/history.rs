//! What the writers did: per key every state in order, with the moments between which it became visible.

/// Nanoseconds since the run began, on the one clock of this process: writers and readers compare.
pub(crate) type Ns = u64;

/// One second.
pub(crate) const SECOND: Ns = 1_000_000_000;

/// One state of one key. Its index in the history is its version; rows carry it in their column `version`. That there is
/// no row is a state like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Whether there is a row.
    pub(crate) present: bool,
    /// Just before COMMIT was sent.
    pub(crate) begun_ns: Ns,
    /// Just after COMMIT returned.
    pub(crate) returned_ns: Ns,
    /// No answer with a token below this saw the commit.
    pub(crate) from: u64,
    /// The log's end with this commit in it: what reflects the log up to here reflects the commit. The same as `from` where
    /// the database tells a commit's exact place.
    pub(crate) at: u64,
    /// Who wrote it.
    pub(crate) writer: u8,
}

/// The states of one key, oldest first. One writer writes a key, so both moments and the log's end grow with the index.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    states: Vec<State>,
}

impl History {
    /// A key that has been in its state since before the run.
    pub(crate) fn starting(present: bool) -> Self {
        Self { states: vec![State { present, begun_ns: 0, returned_ns: 0, from: 0, at: 0, writer: u8::MAX }] }
    }

    /// Notes the next state and returns its version.
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

    /// The version that the next state will have.
    pub(crate) fn next_version(&self) -> u64 {
        self.states.len() as u64
    }

    /// The state of that version.
    pub(crate) fn get(&self, version: u64) -> Option<&State> {
        self.states.get(usize::try_from(version).ok()?)
    }

    /// The newest state.
    pub(crate) fn last(&self) -> &State {
        self.states.last().expect("a history starts with a state")
    }

    /// All states with their versions.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &State)> {
        self.states.iter().enumerate().map(|(i, state)| (i as u64, state))
    }

    /// The newest version whose COMMIT had returned before `moment`.
    pub(crate) fn returned_before(&self, moment: Ns) -> u64 {
        last(self.states.partition_point(|s| s.returned_ns < moment))
    }

    /// The newest version whose COMMIT had been sent by `moment`: nothing newer can have been read then.
    pub(crate) fn begun_by(&self, moment: Ns) -> u64 {
        last(self.states.partition_point(|s| s.begun_ns <= moment))
    }

    /// The oldest version of what reflects the log up to `at`.
    pub(crate) fn at(&self, at: u64) -> u64 {
        last(self.states.partition_point(|s| s.at <= at))
    }

    /// The newest version that an answer with the token `at` may have seen.
    pub(crate) fn newest_at(&self, at: u64) -> u64 {
        last(self.states.partition_point(|s| s.from <= at))
    }

    /// Whether a change of the key was under way less than `near` before `from` or after `to`.
    pub(crate) fn changed_near(&self, from: Ns, to: Ns, near: Ns) -> bool {
        let first = self.states.partition_point(|s| s.returned_ns.saturating_add(near) < from);
        // Version 0 is no change.
        self.states.get(first.max(1)).is_some_and(|s| s.begun_ns <= to.saturating_add(near))
    }
}

fn last(count: usize) -> u64 {
    count.saturating_sub(1) as u64
}

/// The histories of all keys; the index is the key.
pub(crate) type Histories = Vec<History>;
