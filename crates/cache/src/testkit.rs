//! Test kit of this crate: small caches, keys, answers, and a waker that counts.

// The schedules use only some of it.
#![cfg_attr(feature = "shuttle", allow(dead_code))]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hotrow_admission::concurrency::queue;
use hotrow_measure::clock::Nanos;

use crate::config::{CollectionPolicy, Config};
use crate::flight::{Waited, Waiter};
use crate::record::{Epoch, Owner, RecordParts, Visibility};
use crate::{Answers, Cache, Fetched, Lookup, Record};
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Position, Version};

/// The source's error in tests.
pub(crate) type TestError = &'static str;
pub(crate) type TestCache = Arc<Cache<TestError>>;

/// The first collection.
pub(crate) const FIRST: CollectionId = CollectionId(0);
/// Its source.
pub(crate) const ONLY: SourceId = SourceId::FIRST;
/// A time at which the feed of [`cache`] is current.
pub(crate) const START: Nanos = ms(1_000_000);

/// Change id of a log whose order is the order of visibility.
pub(crate) const LOGGED: ChangeId = ChangeId::Log(Position { incarnation: 1, at: 1 });

pub(crate) const fn ms(n: u64) -> Nanos {
    Nanos(n * 1_000_000)
}

pub(crate) fn config() -> Config {
    Config {
        error_ttl: Duration::from_millis(500),
        reads_in_flight: 2,
        query_bytes: 1000,
        waiting_keys: 100,
        queue: queue::Config {
            adaptive: true,
            target: Duration::from_millis(100),
            interval: Duration::from_millis(500),
            query_target: Duration::from_millis(100),
        },
        seed: 7,
        ..Config::small(1 << 20)
    }
}

/// Returns a cache of two collections with TTLs of 60 s, and of 10 s for missing records; the feed
/// has just reported.
pub(crate) fn cache(config: Config) -> TestCache {
    cache_of(config, false)
}

/// Returns the same cache, with or without tenants in both collections.
pub(crate) fn cache_of(config: Config, has_tenants: bool) -> TestCache {
    let [ttl, negative_ttl] = [60, 10].map(Duration::from_secs);
    let own = CollectionPolicy { ttl, negative_ttl, has_tenants, has_views: false };
    let cache = Cache::new(config, vec![own.clone(), own]);
    cache.advance(ONLY, START, None);
    cache
}

/// Returns the parts of a record of everybody, read completely at [`START`], which nothing expires.
pub(crate) fn parts<'a>(
    key: &'a Key,
    body: Option<&'a [u8]>,
    version: &'a Version,
) -> RecordParts<'a> {
    RecordParts {
        key,
        body,
        owner: Owner::Everybody,
        has_views: false,
        read_at: START,
        expires_at: Nanos::MAX,
        version,
        position: None,
        visibility: Visibility::Complete,
        epoch: Epoch { feed: 0, flush: 0 },
    }
}

/// Returns such a record, read at the log's point 1.
pub(crate) fn record_of(key: &Key, body: Option<&[u8]>) -> Record {
    let position = Some(Position { incarnation: 1, at: 1 });
    Record::new(&RecordParts { position, ..parts(key, body, &log(1)) })
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

/// Returns the same row, `at`, for each of `keys` keys, read at the log's point `at`.
pub(crate) fn answers(at: u64, keys: usize) -> Result<Answers<TestError>, TestError> {
    let rows = (0..keys).map(|_| Fetched::Found(at.to_string().into_bytes())).collect();
    Ok(Answers { version: log(at), position: Some(Position { incarnation: 1, at }), rows })
}

pub(crate) fn missing(at: u64, keys: usize) -> Result<Answers<TestError>, TestError> {
    let rows = (0..keys).map(|_| Fetched::Missing).collect();
    Ok(Answers { version: log(at), position: Some(Position { incarnation: 1, at }), rows })
}

/// Returns the waiter of a lookup that has to wait.
pub(crate) fn waiter(lookup: Lookup<TestError>) -> Waiter<TestError> {
    match lookup {
        Lookup::Coalesced(waiter) | Lookup::Miss(waiter) | Lookup::Bypass(waiter) => waiter,
        other => panic!("nothing to wait for: {other:?}"),
    }
}

/// Counter of wake-ups.
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
pub(crate) fn poll(waiter: &mut Waiter<TestError>) -> Option<Waited<TestError>> {
    poll_with(waiter, &Arc::default())
}

pub(crate) fn poll_with(
    waiter: &mut Waiter<TestError>,
    bell: &Arc<Bell>,
) -> Option<Waited<TestError>> {
    let waker = Waker::from(bell.clone());
    match Pin::new(waiter).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(waited) => Some(waited),
        Poll::Pending => None,
    }
}

/// Returns the body that a finished waiter got, as the log's point that [`answers`] put there;
/// `None` for a missing row.
pub(crate) fn body(waited: Option<Waited<TestError>>) -> Option<u64> {
    match waited {
        Some(Waited::Done(Ok(record))) => std::str::from_utf8(record.body()).unwrap().parse().ok(),
        other => panic!("no answer: {other:?}"),
    }
}
