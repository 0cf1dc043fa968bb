//! A circuit breaker with the cache whose reads it refuses.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hotrow_admission::breaker::{Config, State};
use hotrow_answer::http_error::HttpError;
use hotrow_cache::flight::Waited;
use hotrow_cache::{Lookup, LookupError, ReadMode};
use hotrow_measure::clock::Nanos;
use hotrow_source::{ReadFailure, SourceError};
use hotrow_types::key::{CollectionId, Key, KeyPart};

use crate::fuzzing::new_shared;
use crate::shared::Shared;

/// Returns a state whose breaker opens with the second failure and allows one probe.
fn shared() -> Shared {
    new_shared(Some(Config {
        failures: 2,
        window: Duration::from_secs(10),
        failure_rate: 1.0,
        calls_min: 100,
        open_for: Duration::from_secs(4),
        open_for_max: Duration::from_secs(4),
        probes: 1,
    }))
}

const START: Nanos = Nanos(1_000_000_000);

/// Ends a read in a time-out.
fn fail(shared: &Shared) {
    let read: Result<(), _> = Err(SourceError::Timeout { detail: String::new() });
    shared.fetcher.sources[0].breaker.ask(START).expect("let through").record(&read, START);
}

fn key(shared: &Shared, id: i64) -> Key {
    shared.collections.get(CollectionId(0)).schema.key(&[KeyPart::Integer(id)]).expect("a key")
}

#[test]
fn misses_and_queries_are_refused_alike_and_counted() {
    let shared = shared();
    (0..2).for_each(|_| fail(&shared));
    let later = START.after(Duration::from_millis(1500));
    assert_eq!(shared.fetcher.sources[0].breaker.state(later), State::Open);
    let Err(ReadFailure::CircuitOpen { retry_after_s }) =
        shared.fetcher.sources[0].breaker.ask(later)
    else {
        panic!("open")
    };
    assert!(
        (1..=3).contains(&retry_after_s),
        "half of 4 seconds at least, less 1.5: {retry_after_s}"
    );
    assert_eq!(
        shared.fetcher.sources[0].breaker.admit(3, later),
        Err(HttpError::CircuitOpen { retry_after_s })
    );
    assert_eq!(
        (
            shared.fetcher.sources[0].breaker.refused_total(),
            shared.fetcher.sources[0].breaker.transitions_total()
        ),
        (3, [0, 1, 0])
    );
    let due = START.after(Duration::from_secs(4));
    assert_eq!(shared.fetcher.sources[0].breaker.admit(3, due), Ok(()));
}

#[test]
fn a_cancelled_probe_returns_its_permit() {
    let shared = shared();
    (0..2).for_each(|_| fail(&shared));
    let due = START.after(Duration::from_secs(4));
    let probe = shared.fetcher.sources[0].breaker.ask(due).expect("a probe");
    assert!(
        shared.fetcher.sources[0].breaker.ask(due).is_err()
            && shared.fetcher.sources[0].breaker.refuses(due),
        "one at a time"
    );
    drop(probe);
    assert!(!shared.fetcher.sources[0].breaker.refuses(due));
    shared.fetcher.sources[0].breaker.ask(due).expect("the place is free").record(&Ok(()), due);
    assert_eq!(
        (
            shared.fetcher.sources[0].breaker.state(due),
            shared.fetcher.sources[0].breaker.transitions_total()
        ),
        (State::Closed, [1, 1, 1])
    );
}

#[test]
fn waiters_for_an_unsent_query_are_answered() {
    let shared = shared();
    let Lookup::Miss(waiter) = shared.cache.lookup(&key(&shared, 1), ReadMode::Normal, START)
    else {
        panic!("cold")
    };
    let mut waiter = pin!(waiter);
    let mut poll = || waiter.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    fail(&shared);
    assert!(poll().is_pending());
    fail(&shared);
    let left_alone = |waited| {
        matches!(
            waited,
            Poll::Ready(Waited::Done(Err(LookupError::Source(ReadFailure::CircuitOpen {
                retry_after_s: 1..=4
            }))))
        )
    };
    assert!(left_alone(poll()));
    assert_eq!(shared.fetcher.sources[0].breaker.refused_total(), 1);
    assert!(shared.cache.batch_loader(CollectionId(0)).is_none(), "nothing is left to send");
}

#[test]
fn without_a_breaker_nothing_is_refused() {
    let shared = new_shared(None);
    (0..1000).for_each(|_| fail(&shared));
    assert_eq!(
        (
            shared.fetcher.sources[0].breaker.state(START),
            shared.fetcher.sources[0].breaker.refuses(START)
        ),
        (State::Closed, false)
    );
}
