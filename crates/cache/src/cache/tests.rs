//! The contract, one schedule at a time.

use super::*;
use crate::config::WhenStale;
use crate::flight::Waited;
use crate::record::HOT_USES;
use crate::testkit::*;
use crate::{Answers, Fetched};

const KEY: i64 = 1;

fn get(cache: &TestCache, now: Nanos) -> Lookup<Broken> {
    cache.lookup(&key(KEY), Wish::Any, now)
}

/// A turn that has sent its query for the one key that waits.
fn send(cache: &TestCache, now: Nanos) -> Turn<Broken> {
    let mut turn = cache.turn(FIRST).unwrap();
    assert_eq!(turn.next_query(now).unwrap(), [key(KEY)]);
    turn
}

/// Reads the key in one go, as the log stands at `at`.
fn fill(cache: &TestCache, at: u64, now: Nanos) {
    let mut waiter = waiter(cache.lookup(&key(KEY), Wish::New, now));
    let mut turn = send(cache, now);
    turn.complete(answers(at, 1), now);
    assert!(turn.next_query(now).is_none());
    assert_eq!(body(poll(&mut waiter)), Some(at));
}

/// The entry, as a lookup serves it.
fn served_at(cache: &TestCache, now: Nanos) -> Option<(u64, Quality)> {
    match get(cache, now) {
        Lookup::Hit(record, quality) => Some((std::str::from_utf8(record.body()).unwrap().parse().unwrap(), quality)),
        Lookup::Wait(_) | Lookup::Fill(_) | Lookup::Bypass(_) => None,
        other => panic!("{other:?}"),
    }
}

fn after(ms: u64) -> Nanos {
    START.after(Duration::from_millis(ms))
}

#[test]
fn a_change_during_a_fill_is_not_covered_up() {
    for how in ["invalidate", "purge", "flush", "lose"] {
        let cache = cache(config());
        let mut early = waiter(get(&cache, START));
        let mut turn = send(&cache, START);
        match how {
            "invalidate" => assert!(!cache.invalidate(&key(KEY), LOGGED)),
            "purge" => drop(cache.purge(&key(KEY))),
            "flush" => cache.flush(FIRST, None),
            _ => cache.lose(None),
        }
        let late = get(&cache, START);
        assert!(matches!(late, Lookup::Fill(_)), "{how}: the old read may not be joined");
        turn.complete(answers(5, 1), START);
        assert_eq!(body(poll(&mut early)), Some(5), "{how}");
        assert_eq!(served_at(&cache, START), None, "{how}: not kept");
        assert_eq!(turn.next_query(START).unwrap(), [key(KEY)]);
        turn.complete(answers(6, 1), START);
        assert_eq!(body(poll(&mut waiter(late))), Some(6), "{how}");
        assert_eq!(served_at(&cache, START), Some((6, Quality::Fresh)), "{how}");
        assert_eq!(cache.stats(FIRST).dead_leases_total, 1, "{how}");
    }
}

#[test]
fn a_fill_begun_before_an_era_ended_is_not_kept() {
    for how in ["flush", "lose"] {
        let cache = cache(config());
        let _asked = get(&cache, START);
        let mut turn = send(&cache, START);
        if how == "flush" {
            cache.flush(FIRST, None)
        } else {
            cache.lose(None)
        }
        turn.complete(answers(5, 1), START);
        let stats = cache.stats(FIRST);
        assert_eq!((stats.entries, stats.dead_leases_total), (0, 1), "{how}");
    }
}

#[test]
fn a_change_before_the_query_is_sent_kills_nothing() {
    let cache = cache(config());
    let mut waiting = waiter(get(&cache, START));
    cache.invalidate(&key(KEY), LOGGED);
    assert!(matches!(get(&cache, START), Lookup::Wait(_)));
    let mut turn = send(&cache, START);
    turn.complete(answers(5, 1), START);
    assert_eq!(body(poll(&mut waiting)), Some(5));
    assert_eq!(served_at(&cache, START), Some((5, Quality::Fresh)));
}

