//! Merging, single flight, handing over: what goes to the database, and who is told what.

use super::*;
use crate::config::Config;
use crate::flight::{ATTEMPTS_MAX, Waited, Waiter};
use crate::testkit::*;
use crate::{Lookup, Quality, Refusal, Wish};

fn ask(cache: &TestCache, id: i64) -> Waiter<Broken> {
    waiter(cache.lookup(&key(id), Wish::Any, START))
}

fn ask_batch(cache: &TestCache, ids: std::ops::Range<i64>) -> Vec<Waiter<Broken>> {
    let keys: Vec<Key> = ids.map(key).collect();
    cache.lookup_batch(&keys, Wish::Any, START).into_iter().map(waiter).collect()
}

/// The ids of the turn's next query.
fn query(turn: &mut Turn<Broken>) -> Option<Vec<i64>> {
    let id = |key: Key| match key.parts().next() {
        Some(crate::key::KeyPart::Integer(id)) => id,
        other => panic!("{other:?}"),
    };
    Some(turn.next_query(START)?.into_iter().map(id).collect())
}

/// Nothing is left of any read.
fn assert_idle(cache: &TestCache) {
    let collection = cache.collection(FIRST).0;
    let stats = cache.stats(FIRST);
    assert!(collection.desk.lock().current.is_empty(), "flights left on the table");
    assert_eq!((stats.waiting_keys, stats.queries_in_flight), (0, 0));
}

#[test]
fn the_first_goes_alone_and_those_asked_meanwhile_go_together() {
    let cache = cache(config());
    let mut first = ask(&cache, 1);
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1]));
    assert!(cache.turn(FIRST).is_none(), "nothing waits yet");
    let mut later: Vec<_> = (2..5).map(|id| ask(&cache, id)).collect();
    // The second query that may be under way takes what waits; then no more are given out.
    let mut second = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut second), Some(vec![2, 3, 4]));
    let mut last: Vec<_> = (5..8).map(|id| ask(&cache, id)).collect();
    assert!(cache.turn(FIRST).is_none(), "reads_in_flight");
    turn.complete(answers(9, 1), START);
    assert_eq!(body(poll(&mut first)), Some(9));
    assert_eq!(query(&mut turn), Some(vec![5, 6, 7]));
    turn.complete(answers(10, 3), START);
    second.complete(answers(11, 3), START);
    assert!(query(&mut turn).is_none() && query(&mut second).is_none());
    assert!(later.iter_mut().all(|w| body(poll(w)) == Some(11)) && last.iter_mut().all(|w| body(poll(w)) == Some(10)));
    assert_idle(&cache);
    let stats = cache.stats(FIRST);
    assert_eq!((stats.queries_total, stats.queried_keys_total, stats.fills_total), (3, 7, 7));
    assert_eq!(stats.query_keys, [1, 2, 0, 0, 0, 0, 0]);
}

#[test]
fn a_thousand_ask_for_a_cold_key_and_one_reads_it() {
    let cache = cache(config());
    let mut waiters: Vec<_> = (0..1000).map(|_| ask(&cache, 1)).collect();
    let bell = Arc::default();
    assert!(waiters.iter_mut().all(|w| poll_with(w, &bell).is_none()));
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1]));
    waiters.extend((0..1000).map(|_| ask(&cache, 1)));
    turn.complete(answers(3, 1), START);
    assert_eq!(bell.rings(), 1000);
    assert!(waiters.iter_mut().all(|w| body(poll(w)) == Some(3)));
    assert!(query(&mut turn).is_none());
    assert!(matches!(cache.lookup(&key(1), Wish::Any, START), Lookup::Hit(_, Quality::Fresh)));
    let stats = cache.stats(FIRST);
    assert_eq!((stats.queries_total, stats.queried_keys_total, stats.waits_total), (1, 1, 1999));
    assert_idle(&cache);
}

