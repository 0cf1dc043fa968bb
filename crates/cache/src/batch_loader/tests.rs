//! Merging, single flight and handing over: queries to the database, and results of the waiters.

use super::fills::jittered;
use super::*;
use crate::config::Config;
use crate::flight::{ATTEMPTS_MAX, Waited, Waiter};
use crate::testkit::*;
use crate::{Freshness, Lookup, LookupError, ReadMode};

mod refused;

pub(super) fn ask(cache: &TestCache, id: i64) -> Waiter<TestError> {
    waiter(cache.lookup(&key(id), ReadMode::Normal, START))
}

pub(super) fn ask_batch(cache: &TestCache, ids: std::ops::Range<i64>) -> Vec<Waiter<TestError>> {
    let keys: Vec<Key> = ids.map(key).collect();
    cache.lookup_batch(&keys, ReadMode::Normal, START).into_iter().map(waiter).collect()
}

/// Returns the ids of the loader's next query.
pub(super) fn query(loader: &mut BatchLoader<TestError>) -> Option<Vec<i64>> {
    let id = |key: Key| match key.parts().next() {
        Some(hotrow_types::key::KeyPart::Integer(id)) => id,
        other => panic!("{other:?}"),
    };
    Some(loader.next_batch(START)?.into_iter().map(id).collect())
}

/// Asserts that no read has left anything behind.
pub(super) fn assert_idle(cache: &TestCache) {
    let collection = cache.collection(FIRST).0;
    let stats = cache.stats(FIRST);
    assert!(collection.fetch_queue.lock().in_flight.is_empty(), "flights left on the table");
    assert_eq!((stats.waiting_keys, stats.queries_in_flight), (0, 0));
}

#[test]
fn the_first_key_is_read_alone_and_later_ones_together() {
    let cache = cache(config());
    let mut first = ask(&cache, 1);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1]));
    assert!(cache.batch_loader(FIRST).is_none(), "nothing waits yet");
    let mut later: Vec<_> = (2..5).map(|id| ask(&cache, id)).collect();
    // The second permitted query takes the waiting keys; then no more loaders are granted.
    let mut second = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut second), Some(vec![2, 3, 4]));
    let mut last: Vec<_> = (5..8).map(|id| ask(&cache, id)).collect();
    assert!(cache.batch_loader(FIRST).is_none(), "reads_in_flight");
    loader.complete(answers(9, 1), START);
    assert_eq!(body(poll(&mut first)), Some(9));
    assert_eq!(query(&mut loader), Some(vec![5, 6, 7]));
    loader.complete(answers(10, 3), START);
    second.complete(answers(11, 3), START);
    assert!(query(&mut loader).is_none() && query(&mut second).is_none());
    assert!(
        later.iter_mut().all(|w| body(poll(w)) == Some(11))
            && last.iter_mut().all(|w| body(poll(w)) == Some(10))
    );
    assert_idle(&cache);
    let stats = cache.stats(FIRST);
    assert_eq!((stats.queries_total, stats.batch_keys_total, stats.fills_total), (3, 7, 7));
    assert_eq!(stats.query_keys, [1, 2, 0, 0, 0, 0, 0]);
}

#[test]
fn a_thousand_requests_for_a_cold_key_cause_one_read() {
    let cache = cache(config());
    let mut waiters: Vec<_> = (0..1000).map(|_| ask(&cache, 1)).collect();
    let bell = Arc::default();
    assert!(waiters.iter_mut().all(|w| poll_with(w, &bell).is_none()));
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1]));
    waiters.extend((0..1000).map(|_| ask(&cache, 1)));
    loader.complete(answers(3, 1), START);
    assert_eq!(bell.rings(), 1000);
    assert!(waiters.iter_mut().all(|w| body(poll(w)) == Some(3)));
    assert!(query(&mut loader).is_none());
    assert!(matches!(
        cache.lookup(&key(1), ReadMode::Normal, START),
        Lookup::Hit(_, Freshness::Fresh)
    ));
    let stats = cache.stats(FIRST);
    assert_eq!((stats.queries_total, stats.batch_keys_total, stats.coalesced_total), (1, 1, 1999));
    assert_idle(&cache);
}

