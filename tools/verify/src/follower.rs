//! A follower of changes that keeps copies of records by the recipe of docs/changes.md: it reads a
//! record again at its event, and discards all copies at a reset or a flush. It returns with the
//! last id when its stream ends, and keeps its copies then.
//!
//! [`Follower`] has the stream; [`FollowedCopies`] is pure.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::event_stream::{Event, EventKind, EventStream, FollowError, covered_by};
use crate::http::{RequestError, Target};
use crate::near_cache::NearCache;
use crate::observation::{Claim, Position, Requirement};

/// Most copies; beyond them the oldest is discarded.
const COPIES_MAX: usize = 5_000;
/// Most keys that wait to be read again.
const UNREAD_MAX: usize = 256;

/// Counts of one follower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerCounts {
    /// Streams that began, of which the first of a follower does not count as a return.
    pub streams: u64,
    /// Streams that were to continue behind an id.
    pub returns: u64,
    /// Streams that were refused by a status.
    pub refused: u64,
    /// Events of changed records.
    pub changes: u64,
    /// Events after which any record may have changed.
    pub flushes: u64,
    /// Events after which changes may have been missed.
    pub resets: u64,
    /// Events that say that everything was sent.
    pub heartbeats: u64,
    /// Copies that were looked at.
    pub copies_read: u64,
}

impl FollowerCounts {
    /// Adds those of another follower.
    pub fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.returns += other.returns;
        self.changes += other.changes;
        self.flushes += other.flushes;
        self.resets += other.resets;
        self.heartbeats += other.heartbeats;
        self.refused += other.refused;
        self.copies_read += other.copies_read;
    }

    /// Returns them by their names in JSON.
    pub fn by_name(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([
            ("streams", self.streams),
            ("returns", self.returns),
            ("refused", self.refused),
            ("changes", self.changes),
            ("flushes", self.flushes),
            ("resets", self.resets),
            ("heartbeats", self.heartbeats),
            ("copies_read", self.copies_read),
        ])
    }
}

/// Whether all changes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// From a point on.
    Following,
    /// Not before the next reset with a position.
    Missing,
}

/// Copies of a follower, and what the order of its events must be.
#[derive(Debug)]
pub struct FollowedCopies {
    near: NearCache,
    phase: Phase,
    /// Position of a commit of which an event must follow, because none had an id.
    open_commit: Option<Position>,
    /// Point up to which everything was sent.
    covered: Option<Position>,
    last_id: Option<String>,
    /// Counts so far.
    pub counts: FollowerCounts,
}

impl Default for FollowedCopies {
    fn default() -> Self {
        Self {
            near: NearCache::default(),
            phase: Phase::Missing,
            open_commit: None,
            covered: None,
            last_id: None,
            counts: FollowerCounts::default(),
        }
    }
}

impl FollowedCopies {
    /// Notes that a stream has begun, behind the last id if there is one: what is missing is sent
    /// again, or a reset comes first.
    pub fn opened(&mut self) {
        self.counts.streams += 1;
        self.counts.returns += u64::from(self.last_id.is_some());
        self.open_commit = None;
        self.covered = self.returns_behind();
        self.phase = if self.covered.is_some() { Phase::Following } else { Phase::Missing };
    }

    /// Returns the point behind which a return continues.
    pub fn returns_behind(&self) -> Option<Position> {
        covered_by(self.last_id.as_deref()?)
    }

