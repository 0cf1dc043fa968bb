//! Order of reads, and rejected keys.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::config::Config;
use crate::flight::{Waited, Waiter};
use crate::testkit::*;
use crate::{BatchLoader, Lookup, LookupError, ReadMode};
use hotrow_types::key::{Key, KeyPart};

fn at(ms: u64) -> Nanos {
    START.after(Duration::from_millis(ms))
}

fn ask(cache: &TestCache, id: i64, at_ms: u64, patience_ms: u64) -> Lookup<TestError> {
    cache.lookup_until(&key(id), ReadMode::Normal, at(at_ms), at(at_ms + patience_ms))
}

fn wait(cache: &TestCache, id: i64, at_ms: u64) -> Waiter<TestError> {
    waiter(ask(cache, id, at_ms, 5_000))
}

/// Returns the ids of the loader's next query.
fn query(loader: &mut BatchLoader<TestError>, at_ms: u64) -> Option<Vec<i64>> {
    let id = |key: Key| match key.parts().next() {
        Some(KeyPart::Integer(id)) => id,
        other => panic!("{other:?}"),
    };
    Some(loader.next_batch(at(at_ms))?.into_iter().map(id).collect())
}

fn is_overdue(waiter: &mut Waiter<TestError>) -> bool {
    matches!(poll(waiter), Some(Waited::Done(Err(LookupError::Overdue))))
}

/// Returns settings with one query at a time, of at most `query_keys` keys.
fn narrow(query_keys: usize) -> Config {
    Config { reads_in_flight: 1, query_keys, ..config() }
}

#[test]
fn a_standing_queue_reads_the_newest_keys_and_rejects_old_ones() {
    let cache = cache(narrow(2));
    let mut waiters: Vec<_> = (0..6).map(|id| wait(&cache, id, 0)).collect();
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader, 0), Some(vec![0, 1]));
    let mut late: Vec<_> = (6..8).map(|id| wait(&cache, id, 550)).collect();
    loader.complete(answers(1, 2), at(600));
    assert_eq!(query(&mut loader, 600), Some(vec![7, 6]));
    assert_eq!(loader.waited(), Duration::from_millis(50));
    assert!(waiters[2..].iter_mut().all(is_overdue), "requested 600 ms ago");
    loader.complete(answers(1, 2), at(610));
    assert!(late.iter_mut().chain(&mut waiters[..2]).all(|w| body(poll(w)) == Some(1)));
    // Rejected requests may come again. A queue emptied only by rejections is still standing; one
    // emptied by a query is not.
    for (now, ids, order) in [(620, [2, 3], [3, 2]), (640, [4, 5], [4, 5])] {
        let mut again: Vec<_> = ids.iter().map(|id| wait(&cache, *id, now)).collect();
        assert_eq!(query(&mut loader, now), Some(order.to_vec()));
        loader.complete(answers(1, 2), at(now + 10));
        assert!(again.iter_mut().all(|w| body(poll(w)) == Some(1)));
    }
    assert_eq!(query(&mut loader, 650), None);
    let stats = cache.stats(FIRST);
    assert_eq!(
        (stats.queue_dropped_total, stats.deadline_rejected_total, stats.waiting_keys),
        (4, 0, 0)
    );
    assert!(cache.collection(FIRST).0.fetch_queue.lock().in_flight.is_empty());
}

#[test]
fn requeued_keys_are_read_next_in_a_standing_queue() {
    let cache = cache(narrow(2));
    let mut waiters: Vec<_> = (0..6).map(|id| wait(&cache, id, 0)).collect();
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader, 0), Some(vec![0, 1]));
    loader.complete(answers(1, 2), at(10));
    assert_eq!(query(&mut loader, 10), Some(vec![2, 3]));
    let late: Vec<_> = (6..8).map(|id| wait(&cache, id, 550)).collect();
    // Its loader is cancelled.
    drop(loader);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader, 600), Some(vec![2, 3]), "not the newest");
    assert!(waiters[4..].iter_mut().all(is_overdue));
    loader.complete(answers(1, 2), at(610));
    assert!(waiters[..4].iter_mut().all(|w| body(poll(w)) == Some(1)));
    assert_eq!(query(&mut loader, 610), Some(vec![7, 6]));
    loader.complete(answers(1, 2), at(620));
    assert!(late.into_iter().all(|mut w| body(poll(&mut w)) == Some(1)));
    assert_eq!(query(&mut loader, 620), None);
    assert_eq!(cache.stats(FIRST).waiting_keys, 0);
}

#[test]
fn keys_requested_repeatedly_are_read_next_and_not_rejected() {
    let cache = cache(narrow(2));
    let mut waiters: Vec<_> = (0..6).map(|id| wait(&cache, id, 0)).collect();
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader, 0), Some(vec![0, 1]));
    let mut late: Vec<_> =
        [(8, 550), (6, 551), (7, 552), (3, 599)].map(|(id, at)| wait(&cache, id, at)).into();
    loader.complete(answers(1, 2), at(600));
    assert_eq!(query(&mut loader, 600), Some(vec![7, 6]));
    assert!([2, 4, 5].into_iter().all(|id: usize| is_overdue(&mut waiters[id])));
    loader.complete(answers(1, 2), at(610));
    assert_eq!(query(&mut loader, 610), Some(vec![3, 8]), "the newest ask counts");
    loader.complete(answers(1, 2), at(620));
    assert_eq!(body(poll(&mut waiters[3])), Some(1), "with all earlier waiters");
    assert!(late.iter_mut().all(|w| body(poll(w)) == Some(1)));
    assert_eq!(query(&mut loader, 620), None);
    assert_eq!((cache.stats(FIRST).queue_dropped_total, cache.stats(FIRST).waiting_keys), (3, 0));
}

