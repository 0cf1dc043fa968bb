//! Thread schedules, explored by shuttle: lookups, fills, changes, evictions, flushes, gaps, new
//! reads, and loaders and waiters that are dropped. Every answer is compared with what was answered
//! and applied before its request. A waiter that is never woken is a deadlock, which shuttle
//! reports.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use shuttle::future::block_on;
use shuttle::sync::atomic::AtomicU64;
use shuttle::thread;

use crate::config::Config;
use crate::flight::{Waited, Waiter};
use crate::testkit::{
    FIRST, LOGGED, ONLY, START, TestCache, TestError, answers, cache, config, key,
};
use crate::{Lookup, LookupError, ReadMode, Record};

/// Schedules per scenario and scheduler.
const SCHEDULES: usize = 3000;
/// Points at which the second scheduler forces another thread.
const DEPTH: usize = 4;
const KEY: i64 = 1;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, DEPTH);
}

/// Work of one thread.
type Act = Box<dyn FnOnce(&World) + Send>;

/// One row in a database, its cache, and the knowledge of the clients. The row's version is the
/// point of the log.
struct World {
    cache: TestCache,
    row: AtomicU64,
    /// Newest version answered and newest change applied: not a step of a schedule.
    answered: std::sync::atomic::AtomicU64,
    applied: std::sync::atomic::AtomicU64,
}

impl World {
    fn new(config: Config) -> Arc<Self> {
        let zero = || std::sync::atomic::AtomicU64::new(0);
        Arc::new(Self {
            cache: cache(config),
            row: AtomicU64::new(0),
            answered: zero(),
            applied: zero(),
        })
    }

    /// Returns the least version that a request made now must see.
    fn floor(&self) -> u64 {
        self.answered.load(SeqCst).max(self.applied.load(SeqCst))
    }

    fn give(&self, floor: u64, record: &Record) -> u64 {
        let version: u64 = std::str::from_utf8(record.body()).unwrap().parse().unwrap();
        assert!(version >= floor, "got {version} after {floor}");
        self.answered.fetch_max(version, SeqCst);
        version
    }

    /// Carries out a whole request; `None` when the read was abandoned.
    fn get(&self, mode: ReadMode) -> Option<u64> {
        self.get_at(mode, START, self.floor())
    }

    fn get_at(&self, mode: ReadMode, now: Nanos, floor: u64) -> Option<u64> {
        let waiter = match self.cache.lookup(&key(KEY), mode, now) {
            Lookup::Hit(record, _) => return Some(self.give(floor, &record)),
            Lookup::Coalesced(waiter) => waiter,
            Lookup::Miss(waiter) | Lookup::Bypass(waiter) => {
                self.lead();
                waiter
            }
            other => panic!("{other:?}"),
        };
        self.wait(waiter).map(|record| self.give(floor, &record))
    }

    fn wait(&self, mut waiter: Waiter<TestError>) -> Option<Record> {
        loop {
            match block_on(&mut waiter) {
                Waited::Done(Ok(record)) => return Some(record),
                Waited::Done(Err(failure)) => {
                    assert_eq!(failure, LookupError::Abandoned);
                    return None;
                }
                Waited::Lead => self.lead(),
            }
        }
    }

    fn lead(&self) {
        let Some(mut loader) = self.cache.batch_loader(FIRST) else { return };
        while let Some(keys) = loader.next_batch(START) {
            let row = self.row.load(SeqCst);
            loader.complete(answers(row, keys.len()), START);
        }
    }

    /// Commits a change, then reports it through the feed.
    fn change(&self, apply: impl Fn(&TestCache)) {
        let version = self.row.fetch_add(1, SeqCst) + 1;
        apply(&self.cache);
        self.applied.fetch_max(version, SeqCst);
    }

    /// Asserts that nothing is left, and that the cache agrees with the database.
    fn settle(&self) {
        assert_eq!(self.get(ReadMode::Normal), Some(self.row.load(SeqCst)));
        let stats = self.cache.stats(FIRST);
        assert_eq!((stats.waiting_keys, stats.queries_in_flight), (0, 0));
        assert!(self.cache.collection(FIRST).0.fetch_queue.lock().in_flight.is_empty());
        let counted = self.cache.store.recount().remove(&FIRST).unwrap_or_default();
        assert_eq!([stats.entries, stats.negative_entries, stats.bytes], counted);
    }
}

fn run(world: &Arc<World>, threads: Vec<Act>) {
    let spawn = |act: Act| {
        let world = world.clone();
        thread::spawn(move || act(&world))
    };
    let handles: Vec<_> = threads.into_iter().map(spawn).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    world.settle();
}

fn reads(n: usize, mode: ReadMode) -> Act {
    Box::new(move |world| (0..n).for_each(|_| assert!(world.get(mode).is_some())))
}

#[test]
fn reads_and_changes() {
    explore(|| {
        let invalidate = |world: &World| {
            (0..2).for_each(|_| world.change(|cache| _ = cache.invalidate(&key(KEY), LOGGED)))
        };
        run(
            &World::new(config()),
            vec![reads(2, ReadMode::Normal), reads(2, ReadMode::Normal), Box::new(invalidate)],
        );
    });
}

