//! Queries that end before their last key, and answers in parts.

use super::tests::{ask, ask_batch, assert_idle, query};
use super::*;
use crate::flight::{ATTEMPTS_MAX, Waited};
use crate::testkit::*;
use crate::{Lookup, ReadMode};

/// Returns rows for the first `read` of `keys` keys.
fn cut_short(at: u64, read: usize, keys: usize) -> Result<Answers<TestError>, TestError> {
    let mut answers = answers(at, keys)?;
    answers.rows[read..].iter_mut().for_each(|row| *row = Fetched::NotRead);
    Ok(answers)
}

#[test]
fn keys_not_reached_are_read_by_the_next_query() {
    let cache = cache(config());
    let mut waiters = ask_batch(&cache, 0..5);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![0, 1, 2, 3, 4]));
    loader.complete(cut_short(3, 2, 5), START);
    let bell = Arc::default();
    let mut rest = waiters.split_off(2);
    assert!(waiters.iter_mut().all(|w| body(poll(w)) == Some(3)));
    assert!(rest.iter_mut().all(|w| poll_with(w, &bell).is_none()));
    // Fewer keys from now on, because the rows turned out to be large; the remaining ones come
    // first.
    loader.limit_keys(2);
    let mut later = ask(&cache, 9);
    assert_eq!(query(&mut loader), Some(vec![2, 3]));
    loader.complete(answers(4, 2), START);
    assert_eq!(query(&mut loader), Some(vec![4, 9]));
    loader.complete(answers(5, 2), START);
    assert_eq!(
        rest.iter_mut().map(|w| body(poll(w))).collect::<Vec<_>>(),
        [Some(4), Some(4), Some(5)]
    );
    assert_eq!(body(poll(&mut later)), Some(5));
    assert!(query(&mut loader).is_none());
    assert_idle(&cache);
}

#[test]
fn abandoned_keys_are_not_read_again() {
    let cache = cache(config());
    let mut waiters = ask_batch(&cache, 0..4);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert!(query(&mut loader).is_some());
    let interest = loader.interest();
    assert!(interest.is_wanted());
    waiters.truncate(1);
    assert!(interest.is_wanted(), "one still waits");
    waiters.clear();
    assert!(!interest.is_wanted());
    loader.complete(cut_short(3, 1, 4), START);
    assert!(query(&mut loader).is_none());
    assert_idle(&cache);
}

#[test]
fn a_query_without_rows_is_abandoned_after_some_attempts() {
    let cache = cache(config());
    let mut waiters = ask_batch(&cache, 0..2);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    for _ in 0..ATTEMPTS_MAX {
        assert_eq!(query(&mut loader).map(|keys| keys.len()), Some(2));
        loader.complete(cut_short(3, 0, 2), START);
    }
    assert!(query(&mut loader).is_none());
    for waiter in &mut waiters {
        assert!(matches!(poll(waiter), Some(Waited::Done(Err(LookupError::Abandoned)))));
    }
    assert_idle(&cache);
}

#[test]
fn answers_are_given_in_parts_and_a_cancelled_loader_hands_over_the_rest() {
    let cache = cache(config());
    let mut waiters = ask_batch(&cache, 0..4);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert!(query(&mut loader).is_some());
    loader.arrived(answers(3, 4), START);
    assert!(loader.answer_some(2, START), "two rows of a byte each");
    assert_eq!(cache.stats(FIRST).queries_in_flight, 1);
    let bell = Arc::default();
    let done = waiters.iter_mut().map(|w| poll_with(w, &bell).is_some()).collect::<Vec<_>>();
    assert_eq!(done, [true, true, false, false]);
    // Its task was cancelled. Unanswered keys are read again.
    drop(loader);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(query(&mut loader), Some(vec![2, 3]));
    loader.arrived(answers(4, 2), START);
    assert!(!loader.answer_some(usize::MAX, START));
    assert!(waiters[2..].iter_mut().all(|w| body(poll(w)) == Some(4)));
    assert!(query(&mut loader).is_none());
    assert_idle(&cache);
}

#[test]
fn a_change_between_two_parts_of_an_answer_ends_the_remaining_leases() {
    let cache = cache(config());
    let mut waiters = ask_batch(&cache, 0..2);
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert!(query(&mut loader).is_some());
    loader.arrived(answers(3, 2), START);
    assert!(loader.answer_some(1, START));
    cache.invalidate(&key(1), LOGGED);
    assert!(!loader.answer_some(1, START));
    assert!(waiters.iter_mut().all(|w| body(poll(w)) == Some(3)), "waiters still get it");
    assert!(matches!(cache.lookup(&key(0), ReadMode::Normal, START), Lookup::Hit(..)));
    assert!(cache.peek(&key(1), START).is_none(), "but it is not kept");
}
