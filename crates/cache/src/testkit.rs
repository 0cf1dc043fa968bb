//! What the tests of this crate share: small caches, keys, answers, and a waker that counts.

// The schedules use a part of it.
#![cfg_attr(feature = "shuttle", allow(dead_code))]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hotrow_admit::concurrency::queue;
use hotrow_measure::clock::Nanos;

use crate::config::{CollectionConfig, Config, Upkeep, WhenStale};
use crate::flight::{Waited, Waiter};
use crate::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use crate::version::{Mark, Position, Version};
use crate::{Answers, Cache, Fetched, Lookup};

/// The source's error in tests.
pub(crate) type Broken = &'static str;
pub(crate) type TestCache = Arc<Cache<Broken>>;

/// The first collection.
pub(crate) const FIRST: CollectionId = CollectionId(0);
/// A time at which the feed of [`cache`] is current.
pub(crate) const START: Nanos = ms(1_000_000);

/// The mark of a change in a log whose order is the order of visibility.
pub(crate) const LOGGED: Mark = Mark::Log(Position { incarnation: 1, at: 1 });

pub(crate) const fn ms(n: u64) -> Nanos {
    Nanos(n * 1_000_000)
}

pub(crate) fn config() -> Config {
    Config {
        enabled: true,
        capacity_bytes: 1 << 20,
        negative_share: 0.1,
        entry_bytes_estimate: 100,
        upkeep: Upkeep::Feed,
        refresh_hot: false,
        isolate_scans: true,
        max_staleness: Duration::from_secs(1),
        when_stale: WhenStale::Bypass,
        ttl_jitter: 0.0,
        error_ttl: Duration::from_millis(500),
        stale_while_revalidate: Duration::ZERO,
        stale_if_error: Duration::ZERO,
        reads_in_flight: 2,
        query_keys: 10,
        query_bytes: 1000,
        waiting_keys: 100,
        queue: queue::Config {
            adaptive: true,
            target: Duration::from_millis(100),
            interval: Duration::from_millis(500),
            query_target: Duration::from_millis(100),
        },
        seed: 7,
    }
}

/// Two collections with TTLs of 60 s, and of 10 s for what is missing; the feed has just reported.
pub(crate) fn cache(config: Config) -> TestCache {
    let own = CollectionConfig { ttl: Duration::from_secs(60), negative_ttl: Duration::from_secs(10) };
    let cache = Cache::new(config, vec![own.clone(), own]);
    cache.advance(START, None);
    cache
}

pub(crate) fn key(id: i64) -> Key {
    key_of(FIRST, id)
}

pub(crate) fn key_of(collection: CollectionId, id: i64) -> Key {
    KeySchema::new(collection, vec![KeyType::Integer]).key(&[KeyPart::Integer(id)]).unwrap()
}

pub(crate) fn log(at: u64) -> Version {
    Version::Log(Position { incarnation: 1, at })
}

/// The same row, `at`, for each of `keys` keys, read at the log's point `at`.
pub(crate) fn answers(at: u64, keys: usize) -> Result<Answers<Broken>, Broken> {
    let rows = (0..keys).map(|_| Fetched::Found(at.to_string().into_bytes())).collect();
    Ok(Answers { version: log(at), position: Some(Position { incarnation: 1, at }), rows })
}

pub(crate) fn missing(at: u64, keys: usize) -> Result<Answers<Broken>, Broken> {
    let rows = (0..keys).map(|_| Fetched::Missing).collect();
    Ok(Answers { version: log(at), position: Some(Position { incarnation: 1, at }), rows })
}

/// The waiter of a lookup that has to wait.
pub(crate) fn waiter(lookup: Lookup<Broken>) -> Waiter<Broken> {
    match lookup {
        Lookup::Wait(waiter) | Lookup::Fill(waiter) | Lookup::Bypass(waiter) => waiter,
        other => panic!("nothing to wait for: {other:?}"),
    }
}

/// Counts how often it was woken.
#[derive(Default)]
pub(crate) struct Bell(AtomicUsize);

impl Bell {
    pub(crate) fn rings(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls once.
pub(crate) fn poll(waiter: &mut Waiter<Broken>) -> Option<Waited<Broken>> {
    poll_with(waiter, &Arc::default())
}

pub(crate) fn poll_with(waiter: &mut Waiter<Broken>, bell: &Arc<Bell>) -> Option<Waited<Broken>> {
    let waker = Waker::from(bell.clone());
    match Pin::new(waiter).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(waited) => Some(waited),
        Poll::Pending => None,
    }
}

/// The body that a finished waiter got, as the log's point that [`answers`] put there; `None` for a missing row.
pub(crate) fn body(waited: Option<Waited<Broken>>) -> Option<u64> {
    match waited {
        Some(Waited::Done(Ok(record))) => std::str::from_utf8(record.body()).unwrap().parse().ok(),
        other => panic!("no answer: {other:?}"),
    }
}