#[test]
fn new_reads_between_reads_and_changes() {
    explore(|| {
        let invalidate =
            |world: &World| world.change(|cache| _ = cache.invalidate(&key(KEY), LOGGED));
        let threads = vec![
            reads(2, ReadMode::Normal),
            reads(2, ReadMode::Revalidate),
            reads(1, ReadMode::Revalidate),
            Box::new(invalidate) as _,
        ];
        run(&World::new(Config { reads_in_flight: 3, ..config() }), threads);
    });
}

#[test]
fn flushes_losses_and_purges() {
    explore(|| {
        let feed = |world: &World| {
            world.change(|cache| cache.flush(FIRST, None));
            world.change(|cache| {
                cache.mark_gap(ONLY, None);
                cache.mark_gap(ONLY, None);
            });
        };
        let purge = |world: &World| _ = world.cache.purge(&key(KEY));
        let threads = vec![
            reads(2, ReadMode::Normal),
            reads(2, ReadMode::Normal),
            Box::new(feed) as _,
            Box::new(purge) as _,
        ];
        run(&World::new(config()), threads);
    });
}

#[test]
fn evictions_between_reads_and_changes() {
    explore(|| {
        let world = World::new(Config { capacity_bytes: 450, ..config() });
        let others = |world: &World| {
            for id in 2..5 {
                let Lookup::Miss(waiter) = world.cache.lookup(&key(id), ReadMode::Normal, START)
                else {
                    continue;
                };
                world.lead();
                assert!(world.wait(waiter).is_some());
            }
        };
        let invalidate =
            |world: &World| world.change(|cache| _ = cache.invalidate(&key(KEY), LOGGED));
        run(&world, vec![reads(3, ReadMode::Normal), Box::new(others), Box::new(invalidate)]);
    });
}

/// Starts a loader that is cancelled before, during or after its query.
fn cancelled_loader(world: &World) {
    let Some(mut loader) = world.cache.batch_loader(FIRST) else { return };
    let Some(keys) = loader.next_batch(START) else { return };
    let row = world.row.load(SeqCst);
    if row.is_multiple_of(2) {
        return;
    }
    loader.complete(answers(row, keys.len()), START);
}

#[test]
fn a_dropped_loader_leaves_no_waiter_behind() {
    explore(|| {
        let cancelled = |world: &World| {
            let waiter = match world.cache.lookup(&key(KEY), ReadMode::Normal, START) {
                Lookup::Coalesced(waiter) | Lookup::Miss(waiter) => waiter,
                _ => return,
            };
            cancelled_loader(world);
            drop(waiter);
        };
        let client = |world: &World| _ = world.get(ReadMode::Normal);
        let invalidate =
            |world: &World| world.change(|cache| _ = cache.invalidate(&key(KEY), LOGGED));
        let threads: Vec<Act> =
            vec![Box::new(cancelled), Box::new(client), Box::new(client), Box::new(invalidate)];
        run(&World::new(Config { reads_in_flight: 1, ..config() }), threads);
    });
}

/// Polls once and drops the waiter, with any result.
fn poll_once_and_drop(world: &World) {
    let mut waiter = match world.cache.lookup(&key(KEY), ReadMode::Normal, START) {
        Lookup::Coalesced(waiter) | Lookup::Miss(waiter) => waiter,
        _ => return,
    };
    cancelled_loader(world);
    thread::yield_now();
    let polled = Pin::new(&mut waiter).poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(Waited::Done(Ok(record))) = polled {
        world.give(0, &record);
    }
}

#[test]
fn a_leader_that_leaves_does_not_strand_other_waiters() {
    explore(|| {
        let client = |world: &World| _ = world.get(ReadMode::Normal);
        let threads: Vec<Act> = vec![
            Box::new(poll_once_and_drop),
            Box::new(poll_once_and_drop),
            Box::new(client),
            Box::new(client),
        ];
        run(&World::new(Config { reads_in_flight: 1, ..config() }), threads);
    });
}

/// A change of long ago that the feed applies and passes exactly while an entry is looked up: the
/// entry must not count as fresh by a watermark that was set after it was found.
fn overtaken_by(apply: fn(&TestCache)) {
    let world = World::new(config());
    let _ = world.get(ReadMode::Normal);
    let late = START.after(Duration::from_secs(3));
    world.row.store(1, SeqCst);
    let feed = move |world: &World| {
        apply(&world.cache);
        world.cache.advance(ONLY, Nanos(late.0 - 1), None);
    };
    // Requested 3 s after the change, which must be visible.
    let client = move |world: &World| _ = world.get_at(ReadMode::Normal, late, 1);
    run(&world, vec![Box::new(feed), Box::new(client)]);
}

#[test]
fn a_watermark_does_not_vouch_for_entries_found_before_it() {
    explore(|| overtaken_by(|cache| _ = cache.invalidate(&key(KEY), LOGGED)));
}

#[test]
fn a_new_feed_does_not_vouch_for_older_entries() {
    explore(|| overtaken_by(|cache| cache.mark_gap(ONLY, None)));
}
