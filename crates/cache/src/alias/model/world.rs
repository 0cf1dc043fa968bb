//! The cache, its readers and its feed over the simulated table, and clients that look up by value
//! and by key.

use std::collections::HashMap;
use std::time::Duration;

use hotrow_admission::concurrency::queue;
use hotrow_measure::clock::Nanos;
use hotrow_measure::random::{STEP, SplitMix64};

use super::db::{Commit, Db, IDS, RowState, Spelled, VALUES};
use crate::alias::{AliasAttempts, AliasTarget, alias_record};
use crate::config::{CollectionPolicy, Config};
use crate::flight::{Waited, Waiter};
use crate::testkit::{ONLY, START, TestCache, TestError, config, counts, key_of, poll, record_of};
use crate::{Answers, BatchLoader, Cache, Fetched, Lookup, ReadMode, Record};
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::{ChangeId, Position, Version};

pub(super) const BOUND: Duration = Duration::from_millis(100);
const ROWS: CollectionId = CollectionId(0);
const ALIASES: CollectionId = CollectionId(1);

/// Rule that is broken, to show that the test finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The value that a row has now ends no earlier answer for it.
    NewValueIgnored,
    /// It ends the entry and the lease, but a later read that does not see it may be stored.
    NoMark,
    /// The row that the alias was read with becomes the entry of its key.
    RowInstalled,
    /// An answer for another spelling of a value is stored, as if the feed reported that one.
    CaseFolded,
    /// A row is answered whether it has the value or not.
    Unconfirmed,
}

impl Fault {
    pub(super) const ALL: [Self; 5] = [
        Self::NewValueIgnored,
        Self::NoMark,
        Self::RowInstalled,
        Self::CaseFolded,
        Self::Unconfirmed,
    ];
}

counts!(commits, moved, hidden, found, absent, refuted, given_up, by_key, from_memory, uncacheable);

/// A lookup, and the state when it began.
pub(super) struct Client {
    asked: Asked,
    pub(super) at: Nanos,
    /// Newest version of each row that was answered before.
    pub(super) floors: [u64; IDS as usize],
    waiter: Option<Waiter<TestError>>,
}

pub(super) enum Asked {
    Key(u8),
    Value { value: Spelled, attempts: AliasAttempts, alias: Option<Record> },
}

pub(super) struct Reader {
    loader: BatchLoader<TestError>,
    /// The query in flight: its keys and the time at which it was sent.
    query: Option<(Vec<Key>, Nanos)>,
}

pub(super) struct World {
    random: SplitMix64,
    fault: Option<Fault>,
    /// The database compares values without case, and the feed reports the stored spelling.
    pub(super) is_folding: bool,
    cache: TestCache,
    pub(super) now: Nanos,
    pub(super) db: Db,
    delivered: u64,
    pub(super) probes: Vec<(Nanos, u64)>,
    pub(super) readers: Vec<Reader>,
    pub(super) clients: Vec<Client>,
    pub(super) floors: [u64; IDS as usize],
    names: HashMap<Key, Spelled>,
    pub(super) counts: Counts,
}

pub(super) fn row_key(id: u8) -> Key {
    key_of(ROWS, i64::from(id))
}

pub(super) fn alias_key(value: Spelled) -> Key {
    let schema =
        KeySchema::new(ALIASES, vec![KeyType::Text(hotrow_types::key::Collation::Database)]);
    schema.key(&[KeyPart::Text(&value.letter().to_string())]).expect("a text")
}