#[test]
fn queries_are_bounded_in_keys_and_bytes_and_split_no_batch_that_fits() {
    // An integer key is 11 bytes.
    type Batches = &'static [std::ops::Range<i64>];
    let cases: [(&str, Config, Batches, &[usize]); 6] = [
        ("keys", Config { query_keys: 4, ..config() }, &[0..1, 1..2, 2..3, 3..4, 4..5], &[4, 1]),
        ("bytes", Config { query_bytes: 35, ..config() }, &[0..1, 1..2, 2..3, 3..4, 4..5], &[3, 2]),
        ("a batch, by keys", Config { query_keys: 4, ..config() }, &[0..2, 2..5, 5..6], &[2, 4]),
        ("a batch, by bytes", Config { query_bytes: 44, ..config() }, &[0..2, 2..5, 5..6], &[2, 4]),
        (
            "a batch too large for any",
            Config { query_keys: 4, ..config() },
            &[0..1, 1..11],
            &[1, 4, 4, 2],
        ),
        ("one key too large", Config { query_bytes: 5, ..config() }, &[0..1, 1..2], &[1, 1]),
    ];
    for (name, config, batches, want) in cases {
        let cache = cache(config);
        let waiters: Vec<_> = batches.iter().map(|ids| ask_batch(&cache, ids.clone())).collect();
        let mut loader = cache.batch_loader(FIRST).unwrap();
        let mut sizes = Vec::new();
        while let Some(ids) = query(&mut loader) {
            sizes.push(ids.len());
            loader.complete(answers(1, ids.len()), START);
        }
        assert_eq!(sizes, want, "{name}");
        assert!(waiters.into_iter().flatten().all(|mut w| body(poll(&mut w)) == Some(1)), "{name}");
        assert_idle(&cache);
    }
}

#[test]
fn batch_answers_keep_the_order_of_the_keys() {
    let cache = cache(config());
    let loader_of = |id: i64, at: u64| {
        let _waiter = ask(&cache, id);
        let mut loader = cache.batch_loader(FIRST).unwrap();
        query(&mut loader).unwrap();
        loader.complete(if at == 0 { missing(1, 1) } else { answers(at, 1) }, START);
        assert!(query(&mut loader).is_none());
    };
    loader_of(1, 7);
    loader_of(3, 0);
    let _reading = ask(&cache, 4);
    let keys: Vec<Key> = (1..6).map(key).collect();
    let got = cache.lookup_batch(&keys, ReadMode::Normal, START);
    let kinds: Vec<_> =
        got.iter().map(|l| format!("{l:?}").split('(').next().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["Hit", "Miss", "Negative", "Coalesced", "Miss"]);
}

#[test]
fn waiting_keys_are_bounded_and_a_batch_is_queued_completely_or_not() {
    let cache = cache(Config { waiting_keys: 5, ..config() });
    let waiting = ask_batch(&cache, 0..4);
    let keys: Vec<Key> = (10..12).map(key).collect();
    assert!(
        cache
            .lookup_batch(&keys, ReadMode::Normal, START)
            .iter()
            .all(|l| matches!(l, Lookup::Refused(LookupError::QueueFull)))
    );
    let fifth = ask(&cache, 4);
    assert!(matches!(
        cache.lookup(&key(5), ReadMode::Normal, START),
        Lookup::Refused(LookupError::QueueFull)
    ));
    assert!(
        matches!(cache.lookup(&key(0), ReadMode::Normal, START), Lookup::Coalesced(_)),
        "joining needs no room"
    );
    assert_eq!(cache.stats(FIRST).refused_total, 3);
    assert_eq!(cache.stats(FIRST).waiting_keys, 5);
    drop((waiting, fifth));
}

#[test]
fn keys_without_waiters_are_not_read() {
    let cache = cache(config());
    let gone = ask(&cache, 1);
    let mut stays = ask(&cache, 2);
    drop(gone);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![2]));
    loader.complete(answers(1, 1), START);
    assert_eq!(body(poll(&mut stays)), Some(1));
    drop(ask(&cache, 3));
    assert_eq!(query(&mut loader), None, "no empty query either");
    assert_idle(&cache);
}

