//! The cache, its readers and its feed over the simulated tables, and clients that look up records.

use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_measure::random::{STEP, SplitMix64};
use hotrow_types::embedding::{ChangedParents, ChildChange, Parent, changed_parents};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{ChangeId, Position};

use super::db::{CHILDREN, Child, Commit, Db, PARENTS, Written};
use crate::config::{CollectionPolicy, Config};
use crate::flight::{Waited, Waiter};
use crate::testkit::{ONLY, START, TestCache, TestError, config, counts, key_of, poll};
use crate::{Answers, BatchLoader, Cache, Fetched, Lookup, Presence, ReadMode, Record};

const BOUND: Duration = Duration::from_millis(100);
const RECORDS: CollectionId = CollectionId(0);
/// Collection under which a planted fault marks the changes of children.
const OTHERS: CollectionId = CollectionId(1);

/// Rule that is broken, to show that the test finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The parent that a child had is not informed.
    OldParentOmitted,
    /// An image without the old parent is taken to mean that there was none.
    UnknownIsNone,
    /// A TRUNCATE of the children is not delivered.
    TruncateOmitted,
    /// The parent's entry and lease end, but the mark of the change is under the child's key.
    MarkUnderChild,
    /// A change of every parent has no mark.
    FlushWithoutMark,
    /// The children are read by a second statement, whose snapshot does not count.
    TwoStatements,
    /// A child beyond the limit changes nothing.
    InvalidationByWindow,
}

impl Fault {
    pub(super) const ALL: [Self; 7] = [
        Self::OldParentOmitted,
        Self::UnknownIsNone,
        Self::TruncateOmitted,
        Self::MarkUnderChild,
        Self::FlushWithoutMark,
        Self::TwoStatements,
        Self::InvalidationByWindow,
    ];
}

counts!(commits, inserted, moved, deleted, truncated, hidden, flushes, absent, found, from_memory);

/// A lookup, and the state when it began.
struct Client {
    parent: u8,
    at: Nanos,
    /// Time of the newest state that was answered before.
    floor: Nanos,
    waiter: Option<Waiter<TestError>>,
}

struct Reader {
    loader: BatchLoader<TestError>,
    /// The query in flight: its keys and the time at which it was sent.
    query: Option<(Vec<Key>, Nanos)>,
}

pub(super) struct World {
    random: SplitMix64,
    fault: Option<Fault>,
    /// The log has the whole old row of a child (REPLICA IDENTITY FULL).
    has_old_rows: bool,
    cache: TestCache,
    now: Nanos,
    db: Db,
    delivered: u64,
    probes: Vec<(Nanos, u64)>,
    readers: Vec<Reader>,
    clients: Vec<Client>,
    /// Per parent the time of the newest state that was answered.
    floors: [Nanos; PARENTS as usize],
    pub(super) counts: Counts,
}

fn key(parent: u8) -> Key {
    key_of(RECORDS, i64::from(parent))
}

impl World {
    pub(super) fn new(seed: u64, fault: Option<Fault>) -> Self {
        let settings = Config {
            capacity_bytes: if seed.is_multiple_of(4) { 2_000 } else { 100_000 },
            max_staleness: BOUND,
            error_ttl: Duration::ZERO,
            prefetch_on_change: seed.is_multiple_of(3),
            query_keys: 1 + seed as usize % 3,
            ..config()
        };
        let policy = CollectionPolicy {
            ttl: BOUND * 20,
            negative_ttl: BOUND * 10,
            has_tenants: false,
            has_views: false,
        };
        Self {
            random: SplitMix64(seed.wrapping_mul(STEP) | 1),
            fault,
            has_old_rows: seed % 5 < 3,
            cache: Cache::new(settings, vec![policy.clone(), policy]),
            now: START,
            db: Db::default(),
            delivered: 0,
            probes: Vec::new(),
            readers: Vec::new(),
            clients: Vec::new(),
            floors: [Nanos::ZERO; PARENTS as usize],
            counts: Counts::default(),
        }
    }