    /// Applies an event. Returns the point up to which everything was sent, if it says so.
    ///
    /// # Errors
    /// The rule of docs/changes.md that it violates, as a sentence.
    pub fn apply(&mut self, event: &Event) -> Result<Option<Position>, String> {
        self.check_order(event)?;
        match &event.kind {
            EventKind::Begin => {
                self.phase = Phase::Following;
                self.near.forget_all();
            }
            EventKind::Change { key } => {
                self.counts.changes += 1;
                self.near.forget(key);
            }
            EventKind::Flush => {
                self.counts.flushes += 1;
                self.near.forget_all();
            }
            EventKind::Reset => {
                self.counts.resets += 1;
                self.near.forget_all();
                self.covered = None;
                self.phase = event.position.map_or(Phase::Missing, |_| Phase::Following);
            }
            EventKind::Heartbeat => self.counts.heartbeats += 1,
            EventKind::End { .. } => {}
        }
        if event.id.is_some() {
            self.last_id.clone_from(&event.id);
        }
        let covered = event.covered();
        self.covered = covered.or(self.covered);
        Ok(covered)
    }

    /// Commits come in order, each as a group whose last event alone has an id.
    fn check_order(&mut self, event: &Event) -> Result<(), String> {
        let Event { kind, id, position } = event;
        let is_of_commit = matches!(kind, EventKind::Change { .. } | EventKind::Flush);
        if let Some(open) = self.open_commit.take() {
            match kind {
                _ if is_of_commit && *position == Some(open) => {}
                EventKind::Reset | EventKind::End { .. } => {}
                _ => return Err(format!("a commit at {open} has no last event before {event:?}")),
            }
        }
        if is_of_commit {
            if self.phase == Phase::Missing {
                return Err(format!("changes may be missing, but there is {event:?}"));
            }
            if id.is_none() {
                self.open_commit = *position;
            }
        }
        let is_behind = |point: Position| {
            self.covered.is_some_and(|covered| covered.log == point.log && point.at < covered.at)
        };
        match (kind, position, event.covered()) {
            (EventKind::Change { .. } | EventKind::Flush, Some(point), _)
                if is_behind(*point) || self.covered == Some(*point) =>
            {
                Err(format!("everything up to {:?} was sent before {event:?}", self.covered))
            }
            (EventKind::Heartbeat, _, Some(point)) if is_behind(point) => {
                Err(format!("{event:?} is behind {:?}", self.covered))
            }
            (EventKind::Begin | EventKind::Heartbeat, _, None) => Err(format!("no id: {event:?}")),
            _ => Ok(()),
        }
    }

    /// Keeps what a response says of a key, if all its changes follow.
    pub fn keep(&mut self, text: &str, key: u32, seen: &Claim) {
        if self.phase == Phase::Following {
            self.near.keep(text, key, seen);
            if self.near.len() > COPIES_MAX {
                self.near.discard_oldest();
            }
        }
    }

    /// Returns the copy of a key.
    #[must_use]
    pub fn copy(&self, text: &str) -> Option<&Claim> {
        self.near.get(text)
    }

    /// Returns all copies.
    pub fn copies(&self) -> impl Iterator<Item = (u32, &Claim)> {
        self.near.all()
    }

    /// Returns the key that was kept first, and takes it to the end of the order.
    pub fn oldest(&mut self) -> Option<u32> {
        self.near.oldest()
    }

    /// Returns the point up to which everything was sent.
    pub fn covered(&self) -> Option<Position> {
        self.covered
    }

    /// Returns what a read at the same instance must reflect after this event of its key.
    pub fn requirement(&self, event: Option<Position>) -> Requirement {
        // An event within a commit is ahead of what was sent in full.
        let is_ahead = |event: &Position| self.covered.is_none_or(|point| point.at < event.at);
        let newest = event.filter(is_ahead).or(self.covered);
        newest
            .map_or(Requirement::Any, |position| Requirement::Followed { position, is_sent: false })
    }
}

/// Keys of events that are to be read, in their order, with the newest position of each.
#[derive(Debug, Default)]
pub struct UnreadKeys {
    order: VecDeque<u32>,
    positions: HashMap<u32, Position>,
}

impl UnreadKeys {
    /// Adds the key of an event. Beyond a bound the oldest is not read.
    pub fn add(&mut self, key: u32, position: Position) {
        if self.positions.insert(key, position).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > UNREAD_MAX {
            self.take();
        }
    }

