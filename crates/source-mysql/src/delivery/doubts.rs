//! Doubts about the tables: events after which the catalogue must be checked.
//!
//! A server writes a definition to its log before other sessions see it, so a check that is sent
//! at once may find the catalogue from before it. Only a check that was sent after a probe saw the
//! definition settles its doubt.

use std::collections::VecDeque;

use hotrow_types::version::{ChangeId, Version};

/// Most groups with doubts that no probe has seen. Further ones wait for the newest of them.
const UNSEEN_MAX: usize = 1_024;

/// Numbered doubts since the start.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    raised: u64,
    /// The last one that does not concern privileges alone, but what tables are.
    newest_of_tables: u64,
    /// Those of groups that have ended.
    ended: u64,
    /// Those of ended groups that no probe has seen, by the group that raised the last of them.
    unseen: VecDeque<(u64, ChangeId)>,
    /// Those that a check sent now settles.
    seen: u64,
    settled: u64,
}

impl Doubts {
    /// Raises one about what a table is.
    pub(super) fn raise_of_tables(&mut self) {
        self.raised += 1;
        self.newest_of_tables = self.raised;
    }

    /// Raises one about privileges.
    pub(super) fn raise_of_privileges(&mut self) {
        self.raised += 1;
    }

    /// Records the end of a group. `mark`: what makes it visible; `None`: it never is, or later
    /// with another group.
    pub(super) fn end_group(&mut self, mark: Option<ChangeId>) {
        if self.raised == self.ended {
            return;
        }
        self.ended = self.raised;
        let is_full = self.unseen.len() >= UNSEEN_MAX;
        match (mark, self.unseen.back_mut()) {
            (Some(mark), Some(newest)) if is_full => *newest = (self.raised, mark),
            (Some(mark), _) => self.unseen.push_back((self.raised, mark)),
            (None, Some(newest)) => newest.0 = self.raised,
            (None, None) => self.seen = self.raised,
        }
    }

    /// Records that a read that begins now sees at least `visible`.
    pub(super) fn mark_visible(&mut self, visible: &Version) {
        while let Some((raised, _)) = self.unseen.pop_front_if(|(_, mark)| visible.contains(mark)) {
            self.seen = raised;
        }
    }

    /// Returns the number of doubts that a check sent now settles.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns whether some are settled by no check so far.
    pub(super) fn is_open(&self) -> bool {
        self.settled < self.raised
    }

    /// Returns whether a check sent now settles further ones.
    pub(super) fn needs_check(&self) -> bool {
        self.settled < self.seen
    }

    /// Returns whether a probe is to look for what raised them.
    pub(super) fn awaits_visibility(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Settles doubts by a check that was sent when [`Self::seen`] was `seen`. Returns whether some
    /// about tables are left.
    pub(super) fn settle(&mut self, seen: u64) -> bool {
        self.settled = seen;
        seen < self.newest_of_tables
    }
}

#[cfg(test)]
mod tests {
    use hotrow_types::version::Position;

    use super::*;

    const fn at(at: u64) -> Position {
        Position { incarnation: 1, at }
    }

    #[test]
    fn a_check_settles_what_a_probe_saw_before_it() {
        let mut doubts = Doubts::default();
        doubts.raise_of_tables();
        doubts.end_group(Some(ChangeId::Commit(at(40))));
        assert!(doubts.is_open() && doubts.awaits_visibility() && !doubts.needs_check());
        // The log has it; the catalogue does not show it yet.
        doubts.mark_visible(&Version::Log(at(39)));
        assert!(!doubts.needs_check());
        assert!(doubts.settle(doubts.seen()), "by the check of an earlier tick");
        doubts.mark_visible(&Version::Log(at(40)));
        assert!(doubts.needs_check() && !doubts.awaits_visibility());
        // The next one during that check needs another check.
        let seen = doubts.seen();
        doubts.raise_of_tables();
        doubts.end_group(Some(ChangeId::Commit(at(50))));
        assert!(doubts.settle(seen) && doubts.is_open());
        doubts.mark_visible(&Version::Log(at(60)));
        assert!(!doubts.settle(doubts.seen()) && !doubts.is_open());
    }

    #[test]
    fn groups_without_a_commit_and_very_many_groups_are_settled_too() {
        let mut doubts = Doubts::default();
        doubts.raise_of_privileges();
        doubts.end_group(None);
        assert!(doubts.needs_check() && !doubts.settle(doubts.seen()));
        for commit in 1..=2 * UNSEEN_MAX as u64 {
            doubts.raise_of_tables();
            doubts.end_group(Some(ChangeId::Commit(at(commit))));
        }
        assert_eq!(doubts.unseen.len(), UNSEEN_MAX);
        doubts.mark_visible(&Version::Log(at(2 * UNSEEN_MAX as u64)));
        assert!(!doubts.settle(doubts.seen()) && !doubts.is_open());
    }
}