#[test]
fn a_new_read_joins_none_that_has_begun_and_kills_its_lease() {
    let cache = cache(config());
    let mut old = waiter(get(&cache, START));
    let mut first = send(&cache, START);
    let new = cache.lookup(&key(KEY), Wish::New, START);
    assert!(matches!(new, Lookup::Fill(_)));
    assert!(matches!(cache.lookup(&key(KEY), Wish::New, START), Lookup::Wait(_)), "queued: it begins later");
    let mut second = send(&cache, START);
    second.complete(answers(8, 1), START);
    assert_eq!(body(poll(&mut waiter(new))), Some(8));
    // The old one returns late, with an old row: its waiters asked before, the entry stays.
    first.complete(answers(7, 1), START);
    assert_eq!(body(poll(&mut old)), Some(7));
    assert_eq!(served_at(&cache, START), Some((8, Quality::Fresh)));
}

#[test]
fn an_entry_older_than_a_dead_answer_goes() {
    for (dead, left) in [(9, None), (8, Some((8, Quality::Fresh))), (7, Some((8, Quality::Fresh)))] {
        let cache = cache(config());
        let _old = get(&cache, START);
        let mut first = send(&cache, START);
        fill(&cache, 8, START);
        first.complete(answers(dead, 1), START);
        assert_eq!(served_at(&cache, START), left, "{dead}");
    }
}

#[test]
fn a_read_that_would_answer_older_than_another_did_is_sent_again() {
    let version = |at| match at {
        0 => crate::version::Version::Unknown,
        _ => log(at),
    };
    // What dead reads answered meanwhile, what the read brings, and whether that may be given out.
    let cases: [(&[u64], u64, bool); 6] = [
        (&[9], 8, false),
        (&[9], 9, true),
        (&[9, 7], 8, false),
        (&[7, 9], 8, false),
        // A version that cannot be compared is never covered, whatever comes after it.
        (&[0], 9, false),
        (&[0, 5], 9, false),
    ];
    for (meanwhile, brings, good) in cases {
        let cache = cache(Config { reads_in_flight: 4, ..config() });
        let mut dead = Vec::new();
        for _ in meanwhile {
            let _waiter = cache.lookup(&key(KEY), Wish::New, START);
            let waiter = waiter(cache.lookup(&key(KEY), Wish::New, START));
            dead.push((send(&cache, START), waiter));
        }
        let mut asked = waiter(cache.lookup(&key(KEY), Wish::New, START));
        let mut turn = send(&cache, START);
        for ((turn, _waiter), &at) in dead.iter_mut().zip(meanwhile) {
            let rows = vec![Fetched::Found(b"0".to_vec())];
            turn.complete(Ok(Answers { version: version(at), position: None, rows }), START);
        }
        turn.complete(answers(brings, 1), START);
        if !good {
            assert!(poll(&mut asked).is_none(), "{meanwhile:?} {brings}");
            assert_eq!(cache.stats(FIRST).rereads_total, 1);
            assert_eq!(turn.next_query(START).unwrap(), [key(KEY)]);
            turn.complete(answers(10, 1), START);
        }
        assert_eq!(body(poll(&mut asked)), Some(if good { brings } else { 10 }), "{meanwhile:?} {brings}");
    }
}

#[test]
fn a_position_that_is_not_what_the_read_saw_does_not_defend_an_entry() {
    // The log's end at 9 goes with a row of 6; a dead answer of 7 is newer than that entry.
    let cache = cache(config());
    let _old = get(&cache, START);
    let mut first = send(&cache, START);
    let _new = cache.lookup(&key(KEY), Wish::New, START);
    let mut second = send(&cache, START);
    let position = Some(Position { incarnation: 1, at: 9 });
    let rows = vec![Fetched::Found(b"6".to_vec())];
    second.complete(Ok(Answers { version: log(6), position, rows }), START);
    assert_eq!(served_at(&cache, START), Some((6, Quality::Fresh)));
    first.complete(answers(7, 1), START);
    assert_eq!(served_at(&cache, START), None);
}

