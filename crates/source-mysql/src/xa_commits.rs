//! Commits of prepared transactions (XA) on MariaDB, which reads may miss.
//!
//! MariaDB writes XA COMMIT to the log, lets the visible point pass it, and only then commits in
//! the engine. No version of a read shows whether it sees the rows. So the feed holds such a commit
//! back, with all events after it, until the server no longer lists the transaction as prepared:
//! it is removed from that list after the engine's commit.

use std::collections::VecDeque;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use mysql_async::binlog::events::Event as Raw;

use super::binlog::{Event, Xid};

/// Maximum of events held back, and of their bytes. Beyond either the log is not read on.
const EVENTS_MAX: usize = 1024;
const BYTES_MAX: usize = 1 << 20;
/// Time after which a commit that is held back is logged.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// List of the server's prepared transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// Time before the query was sent.
    pub(crate) asked_at: Nanos,
    pub(crate) xids: Vec<Xid>,
}

/// Events behind a commit that is held back, and what is known of prepared transactions.
#[derive(Debug)]
pub(crate) struct XaCommits {
    /// Events with the times of their receipt.
    waiting: VecDeque<(Nanos, Raw)>,
    waiting_bytes: usize,
    newest: Prepared,
    /// Time of receipt of the event that was taken last.
    taken_at: Nanos,
    is_reported: bool,
    /// Transactions that were prepared when the session began. One that is no longer listed may
    /// have been committed in the log before that.
    of_start: Vec<Xid>,
}

impl XaCommits {
    pub(crate) fn new(of_start: Vec<Xid>) -> Self {
        Self {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            newest: Prepared::default(),
            taken_at: Nanos::default(),
            is_reported: false,
            of_start,
        }
    }

    /// Returns true if another event may be received.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < EVENTS_MAX && self.waiting_bytes < BYTES_MAX
    }

    /// Adds an event that was received at `at`.
    pub(crate) fn receive(&mut self, event: Raw, at: Nanos) {
        self.waiting_bytes += event.data().len();
        self.waiting.push_back((at, event));
    }

    /// Takes the next event.
    pub(crate) fn take(&mut self) -> Option<Raw> {
        let (at, event) = self.waiting.pop_front()?;
        self.waiting_bytes -= event.data().len();
        self.taken_at = at;
        self.is_reported = false;
        Some(event)
    }

    /// Records a list of the server. Returns true if a transaction of the session's start ended.
    pub(crate) fn listed(&mut self, prepared: Prepared) -> bool {
        let before = self.of_start.len();
        self.of_start.retain(|xid| prepared.xids.contains(xid));
        self.newest = prepared;
        self.of_start.len() < before
    }

    /// Returns whether the engine has committed the transaction whose commit was taken last.
    pub(crate) fn is_committed(&self, xid: &Xid) -> bool {
        let is_gone = self.newest.asked_at >= self.taken_at && !self.newest.xids.contains(xid);
        is_gone || self.waiting.iter().any(|(_, event)| prepares(event, xid))
    }

    /// Returns true once if that commit has been held back for long.
    pub(crate) fn is_overdue(&mut self, now: Nanos) -> bool {
        let is_overdue = now.since(self.taken_at) > REPORT_AFTER && !self.is_reported;
        self.is_reported |= is_overdue;
        is_overdue
    }
}

/// Returns whether the event prepares a transaction of this name, which requires that the one
/// before has ended.
pub(crate) fn prepares(event: &Raw, name: &Xid) -> bool {
    let decoded = Event::decode(event.header().event_type_raw(), event.data());
    matches!(decoded, Ok(Event::Prepare { xid, .. }) if xid == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid(name: &str) -> Xid {
        Xid::listed(1, name.len(), 0, name.as_bytes()).unwrap()
    }

    fn prepared(asked_at: u64, names: &[&str]) -> Prepared {
        Prepared { asked_at: Nanos(asked_at), xids: names.iter().map(|name| xid(name)).collect() }
    }

    #[test]
    fn only_a_list_of_after_the_commit_proves_that_it_was_made() {
        let mut commits = XaCommits::new(Vec::new());
        commits.taken_at = Nanos(10);
        for (list, expected) in [
            (prepared(9, &[]), false),
            (prepared(10, &["a", "b"]), false),
            (prepared(10, &["b"]), true),
            (prepared(11, &[]), true),
        ] {
            commits.listed(list.clone());
            assert_eq!(commits.is_committed(&xid("a")), expected, "{list:?}");
        }
    }

    /// They may have been committed in the log before the session began, and in the engine after.
    #[test]
    fn transactions_of_the_start_are_reported_when_they_end() {
        let mut commits = XaCommits::new(vec![xid("a"), xid("b")]);
        let lists = [&["a", "b", "c"][..], &["b"], &["b"], &["c"], &[]];
        let ended = lists.map(|names| commits.listed(prepared(1, names)));
        assert_eq!(ended, [false, true, false, true, false]);
    }

    #[test]
    fn a_commit_that_is_held_back_for_long_is_reported_once() {
        let mut commits = XaCommits::new(Vec::new());
        let at = |after: Duration| Nanos::default().after(after);
        let reported = [1, 2, 3].map(|times| commits.is_overdue(at(REPORT_AFTER * times)));
        assert_eq!(reported, [false, true, false]);
    }
}