    /// Takes the oldest key, with the position of its newest event.
    pub fn take(&mut self) -> Option<(u32, Position)> {
        let key = self.order.pop_front()?;
        Some((key, self.positions.remove(&key)?))
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// A follower of a collection at one instance.
#[derive(Debug)]
pub struct Follower {
    target: Arc<Target>,
    path: String,
    timeout: Duration,
    stream: Option<EventStream>,
    /// Last id with which it has left a stream.
    left_with: Option<String>,
    /// Its copies.
    pub copies: FollowedCopies,
}

impl Follower {
    /// Creates a follower without a stream.
    #[must_use]
    pub fn new(target: Arc<Target>, path: String, timeout: Duration) -> Self {
        let copies = FollowedCopies::default();
        Self { target, path, timeout, stream: None, left_with: None, copies }
    }

    /// Opens a stream unless there is one. Returns whether it did.
    ///
    /// # Errors
    /// There is no response, or a refusal.
    pub fn open(&mut self) -> Result<bool, FollowError> {
        if self.stream.is_some() {
            return Ok(false);
        }
        let last_id = self.copies.last_id.as_deref();
        let opened = EventStream::open(&self.target, &self.path, last_id, self.timeout);
        self.copies.counts.refused += u64::from(matches!(opened, Err(FollowError::Refused(_))));
        self.stream = Some(opened?);
        self.copies.opened();
        Ok(true)
    }

    /// Returns the next event within `wait`, which must not be zero. After an error there is no
    /// stream.
    ///
    /// # Errors
    /// The stream has ended, or is malformed.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Event>, RequestError> {
        let stream = self.stream.as_mut().ok_or(RequestError::Closed)?;
        let next = stream.next(wait);
        if next.is_err() {
            self.stream = None;
        }
        next
    }

    /// Closes the stream, unless it was closed so with the same last id: a client that leaves
    /// within each commit gets nowhere. The copies stay. The next stream is one of `target`, if
    /// there is one. Returns whether it was closed.
    pub fn leave_once(&mut self, target: Option<Arc<Target>>) -> bool {
        if self.left_with == self.copies.last_id {
            return false;
        }
        self.left_with.clone_from(&self.copies.last_id);
        self.stream = None;
        self.target = target.unwrap_or_else(|| Arc::clone(&self.target));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at: u64) -> Option<Position> {
        Some(Position { log: 1, at })
    }

    fn event(kind: EventKind, position: u64, has_id: bool) -> Event {
        let id = has_id.then(|| format!("{}-0", Position { log: 1, at: position }));
        Event { kind, id, position: at(position) }
    }

    fn change(key: &str, position: u64, has_id: bool) -> Event {
        event(EventKind::Change { key: key.to_owned() }, position, has_id)
    }

    /// Returns copies of two keys, behind a `begin` at 10.
    fn following() -> FollowedCopies {
        let mut copies = FollowedCopies::default();
        copies.opened();
        assert_eq!(copies.apply(&event(EventKind::Begin, 10, true)), Ok(at(10)));
        copies.keep("1", 1, &Claim::Version(5));
        copies.keep("2", 2, &Claim::Absent);
        copies
    }

    fn kept(copies: &FollowedCopies) -> Vec<u32> {
        let mut keys: Vec<u32> = copies.copies().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn copies_last_until_their_event_or_a_reset() {
        let mut copies = following();
        assert_eq!(copies.apply(&change("1", 11, false)), Ok(None));
        assert_eq!(copies.apply(&change("9", 11, true)), Ok(at(11)));
        assert_eq!((kept(&copies), copies.covered()), (vec![2], at(11)));
        assert_eq!(copies.apply(&event(EventKind::Heartbeat, 15, true)), Ok(at(15)));
        let lost = Event { kind: EventKind::Reset, id: None, position: None };
        assert_eq!(copies.apply(&lost), Ok(None));
        copies.keep("1", 1, &Claim::Version(5));
        assert_eq!((kept(&copies), copies.covered()), (vec![], None), "changes may be missing");
        assert_eq!(copies.apply(&event(EventKind::Reset, 12, true)), Ok(at(12)));
        copies.keep("1", 1, &Claim::Version(5));
        assert_eq!(copies.apply(&event(EventKind::Flush, 16, true)), Ok(at(16)));
        assert_eq!((kept(&copies), copies.counts.resets, copies.counts.flushes), (vec![], 2, 1));
    }

    #[test]
    fn copies_outlast_a_return() {
        let mut copies = following();
        copies.apply(&change("1", 11, true)).expect("in order");
        copies.apply(&change("2", 12, false)).expect("in order");
        // The rest of the commit at 12 comes again.
        copies.opened();
        copies.keep("2", 2, &Claim::Version(7));
        assert_eq!((copies.covered(), copies.counts.returns), (at(11), 1));
        copies.apply(&change("3", 12, false)).expect("in order");
        copies.apply(&change("2", 12, true)).expect("in order");
        assert!(kept(&copies).is_empty());
    }

    #[test]
    fn events_out_of_order_are_found() {
        let heartbeat = |position| event(EventKind::Heartbeat, position, true);
        for (events, what) in [
            (vec![change("1", 10, true)], "a commit that is known"),
            (vec![change("1", 12, true), change("1", 11, true)], "a commit before one"),
            (vec![change("1", 12, true), change("2", 12, true)], "an id within a commit"),
            (vec![change("1", 12, false), change("2", 13, true)], "a commit without an id"),
            (vec![change("1", 12, false), heartbeat(12)], "a commit without an end"),
            (vec![heartbeat(9)], "a heartbeat from before"),
            (vec![event(EventKind::Heartbeat, 12, false)], "a heartbeat without an id"),
        ] {
            let mut copies = following();
            let results: Vec<bool> =
                events.iter().map(|event| copies.apply(event).is_err()).collect();
            let expected: Vec<bool> = (1..=events.len()).map(|n| n == events.len()).collect();
            assert_eq!(results, expected, "{what}");
        }
        let mut copies = FollowedCopies::default();
        copies.opened();
        assert!(copies.apply(&change("1", 12, true)).is_err(), "a change before the beginning");
    }

    #[test]
    fn keys_are_read_once_at_their_newest_position() {
        let mut unread = UnreadKeys::default();
        let position = |at| Position { log: 1, at };
        for (key, at) in [(1, 10), (2, 11), (1, 12)] {
            unread.add(key, position(at));
        }
        assert_eq!(unread.take(), Some((1, position(12))));
        assert_eq!((unread.take(), unread.take()), (Some((2, position(11))), None));
        (0..2 * UNREAD_MAX as u32).for_each(|key| unread.add(key, position(13)));
        assert_eq!(unread.take(), Some((UNREAD_MAX as u32, position(13))));
        assert!(!unread.is_empty());
    }

    #[test]
    fn a_read_after_an_event_reflects_it_and_what_was_sent() {
        let mut copies = FollowedCopies::default();
        assert_eq!(copies.requirement(None), Requirement::Any);
        copies = following();
        let reflects = |copies: &FollowedCopies, event| copies.requirement(event).followed();
        assert_eq!((reflects(&copies, None), reflects(&copies, at(9))), (at(10), at(10)));
        assert_eq!(reflects(&copies, at(11)), at(11));
    }

    #[test]
    fn copies_are_bounded() {
        let mut copies = following();
        for key in 3..=COPIES_MAX as u32 + 10 {
            copies.keep(&key.to_string(), key, &Claim::Absent);
        }
        assert_eq!(copies.copies().count(), COPIES_MAX);
        assert!(copies.copy("1").is_none() && copies.copy("100").is_some());
    }
}