#[test]
fn past_the_bound_the_policy_acts() {
    let at = |when_stale| {
        let cache = cache(Config { when_stale, ..config() });
        fill(&cache, 5, START);
        assert_eq!(served_at(&cache, after(1000)), Some((5, Quality::Fresh)));
        cache
    };
    let bypass = at(WhenStale::Bypass);
    assert_eq!(served_at(&bypass, after(1001)), None);
    fill(&bypass, 6, after(2000));
    assert_eq!(served_at(&bypass, after(3000)), Some((6, Quality::Fresh)), "shared from the start of its read");
    assert_eq!(served_at(&bypass, after(3001)), None);
    let stale = at(WhenStale::Stale);
    assert_eq!(served_at(&stale, after(1001)), Some((5, Quality::Stale)));
    assert_eq!(served_at(&stale, after(60_000)), None, "never past its TTL");
    let refuse = at(WhenStale::Refuse);
    assert!(matches!(get(&refuse, after(1001)), Lookup::Refused(Refusal::Behind)));
    let cold = refuse.lookup(&key(77), Wish::Any, after(1001));
    assert!(matches!(cold, Lookup::Refused(Refusal::Behind)));
    assert!(matches!(refuse.lookup(&key(KEY), Wish::New, after(1001)), Lookup::Fill(_)));
}

#[test]
fn while_the_feed_is_behind_only_young_reads_are_joined() {
    let cache = cache(config());
    let _first = get(&cache, after(2000));
    let _turn = send(&cache, after(2000));
    assert!(matches!(get(&cache, after(3000)), Lookup::Wait(_)));
    let late = get(&cache, after(3001));
    assert!(matches!(late, Lookup::Fill(_)));
    // Current again: what reads may be joined.
    cache.advance(after(3100), None);
    let _turn = send(&cache, after(3001));
    assert!(matches!(get(&cache, after(4100)), Lookup::Wait(_)));
}

#[test]
fn a_loss_and_a_new_start_are_two_eras() {
    let cache = cache(config());
    fill(&cache, 5, START);
    cache.lose(None);
    assert_eq!((cache.applied(), cache.losses_total()), (None, 1));
    assert_eq!(served_at(&cache, START), None);
    fill(&cache, 6, START);
    assert_eq!(served_at(&cache, START), Some((6, Quality::Fresh)), "read between the two: good until the bound");
    let started = Position { incarnation: 2, at: 3 };
    cache.lose(Some(started));
    assert_eq!(cache.applied(), Some(started));
    assert_eq!(served_at(&cache, START), None);
}

#[test]
fn age_is_vouched_for_by_the_feed_only_within_an_era() {
    let cache = cache(Config { when_stale: WhenStale::Stale, ..config() });
    fill(&cache, 5, START);
    let Lookup::Hit(record, _) = get(&cache, START) else { panic!() };
    cache.advance(after(5000), None);
    assert_eq!(cache.age(&record, after(5100)), Duration::from_millis(100));
    // A gap, then a feed that is behind in its turn: what it vouched for was read after the gap.
    cache.lose(None);
    cache.lose(None);
    cache.advance(after(6000), None);
    let Lookup::Hit(record, Quality::Stale) = get(&cache, after(7500)) else { panic!() };
    assert_eq!(cache.age(&record, after(7500)), Duration::from_millis(7500));
}

#[test]
fn expired_entries_are_served_while_refreshed_and_invalidated_ones_never() {
    let cache = cache(Config { stale_while_revalidate: Duration::from_secs(5), ..config() });
    fill(&cache, 5, START);
    let now = after(60_000);
    cache.advance(now, None);
    assert_eq!(served_at(&cache, now), Some((5, Quality::Expired)));
    assert!(cache.refresh(&key(KEY)));
    assert!(cache.refresh(&key(KEY)), "still queued: somebody may have to lead");
    let mut turn = send(&cache, now);
    assert!(!cache.refresh(&key(KEY)), "it is being read");
    assert_eq!(served_at(&cache, now), Some((5, Quality::Expired)));
    turn.complete(answers(6, 1), now);
    assert_eq!(served_at(&cache, now), Some((6, Quality::Fresh)));
    let now = after(120_000);
    cache.advance(now, None);
    assert_eq!(served_at(&cache, now), Some((6, Quality::Expired)));
    cache.invalidate(&key(KEY), LOGGED);
    assert_eq!(served_at(&cache, now), None);
    let end = after(125_000);
    cache.advance(end, None);
    let kept = self::cache(Config { stale_while_revalidate: Duration::from_secs(5), ..config() });
    fill(&kept, 5, START);
    kept.advance(after(65_000), None);
    assert_eq!(served_at(&kept, after(65_000)), None, "past the window");
}