#[test]
fn departed_waiters_do_not_accumulate_slots() {
    let cache = cache(config());
    let mut first = ask(&cache, 1);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    query(&mut loader).unwrap();
    for _ in 0..1000 {
        assert!(poll(&mut ask(&cache, 1)).is_none());
    }
    let flight = cache.collection(FIRST).0.fetch_queue.lock().in_flight[&key(1)].clone();
    assert!(flight.slots() <= 2, "{} slots for one waiter", flight.slots());
    let bell = Arc::default();
    assert!(poll_with(&mut first, &bell).is_none());
    let mut second = ask(&cache, 1);
    assert!(poll_with(&mut second, &bell).is_none());
    loader.complete(answers(1, 1), START);
    assert_eq!(bell.rings(), 2);
}

#[test]
fn a_row_fails_alone_and_missing_rows_count_as_failed() {
    let cache = cache(config());
    let mut waiters = ask_batch(&cache, 0..4);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    query(&mut loader).unwrap();
    let rows = vec![Fetched::Found(b"5".to_vec()), Fetched::Failed("bad"), Fetched::Missing];
    loader.complete(Ok(Answers { version: log(5), position: None, rows }), START);
    assert_eq!(body(poll(&mut waiters[0])), Some(5));
    assert!(matches!(poll(&mut waiters[1]), Some(Waited::Done(Err(LookupError::Source("bad"))))));
    assert_eq!(body(poll(&mut waiters[2])), None);
    assert!(matches!(poll(&mut waiters[3]), Some(Waited::Done(Err(LookupError::Abandoned)))));
    assert_eq!(cache.stats(FIRST).failed_keys_total, 2);
    assert!(query(&mut loader).is_none());
    assert_idle(&cache);
}

#[test]
fn an_error_is_shared_by_all_waiters_and_kept_for_error_ttl() {
    let cache = cache(config());
    let mut waiters = [ask(&cache, 1), ask(&cache, 1)];
    let mut loader = cache.batch_loader(FIRST).unwrap();
    query(&mut loader).unwrap();
    loader.complete(Err("down"), START);
    assert!(query(&mut loader).is_none());
    assert!(
        waiters
            .iter_mut()
            .all(|w| matches!(poll(w), Some(Waited::Done(Err(LookupError::Source("down"))))))
    );
    let at =
        |ms: u64| cache.lookup(&key(1), ReadMode::Normal, START.after(Duration::from_millis(ms)));
    assert!(matches!(at(0), Lookup::Refused(LookupError::Source("down"))));
    assert!(matches!(at(499), Lookup::Refused(LookupError::Source(_))));
    assert!(matches!(at(500), Lookup::Miss(_)));
    // A change makes the past error meaningless.
    let cache = self::cache(config());
    let _waiter = ask(&cache, 1);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    query(&mut loader).unwrap();
    loader.complete(Err("down"), START);
    cache.invalidate(&key(1), LOGGED);
    assert!(matches!(cache.lookup(&key(1), ReadMode::Normal, START), Lookup::Miss(_)));
}

#[test]
fn uncacheable_answers_reach_all_waiters_and_are_not_kept() {
    let cache = cache(config());
    for (row, seen) in [(Some(b"7".to_vec()), Some(7)), (None, None)] {
        let mut waiters = [ask(&cache, 1), ask(&cache, 1)];
        let mut loader = cache.batch_loader(FIRST).unwrap();
        query(&mut loader).unwrap();
        loader.complete(
            Ok(Answers { version: log(7), position: None, rows: vec![Fetched::Uncacheable(row)] }),
            START,
        );
        assert!(waiters.iter_mut().all(|waiter| {
            let Some(Waited::Done(Ok(record))) = poll(waiter) else { return false };
            record.body() == seen.map_or(String::new(), |n: u64| n.to_string()).as_bytes()
        }));
        assert!(cache.peek(&key(1), START).is_none());
    }
    assert_eq!(cache.stats(FIRST).fills_discarded_total, 0);
}