#[test]
fn a_query_is_bounded_in_keys_and_bytes_and_tears_no_batch_that_fits_one() {
    // An integer key is 11 bytes.
    type Batches = &'static [std::ops::Range<i64>];
    let cases: [(&str, Config, Batches, &[usize]); 6] = [
        ("keys", Config { query_keys: 4, ..config() }, &[0..1, 1..2, 2..3, 3..4, 4..5], &[4, 1]),
        ("bytes", Config { query_bytes: 35, ..config() }, &[0..1, 1..2, 2..3, 3..4, 4..5], &[3, 2]),
        ("a batch, by keys", Config { query_keys: 4, ..config() }, &[0..2, 2..5, 5..6], &[2, 4]),
        ("a batch, by bytes", Config { query_bytes: 44, ..config() }, &[0..2, 2..5, 5..6], &[2, 4]),
        ("a batch too large for any", Config { query_keys: 4, ..config() }, &[0..1, 1..11], &[1, 4, 4, 2]),
        ("one key too large", Config { query_bytes: 5, ..config() }, &[0..1, 1..2], &[1, 1]),
    ];
    for (name, config, batches, want) in cases {
        let cache = cache(config);
        let waiters: Vec<_> = batches.iter().map(|ids| ask_batch(&cache, ids.clone())).collect();
        let mut turn = cache.turn(FIRST).unwrap();
        let mut sizes = Vec::new();
        while let Some(ids) = query(&mut turn) {
            sizes.push(ids.len());
            turn.complete(answers(1, ids.len()), START);
        }
        assert_eq!(sizes, want, "{name}");
        assert!(waiters.into_iter().flatten().all(|mut w| body(poll(&mut w)) == Some(1)), "{name}");
        assert_idle(&cache);
    }
}

#[test]
fn a_batch_answers_in_its_order() {
    let cache = cache(config());
    let turn_of = |id: i64, at: u64| {
        let _waiter = ask(&cache, id);
        let mut turn = cache.turn(FIRST).unwrap();
        query(&mut turn).unwrap();
        turn.complete(if at == 0 { missing(1, 1) } else { answers(at, 1) }, START);
        assert!(query(&mut turn).is_none());
    };
    turn_of(1, 7);
    turn_of(3, 0);
    let _reading = ask(&cache, 4);
    let keys: Vec<Key> = (1..6).map(key).collect();
    let got = cache.lookup_batch(&keys, Wish::Any, START);
    let kinds: Vec<_> = got.iter().map(|l| format!("{l:?}").split('(').next().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["Hit", "Fill", "Negative", "Wait", "Fill"]);
}

#[test]
fn waiting_keys_are_bounded_and_a_batch_is_queued_whole_or_not_at_all() {
    let cache = cache(Config { waiting_keys: 5, ..config() });
    let waiting = ask_batch(&cache, 0..4);
    let keys: Vec<Key> = (10..12).map(key).collect();
    assert!(
        cache.lookup_batch(&keys, Wish::Any, START).iter().all(|l| matches!(l, Lookup::Refused(Refusal::QueueFull)))
    );
    let fifth = ask(&cache, 4);
    assert!(matches!(cache.lookup(&key(5), Wish::Any, START), Lookup::Refused(Refusal::QueueFull)));
    assert!(matches!(cache.lookup(&key(0), Wish::Any, START), Lookup::Wait(_)), "joining needs no room");
    assert_eq!(cache.stats(FIRST).refused_total, 3);
    assert_eq!(cache.stats(FIRST).waiting_keys, 5);
    drop((waiting, fifth));
}

#[test]
fn what_nobody_waits_for_is_not_read() {
    let cache = cache(config());
    let (gone, mut stays) = (ask(&cache, 1), ask(&cache, 2));
    drop(gone);
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![2]));
    turn.complete(answers(1, 1), START);
    assert_eq!(body(poll(&mut stays)), Some(1));
    drop(ask(&cache, 3));
    assert_eq!(query(&mut turn), None, "no empty query either");
    assert_idle(&cache);
}

#[test]
fn waiters_that_come_and_go_leave_no_room_behind() {
    let cache = cache(config());
    let mut first = ask(&cache, 1);
    let mut turn = cache.turn(FIRST).unwrap();
    query(&mut turn).unwrap();
    for _ in 0..1000 {
        assert!(poll(&mut ask(&cache, 1)).is_none());
    }
    let flight = cache.collection(FIRST).0.desk.lock().current[&key(1)].clone();
    assert!(flight.slots() <= 2, "{} slots for one waiter", flight.slots());
    let bell = Arc::default();
    assert!(poll_with(&mut first, &bell).is_none());
    let mut second = ask(&cache, 1);
    assert!(poll_with(&mut second, &bell).is_none());
    turn.complete(answers(1, 1), START);
    assert_eq!(bell.rings(), 2);
}