#[test]
fn a_hot_record_is_read_again_when_it_changes() {
    let cache = cache(Config { refresh_hot: true, ..config() });
    let served = |times: u8| (0..times).for_each(|_| assert!(served_at(&cache, START).is_some()));
    fill(&cache, 5, START);
    served(HOT_USES - 1);
    assert!(!cache.invalidate(&key(KEY), LOGGED), "hardly used");
    fill(&cache, 6, START);
    served(HOT_USES);
    assert!(cache.invalidate(&key(KEY), LOGGED));
    // Whoever asks meanwhile waits for that read; it is nobody's to begin another one.
    let Lookup::Wait(mut waiter) = cache.lookup(&key(KEY), Wish::Any, START) else { panic!("nobody reads") };
    assert!(!cache.invalidate(&key(KEY), LOGGED), "the read has not begun: it will see this change too");
    send(&cache, START).complete(answers(7, 1), START);
    assert_eq!((body(poll(&mut waiter)), served_at(&cache, START)), (Some(7), Some((7, Quality::Fresh))));
    assert_eq!(cache.stats(FIRST).hot_refreshes_total, 1);
    // A change during the read: its answer is not kept, and a new read was queued for what came after.
    served(HOT_USES);
    assert!(cache.invalidate(&key(KEY), LOGGED));
    let mut turn = send(&cache, START);
    assert!(!cache.invalidate(&key(KEY), LOGGED), "no entry, so nothing is known to be hot");
    turn.complete(answers(8, 1), START);
    assert_eq!(served_at(&cache, START), None);
}

#[test]
fn a_read_whose_lease_no_change_ends_is_joined_within_the_bound_only() {
    let late = after(1500);
    for (aliased, joins) in [(false, true), (true, false)] {
        let cache = cache(config());
        if aliased {
            cache.expect_aliases(FIRST);
        }
        let _first = waiter(cache.lookup(&key(KEY), Wish::Any, START));
        let _turn = send(&cache, START);
        cache.advance(late, None);
        let again = cache.lookup(&key(KEY), Wish::Any, late);
        assert_eq!(matches!(again, Lookup::Wait(_)), joins, "{again:?}");
        assert_eq!(matches!(again, Lookup::Fill(_)), !joins);
    }
}

#[test]
fn refreshes_leave_room_for_requests() {
    let cache = cache(Config { refresh_hot: true, waiting_keys: 2, ..config() });
    for id in [1, 2] {
        let Lookup::Fill(waiter) = cache.lookup(&key(id), Wish::Any, START) else { panic!("{id}") };
        let mut turn = cache.turn(FIRST).unwrap();
        assert_eq!(turn.next_query(START), Some(vec![key(id)]));
        turn.complete(answers(5, 1), START);
        drop((turn, waiter));
        (0..HOT_USES).for_each(|_| assert!(matches!(cache.lookup(&key(id), Wish::Any, START), Lookup::Hit(..))));
    }
    assert!(cache.invalidate(&key(1), LOGGED));
    assert!(!cache.invalidate(&key(2), LOGGED), "half of the places are taken");
}

#[test]
fn a_refresh_that_failed_waits_for_error_ttl() {
    let cache = cache(Config { stale_while_revalidate: Duration::from_secs(5), ..config() });
    fill(&cache, 5, START);
    let now = after(60_000);
    cache.advance(now, None);
    assert!(cache.refresh(&key(KEY)));
    send(&cache, now).complete(Err("down"), now);
    assert_eq!(served_at(&cache, now), Some((5, Quality::Expired)));
    assert!(!cache.refresh(&key(KEY)), "it failed a moment ago");
    cache.advance(after(60_500), None);
    assert!(cache.refresh(&key(KEY)));
}

