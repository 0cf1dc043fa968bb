//! One cache with its readers and its feed over the database, and clients that look up: the part
//! that scenarios of other keys and other records than a row's share.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hotrow_admission::concurrency::queue;
use hotrow_cache::config::{CollectionPolicy, Config};
use hotrow_cache::flight::{Waited, Waiter};
use hotrow_cache::{Answers, BatchLoader, Cache, Fetched, Lookup, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Version};

use super::tally::Tally;
use super::{Mistake, Steps, round_trip};
use crate::database::{COLLECTIONS, Database};
use crate::random::Random;

const NEAR_BOUND: Duration = Duration::from_millis(100);
const FAR_BOUND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_nanos(1);

/// What a scenario adds.
pub(crate) trait Rows: Sized {
    /// A request under way.
    type Request;
    /// Steps of a run.
    const STEPS: u64;

    /// Creates the world of a run.
    fn world(seed: u64, mistake: Option<Mistake>) -> OneCache<Self>;
    /// Sends a request.
    fn request(world: &mut OneCache<Self>) -> Result<(), String>;
    /// Writes to the database.
    fn write(world: &mut OneCache<Self>);
    /// Delivers a commit of the log to the cache.
    fn deliver(world: &mut OneCache<Self>, number: u64, mark: ChangeId);
    /// Reads what a key names, for a query that was sent at this time.
    fn read(world: &mut OneCache<Self>, key: &Key, sent_at: Nanos) -> Fetched<&'static str>;
    /// Takes an answer, and checks it.
    fn answered(
        world: &mut OneCache<Self>,
        asked: PendingRequest<Self>,
        got: &Record,
    ) -> Result<(), String>;
    /// Asks for everything, when all is quiet.
    fn ask_for_all(world: &mut OneCache<Self>) -> Result<(), String>;
}

/// A request, and the state when it began.
pub(crate) struct PendingRequest<R: Rows> {
    pub(crate) what: R::Request,
    pub(crate) at: Nanos,
    /// Newest version of each row that was answered before.
    pub(crate) floors: Vec<usize>,
}

struct Client<R: Rows> {
    asked: PendingRequest<R>,
    waiter: Waiter<&'static str>,
}

struct Reader {
    loader: BatchLoader<&'static str>,
    query: Option<Query>,
}

/// A query in flight; it has an answer once the database has read its rows.
struct Query {
    keys: Vec<Key>,
    sent_at: Nanos,
    answers: Option<Answers<&'static str>>,
}

pub(crate) struct OneCache<R: Rows> {
    pub(crate) rows: R,
    pub(crate) random: Random,
    pub(crate) now: Nanos,
    pub(crate) database: Database,
    pub(crate) cache: Arc<Cache<&'static str>>,
    /// Round trip of a query; the feed has none.
    round_trip: Duration,
    delivered: u64,
    /// Delivered changes that clients are not informed of yet.
    unproven: Vec<u64>,
    probes: Vec<(Nanos, u64)>,
    readers: Vec<Reader>,
    clients: Vec<Client<R>>,
    pub(crate) floors: Vec<usize>,
    pub(crate) tally: Tally,
}

impl<R: Rows> Steps for OneCache<R> {
    const STEPS: u64 = R::STEPS;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        R::world(seed, mistake)
    }

    fn step(&mut self, _: u64) -> Result<(), String> {
        // No two events share a time, so that times give their order.
        self.now = self.now.after(TICK);
        match self.random.below(100) {
            0..26 => R::request(self)?,
            26..38 => self.next_batch(),
            38..60 => self.advance_query(),
            60..74 => self.poll_one()?,
            74..83 => R::write(self),
            83..87 => self.show(),
            87..91 => {
                let most = 1 + self.random.below(2) as u64;
                self.deliver(most);
            }
            91..96 => self.probe(),
            _ => {
                let most = if self.round_trip.is_zero() { 40 } else { 120 };
                self.now = self.now.after(Duration::from_millis(self.random.below(most) as u64));
            }
        }
        Ok(())
    }

    /// When writes stop, everything is as in the database.
    fn settle(&mut self) -> Result<(), String> {
        self.database.show_all(self.now);
        self.finish_all()?;
        // Twice: from what the schedule left in memory, and from what this one stored.
        for _ in 0..2 {
            self.pass_bound();
            R::ask_for_all(self)?;
            self.finish_all()?;
        }
        self.cache.check_accounting()
    }

    fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }
}