#[test]
fn a_row_fails_alone_and_missing_rows_count_as_failed() {
    let cache = cache(config());
    let mut waiters = ask_batch(&cache, 0..4);
    let mut turn = cache.turn(FIRST).unwrap();
    query(&mut turn).unwrap();
    let rows = vec![Fetched::Found(b"5".to_vec()), Fetched::Failed("bad"), Fetched::Missing];
    turn.complete(Ok(Answers { version: log(5), position: None, rows }), START);
    assert_eq!(body(poll(&mut waiters[0])), Some(5));
    assert!(matches!(poll(&mut waiters[1]), Some(Waited::Done(Err(Failure::Source("bad"))))));
    assert_eq!(body(poll(&mut waiters[2])), None);
    assert!(matches!(poll(&mut waiters[3]), Some(Waited::Done(Err(Failure::Abandoned)))));
    assert_eq!(cache.stats(FIRST).failed_keys_total, 2);
    assert!(query(&mut turn).is_none());
    assert_idle(&cache);
}

#[test]
fn an_error_is_shared_with_those_who_wait_and_kept_for_error_ttl() {
    let cache = cache(config());
    let mut waiters = [ask(&cache, 1), ask(&cache, 1)];
    let mut turn = cache.turn(FIRST).unwrap();
    query(&mut turn).unwrap();
    turn.complete(Err("down"), START);
    assert!(query(&mut turn).is_none());
    assert!(waiters.iter_mut().all(|w| matches!(poll(w), Some(Waited::Done(Err(Failure::Source("down")))))));
    let at = |ms: u64| cache.lookup(&key(1), Wish::Any, START.after(Duration::from_millis(ms)));
    assert!(matches!(at(0), Lookup::Refused(Refusal::Failed(Failure::Source("down")))));
    assert!(matches!(at(499), Lookup::Refused(Refusal::Failed(_))));
    assert!(matches!(at(500), Lookup::Fill(_)));
    // A change says that the past error means nothing.
    let cache = self::cache(config());
    let _waiter = ask(&cache, 1);
    let mut turn = cache.turn(FIRST).unwrap();
    query(&mut turn).unwrap();
    turn.complete(Err("down"), START);
    cache.invalidate(&key(1), LOGGED);
    assert!(matches!(cache.lookup(&key(1), Wish::Any, START), Lookup::Fill(_)));
}

#[test]
fn a_passing_answer_goes_to_all_who_wait_and_is_not_kept() {
    let cache = cache(config());
    for (row, seen) in [(Some(b"7".to_vec()), Some(7)), (None, None)] {
        let mut waiters = [ask(&cache, 1), ask(&cache, 1)];
        let mut turn = cache.turn(FIRST).unwrap();
        query(&mut turn).unwrap();
        turn.complete(Ok(Answers { version: log(7), position: None, rows: vec![Fetched::Passing(row)] }), START);
        assert!(waiters.iter_mut().all(|waiter| {
            let Some(Waited::Done(Ok(record))) = poll(waiter) else { return false };
            record.body() == seen.map_or(String::new(), |n: u64| n.to_string()).as_bytes()
        }));
        assert!(cache.peek(&key(1), START).is_none());
    }
    assert_eq!(cache.stats(FIRST).dead_leases_total, 0);
}

#[test]
fn failures_that_are_remembered_are_bounded() {
    let cache = cache(Config { waiting_keys: 10_000, query_keys: 10_000, query_bytes: 1 << 20, ..config() });
    let waiters = ask_batch(&cache, 0..5000);
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn).unwrap().len(), 5000);
    turn.complete(Err("down"), START);
    drop(waiters);
    let refused = |id: &i64| matches!(cache.lookup(&key(*id), Wish::Any, START), Lookup::Refused(Refusal::Failed(_)));
    assert_eq!((0..5000).filter(refused).count(), 1024);
}

#[test]
fn a_cancelled_turn_calls_a_waiter_to_lead_until_the_attempts_end() {
    let cache = cache(config());
    let mut waiters: Vec<_> = (0..3).map(|_| ask(&cache, 1)).collect();
    for attempt in 1..ATTEMPTS_MAX {
        let bell = Arc::default();
        let mut turn = cache.turn(FIRST).unwrap();
        assert_eq!(query(&mut turn), Some(vec![1]), "attempt {attempt}");
        assert!(waiters.iter_mut().all(|w| poll_with(w, &bell).is_none()));
        drop(turn);
        assert_eq!(bell.rings(), 3);
        let told: Vec<_> = waiters.iter_mut().map(poll).collect();
        assert!(matches!(told[..], [Some(Waited::Lead), None, None]), "{told:?}");
        assert!(matches!(cache.lookup(&key(1), Wish::Any, START), Lookup::Wait(_)), "one flight, as before");
    }
    let mut turn = cache.turn(FIRST).unwrap();
    query(&mut turn).unwrap();
    drop(turn);
    assert!(waiters.iter_mut().all(|w| matches!(poll(w), Some(Waited::Done(Err(Failure::Abandoned))))));
    assert!(cache.turn(FIRST).is_none());
    assert_idle(&cache);
}