#[test]
fn a_refresh_whose_reader_was_cancelled_can_be_asked_for_again() {
    let cache = cache(config());
    assert!(cache.refresh(&key(KEY)));
    drop(cache.turn(FIRST).unwrap());
    assert!(cache.refresh(&key(KEY)), "queued, with nobody to lead");
    drop(send(&cache, START));
    assert!(cache.refresh(&key(KEY)));
    send(&cache, START).complete(answers(4, 1), START);
    assert_eq!(served_at(&cache, START), Some((4, Quality::Fresh)));
}

#[test]
fn an_entry_stands_in_for_a_failed_read_but_not_once_it_was_taken_out() {
    let config = || Config { stale_if_error: Duration::from_secs(10), ..config() };
    let now = after(65_000);
    let filled = || {
        let cache = cache(config());
        fill(&cache, 5, START);
        cache
    };
    assert_eq!(filled().stand_in(&key(KEY), now).unwrap().body(), b"5");
    assert!(filled().stand_in(&key(KEY), after(70_000)).is_none());
    for how in ["invalidate", "purge", "flush", "replaced by nothing"] {
        let cache = filled();
        match how {
            "invalidate" => assert!(!cache.invalidate(&key(KEY), LOGGED)),
            "purge" => assert!(cache.purge(&key(KEY))),
            "flush" => cache.flush(FIRST, None),
            _ => {
                let _new = cache.lookup(&key(KEY), Wish::New, START);
                send(&cache, START).complete(missing(6, 1), START);
            }
        }
        let body = cache.stand_in(&key(KEY), after(5)).map(|record| record.body().to_vec());
        let want = (how == "replaced by nothing").then(Vec::new);
        assert_eq!(body, want, "{how}");
    }
}

#[test]
fn what_is_missing_has_its_own_ttl_and_is_fenced_alike() {
    let cache = cache(config());
    let _waiter = get(&cache, START);
    send(&cache, START).complete(missing(3, 1), START);
    cache.advance(after(10_000), None);
    assert!(matches!(get(&cache, after(9_999)), Lookup::Negative(_, Quality::Fresh)));
    let expired = get(&cache, after(10_000));
    assert!(matches!(expired, Lookup::Fill(_)));
    let mut turn = send(&cache, after(10_000));
    cache.invalidate(&key(KEY), LOGGED);
    turn.complete(missing(4, 1), after(10_000));
    assert!(matches!(get(&cache, after(10_000)), Lookup::Fill(_)));
}

#[test]
fn flushed_entries_give_their_room_back_when_they_are_asked_for() {
    let cache = cache(config());
    fill(&cache, 5, START);
    cache.flush(FIRST, None);
    assert_eq!(cache.stats(FIRST).entries, 1);
    assert_eq!(served_at(&cache, START), None);
    let stats = cache.stats(FIRST);
    assert_eq!((stats.entries, stats.bytes, stats.flushes_total), (0, 0, 1));
    assert_eq!(stats.removed[Removal::Flushed as usize], 1);
    let other = key_of(CollectionId(1), KEY);
    let _waiter = cache.lookup(&other, Wish::Any, START);
    let mut turn = cache.turn(CollectionId(1)).unwrap();
    turn.next_query(START).unwrap();
    cache.flush(FIRST, None);
    turn.complete(answers(1, 1), START);
    assert!(matches!(cache.lookup(&other, Wish::Any, START), Lookup::Hit(..)), "another collection's affair");
}

#[test]
fn hits_do_not_wait_for_the_database() {
    let cache = cache(Config { reads_in_flight: 1, waiting_keys: 2, ..config() });
    fill(&cache, 5, START);
    let _held: Vec<_> = (10..12).map(|id| cache.lookup(&key(id), Wish::Any, START)).collect();
    assert!(matches!(cache.lookup(&key(12), Wish::Any, START), Lookup::Refused(Refusal::QueueFull)));
    assert_eq!(served_at(&cache, START), Some((5, Quality::Fresh)));
    let waiting = cache.lookup(&key(10), Wish::Any, START);
    assert!(!matches!(poll(&mut waiter(waiting)), Some(Waited::Done(_))));
}