#[test]
fn remembered_failures_are_bounded() {
    let cache = cache(Config {
        waiting_keys: 10_000,
        query_keys: 10_000,
        query_bytes: 1 << 20,
        ..config()
    });
    let waiters = ask_batch(&cache, 0..5000);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader).unwrap().len(), 5000);
    loader.complete(Err("down"), START);
    drop(waiters);
    let refused = |id: &i64| {
        matches!(
            cache.lookup(&key(*id), ReadMode::Normal, START),
            Lookup::Refused(LookupError::Source(_))
        )
    };
    assert_eq!((0..5000).filter(refused).count(), 1024);
}

#[test]
fn cancelled_loaders_call_a_waiter_to_lead_until_the_attempts_end() {
    let cache = cache(config());
    let mut waiters: Vec<_> = (0..3).map(|_| ask(&cache, 1)).collect();
    for attempt in 1..ATTEMPTS_MAX {
        let bell = Arc::default();
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(query(&mut loader), Some(vec![1]), "attempt {attempt}");
        assert!(waiters.iter_mut().all(|w| poll_with(w, &bell).is_none()));
        drop(loader);
        assert_eq!(bell.rings(), 3);
        let called: Vec<_> = waiters.iter_mut().map(poll).collect();
        assert!(matches!(called[..], [Some(Waited::Lead), None, None]), "{called:?}");
        assert!(
            matches!(cache.lookup(&key(1), ReadMode::Normal, START), Lookup::Coalesced(_)),
            "one flight, as before"
        );
    }
    let mut loader = cache.batch_loader(FIRST).unwrap();
    query(&mut loader).unwrap();
    drop(loader);
    assert!(
        waiters
            .iter_mut()
            .all(|w| matches!(poll(w), Some(Waited::Done(Err(LookupError::Abandoned)))))
    );
    assert!(cache.batch_loader(FIRST).is_none());
    assert_idle(&cache);
}

#[test]
fn the_next_leader_finishes_a_cancelled_leaders_read() {
    let cache = cache(config());
    let mut waiters = [ask(&cache, 1), ask(&cache, 2)];
    let mut loader = cache.batch_loader(FIRST).unwrap();
    query(&mut loader).unwrap();
    let mut third = ask(&cache, 3);
    drop(loader);
    assert!(matches!(poll(&mut third), Some(Waited::Lead)), "any waiter may lead");
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1, 2, 3]), "those of before come first");
    loader.complete(answers(4, 3), START);
    assert!(waiters.iter_mut().chain([&mut third]).all(|w| body(poll(w)) == Some(4)));
    assert!(query(&mut loader).is_none());
    assert_idle(&cache);
}

#[test]
fn a_leader_that_leaves_is_replaced() {
    let cache = cache(config());
    let mut called = ask(&cache, 1);
    let mut other = ask(&cache, 1);
    let bell = Arc::default();
    drop(cache.batch_loader(FIRST).unwrap());
    assert!(matches!(poll(&mut called), Some(Waited::Lead)));
    assert!(poll_with(&mut other, &bell).is_none());
    drop(called);
    assert_eq!(bell.rings(), 1, "no other waiter would lead");
    assert!(matches!(poll(&mut other), Some(Waited::Lead)));
}

#[test]
fn a_queued_read_without_a_leader_is_led_by_its_waiter() {
    let cache = cache(config());
    let _failed = ask(&cache, 9);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    query(&mut loader).unwrap();
    loader.complete(Err("down"), START);
    assert_eq!(query(&mut loader), None);
    // A batch with one recently failed key is refused as a whole, and leads nothing.
    let batch = cache.lookup_batch(&[key(1), key(9)], ReadMode::Normal, START);
    assert!(
        matches!(batch[..], [Lookup::Miss(_), Lookup::Refused(LookupError::Source(_))]),
        "{batch:?}"
    );
    drop(batch);
    let mut alone = ask(&cache, 1);
    assert!(matches!(poll(&mut alone), Some(Waited::Lead)));
    assert!(poll(&mut ask(&cache, 1)).is_none(), "one leads");
    // A second request has joined before the first one leaves.
    let first = ask(&cache, 2);
    let mut joined = ask(&cache, 2);
    let bell = Arc::default();
    assert!(poll_with(&mut joined, &bell).is_none());
    drop(first);
    assert_eq!(bell.rings(), 1);
    assert!(matches!(poll(&mut joined), Some(Waited::Lead)));
    // A refresh without a leader.
    assert!(cache.refresh(&key(3)));
    let mut served = ask(&cache, 3);
    assert!(matches!(poll(&mut served), Some(Waited::Lead)));
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1, 2, 3]));
    loader.complete(answers(1, 3), START);
    assert!([alone, joined, served].iter_mut().all(|waiter| body(poll(waiter)) == Some(1)));
    assert_eq!(query(&mut loader), None);
    assert_idle(&cache);
}