#[test]
fn the_next_leader_finishes_what_the_cancelled_one_began() {
    let cache = cache(config());
    let mut waiters = [ask(&cache, 1), ask(&cache, 2)];
    let mut turn = cache.turn(FIRST).unwrap();
    query(&mut turn).unwrap();
    let mut third = ask(&cache, 3);
    drop(turn);
    assert!(matches!(poll(&mut third), Some(Waited::Lead)), "any of those who wait may lead");
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1, 2, 3]), "those of before come first");
    turn.complete(answers(4, 3), START);
    assert!(waiters.iter_mut().chain([&mut third]).all(|w| body(poll(w)) == Some(4)));
    assert!(query(&mut turn).is_none());
    assert_idle(&cache);
}

#[test]
fn one_who_was_told_to_lead_and_left_is_replaced() {
    let cache = cache(config());
    let (mut told, mut other) = (ask(&cache, 1), ask(&cache, 1));
    let bell = Arc::default();
    drop(cache.turn(FIRST).unwrap());
    assert!(matches!(poll(&mut told), Some(Waited::Lead)));
    assert!(poll_with(&mut other, &bell).is_none());
    drop(told);
    assert_eq!(bell.rings(), 1, "nobody else would ever lead");
    assert!(matches!(poll(&mut other), Some(Waited::Lead)));
}

#[test]
fn a_read_that_was_queued_and_never_led_is_led_by_who_waits_for_it() {
    let cache = cache(config());
    let _failed = ask(&cache, 9);
    let mut turn = cache.turn(FIRST).unwrap();
    query(&mut turn).unwrap();
    turn.complete(Err("down"), START);
    assert_eq!(query(&mut turn), None);
    // A batch of which one key failed lately is refused as a whole, and leads nothing.
    let batch = cache.lookup_batch(&[key(1), key(9)], Wish::Any, START);
    assert!(matches!(batch[..], [Lookup::Fill(_), Lookup::Refused(Refusal::Failed(_))]), "{batch:?}");
    drop(batch);
    let mut alone = ask(&cache, 1);
    assert!(matches!(poll(&mut alone), Some(Waited::Lead)));
    assert!(poll(&mut ask(&cache, 1)).is_none(), "one leads");
    // Somebody has joined before the first one leaves.
    let (first, mut joined, bell) = (ask(&cache, 2), ask(&cache, 2), Arc::default());
    assert!(poll_with(&mut joined, &bell).is_none());
    drop(first);
    assert_eq!(bell.rings(), 1);
    assert!(matches!(poll(&mut joined), Some(Waited::Lead)));
    // A refresh that nobody leads.
    assert!(cache.refresh(&key(3)));
    let mut served = ask(&cache, 3);
    assert!(matches!(poll(&mut served), Some(Waited::Lead)));
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1, 2, 3]));
    turn.complete(answers(1, 3), START);
    assert!([alone, joined, served].iter_mut().all(|waiter| body(poll(waiter)) == Some(1)));
    assert_eq!(query(&mut turn), None);
    assert_idle(&cache);
}

#[test]
fn a_cancelled_read_that_nobody_waits_for_ends() {
    let cache = cache(config());
    let waiter = ask(&cache, 1);
    let mut turn = cache.turn(FIRST).unwrap();
    query(&mut turn).unwrap();
    drop(waiter);
    drop(turn);
    assert_idle(&cache);
}

#[test]
fn a_query_that_was_forgotten_is_handed_over_by_the_next() {
    let cache = cache(config());
    let mut waiter = ask(&cache, 1);
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1]));
    assert_eq!(query(&mut turn), Some(vec![1]), "not completed");
    turn.complete(answers(2, 1), START);
    assert_eq!(body(poll(&mut waiter)), Some(2));
    assert!(query(&mut turn).is_none());
    assert_idle(&cache);
}

