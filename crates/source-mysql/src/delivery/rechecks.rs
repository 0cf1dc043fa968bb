//! Rechecks of the catalogue that the log requires: after definitions and changes of privileges.
//!
//! A server writes a definition to its log before other sessions see it, so a check that is sent
//! at once may find the catalogue from before it. Only a check that was sent after a probe saw the
//! definition completes its recheck.

use std::collections::VecDeque;

use hotrow_types::version::{ChangeId, Version};

/// Most groups with rechecks whose cause no probe has seen. Others wait for the newest of them.
const UNSEEN_MAX: usize = 1_024;

/// Required rechecks, numbered since the start.
#[derive(Debug, Default)]
pub(super) struct Rechecks {
    required: u64,
    /// The last one that does not concern privileges alone, but what tables are.
    newest_of_tables: u64,
    /// Those of groups that have ended.
    ended: u64,
    /// Those of ended groups that no probe has seen, by the group that required the last of them.
    unseen: VecDeque<(u64, ChangeId)>,
    /// Those that a check sent now completes.
    seen: u64,
    completed: u64,
}

impl Rechecks {
    /// Requires one because of what a table is.
    pub(super) fn require_for_tables(&mut self) {
        self.required += 1;
        self.newest_of_tables = self.required;
    }

    /// Requires one because of privileges.
    pub(super) fn require_for_privileges(&mut self) {
        self.required += 1;
    }

    /// Records the end of a group. `mark`: what makes it visible; `None`: it never is, or later
    /// with another group.
    pub(super) fn end_group(&mut self, mark: Option<ChangeId>) {
        if self.required == self.ended {
            return;
        }
        self.ended = self.required;
        let is_full = self.unseen.len() >= UNSEEN_MAX;
        match (mark, self.unseen.back_mut()) {
            (Some(mark), Some(newest)) if is_full => *newest = (self.required, mark),
            (Some(mark), _) => self.unseen.push_back((self.required, mark)),
            (None, Some(newest)) => newest.0 = self.required,
            (None, None) => self.seen = self.required,
        }
    }

    /// Records that a read that begins now sees at least `visible`.
    pub(super) fn mark_visible(&mut self, visible: &Version) {
        while let Some((required, _)) = self.unseen.pop_front_if(|(_, mark)| visible.contains(mark))
        {
            self.seen = required;
        }
    }

    /// Returns the number of rechecks that a check sent now completes.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns whether some are not completed.
    pub(super) fn is_pending(&self) -> bool {
        self.completed < self.required
    }

    /// Returns whether a check sent now completes further ones.
    pub(super) fn needs_check(&self) -> bool {
        self.completed < self.seen
    }

    /// Returns whether a probe is to look for what required them.
    pub(super) fn awaits_visibility(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Completes rechecks by a check that was sent when [`Self::seen`] was `seen`. Returns whether
    /// some about tables are left.
    pub(super) fn complete(&mut self, seen: u64) -> bool {
        self.completed = seen;
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
        let mut rechecks = Rechecks::default();
        rechecks.require_for_tables();
        rechecks.end_group(Some(ChangeId::Commit(at(40))));
        assert!(rechecks.is_pending() && rechecks.awaits_visibility() && !rechecks.needs_check());
        // The log has it; the catalogue does not show it yet.
        rechecks.mark_visible(&Version::Log(at(39)));
        assert!(!rechecks.needs_check());
        assert!(rechecks.complete(rechecks.seen()), "by the check of an earlier tick");
        rechecks.mark_visible(&Version::Log(at(40)));
        assert!(rechecks.needs_check() && !rechecks.awaits_visibility());
        // The next one during that check needs another check.
        let seen = rechecks.seen();
        rechecks.require_for_tables();
        rechecks.end_group(Some(ChangeId::Commit(at(50))));
        assert!(rechecks.complete(seen) && rechecks.is_pending());
        rechecks.mark_visible(&Version::Log(at(60)));
        assert!(!rechecks.complete(rechecks.seen()) && !rechecks.is_pending());
    }

    #[test]
    fn groups_without_a_commit_and_very_many_groups_are_settled_too() {
        let mut rechecks = Rechecks::default();
        rechecks.require_for_privileges();
        rechecks.end_group(None);
        assert!(rechecks.needs_check() && !rechecks.complete(rechecks.seen()));
        for commit in 1..=2 * UNSEEN_MAX as u64 {
            rechecks.require_for_tables();
            rechecks.end_group(Some(ChangeId::Commit(at(commit))));
        }
        assert_eq!(rechecks.unseen.len(), UNSEEN_MAX);
        rechecks.mark_visible(&Version::Log(at(2 * UNSEEN_MAX as u64)));
        assert!(!rechecks.complete(rechecks.seen()) && !rechecks.is_pending());
    }
}
