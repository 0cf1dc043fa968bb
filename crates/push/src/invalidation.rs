//! Invalidations for clients that keep copies of records: the changes of all sources in one bounded
//! log, from the moment at which they are proven visible.
//!
//! Unlike followers, such clients need no order: a commit that stays hidden delays its own changes
//! alone, and those only for a bounded time. After that they leave without the proof. That is safe
//! because the fence of the cache still holds: a reply that lacks the change is not kept, and its
//! client gets the invalidation of that reply too ([`crate::tracking::TrackingTable::replied`]).

use std::collections::VecDeque;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Version};

/// Memory of one invalidation besides the bytes of its key.
const OVERHEAD_BYTES: usize = 32;

/// What copies must be given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Copies of one record.
    Record(Key),
    /// Copies of any record of a collection.
    Collection(CollectionId),
    /// Copies of any record of a source: changes may have been missed, or a new feed begins.
    Source(SourceId),
}

impl Invalidation {
    fn bytes(&self) -> usize {
        match self {
            Self::Record(key) => OVERHEAD_BYTES + key.as_bytes().len(),
            Self::Collection(_) | Self::Source(_) => OVERHEAD_BYTES,
        }
    }
}

/// Bounds of the log.
#[derive(Clone, Copy, Debug)]
pub struct InvalidationBounds {
    /// Most bytes of released invalidations. A reader that is further behind loses its place.
    pub released_bytes: usize,
    /// Most bytes of changes of one source that wait for the proof; beyond it the oldest leave.
    pub unproven_bytes: usize,
    /// Longest wait for the proof.
    pub proof_wait: Duration,
}

/// Changes with one mark.
#[derive(Debug)]
struct Group {
    mark: ChangeId,
    delivered_at: Nanos,
    changes: Vec<Invalidation>,
}

/// Delivered changes of a source that are not proven visible.
#[derive(Debug, Default)]
struct Unproven {
    groups: VecDeque<Group>,
    bytes: usize,
}

/// Position of a reader after it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It has read everything.
    Current,
    /// More waits for it.
    More,
    /// What it had to read next is dropped. It is set to the end, and all copies must be given up.
    Overrun,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct InvalidationLog {
    bounds: InvalidationBounds,
    /// By source.
    unproven: Vec<Unproven>,
    released: VecDeque<Invalidation>,
    /// Number of the first released one.
    first: u64,
    bytes: usize,
}

impl InvalidationLog {
    /// Creates a log of this number of sources.
    #[must_use]
    pub fn new(bounds: InvalidationBounds, sources: usize) -> Self {
        let mut unproven = Vec::new();
        unproven.resize_with(sources, Unproven::default);
        Self { bounds, unproven, released: VecDeque::new(), first: 0, bytes: 0 }
    }

    /// Returns whether changes of a source wait for the proof that they are visible.
    pub fn wants_proof(&self, source: SourceId) -> bool {
        self.unproven.get(source.index()).is_some_and(|own| !own.groups.is_empty())
    }

    /// Returns the bytes of changes that wait for the proof.
    pub fn unproven_bytes(&self) -> usize {
        self.unproven.iter().map(|own| own.bytes).sum()
    }

    /// Takes a change that the cache has applied. Returns whether readers must look.
    pub fn change(
        &mut self,
        source: SourceId,
        change: Invalidation,
        mark: ChangeId,
        now: Nanos,
    ) -> bool {
        // Of a log in order of visibility a change is visible when it is delivered.
        if matches!(mark, ChangeId::Log(_)) {
            self.release(change);
            return true;
        }
        let Some(own) = self.unproven.get_mut(source.index()) else { return false };
        own.bytes += change.bytes();
        match own.groups.back_mut().filter(|last| last.mark == mark) {
            Some(last) => last.changes.push(change),
            None => {
                own.groups.push_back(Group { mark, delivered_at: now, changes: vec![change] });
            }
        }
        let mut early = Vec::new();
        while own.bytes > self.bounds.unproven_bytes
            && let Some(oldest) = own.groups.pop_front()
        {
            own.bytes -= oldest.changes.iter().map(Invalidation::bytes).sum::<usize>();
            early.extend(oldest.changes);
        }
        let has_news = !early.is_empty();
        early.into_iter().for_each(|change| self.release(change));
        has_news
    }

    /// Takes an invalidation that every read sees already.
    pub fn now(&mut self, change: Invalidation) {
        self.release(change);
    }

    /// Changes of a source may be missed from now on, or a new feed begins.
    pub fn reset(&mut self, source: SourceId) {
        if let Some(own) = self.unproven.get_mut(source.index()) {
            *own = Unproven::default();
        }
        self.release(Invalidation::Source(source));
    }