#[test]
fn giving_up_a_queue_ends_its_standing_state() {
    let cache = cache(narrow(2));
    let mut waiters: Vec<_> = (0..8).map(|id| wait(&cache, id, 550)).collect();
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader, 550), Some(vec![0, 1]));
    loader.complete(answers(1, 2), at(560));
    waiters.extend((8..11).map(|id| wait(&cache, id, 1_040)));
    assert_eq!(query(&mut loader, 1_050), Some(vec![10, 9]));
    assert_eq!(cache.stats(FIRST).lifo, 1);
    assert_eq!(cache.give_up(FIRST, &"left alone"), 1);
    assert_eq!(cache.stats(FIRST).lifo, 0);
    loader.complete(answers(1, 2), at(1_060));
    let _again: Vec<_> = (20..24).map(|id| wait(&cache, id, 1_060)).collect();
    assert_eq!(query(&mut loader, 1_060), Some(vec![20, 21]), "in order again");
}

#[test]
fn a_fifo_queue_keeps_its_order() {
    let queue = hotrow_admission::concurrency::queue::Config { adaptive: false, ..config().queue };
    let cache = cache(Config { queue, ..narrow(2) });
    let waiters: Vec<_> = (0..6).map(|id| wait(&cache, id, 0)).collect();
    let mut loader = cache.batch_loader(FIRST).unwrap();
    for (n, ids) in [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])] {
        assert_eq!(query(&mut loader, 1_000 * n), Some(ids.to_vec()));
        loader.complete(answers(1, 2), at(1_000 * n));
    }
    assert!(waiters.into_iter().all(|mut w| body(poll(&mut w)) == Some(1)));
}

#[test]
fn newest_first_splits_no_batch() {
    let cache = cache(narrow(3));
    let batch = |ids: std::ops::Range<i64>| {
        let keys: Vec<Key> = ids.map(key).collect();
        cache
            .lookup_batch(&keys, ReadMode::Normal, at(550))
            .into_iter()
            .map(waiter)
            .collect::<Vec<_>>()
    };
    let _first: Vec<_> = (0..4).map(|id| wait(&cache, id, 0)).collect();
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader, 0), Some(vec![0, 1, 2]));
    let _two = batch(10..12);
    let _one = batch(20..21);
    let _three = batch(30..33);
    for (now, ids) in [(600, vec![32, 31, 30]), (610, vec![20, 11, 10])] {
        loader.complete(answers(1, 3), at(now));
        assert_eq!(query(&mut loader, now), Some(ids));
    }
}

#[test]
fn keys_past_their_deadline_are_not_read() {
    let cache = cache(narrow(10));
    let mut short = waiter(ask(&cache, 1, 0, 50));
    let mut long = waiter(ask(&cache, 2, 0, 50));
    let mut joined = waiter(ask(&cache, 2, 40, 50));
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader, 50), Some(vec![2]), "2 still has a waiter");
    assert!(is_overdue(&mut short));
    loader.complete(answers(1, 1), at(60));
    assert!(body(poll(&mut long)) == Some(1) && body(poll(&mut joined)) == Some(1));
    // The deadline of a cancelled request does not count.
    drop(waiter(ask(&cache, 3, 60, 5_000)));
    let mut alone = waiter(ask(&cache, 3, 70, 10));
    assert_eq!(query(&mut loader, 80), None);
    assert!(is_overdue(&mut alone));
    assert_eq!(cache.stats(FIRST).deadline_rejected_total, 2);
}

#[test]
fn requests_that_would_miss_their_deadline_are_refused_while_a_loader_works() {
    let cache = cache(narrow(1));
    let _waiters: Vec<_> = (0..10).map(|id| wait(&cache, id, 0)).collect();
    let mut loader = cache.batch_loader(FIRST).unwrap();
    for n in 0..3 {
        assert_eq!(query(&mut loader, 100 * n), Some(vec![n as i64]));
        if n < 2 {
            loader.complete(answers(1, 1), at(100 * (n + 1)));
        }
    }
    // Three keys per 200 ms, seven waiting, and a query of 100 ms: 567 ms.
    assert!(matches!(ask(&cache, 20, 200, 560), Lookup::Refused(LookupError::TooLate)));
    let _patient = waiter(ask(&cache, 20, 200, 570));
    assert_eq!(cache.stats(FIRST).deadline_rejected_total, 1);
    // Joining costs nothing.
    let _joined = waiter(ask(&cache, 5, 200, 1));
    drop(loader);
    let _leads = waiter(ask(&cache, 21, 200, 1));
    assert!(cache.batch_loader(FIRST).is_some());
}
