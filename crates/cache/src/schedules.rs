//! Schedules of threads, explored by shuttle: lookups, fills, changes, evictions, flushes, losses, new reads, and turns
//! and waiters that are dropped. Every answer is held to what was answered and taken in before it was asked for; a
//! waiter that is never woken is a deadlock, which shuttle reports.

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
use crate::flight::{Failure, Waited, Waiter};
use crate::testkit::{Broken, FIRST, LOGGED, START, TestCache, answers, cache, config, key};
use crate::{Lookup, Record, Wish};

/// Schedules per scenario and scheduler.
const SCHEDULES: usize = 3000;
/// Points at which the second scheduler forces another thread.
const DEPTH: usize = 4;
const KEY: i64 = 1;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, DEPTH);
}

/// What one thread does.
type Act = Box<dyn FnOnce(&World) + Send>;

/// One row in a database, its cache, and what clients know. The row's version is the log's point.
struct World {
    cache: TestCache,
    row: AtomicU64,
    /// The newest version that was answered, and the newest change that was taken in: no step of a schedule.
    answered: std::sync::atomic::AtomicU64,
    taken_in: std::sync::atomic::AtomicU64,
}

impl World {
    fn new(config: Config) -> Arc<Self> {
        let zero = || std::sync::atomic::AtomicU64::new(0);
        Arc::new(Self { cache: cache(config), row: AtomicU64::new(0), answered: zero(), taken_in: zero() })
    }

    /// The version that a request of now must see at least.
    fn floor(&self) -> u64 {
        self.answered.load(SeqCst).max(self.taken_in.load(SeqCst))
    }

    fn give(&self, floor: u64, record: &Record) -> u64 {
        let version: u64 = std::str::from_utf8(record.body()).unwrap().parse().unwrap();
        assert!(version >= floor, "got {version} after {floor}");
        self.answered.fetch_max(version, SeqCst);
        version
    }

    /// A whole request; `None` when the read was abandoned.
    fn get(&self, wish: Wish) -> Option<u64> {
        self.get_at(wish, START, self.floor())
    }

    fn get_at(&self, wish: Wish, now: Nanos, floor: u64) -> Option<u64> {
        let waiter = match self.cache.lookup(&key(KEY), wish, now) {
            Lookup::Hit(record, _) => return Some(self.give(floor, &record)),
            Lookup::Wait(waiter) => waiter,
            Lookup::Fill(waiter) | Lookup::Bypass(waiter) => {
                self.lead();
                waiter
            }
            other => panic!("{other:?}"),
        };
        self.wait(waiter).map(|record| self.give(floor, &record))
    }

    fn wait(&self, mut waiter: Waiter<Broken>) -> Option<Record> {
        loop {
            match block_on(&mut waiter) {
                Waited::Done(Ok(record)) => return Some(record),
                Waited::Done(Err(failure)) => {
                    assert_eq!(failure, Failure::Abandoned);
                    return None;
                }
                Waited::Lead => self.lead(),
            }
        }
    }

    fn lead(&self) {
        let Some(mut turn) = self.cache.turn(FIRST) else { return };
        while let Some(keys) = turn.next_query(START) {
            let row = self.row.load(SeqCst);
            turn.complete(answers(row, keys.len()), START);
        }
    }

    /// A commit, and then the feed's word of it.
    fn change(&self, take_in: impl Fn(&TestCache)) {
        let version = self.row.fetch_add(1, SeqCst) + 1;
        take_in(&self.cache);
        self.taken_in.fetch_max(version, SeqCst);
    }