    /// Releases what reads sent from now on see, because they see at least `visible`, and what has
    /// waited too long. Returns whether readers must look.
    pub fn advance(&mut self, source: SourceId, visible: Option<&Version>, now: Nanos) -> bool {
        let Some(own) = self.unproven.get_mut(source.index()) else { return false };
        let mut due = Vec::new();
        let mut bytes = 0;
        own.groups.retain_mut(|group| {
            let is_seen = visible.is_some_and(|version| version.contains(&group.mark));
            let is_due = is_seen || now.since(group.delivered_at) >= self.bounds.proof_wait;
            if is_due {
                bytes += group.changes.iter().map(Invalidation::bytes).sum::<usize>();
                due.append(&mut group.changes);
            }
            !is_due
        });
        own.bytes -= bytes;
        let has_news = !due.is_empty();
        due.into_iter().for_each(|change| self.release(change));
        has_news
    }

    fn release(&mut self, change: Invalidation) {
        self.bytes += change.bytes();
        self.released.push_back(change);
        while self.bytes > self.bounds.released_bytes
            && let Some(oldest) = self.released.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.first += 1;
        }
    }

    /// Returns the place of a reader that needs nothing of what was released so far.
    pub fn end(&self) -> u64 {
        self.first + self.released.len() as u64
    }

    /// Passes on up to `most` invalidations from `place` on, and moves it.
    pub fn read(&self, place: &mut u64, most: usize, take: &mut Vec<Invalidation>) -> Reading {
        if *place < self.first {
            *place = self.end();
            return Reading::Overrun;
        }
        // The rest is within the log, whose length fits.
        let from = (*place - self.first) as usize;
        let before = take.len();
        take.extend(self.released.iter().skip(from).take(most).cloned());
        *place += (take.len() - before) as u64;
        if *place == self.end() { Reading::Current } else { Reading::More }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hotrow_types::key::{KeyPart, KeySchema, KeyType};
    use hotrow_types::version::{Position, Snapshot};

    use super::*;

    const SOURCE: SourceId = SourceId(0);
    const BOUNDS: InvalidationBounds = InvalidationBounds {
        released_bytes: 1_000,
        unproven_bytes: 200,
        proof_wait: Duration::from_secs(1),
    };

    fn record(id: i64) -> Invalidation {
        let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
        Invalidation::Record(schema.key(&[KeyPart::Integer(id)]).unwrap())
    }

    fn transaction(xid: u64) -> ChangeId {
        ChangeId::Transaction { xid, commit: 10 * xid }
    }

    fn all_but(running: &[u64]) -> Version {
        let xmin = running.first().copied().unwrap_or(1_000);
        let snapshot = Snapshot { xmin, xmax: 1_000, running: running.to_vec() };
        Version::Snapshot { incarnation: 1, snapshot: Arc::new(snapshot) }
    }

    fn read(log: &InvalidationLog, place: &mut u64) -> Vec<Invalidation> {
        let mut read = Vec::new();
        assert_eq!(log.read(place, 100, &mut read), Reading::Current);
        read
    }

    #[test]
    fn a_hidden_commit_delays_its_own_changes_alone_and_for_a_bounded_time() {
        let mut log = InvalidationLog::new(BOUNDS, 1);
        let mut place = log.end();
        assert!(!log.change(SOURCE, record(1), transaction(7), Nanos(0)));
        assert!(!log.change(SOURCE, record(2), transaction(7), Nanos(0)));
        assert!(!log.change(SOURCE, record(3), transaction(8), Nanos(0)));
        assert!(log.wants_proof(SOURCE) && log.unproven_bytes() > 0);
        assert!(log.advance(SOURCE, Some(&all_but(&[7])), Nanos(1)));
        assert_eq!(read(&log, &mut place), [record(3)]);
        assert!(!log.advance(SOURCE, None, Nanos(2)));
        assert!(log.advance(SOURCE, None, Nanos(1_000_000_000)), "it has waited long enough");
        assert_eq!(read(&log, &mut place), [record(1), record(2)]);
        assert_eq!((log.wants_proof(SOURCE), log.unproven_bytes()), (false, 0));
    }

    #[test]
    fn changes_of_a_log_in_order_of_visibility_leave_at_once() {
        let mut log = InvalidationLog::new(BOUNDS, 1);
        let mark = ChangeId::Log(Position { incarnation: 1, at: 5 });
        assert!(log.change(SOURCE, record(1), mark, Nanos(0)));
        assert_eq!(read(&log, &mut 0), [record(1)]);
    }

    #[test]
    fn beyond_the_bounds_the_oldest_leave_and_a_slow_reader_loses_its_place() {
        let mut log = InvalidationLog::new(BOUNDS, 1);
        let mut slow = log.end();
        let news = (1..=9)
            .filter(|xid| log.change(SOURCE, record(*xid as i64), transaction(*xid), Nanos(0)));
        assert!(news.count() > 0, "without room the oldest does not wait");
        assert!(log.unproven_bytes() <= BOUNDS.unproven_bytes);
        assert_eq!(log.read(&mut slow, 1, &mut Vec::new()), Reading::More);
        (0..100).for_each(|id| log.now(record(id)));
        let mut none = Vec::new();
        assert_eq!(log.read(&mut slow, 100, &mut none), Reading::Overrun);
        assert_eq!((slow, none.len()), (log.end(), 0));
        log.reset(SOURCE);
        assert!(!log.wants_proof(SOURCE));
        assert_eq!(read(&log, &mut slow), [Invalidation::Source(SOURCE)]);
    }
}