impl<R: Rows> OneCache<R> {
    pub(crate) fn of(rows: R, seed: u64, ids: usize, has_views: bool) -> Self {
        let round_trip = round_trip(seed);
        let bound = if round_trip.is_zero() { NEAR_BOUND } else { FAR_BOUND };
        let policy = |has_views| CollectionPolicy {
            ttl: bound * 20,
            negative_ttl: bound * 10,
            has_tenants: false,
            has_views,
        };
        let database = Database::of("postgres", ids);
        Self {
            rows,
            random: Random::new(seed),
            now: Nanos(1_000_000_000_000),
            floors: vec![0; database.rows()],
            database,
            cache: Cache::new(config(seed, bound), vec![policy(has_views), policy(false)]),
            round_trip,
            delivered: 0,
            unproven: Vec::new(),
            probes: Vec::new(),
            readers: Vec::new(),
            clients: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Hides a commit for a while, or makes it visible at once.
    pub(crate) fn end_write(&mut self) {
        self.tally.note("commits");
        if self.random.one_in(3) {
            self.tally.note("hidden");
        } else if let Some(entry) = self.database.log.last() {
            let id = entry.transaction;
            self.database.show(id, self.now);
        }
    }

    fn show(&mut self) {
        if self.random.one_in(2) {
            self.database.show_all(self.now);
        } else {
            self.database.show_any(&mut self.random, self.now);
        }
    }

    pub(crate) fn probe(&mut self) {
        self.probes.push((self.now, self.database.end()));
        self.deliver(u64::MAX);
    }

    fn deliver(&mut self, most: u64) {
        let until = self.database.end().min(self.delivered.saturating_add(most));
        for number in self.delivered + 1..=until {
            let mark = self.database.mark(number);
            R::deliver(self, number, mark);
            self.unproven.push(number);
        }
        self.delivered = until;
        let passed = self.probes.iter().rposition(|(_, end)| *end <= until);
        if let Some((sent_at, _)) = passed.and_then(|i| self.probes.drain(..=i).next_back()) {
            let position = Some(self.database.position(until));
            self.cache.advance(SourceId::FIRST, sent_at, position);
            let visible = self.database.snapshot();
            self.cache.advance_visibility(SourceId::FIRST, &visible);
            self.inform_followers(&visible);
        }
    }

    /// Clients are informed of the delivered changes that are proven visible.
    fn inform_followers(&mut self, visible: &Version) {
        let Self { unproven, database, floors, .. } = self;
        unproven.retain(|number| {
            let is_proven = visible.contains(&database.mark(*number));
            if is_proven {
                let place = (database.incarnation, *number);
                let changes = &database.log[*number as usize - 1].changes;
                for row in changes.iter().flat_map(|change| database.targets(change.target)) {
                    let version = database.visible_at(row, place).unwrap_or_default();
                    floors[row] = floors[row].max(version);
                }
            }
            !is_proven
        });
    }

    pub(crate) fn invalidate(&mut self, key: &Key, mark: ChangeId) {
        if self.cache.invalidate(key, mark) {
            self.lead(key.collection());
        }
    }

    fn lead(&mut self, collection: CollectionId) {
        let loader = self.cache.batch_loader(collection);
        self.readers.extend(loader.map(|loader| Reader { loader, query: None }));
    }

    /// Returns one of the readers that have a query, or that have none.
    fn any_reader(&mut self, has_query: bool) -> Option<usize> {
        let is_such = |i: &usize| self.readers[*i].query.is_some() == has_query;
        let found: Vec<usize> = (0..self.readers.len()).filter(is_such).collect();
        (!found.is_empty()).then(|| found[self.random.below(found.len())])
    }

    fn next_batch(&mut self) {
        let Some(i) = self.any_reader(false) else { return };
        match self.readers[i].loader.next_batch(self.now) {
            Some(keys) => {
                self.readers[i].query = Some(Query { keys, sent_at: self.now, answers: None });
            }
            None => drop(self.readers.swap_remove(i)),
        }
    }

    /// The database reads the rows of a query, or their answer arrives.
    fn advance_query(&mut self) {
        let Some(i) = self.any_reader(true) else { return };
        let Some(mut query) = self.readers[i].query.take() else { return };
        let half = self.round_trip / if query.answers.is_none() { 2 } else { 1 };
        if self.now >= query.sent_at.after(half) {
            if let Some(answers) = query.answers.take() {
                return self.readers[i].loader.complete(Ok(answers), self.now);
            }
            let keys = query.keys.iter();
            let rows = keys.map(|key| R::read(self, key, query.sent_at)).collect();
            let position = Some(self.database.position(self.database.end()));
            let version = self.database.snapshot();
            query.answers = Some(Answers { version, position, rows });
        }
        self.readers[i].query = Some(query);
    }

    pub(crate) fn begin(
        &mut self,
        what: R::Request,
        key: &Key,
        mode: ReadMode,
    ) -> Result<(), String> {
        let asked = PendingRequest { what, at: self.now, floors: self.floors.clone() };
        self.look(asked, key, mode)
    }

    /// Looks a key up for a request, which continues when there is an answer.
    pub(crate) fn look(
        &mut self,
        asked: PendingRequest<R>,
        key: &Key,
        mode: ReadMode,
    ) -> Result<(), String> {
        let waiter = match self.cache.lookup(key, mode, self.now) {
            Lookup::Hit(record, _) | Lookup::Negative(record, _) => {
                self.tally.note("from memory");
                return R::answered(self, asked, &record);
            }
            Lookup::Coalesced(waiter) => waiter,
            Lookup::Miss(waiter) | Lookup::Bypass(waiter) => {
                self.lead(key.collection());
                waiter
            }
            Lookup::Refused(refusal) => return Err(format!("refused: {refusal:?}")),
        };
        self.clients.push(Client { asked, waiter });
        Ok(())
    }

    fn poll_one(&mut self) -> Result<(), String> {
        if self.clients.is_empty() {
            return Ok(());
        }
        let i = self.random.below(self.clients.len());
        let waiter = Pin::new(&mut self.clients[i].waiter);
        match waiter.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(()),
            Poll::Ready(Waited::Lead) => {
                (0..COLLECTIONS).for_each(|collection| self.lead(CollectionId(collection)));
                Ok(())
            }
            Poll::Ready(Waited::Done(Ok(record))) => {
                let Client { asked, .. } = self.clients.swap_remove(i);
                R::answered(self, asked, &record)
            }
            Poll::Ready(Waited::Done(Err(error))) => Err(format!("failed: {error:?}")),
        }
    }

    /// Returns the time from which a request must see what was visible.
    pub(crate) fn due(&self, asked: &PendingRequest<R>) -> Nanos {
        asked.at.before(self.cache.config().max_staleness).before(TICK)
    }

    pub(crate) fn pass_bound(&mut self) {
        self.now = self.now.after(self.cache.config().max_staleness);
        self.probe();
        self.now = self.now.after(TICK);
    }

    pub(crate) fn finish_all(&mut self) -> Result<(), String> {
        for _ in 0..10_000 {
            if self.clients.is_empty() && self.readers.is_empty() {
                return Ok(());
            }
            self.now = self.now.after(TICK.max(self.round_trip / 16));
            if !self.round_trip.is_zero() {
                self.probe();
            }
            self.next_batch();
            self.advance_query();
            self.poll_one()?;
        }
        Err(format!("{} clients wait for ever", self.clients.len()))
    }
}

fn config(seed: u64, bound: Duration) -> Config {
    Config {
        prefetch_on_change: seed.is_multiple_of(3),
        max_staleness: bound,
        reads_in_flight: 2,
        query_keys: 1 + seed as usize % 3,
        query_bytes: 1_000,
        waiting_keys: 100,
        queue: queue::Config {
            adaptive: false,
            target: bound,
            interval: bound * 5,
            query_target: bound,
        },
        seed: 7,
        ..Config::small(if seed.is_multiple_of(5) { 2_000 } else { 100_000 })
    }
}