#[test]
fn without_the_cache_requests_share_a_query_and_nothing_is_kept() {
    let cache = cache(Config { enabled: false, ..config() });
    let mut waiters = [ask(&cache, 1), ask(&cache, 1), ask(&cache, 2)];
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1, 2]), "a source never sees a key twice in a query");
    let late = cache.lookup(&key(1), Wish::Any, START);
    assert!(matches!(late, Lookup::Bypass(_)), "never joined once it has begun");
    // Handed over, they are as lonely as before.
    drop(turn);
    assert!(matches!(poll(&mut waiters[0]), Some(Waited::Lead)));
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1, 2]));
    turn.complete(answers(3, 2), START);
    assert!(waiters.iter_mut().chain([&mut waiter(late)]).all(|w| body(poll(w)) == Some(3)));
    assert!(query(&mut turn).is_none());
    assert_eq!(cache.stats(FIRST).entries, 0);
    assert_eq!(cache.stats(FIRST).dead_leases_total, 0);
    assert_idle(&cache);
}

#[test]
fn a_jittered_life_is_within_its_bounds() {
    let day = Duration::from_secs(86_400);
    let cases = [(0.0, 1.0), (0.1, 0.9), (1.0, 0.0), (9.0, 0.0), (-1.0, 1.0), (f64::NAN, 1.0)];
    for (jitter, least) in cases {
        let lives: Vec<_> = (0..10_000).map(|n| jittered(day, jitter, n)).collect();
        let (min, max) = (lives.iter().min().unwrap(), lives.iter().max().unwrap());
        assert!(*max <= day && *min >= day.mul_f64(least), "{jitter}: {min:?} to {max:?}");
        let spread = day.mul_f64(1.0 - least).mul_f64(0.99);
        assert!(*max - *min >= spread, "{jitter}: {min:?} to {max:?}");
    }
    assert!(jittered(Duration::MAX, 0.5, 3) > Duration::from_secs(1 << 33), "for ever stays for ever");
    assert_eq!(jittered(Duration::ZERO, 0.5, 3), Duration::ZERO);
}

#[test]
fn a_queue_that_everyone_has_left_does_not_refuse_for_ever() {
    let cache = cache(Config { waiting_keys: 2, ..config() });
    let waiters = [ask(&cache, 1), ask(&cache, 2)];
    drop(cache.turn(FIRST).unwrap());
    assert!(matches!(cache.lookup(&key(3), Wish::Any, START), Lookup::Refused(Refusal::QueueFull)), "they still wait");
    drop(waiters);
    let mut late = ask(&cache, 3);
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![3]));
    turn.complete(answers(1, 1), START);
    assert_eq!((body(poll(&mut late)), query(&mut turn)), (Some(1), None));
    assert_idle(&cache);
}

#[test]
fn what_is_not_admitted_is_not_queued() {
    let cache = cache(config());
    let refused = cache.lookup_if(&key(1), Wish::Any, START, || Err("no"));
    assert_eq!(refused.err(), Some("no"));
    let keys = [key(1), key(2)];
    let refused = cache.lookup_batch_if(&keys, Wish::Any, START, Err);
    assert_eq!(refused.err(), Some(2));
    assert!(cache.turn(FIRST).is_none(), "nothing waits");
    let mut asked = ask(&cache, 1);
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1]));
    turn.complete(answers(1, 1), START);
    assert_eq!(body(poll(&mut asked)), Some(1));
    let never = || -> Result<Nanos, &str> { panic!("memory answers") };
    assert!(matches!(cache.lookup_if(&key(1), Wish::Any, START, never), Ok(Lookup::Hit(..))));
    assert_eq!(cache.lookup_batch_if(&keys, Wish::Any, START, Err).err(), Some(1), "one of two is cold");
}

#[test]
fn reads_that_are_given_up_before_they_are_sent_are_answered_and_not_remembered() {
    let cache = cache(config());
    let mut sent = ask(&cache, 1);
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(query(&mut turn), Some(vec![1]));
    let mut queued = ask_batch(&cache, 2..5);
    assert_eq!(cache.give_up(FIRST, &"left alone"), 3);
    for waiter in &mut queued {
        assert!(matches!(poll(waiter), Some(Waited::Done(Err(Failure::Source("left alone"))))));
    }
    assert_eq!(cache.give_up(FIRST, &"left alone"), 0);
    assert!(poll(&mut sent).is_none(), "what was sent is not given up");
    turn.complete(answers(1, 1), START);
    assert_eq!(body(poll(&mut sent)), Some(1));
    let mut again = ask(&cache, 2);
    assert_eq!(query(&mut turn), Some(vec![2]), "asked for anew, at once, by the turn that goes on");
    turn.complete(answers(1, 1), START);
    assert_eq!(body(poll(&mut again)), Some(1));
    assert_eq!(query(&mut turn), None);
    assert_idle(&cache);
}
