//! Changes that the relay delivered and that some reads may not see yet.
//!
//! A server that joins has no fence: a read of its own may return the row as it was before a change
//! that was published earlier. So each watermark lists the changes that its look did not see.

use crate::message::{Mark, Visible};

/// Most changes remembered between two looks. Beyond it only the last of each source of numbers is
/// remembered, and no watermark can be joined until a look has passed all of them.
const MARKS_MAX: usize = 65_536;

/// Delivered changes that no look has seen.
#[derive(Debug, Default)]
pub struct Hidden {
    marks: Vec<Mark>,
    /// Greatest of the changes beyond the bound, of each source.
    overflow: Vec<Mark>,
    /// Changes of an earlier chain may be hidden too, and are not known.
    unsettled: bool,
}

impl Hidden {
    /// Forgets everything: a feed starts, and every change before its start is visible.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets everything: a feed resumes, and changes before its start may be invisible until
    /// [`Self::settle`].
    pub fn resume(&mut self) {
        *self = Self { unsettled: true, ..Self::default() };
    }

    /// Records that every change before the resumed feed's start is visible.
    pub fn settle(&mut self) {
        self.unsettled = false;
    }

    /// Records a delivered change.
    pub fn delivered(&mut self, mark: Mark) {
        if self.marks.last() == Some(&mark) {
            return;
        }
        if self.marks.len() < MARKS_MAX {
            self.marks.push(mark);
            return;
        }
        for last in &mut self.overflow {
            if let Some(later) = last.later(mark) {
                *last = later;
                return;
            }
        }
        self.overflow.push(mark);
    }

    /// Forgets what a look saw.
    pub fn seen(&mut self, visible: &Visible) {
        self.marks.retain(|mark| !mark.is_in(visible));
        self.overflow.retain(|last| !last.is_passed_by(visible));
    }

    /// Returns the changes that remain; `None` if they are not known, or more than `most`.
    pub fn list(&self, most: usize) -> Option<Vec<Mark>> {
        let known = !self.unsettled && self.overflow.is_empty() && self.marks.len() <= most;
        known.then(|| self.marks.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hotrow_types::version::{Gtid, GtidSet, Snapshot, SourceId};

    use super::*;

    fn snapshot(xmin: u64, xmax: u64, running: &[u64]) -> Visible {
        Visible::Snapshot(Snapshot { xmin, xmax, running: running.to_vec() })
    }

    #[test]
    fn a_change_is_hidden_until_a_look_sees_it() {
        let mut hidden = Hidden::default();
        for xid in [10, 12, 11] {
            hidden.delivered(Mark::Transaction(xid));
            hidden.delivered(Mark::Transaction(xid));
        }
        hidden.seen(&snapshot(10, 13, &[10, 11]));
        assert_eq!(hidden.list(9), Some(vec![Mark::Transaction(10), Mark::Transaction(11)]));
        assert_eq!(hidden.list(1), None, "too many to send");
        hidden.seen(&snapshot(13, 13, &[]));
        assert_eq!(hidden.list(9), Some(Vec::new()));
    }

    #[test]
    fn beyond_the_bound_no_list_is_complete() {
        let mut hidden = Hidden::default();
        let last = MARKS_MAX as u64 + 9;
        (0..=last).for_each(|xid| hidden.delivered(Mark::Transaction(xid)));
        hidden.seen(&snapshot(5, last + 1, &[5, last]));
        assert_eq!(hidden.list(usize::MAX), None);
        hidden.seen(&snapshot(last + 1, last + 1, &[]));
        assert_eq!(hidden.list(9), Some(Vec::new()));
    }

    #[test]
    fn beyond_the_bound_each_source_has_its_last() {
        let gtid =
            |tag, number| Mark::Gtid(Gtid { source: SourceId::new(7, tag).unwrap(), number });
        let seen = |text: &str| {
            let text = text.replace('U', "00000000-0000-0000-0000-000000000007");
            Visible::Gtids(Arc::new(GtidSet::parse(&text).unwrap()))
        };
        let mut hidden = Hidden::default();
        let last = MARKS_MAX as u64 + 9;
        (1..=last).for_each(|number| hidden.delivered(gtid("", number)));
        (1..=3).for_each(|number| hidden.delivered(gtid("b", number)));
        hidden.seen(&seen(&format!("U:1-{last},U:b:1-2")));
        assert_eq!(hidden.list(9), None);
        hidden.seen(&seen(&format!("U:1-{last},U:b:1-3")));
        assert_eq!(hidden.list(9), Some(Vec::new()));
    }

    #[test]
    fn a_resumed_feed_knows_its_hidden_changes_once_settled() {
        let mut hidden = Hidden::default();
        hidden.resume();
        assert_eq!(hidden.list(9), None);
        hidden.settle();
        assert_eq!(hidden.list(9), Some(Vec::new()));
    }
}