    /// Nothing is left, and the cache agrees with the database.
    fn settle(&self) {
        assert_eq!(self.get(Wish::Any), Some(self.row.load(SeqCst)));
        let stats = self.cache.stats(FIRST);
        assert_eq!((stats.waiting_keys, stats.queries_in_flight), (0, 0));
        assert!(self.cache.collection(FIRST).0.desk.lock().current.is_empty());
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

fn reads(n: usize, wish: Wish) -> Act {
    Box::new(move |world| (0..n).for_each(|_| assert!(world.get(wish).is_some())))
}

#[test]
fn reads_and_changes() {
    explore(|| {
        let invalidate =
            |world: &World| (0..2).for_each(|_| world.change(|cache| _ = cache.invalidate(&key(KEY), LOGGED)));
        run(&World::new(config()), vec![reads(2, Wish::Any), reads(2, Wish::Any), Box::new(invalidate)]);
    });
}

#[test]
fn new_reads_between_reads_and_changes() {
    explore(|| {
        let invalidate = |world: &World| world.change(|cache| _ = cache.invalidate(&key(KEY), LOGGED));
        let threads = vec![reads(2, Wish::Any), reads(2, Wish::New), reads(1, Wish::New), Box::new(invalidate) as _];
        run(&World::new(Config { reads_in_flight: 3, ..config() }), threads);
    });
}

#[test]
fn flushes_losses_and_purges() {
    explore(|| {
        let feed = |world: &World| {
            world.change(|cache| cache.flush(FIRST, None));
            world.change(|cache| {
                cache.lose(None);
                cache.lose(None);
            });
        };
        let purge = |world: &World| _ = world.cache.purge(&key(KEY));
        let threads = vec![reads(2, Wish::Any), reads(2, Wish::Any), Box::new(feed) as _, Box::new(purge) as _];
        run(&World::new(config()), threads);
    });
}

#[test]
fn evictions_between_reads_and_changes() {
    explore(|| {
        let world = World::new(Config { capacity_bytes: 450, ..config() });
        let others = |world: &World| {
            for id in 2..5 {
                let Lookup::Fill(waiter) = world.cache.lookup(&key(id), Wish::Any, START) else { continue };
                world.lead();
                assert!(world.wait(waiter).is_some());
            }
        };
        let invalidate = |world: &World| world.change(|cache| _ = cache.invalidate(&key(KEY), LOGGED));
        run(&world, vec![reads(3, Wish::Any), Box::new(others), Box::new(invalidate)]);
    });
}

/// Takes a turn and is cancelled before, during or after its query.
fn cancelled_turn(world: &World) {
    let Some(mut turn) = world.cache.turn(FIRST) else { return };
    let Some(keys) = turn.next_query(START) else { return };
    let row = world.row.load(SeqCst);
    if row.is_multiple_of(2) {
        return;
    }
    turn.complete(answers(row, keys.len()), START);
}

#[test]
fn a_dropped_turn_leaves_nobody_waiting() {
    explore(|| {
        let cancelled = |world: &World| {
            let waiter = match world.cache.lookup(&key(KEY), Wish::Any, START) {
                Lookup::Wait(waiter) | Lookup::Fill(waiter) => waiter,
                _ => return,
            };
            cancelled_turn(world);
            drop(waiter);
        };
        let client = |world: &World| _ = world.get(Wish::Any);
        let invalidate = |world: &World| world.change(|cache| _ = cache.invalidate(&key(KEY), LOGGED));
        let threads: Vec<Act> = vec![Box::new(cancelled), Box::new(client), Box::new(client), Box::new(invalidate)];
        run(&World::new(Config { reads_in_flight: 1, ..config() }), threads);
    });
}

/// Polls once and gives up, whatever it was told.
fn impatient(world: &World) {
    let mut waiter = match world.cache.lookup(&key(KEY), Wish::Any, START) {
        Lookup::Wait(waiter) | Lookup::Fill(waiter) => waiter,
        _ => return,
    };
    cancelled_turn(world);
    thread::yield_now();
    let told = Pin::new(&mut waiter).poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(Waited::Done(Ok(record))) = told {
        world.give(0, &record);
    }
}

#[test]
fn one_who_leaves_when_told_to_lead_leaves_nobody_waiting() {
    explore(|| {
        let client = |world: &World| _ = world.get(Wish::Any);
        let threads: Vec<Act> = vec![Box::new(impatient), Box::new(impatient), Box::new(client), Box::new(client)];
        run(&World::new(Config { reads_in_flight: 1, ..config() }), threads);
    });
}

/// A change of long ago that the feed takes in and passes just while an entry is looked up: the entry may not be taken
/// for fresh on the word of a watermark that was set after it was found.
fn overtaken_by(take_in: fn(&TestCache)) {
    let world = World::new(config());
    let _ = world.get(Wish::Any);
    let late = START.after(Duration::from_secs(3));
    world.row.store(1, SeqCst);
    let feed = move |world: &World| {
        take_in(&world.cache);
        world.cache.advance(Nanos(late.0 - 1), None);
    };
    // Asked for 3 s after the change: it must be seen.
    let client = move |world: &World| _ = world.get_at(Wish::Any, late, 1);
    run(&world, vec![Box::new(feed), Box::new(client)]);
}

#[test]
fn a_watermark_vouches_for_no_entry_that_was_found_before_it() {
    explore(|| overtaken_by(|cache| _ = cache.invalidate(&key(KEY), LOGGED)));
}

#[test]
fn a_new_feed_vouches_for_no_entry_of_the_old_one() {
    explore(|| overtaken_by(|cache| cache.lose(None)));
}