    /// Returns a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.random.bits() % bound
    }

    pub(super) fn run(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            self.step()?;
        }
        self.settle()
    }

    fn step(&mut self) -> Result<(), String> {
        // No two events share a time, so that times give their order.
        self.now = self.now.after(Duration::from_nanos(1));
        match self.below(100) {
            0..26 => {
                let parent = self.below(PARENTS.into()) as u8;
                let mode = if self.below(8) == 0 { ReadMode::Revalidate } else { ReadMode::Normal };
                self.look_up(parent, mode)?;
            }
            26..42 => self.next_batch(),
            42..58 => self.complete(),
            58..74 => self.poll_one()?,
            74..84 => self.commit(),
            84..87 => {
                let which = self.below(2) == 0;
                self.db.reveal(self.now, || which);
            }
            87..91 => {
                let most = 1 + self.below(2);
                self.deliver(most);
            }
            91..96 => self.probe(),
            _ => {
                let ms = self.below(40);
                self.now = self.now.after(Duration::from_millis(ms));
            }
        }
        Ok(())
    }

    fn probe(&mut self) {
        self.probes.push((self.now, self.db.end()));
        self.deliver(u64::MAX);
    }

    /// Changes one or two rows, or empties the table of the children.
    fn commit(&mut self) {
        let mut rows = Vec::new();
        let is_truncate = self.below(20) == 0;
        if is_truncate {
            let exist = (0..CHILDREN).filter(|id| self.db.newest_child(*id).is_some());
            rows.extend(exist.map(|id| Written::Child(id, None)));
            self.counts.truncated += 1;
        } else {
            let parent = self.below(PARENTS.into()) as u8;
            let is_of_parent = self.below(3) == 0;
            if is_of_parent {
                let ends = self.db.newest_parent(parent) && self.below(4) == 0;
                rows.push(Written::Parent(parent, !ends));
            }
            if !is_of_parent || self.below(2) == 0 {
                rows.push(self.child_written());
            }
        }
        let is_hidden = self.below(3) == 0;
        self.counts.commits += 1;
        self.counts.hidden += u64::from(is_hidden);
        let visible_at = (!is_hidden).then_some(self.now);
        self.db.commit(Commit { at: self.now, visible_at, rows, is_truncate });
    }

    fn child_written(&mut self) -> Written {
        let id = self.below(CHILDREN.into()) as u8;
        let parent = Some(self.below(u64::from(PARENTS) + 1) as u8).filter(|id| *id < PARENTS);
        let child = Child { parent, rank: self.below(10) as u8 };
        match self.db.newest_child(id) {
            None => self.counts.inserted += 1,
            Some(_) if self.below(4) == 0 => {
                self.counts.deleted += 1;
                return Written::Child(id, None);
            }
            Some(before) => self.counts.moved += u64::from(before.parent != child.parent),
        }
        Written::Child(id, Some(child))
    }

    fn deliver(&mut self, most: u64) {
        let until = self.db.end().min(self.delivered.saturating_add(most));
        for number in self.delivered + 1..=until {
            let mark = ChangeId::Transaction { xid: number, commit: number };
            let commit = &self.db.log[number as usize - 1];
            if commit.is_truncate {
                self.deliver_child(ChildChange::Truncate, None, mark);
                continue;
            }
            for row in commit.rows.clone() {
                match row {
                    Written::Parent(id, _) => self.invalidate(&key(id), mark),
                    Written::Child(id, after) => {
                        let before = self.child_before(id, number);
                        if let Some(change) = self.logged(before, after) {
                            self.deliver_child(change, Some(id), mark);
                        }
                    }
                }
            }
        }
        self.delivered = until;
        let passed = self.probes.iter().rposition(|(_, end)| *end <= until);
        if let Some((sent_at, _)) = passed.and_then(|i| self.probes.drain(..=i).next_back()) {
            self.cache.advance(ONLY, sent_at, Some(Position { incarnation: 1, at: until }));
            self.cache.advance_visibility(ONLY, &self.db.snapshot(self.now));
        }
    }

    /// Returns a child as the commits before this one left it.
    fn child_before(&self, id: u8, number: u64) -> Option<Child> {
        let rows = self.db.log[..number as usize - 1].iter().rev().flat_map(|commit| &commit.rows);
        let mut of_child = rows.filter_map(|row| match row {
            Written::Child(other, child) if *other == id => Some(*child),
            _ => None,
        });
        of_child.next().flatten()
    }

    /// Returns the change as the images in the log show it.
    fn logged(&self, before: Option<Child>, after: Option<Child>) -> Option<ChildChange> {
        let shown = |child: Child| child.parent.map_or(Parent::None, |id| Parent::Key(key(id)));
        let old = |child: Child| match self.has_old_rows {
            true => shown(child),
            false if self.fault == Some(Fault::UnknownIsNone) => Parent::None,
            false => Parent::Unknown,
        };
        Some(match (before, after) {
            (None, Some(after)) => ChildChange::Insert(shown(after)),
            (Some(before), None) => ChildChange::Delete(old(before)),
            (Some(before), Some(after)) => {
                ChildChange::Update { before: old(before), after: shown(after) }
            }
            (None, None) => return None,
        })
    }

    /// Delivers a change of a child as one of its parents. `child`: its number.
    fn deliver_child(&mut self, change: ChildChange, child: Option<u8>, mark: ChangeId) {
        let change = match (self.fault, change) {
            (Some(Fault::OldParentOmitted), ChildChange::Update { after, .. }) => {
                ChildChange::Insert(after)
            }
            (Some(Fault::OldParentOmitted), ChildChange::Delete(_))
            | (Some(Fault::TruncateOmitted), ChildChange::Truncate) => return,
            (_, change) => change,
        };
        let keys = match changed_parents(change) {
            ChangedParents::Keys(keys) => keys,
            ChangedParents::All => {
                self.counts.flushes += 1;
                let mark = (self.fault != Some(Fault::FlushWithoutMark)).then_some(mark);
                return self.cache.flush(RECORDS, mark);
            }
        };
        for parent in keys {
            let is_outside = |id: u8| {
                let of_key = (0..PARENTS).find(|id| key(*id) == parent);
                of_key.is_some_and(|of_key| !self.db.newest_window(of_key).contains(&id))
            };
            match self.fault {
                Some(Fault::InvalidationByWindow) if child.is_some_and(is_outside) => {}
                Some(Fault::MarkUnderChild) => {
                    self.cache.purge(&parent);
                    let of_child = key_of(OTHERS, i64::from(child.unwrap_or_default()));
                    self.invalidate(&of_child, mark);
                }
                _ => self.invalidate(&parent, mark),
            }
        }
    }

    fn invalidate(&mut self, key: &Key, mark: ChangeId) {
        if self.cache.invalidate(key, mark) {
            self.lead();
        }
    }

    fn lead(&mut self) {
        let loader = self.cache.batch_loader(RECORDS);
        self.readers.extend(loader.map(|loader| Reader { loader, query: None }));
    }

    fn next_batch(&mut self) {
        let idle: Vec<usize> =
            (0..self.readers.len()).filter(|&i| self.readers[i].query.is_none()).collect();
        if idle.is_empty() {
            return;
        }
        let i = idle[self.below(idle.len() as u64) as usize];
        match self.readers[i].loader.next_batch(self.now) {
            Some(keys) => self.readers[i].query = Some((keys, self.now)),
            None => drop(self.readers.swap_remove(i)),
        }
    }

    /// Ends a query that saw the tables at some moment since it was sent.
    fn complete(&mut self) {
        let busy: Vec<usize> =
            (0..self.readers.len()).filter(|&i| self.readers[i].query.is_some()).collect();
        if busy.is_empty() {
            return;
        }
        let i = busy[self.below(busy.len() as u64) as usize];
        let Some((keys, sent_at)) = self.readers[i].query.take() else { return };
        let time = Nanos(sent_at.0 + self.below(self.now.0 - sent_at.0 + 1));
        let of_children = match self.fault {
            Some(Fault::TwoStatements) => Nanos(sent_at.0 + self.below(time.0 - sent_at.0 + 1)),
            _ => time,
        };
        let read = |key_read: &Key| {
            let id = (0..PARENTS).find(|id| key(*id) == *key_read).expect("a parent's key");
            match self.db.record_at(id, (time, of_children)) {
                Some(record) => Fetched::Found(record.into_bytes()),
                None => Fetched::Missing,
            }
        };
        let rows = keys.iter().map(read).collect();
        let position = Some(Position { incarnation: 1, at: self.db.end() });
        let version = self.db.snapshot(time);
        self.readers[i].loader.complete(Ok(Answers { version, position, rows }), self.now);
    }

    fn look_up(&mut self, parent: u8, mode: ReadMode) -> Result<(), String> {
        let floor = self.floors[usize::from(parent)];
        let mut client = Client { parent, at: self.now, floor, waiter: None };
        match self.cache.lookup(&key(parent), mode, self.now) {
            Lookup::Hit(record, _) | Lookup::Negative(record, _) => {
                self.counts.from_memory += 1;
                return self.answered(&client, &record);
            }
            Lookup::Coalesced(waiter) => client.waiter = Some(waiter),
            Lookup::Miss(waiter) | Lookup::Bypass(waiter) => {
                client.waiter = Some(waiter);
                self.lead();
            }
            Lookup::Refused(refusal) => return Err(format!("refused: {refusal:?}")),
        }
        self.clients.push(client);
        Ok(())
    }

    fn poll_one(&mut self) -> Result<(), String> {
        if self.clients.is_empty() {
            return Ok(());
        }
        let i = self.below(self.clients.len() as u64) as usize;
        let Some(waiter) = &mut self.clients[i].waiter else { return Ok(()) };
        match poll(waiter) {
            None => Ok(()),
            Some(Waited::Lead) => {
                self.lead();
                Ok(())
            }
            Some(Waited::Done(Ok(record))) => {
                let client = self.clients.swap_remove(i);
                self.answered(&client, &record)
            }
            Some(Waited::Done(Err(error))) => Err(format!("failed: {error:?}")),
        }
    }

    /// Checks an answer: the record as it was at one moment, not before the newest answer that was
    /// sent before the request, and not older than the bound.
    fn answered(&mut self, client: &Client, record: &Record) -> Result<(), String> {
        let shown = match record.presence() {
            Presence::Missing => None,
            _ => Some(std::str::from_utf8(record.body()).map_err(|e| e.to_string())?),
        };
        match shown {
            None => self.counts.absent += 1,
            Some(_) => self.counts.found += 1,
        }
        let due = client.at.before(BOUND).before(Duration::from_nanos(1));
        let span = (due.max(client.floor), self.now);
        let Some(at) = self.db.was_record(client.parent, shown, span) else {
            let id = client.parent;
            return Err(format!("parent {id} was never {shown:?} in {span:?}"));
        };
        let floor = &mut self.floors[usize::from(client.parent)];
        *floor = (*floor).max(at);
        Ok(())
    }

    /// When writes stop, every record is as in the database.
    fn settle(&mut self) -> Result<(), String> {
        self.db.reveal(self.now, || true);
        self.finish_all()?;
        // Twice: from what the schedule left in memory, and from what this one stored.
        for _ in 0..2 {
            for parent in 0..PARENTS {
                self.now = self.now.after(BOUND);
                self.probe();
                self.now = self.now.after(Duration::from_nanos(1));
                self.look_up(parent, ReadMode::Normal)?;
                self.finish_all()?;
            }
        }
        Ok(())
    }

    fn finish_all(&mut self) -> Result<(), String> {
        for _ in 0..10_000 {
            if self.clients.is_empty() && self.readers.is_empty() {
                return Ok(());
            }
            self.now = self.now.after(Duration::from_nanos(1));
            self.next_batch();
            self.complete();
            self.poll_one()?;
        }
        Err(format!("{} clients wait for ever", self.clients.len()))
    }
}
