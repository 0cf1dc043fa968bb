//! Who is read next, and who is not read at all.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::config::Config;
use crate::flight::{Failure, Waited, Waiter};
use crate::key::{Key, KeyPart};
use crate::testkit::*;
use crate::{Lookup, Refusal, Turn, Wish};

fn at(ms: u64) -> Nanos {
    START.after(Duration::from_millis(ms))
}

fn ask(cache: &TestCache, id: i64, at_ms: u64, patience_ms: u64) -> Lookup<Broken> {
    cache.lookup_until(&key(id), Wish::Any, at(at_ms), at(at_ms + patience_ms))
}

fn wait(cache: &TestCache, id: i64, at_ms: u64) -> Waiter<Broken> {
    waiter(ask(cache, id, at_ms, 5_000))
}

/// The ids of the turn's next query.
fn query(turn: &mut Turn<Broken>, at_ms: u64) -> Option<Vec<i64>> {
    let id = |key: Key| match key.parts().next() {
        Some(KeyPart::Integer(id)) => id,
        other => panic!("{other:?}"),
    };
    Some(turn.next_query(at(at_ms))?.into_iter().map(id).collect())
}

fn is_overdue(waiter: &mut Waiter<Broken>) -> bool {
    matches!(poll(waiter), Some(Waited::Done(Err(Failure::Overdue))))
}

/// One query of at most so many keys at once.
fn narrow(query_keys: usize) -> Config {
    Config { reads_in_flight: 1, query_keys, ..config() }
}

#[test]
fn when_the_queue_stands_the_newest_are_read_and_those_who_waited_long_are_refused() {
    let cache = cache(narrow(2));
    let mut waiters: Vec<_> = (0..6).map(|id| wait(&cache, id, 0)).collect();
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn, 0), Some(vec![0, 1]));
    let mut late: Vec<_> = (6..8).map(|id| wait(&cache, id, 550)).collect();
    turn.complete(answers(1, 2), at(600));
    assert_eq!(query(&mut turn, 600), Some(vec![7, 6]));
    assert_eq!(turn.waited(), Duration::from_millis(50));
    assert!(waiters[2..].iter_mut().all(is_overdue), "asked 600 ms ago");
    turn.complete(answers(1, 2), at(610));
    assert!(late.iter_mut().chain(&mut waiters[..2]).all(|w| body(poll(w)) == Some(1)));
    // Whoever was refused may ask again. That only refusals emptied the queue is no end of it; that a query does is one.
    for (now, ids, order) in [(620, [2, 3], [3, 2]), (640, [4, 5], [4, 5])] {
        let mut again: Vec<_> = ids.iter().map(|id| wait(&cache, *id, now)).collect();
        assert_eq!(query(&mut turn, now), Some(order.to_vec()));
        turn.complete(answers(1, 2), at(now + 10));
        assert!(again.iter_mut().all(|w| body(poll(w)) == Some(1)));
    }
    assert_eq!(query(&mut turn, 650), None);
    let stats = cache.stats(FIRST);
    assert_eq!((stats.displaced_total, stats.overdue_total, stats.waiting_keys), (4, 0, 0));
    assert!(cache.collection(FIRST).0.desk.lock().current.is_empty());
}

#[test]
fn what_was_put_back_is_read_next_while_the_queue_stands() {
    let cache = cache(narrow(2));
    let mut waiters: Vec<_> = (0..6).map(|id| wait(&cache, id, 0)).collect();
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn, 0), Some(vec![0, 1]));
    turn.complete(answers(1, 2), at(10));
    assert_eq!(query(&mut turn, 10), Some(vec![2, 3]));
    let late: Vec<_> = (6..8).map(|id| wait(&cache, id, 550)).collect();
    // Its reader is cancelled.
    drop(turn);
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn, 600), Some(vec![2, 3]), "not the newest");
    assert!(waiters[4..].iter_mut().all(is_overdue));
    turn.complete(answers(1, 2), at(610));
    assert!(waiters[..4].iter_mut().all(|w| body(poll(w)) == Some(1)));
    assert_eq!(query(&mut turn, 610), Some(vec![7, 6]));
    turn.complete(answers(1, 2), at(620));
    assert!(late.into_iter().all(|mut w| body(poll(&mut w)) == Some(1)));
    assert_eq!(query(&mut turn, 620), None);
    assert_eq!(cache.stats(FIRST).waiting_keys, 0);
}

#[test]
fn a_key_that_is_asked_for_again_and_again_is_not_displaced_but_read_next() {
    let cache = cache(narrow(2));
    let mut waiters: Vec<_> = (0..6).map(|id| wait(&cache, id, 0)).collect();
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn, 0), Some(vec![0, 1]));
    let mut late: Vec<_> = [(8, 550), (6, 551), (7, 552), (3, 599)].map(|(id, at)| wait(&cache, id, at)).into();
    turn.complete(answers(1, 2), at(600));
    assert_eq!(query(&mut turn, 600), Some(vec![7, 6]));
    assert!([2, 4, 5].into_iter().all(|id: usize| is_overdue(&mut waiters[id])));
    turn.complete(answers(1, 2), at(610));
    assert_eq!(query(&mut turn, 610), Some(vec![3, 8]), "the newest ask counts");
    turn.complete(answers(1, 2), at(620));
    assert_eq!(body(poll(&mut waiters[3])), Some(1), "with all who waited before");
    assert!(late.iter_mut().all(|w| body(poll(w)) == Some(1)));
    assert_eq!(query(&mut turn, 620), None);
    assert_eq!((cache.stats(FIRST).displaced_total, cache.stats(FIRST).waiting_keys), (3, 0));
}