#[test]
fn a_cancelled_read_without_waiters_ends() {
    let cache = cache(config());
    let waiter = ask(&cache, 1);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    query(&mut loader).unwrap();
    drop(waiter);
    drop(loader);
    assert_idle(&cache);
}

#[test]
fn an_uncompleted_query_is_handed_over_by_the_next() {
    let cache = cache(config());
    let mut waiter = ask(&cache, 1);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1]));
    assert_eq!(query(&mut loader), Some(vec![1]), "not completed");
    loader.complete(answers(2, 1), START);
    assert_eq!(body(poll(&mut waiter)), Some(2));
    assert!(query(&mut loader).is_none());
    assert_idle(&cache);
}

#[test]
fn without_the_cache_requests_share_a_query_but_nothing_is_kept() {
    let cache = cache(Config { enabled: false, ..config() });
    let mut waiters = [ask(&cache, 1), ask(&cache, 1), ask(&cache, 2)];
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1, 2]), "a source never sees a key twice in a query");
    let late = cache.lookup(&key(1), ReadMode::Normal, START);
    assert!(matches!(late, Lookup::Bypass(_)), "never joined once it has begun");
    // After the handover they still have no waiters.
    drop(loader);
    assert!(matches!(poll(&mut waiters[0]), Some(Waited::Lead)));
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1, 2]));
    loader.complete(answers(3, 2), START);
    assert!(waiters.iter_mut().chain([&mut waiter(late)]).all(|w| body(poll(w)) == Some(3)));
    assert!(query(&mut loader).is_none());
    assert_eq!(cache.stats(FIRST).entries, 0);
    assert_eq!(cache.stats(FIRST).fills_discarded_total, 0);
    assert_idle(&cache);
}

#[test]
fn a_query_reports_what_became_of_its_rows() {
    let cache = cache(config());
    let mut waiters = ask_batch(&cache, 1..3);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![1, 2]));
    // A change of one key ends its lease.
    cache.invalidate(&key(2), LOGGED);
    loader.complete(answers(3, 2), START);
    assert_eq!(loader.fills(), Fills { kept: 1, discarded: 1, ..Fills::default() });
    waiters.iter_mut().for_each(|waiter| _ = poll(waiter));
}

#[test]
fn a_jittered_lifetime_is_within_its_bounds() {
    let day = Duration::from_secs(86_400);
    let cases = [(0.0, 1.0), (0.1, 0.9), (1.0, 0.0), (9.0, 0.0), (-1.0, 1.0), (f64::NAN, 1.0)];
    for (jitter, least) in cases {
        let lives: Vec<_> = (0..10_000).map(|n| jittered(day, jitter, n)).collect();
        let min = lives.iter().min().unwrap();
        let max = lives.iter().max().unwrap();
        assert!(*max <= day && *min >= day.mul_f64(least), "{jitter}: {min:?} to {max:?}");
        let spread = day.mul_f64(1.0 - least).mul_f64(0.99);
        assert!(*max - *min >= spread, "{jitter}: {min:?} to {max:?}");
    }
    assert!(
        jittered(Duration::MAX, 0.5, 3) > Duration::from_secs(1 << 33),
        "for ever stays for ever"
    );
    assert_eq!(jittered(Duration::ZERO, 0.5, 3), Duration::ZERO);
}