fn member(value: Spelled) -> String {
    format!(r#""v":"{}""#, value.letter())
}

impl World {
    pub(super) fn new(seed: u64, fault: Option<Fault>) -> Self {
        let settings = Config {
            capacity_bytes: if seed.is_multiple_of(4) { 2_000 } else { 100_000 },
            max_staleness: BOUND,
            error_ttl: Duration::ZERO,
            prefetch_on_change: seed.is_multiple_of(3),
            query_keys: 1 + seed as usize % 3,
            queue: queue::Config { adaptive: false, ..config().queue },
            ..config()
        };
        let policy = |has_views| CollectionPolicy {
            ttl: BOUND * 20,
            negative_ttl: BOUND * 10,
            has_tenants: false,
            has_views,
        };
        let cache = Cache::new(settings, vec![policy(seed.is_multiple_of(2)), policy(false)]);
        let is_folding = seed % 5 < 2;
        if is_folding {
            cache.expect_aliases(ALIASES);
        }
        let names = (0..VALUES).flat_map(|value| {
            [false, true].map(|is_upper| {
                let spelled = Spelled { value, is_upper };
                (alias_key(spelled), spelled)
            })
        });
        Self {
            random: SplitMix64(seed.wrapping_mul(STEP) | 1),
            fault,
            is_folding,
            cache,
            now: START,
            db: Db::default(),
            delivered: 0,
            probes: Vec::new(),
            readers: Vec::new(),
            clients: Vec::new(),
            floors: [0; IDS as usize],
            names: names.collect(),
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
            0..22 => self.look_up_value()?,
            22..30 => self.look_up_key()?,
            30..46 => self.next_batch(),
            46..62 => self.complete(),
            62..76 => self.poll_one()?,
            76..84 => self.commit(),
            84..87 => {
                let which = self.below(2) == 0;
                self.db.reveal(self.now, || which);
            }
            87..91 => {
                let most = 1 + self.below(2);
                self.deliver(most);
            }
            91..96 => {
                self.probes.push((self.now, self.db.end()));
                self.deliver(u64::MAX);
            }
            _ => {
                let ms = self.below(40);
                self.now = self.now.after(Duration::from_millis(ms));
            }
        }
        Ok(())
    }

    /// Changes one row, or moves a value from one row to another.
    fn commit(&mut self) {
        let rows: Vec<RowState> = (0..IDS).map(|id| self.db.newest(id)).collect();
        let free = (0..VALUES).find(|value| rows.iter().flatten().all(|row| row.value != *value));
        let id = self.below(IDS.into()) as usize;
        let other = self.below(IDS.into()) as usize;
        let is_upper = self.is_folding && self.below(2) == 0;
        let mut changed = Vec::new();
        match (rows[id], free, self.below(4)) {
            (None, Some(value), _) => changed.push((id, Some(Spelled { value, is_upper }))),
            (Some(_), _, 0) => changed.push((id, None)),
            (Some(row), _, 1) => changed.push((id, Some(Spelled { is_upper, ..row }))),
            (Some(row), _, 2) if other != id => {
                self.counts.moved += 1;
                changed.push((id, rows[other]));
                changed.push((other, Some(Spelled { is_upper, ..row })));
            }
            (Some(_), Some(value), _) => changed.push((id, Some(Spelled { value, is_upper }))),
            _ => return,
        }
        let had = changed.iter().filter_map(|(id, _)| rows[*id]);
        let has = changed.iter().filter_map(|(_, row)| *row);
        let values = had.chain(has).map(|row| row.value).collect();
        let is_hidden = self.below(3) == 0;
        self.counts.commits += 1;
        self.counts.hidden += u64::from(is_hidden);
        self.db.commit(Commit {
            at: self.now,
            visible_at: (!is_hidden).then_some(self.now),
            rows: changed.into_iter().map(|(id, row)| (id as u8, row)).collect(),
            values,
        });
    }

    pub(super) fn deliver(&mut self, most: u64) {
        let until = self.db.end().min(self.delivered.saturating_add(most));
        for number in self.delivered + 1..=until {
            let mark = ChangeId::Transaction { xid: number, commit: number };
            for (id, row) in self.db.log[number as usize - 1].rows.clone() {
                self.invalidate(&row_key(id), mark);
                let Some(value) = row else { continue };
                match self.fault {
                    Some(Fault::NewValueIgnored) => {}
                    Some(Fault::NoMark) => _ = self.cache.purge(&alias_key(value)),
                    _ => self.invalidate(&alias_key(value), mark),
                }
            }
        }
        self.delivered = until;
        let passed = self.probes.iter().rposition(|(_, end)| *end <= until);
        if let Some((sent_at, _)) = passed.and_then(|i| self.probes.drain(..=i).next_back()) {
            self.cache.advance(ONLY, sent_at, Some(Position { incarnation: 1, at: until }));
            let visible = self.db.snapshot(self.now);
            self.cache.advance_visibility(ONLY, &visible);
            self.inform_followers(&visible);
        }
    }

    /// Clients are informed of the delivered changes that are proven visible.
    fn inform_followers(&mut self, visible: &Version) {
        for (number, commit) in (1..=self.delivered).zip(&self.db.log) {
            if visible.contains(&ChangeId::Transaction { xid: number, commit: number }) {
                for (id, _) in &commit.rows {
                    let floor = &mut self.floors[usize::from(*id)];
                    *floor = number.max(*floor);
                }
            }
        }
    }

    fn invalidate(&mut self, key: &Key, mark: ChangeId) {
        if self.cache.invalidate(key, mark) {
            self.lead(key.collection());
        }
    }

    fn lead(&mut self, collection: CollectionId) {
        let loader = self.cache.batch_loader(collection);
        self.readers.extend(loader.map(|loader| Reader { loader, query: None }));
    }

    pub(super) fn next_batch(&mut self) {
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

    /// Ends a query that saw the table at some moment since it was sent.
    pub(super) fn complete(&mut self) {
        let busy: Vec<usize> =
            (0..self.readers.len()).filter(|&i| self.readers[i].query.is_some()).collect();
        if busy.is_empty() {
            return;
        }
        let i = busy[self.below(busy.len() as u64) as usize];
        let Some((keys, sent_at)) = self.readers[i].query.take() else { return };
        let time = Nanos(sent_at.0 + self.below(self.now.0 - sent_at.0 + 1));
        let rows = keys.iter().map(|key| self.read(key, time)).collect();
        let position = Some(Position { incarnation: 1, at: self.db.end() });
        let version = self.db.snapshot(time);
        self.readers[i].loader.complete(Ok(Answers { version, position, rows }), self.now);
    }

    fn read(&mut self, key: &Key, time: Nanos) -> Fetched<TestError> {
        let body = |id: u8, number: u64, value: Spelled| {
            format!(r#"{{"id":{id},{},"n":{number}}}"#, member(value)).into_bytes()
        };
        let Some(asked) = self.names.get(key).copied() else {
            let id = (0..IDS).find(|id| row_key(*id) == *key).expect("a row's key");
            return match self.db.row_at(id, time) {
                (number, Some(value)) => Fetched::Found(body(id, number, value)),
                (_, None) => Fetched::Missing,
            };
        };
        let found = match self.is_folding {
            true => self.db.owner_at(asked.value, time),
            false => self.db.owner_at(asked.value, time).filter(|(_, own)| *own == asked),
        };
        let keeps_all = !self.is_folding || self.fault == Some(Fault::CaseFolded);
        let Some((id, own)) = found else {
            let missing = if keeps_all { Fetched::Missing } else { Fetched::Uncacheable(None) };
            return missing;
        };
        if self.fault == Some(Fault::RowInstalled) {
            let (number, _) = self.db.row_at(id, time);
            let row = record_of(&row_key(id), Some(&body(id, number, own)));
            self.cache.store.insert(&row_key(id), &row);
        }
        let record = alias_record(&row_key(id), &[member(own).as_bytes()]);
        if own == asked || keeps_all {
            return Fetched::Found(record);
        }
        self.counts.uncacheable += 1;
        Fetched::Uncacheable(Some(record))
    }

    fn look_up_value(&mut self) -> Result<(), String> {
        let value = self.below(VALUES.into()) as u8;
        let is_upper = self.is_folding && self.below(2) == 0;
        let mode = if self.below(12) == 0 { ReadMode::Revalidate } else { ReadMode::Normal };
        let value = Spelled { value, is_upper };
        let asked = Asked::Value { value, attempts: AliasAttempts::new(mode), alias: None };
        self.begin(asked, &alias_key(value), mode)
    }

    fn look_up_key(&mut self) -> Result<(), String> {
        let id = self.below(IDS.into()) as u8;
        let mode = if self.below(6) == 0 { ReadMode::Revalidate } else { ReadMode::Normal };
        self.begin(Asked::Key(id), &row_key(id), mode)
    }

    pub(super) fn begin(&mut self, asked: Asked, key: &Key, mode: ReadMode) -> Result<(), String> {
        let client = Client { asked, at: self.now, floors: self.floors, waiter: None };
        self.look(client, key, mode)
    }

    /// Looks a key up for a client, which continues when there is an answer.
    fn look(&mut self, mut client: Client, key: &Key, mode: ReadMode) -> Result<(), String> {
        match self.cache.lookup(key, mode, self.now) {
            Lookup::Hit(record, _) | Lookup::Negative(record, _) => {
                self.counts.from_memory += 1;
                return self.answered(client, record);
            }
            Lookup::Coalesced(waiter) => client.waiter = Some(waiter),
            Lookup::Miss(waiter) | Lookup::Bypass(waiter) => {
                client.waiter = Some(waiter);
                self.lead(key.collection());
            }
            Lookup::Refused(refusal) => return Err(format!("refused: {refusal:?}")),
        }
        self.clients.push(client);
        Ok(())
    }

    pub(super) fn poll_one(&mut self) -> Result<(), String> {
        if self.clients.is_empty() {
            return Ok(());
        }
        let i = self.below(self.clients.len() as u64) as usize;
        let Some(waiter) = &mut self.clients[i].waiter else { return Ok(()) };
        match poll(waiter) {
            None => Ok(()),
            Some(Waited::Lead) => {
                [ROWS, ALIASES].into_iter().for_each(|collection| self.lead(collection));
                Ok(())
            }
            Some(Waited::Done(Ok(record))) => {
                let client = self.clients.swap_remove(i);
                self.answered(client, record)
            }
            Some(Waited::Done(Err(error))) => Err(format!("failed: {error:?}")),
        }
    }

    /// Continues a client with the record that it waited for.
    fn answered(&mut self, mut client: Client, record: Record) -> Result<(), String> {
        let (value, attempts, alias) = match &mut client.asked {
            Asked::Value { value, attempts, alias } => (*value, attempts, alias),
            Asked::Key(id) => {
                assert_eq!(record.key_bytes(), row_key(*id).as_bytes());
                self.counts.by_key += 1;
                return self.check_row(&client, &record);
            }
        };
        let Some(of_alias) = alias.take() else {
            let target = AliasTarget::of(&record).map(|target| target.key.to_vec());
            let Some(target) = target else { return self.check_absent(&client, value) };
            let id = (0..IDS).find(|id| row_key(*id).as_bytes() == target).expect("a row's key");
            let mode = attempts.mode();
            *alias = Some(record);
            return self.look(client, &row_key(id), mode);
        };
        let target = AliasTarget::of(&of_alias).expect("it was read before");
        if target.is_confirmed_by(&record) || self.fault == Some(Fault::Unconfirmed) {
            self.counts.found += 1;
            return self.check_found(&client, value, &record);
        }
        self.counts.refuted += 1;
        self.cache.drop_alias(&alias_key(value));
        if !attempts.retry() {
            self.counts.given_up += 1;
            return Ok(());
        }
        let mode = attempts.mode();
        self.look(client, &alias_key(value), mode)
    }
}