#[test]
fn a_queue_that_was_given_up_stands_no_more() {
    let cache = cache(narrow(2));
    let mut waiters: Vec<_> = (0..8).map(|id| wait(&cache, id, 550)).collect();
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn, 550), Some(vec![0, 1]));
    turn.complete(answers(1, 2), at(560));
    waiters.extend((8..11).map(|id| wait(&cache, id, 1_040)));
    assert_eq!(query(&mut turn, 1_050), Some(vec![10, 9]));
    assert_eq!(cache.stats(FIRST).newest_first, 1);
    assert_eq!(cache.give_up(FIRST, &"left alone"), 1);
    assert_eq!(cache.stats(FIRST).newest_first, 0);
    turn.complete(answers(1, 2), at(1_060));
    let _again: Vec<_> = (20..24).map(|id| wait(&cache, id, 1_060)).collect();
    assert_eq!(query(&mut turn, 1_060), Some(vec![20, 21]), "in order again");
}

#[test]
fn in_order_for_ever_where_that_is_wanted() {
    let queue = hotrow_admit::concurrency::queue::Config { adaptive: false, ..config().queue };
    let cache = cache(Config { queue, ..narrow(2) });
    let waiters: Vec<_> = (0..6).map(|id| wait(&cache, id, 0)).collect();
    let mut turn = cache.turn(FIRST).unwrap();
    for (n, ids) in [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])] {
        assert_eq!(query(&mut turn, 1_000 * n), Some(ids.to_vec()));
        turn.complete(answers(1, 2), at(1_000 * n));
    }
    assert!(waiters.into_iter().all(|mut w| body(poll(&mut w)) == Some(1)));
}

#[test]
fn newest_first_tears_no_batch() {
    let cache = cache(narrow(3));
    let batch = |ids: std::ops::Range<i64>| {
        let keys: Vec<Key> = ids.map(key).collect();
        cache.lookup_batch(&keys, Wish::Any, at(550)).into_iter().map(waiter).collect::<Vec<_>>()
    };
    let _first: Vec<_> = (0..4).map(|id| wait(&cache, id, 0)).collect();
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn, 0), Some(vec![0, 1, 2]));
    let (_two, _one) = (batch(10..12), batch(20..21));
    let _three = batch(30..33);
    for (now, ids) in [(600, vec![32, 31, 30]), (610, vec![20, 11, 10])] {
        turn.complete(answers(1, 3), at(now));
        assert_eq!(query(&mut turn, now), Some(ids));
    }
}

#[test]
fn what_comes_too_late_is_not_read() {
    let cache = cache(narrow(10));
    let (mut short, mut long) = (waiter(ask(&cache, 1, 0, 50)), waiter(ask(&cache, 2, 0, 50)));
    let mut joined = waiter(ask(&cache, 2, 40, 50));
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn, 50), Some(vec![2]), "somebody still waits for 2");
    assert!(is_overdue(&mut short));
    turn.complete(answers(1, 1), at(60));
    assert!(body(poll(&mut long)) == Some(1) && body(poll(&mut joined)) == Some(1));
    // A deadline that left with its request does not count.
    drop(waiter(ask(&cache, 3, 60, 5_000)));
    let mut alone = waiter(ask(&cache, 3, 70, 10));
    assert_eq!(query(&mut turn, 80), None);
    assert!(is_overdue(&mut alone));
    assert_eq!(cache.stats(FIRST).overdue_total, 2);
}

#[test]
fn who_would_be_answered_too_late_is_refused_at_once_unless_nobody_reads() {
    let cache = cache(narrow(1));
    let _waiters: Vec<_> = (0..10).map(|id| wait(&cache, id, 0)).collect();
    let mut turn = cache.turn(FIRST).unwrap();
    for n in 0..3 {
        assert_eq!(query(&mut turn, 100 * n), Some(vec![n as i64]));
        if n < 2 {
            turn.complete(answers(1, 1), at(100 * (n + 1)));
        }
    }
    // Three in 200 ms, seven wait, and a query takes 100 ms: 567 ms.
    assert!(matches!(ask(&cache, 20, 200, 560), Lookup::Refused(Refusal::TooLate)));
    let _patient = waiter(ask(&cache, 20, 200, 570));
    assert_eq!(cache.stats(FIRST).overdue_total, 1);
    // Joining costs nothing.
    let _joined = waiter(ask(&cache, 5, 200, 1));
    drop(turn);
    let _leads = waiter(ask(&cache, 21, 200, 1));
    assert!(cache.turn(FIRST).is_some());
}
