//! The contract, one schedule at a time.

use super::*;
use crate::config::WhenStale;
use crate::flight::Waited;
use crate::record::HOT_HITS_MIN;
use crate::testkit::*;
use crate::{Answers, BatchLoader, Fetched};
use hotrow_types::version::Position;

const KEY: i64 = 1;

fn get(cache: &TestCache, now: Nanos) -> Lookup<TestError> {
    cache.lookup(&key(KEY), ReadMode::Normal, now)
}

/// Returns a loader that has sent its query for the one waiting key.
fn send(cache: &TestCache, now: Nanos) -> BatchLoader<TestError> {
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(loader.next_batch(now).unwrap(), [key(KEY)]);
    loader
}

/// Reads the key completely, with the log at `at`.
fn fill(cache: &TestCache, at: u64, now: Nanos) {
    let mut waiter = waiter(cache.lookup(&key(KEY), ReadMode::Revalidate, now));
    let mut loader = send(cache, now);
    loader.complete(answers(at, 1), now);
    assert!(loader.next_batch(now).is_none());
    assert_eq!(body(poll(&mut waiter)), Some(at));
}

/// Returns the entry as a lookup serves it.
fn served_at(cache: &TestCache, now: Nanos) -> Option<(u64, Freshness)> {
    match get(cache, now) {
        Lookup::Hit(record, freshness) => {
            Some((std::str::from_utf8(record.body()).unwrap().parse().unwrap(), freshness))
        }
        Lookup::Coalesced(_) | Lookup::Miss(_) | Lookup::Bypass(_) => None,
        other => panic!("{other:?}"),
    }
}

fn after(ms: u64) -> Nanos {
    START.after(Duration::from_millis(ms))
}

#[test]
fn a_fill_does_not_hide_a_change_during_it() {
    for how in ["invalidate", "purge", "flush", "lose"] {
        let cache = cache(config());
        let mut early = waiter(get(&cache, START));
        let mut loader = send(&cache, START);
        match how {
            "invalidate" => assert!(!cache.invalidate(&key(KEY), LOGGED)),
            "purge" => drop(cache.purge(&key(KEY))),
            "flush" => cache.flush(FIRST, None),
            _ => cache.mark_gap(ONLY, None),
        }
        let late = get(&cache, START);
        assert!(matches!(late, Lookup::Miss(_)), "{how}: the old read may not be joined");
        loader.complete(answers(5, 1), START);
        assert_eq!(body(poll(&mut early)), Some(5), "{how}");
        assert_eq!(served_at(&cache, START), None, "{how}: not kept");
        assert_eq!(loader.next_batch(START).unwrap(), [key(KEY)]);
        loader.complete(answers(6, 1), START);
        assert_eq!(body(poll(&mut waiter(late))), Some(6), "{how}");
        assert_eq!(served_at(&cache, START), Some((6, Freshness::Fresh)), "{how}");
        assert_eq!(cache.stats(FIRST).fills_discarded_total, 1, "{how}");
    }
}

#[test]
fn a_fill_of_an_earlier_epoch_is_not_kept() {
    for how in ["flush", "lose"] {
        let cache = cache(config());
        let _asked = get(&cache, START);
        let mut loader = send(&cache, START);
        if how == "flush" {
            cache.flush(FIRST, None)
        } else {
            cache.mark_gap(ONLY, None)
        }
        loader.complete(answers(5, 1), START);
        let stats = cache.stats(FIRST);
        assert_eq!((stats.entries, stats.fills_discarded_total), (0, 1), "{how}");
    }
}

#[test]
fn a_change_before_the_query_is_sent_ends_no_lease() {
    let cache = cache(config());
    let mut waiting = waiter(get(&cache, START));
    cache.invalidate(&key(KEY), LOGGED);
    assert!(matches!(get(&cache, START), Lookup::Coalesced(_)));
    let mut loader = send(&cache, START);
    loader.complete(answers(5, 1), START);
    assert_eq!(body(poll(&mut waiting)), Some(5));
    assert_eq!(served_at(&cache, START), Some((5, Freshness::Fresh)));
}

#[test]
fn a_revalidation_joins_no_read_in_flight_and_ends_its_lease() {
    let cache = cache(config());
    let mut old = waiter(get(&cache, START));
    let mut first = send(&cache, START);
    let new = cache.lookup(&key(KEY), ReadMode::Revalidate, START);
    assert!(matches!(new, Lookup::Miss(_)));
    assert!(
        matches!(cache.lookup(&key(KEY), ReadMode::Revalidate, START), Lookup::Coalesced(_)),
        "queued: it begins later"
    );
    let mut second = send(&cache, START);
    second.complete(answers(8, 1), START);
    assert_eq!(body(poll(&mut waiter(new))), Some(8));
    // The old read returns late, with an old row: its waiters asked before, and the entry stays.
    first.complete(answers(7, 1), START);
    assert_eq!(body(poll(&mut old)), Some(7));
    assert_eq!(served_at(&cache, START), Some((8, Freshness::Fresh)));
}

#[test]
fn an_entry_older_than_a_dead_reads_answer_is_removed() {
    for (dead, left) in
        [(9, None), (8, Some((8, Freshness::Fresh))), (7, Some((8, Freshness::Fresh)))]
    {
        let cache = cache(config());
        let _old = get(&cache, START);
        let mut first = send(&cache, START);
        fill(&cache, 8, START);
        first.complete(answers(dead, 1), START);
        assert_eq!(served_at(&cache, START), left, "{dead}");
    }
}

#[test]
fn a_read_older_than_an_earlier_answer_is_sent_again() {
    let version = |at| match at {
        0 => hotrow_types::version::Version::Unknown,
        _ => log(at),
    };
    // Versions answered by dead reads in the meantime, the version of the read, and whether it may
    // be given.
    let cases: [(&[u64], u64, bool); 6] = [
        (&[9], 8, false),
        (&[9], 9, true),
        (&[9, 7], 8, false),
        (&[7, 9], 8, false),
        // A version that cannot be compared is never dominated.
        (&[0], 9, false),
        (&[0, 5], 9, false),
    ];
    for (reads_in_between, brings, good) in cases {
        let cache = cache(Config { reads_in_flight: 4, ..config() });
        let mut dead = Vec::new();
        for _ in reads_in_between {
            let _waiter = cache.lookup(&key(KEY), ReadMode::Revalidate, START);
            let waiter = waiter(cache.lookup(&key(KEY), ReadMode::Revalidate, START));
            dead.push((send(&cache, START), waiter));
        }
        let mut asked = waiter(cache.lookup(&key(KEY), ReadMode::Revalidate, START));
        let mut loader = send(&cache, START);
        for ((loader, _waiter), &at) in dead.iter_mut().zip(reads_in_between) {
            let rows = vec![Fetched::Found(b"0".to_vec())];
            loader.complete(Ok(Answers { version: version(at), position: None, rows }), START);
        }
        loader.complete(answers(brings, 1), START);
        if !good {
            assert!(poll(&mut asked).is_none(), "{reads_in_between:?} {brings}");
            assert_eq!(cache.stats(FIRST).fill_retries_total, 1);
            assert_eq!(loader.next_batch(START).unwrap(), [key(KEY)]);
            loader.complete(answers(10, 1), START);
        }
        assert_eq!(
            body(poll(&mut asked)),
            Some(if good { brings } else { 10 }),
            "{reads_in_between:?} {brings}"
        );
    }
}

#[test]
fn a_log_end_position_does_not_protect_an_entry() {
    // The log's end at 9 comes with a row of 6; a dead read's answer of 7 is newer than that entry.
    let cache = cache(config());
    let _old = get(&cache, START);
    let mut first = send(&cache, START);
    let _new = cache.lookup(&key(KEY), ReadMode::Revalidate, START);
    let mut second = send(&cache, START);
    let position = Some(Position { incarnation: 1, at: 9 });
    let rows = vec![Fetched::Found(b"6".to_vec())];
    second.complete(Ok(Answers { version: log(6), position, rows }), START);
    assert_eq!(served_at(&cache, START), Some((6, Freshness::Fresh)));
    first.complete(answers(7, 1), START);
    assert_eq!(served_at(&cache, START), None);
}

#[test]
fn beyond_the_bound_the_policy_applies() {
    let at = |when_stale| {
        let cache = cache(Config { when_stale, ..config() });
        fill(&cache, 5, START);
        assert_eq!(served_at(&cache, after(1000)), Some((5, Freshness::Fresh)));
        cache
    };
    let bypass = at(WhenStale::Bypass);
    assert_eq!(served_at(&bypass, after(1001)), None);
    fill(&bypass, 6, after(2000));
    assert_eq!(
        served_at(&bypass, after(3000)),
        Some((6, Freshness::Fresh)),
        "shared from the start of its read"
    );
    assert_eq!(served_at(&bypass, after(3001)), None);
    let stale = at(WhenStale::Stale);
    assert_eq!(served_at(&stale, after(1001)), Some((5, Freshness::Stale)));
    assert_eq!(served_at(&stale, after(60_000)), None, "never past its TTL");
    let refuse = at(WhenStale::Refuse);
    assert!(matches!(get(&refuse, after(1001)), Lookup::Refused(LookupError::Behind)));
    let cold = refuse.lookup(&key(77), ReadMode::Normal, after(1001));
    assert!(matches!(cold, Lookup::Refused(LookupError::Behind)));
    assert!(matches!(refuse.lookup(&key(KEY), ReadMode::Revalidate, after(1001)), Lookup::Miss(_)));
}

#[test]
fn only_young_reads_are_joined_while_the_feed_is_behind() {
    let cache = cache(config());
    let _first = get(&cache, after(2000));
    let _loader = send(&cache, after(2000));
    assert!(matches!(get(&cache, after(3000)), Lookup::Coalesced(_)));
    let late = get(&cache, after(3001));
    assert!(matches!(late, Lookup::Miss(_)));
    // Current again: reads that may be joined.
    cache.advance(ONLY, after(3100), None);
    let _loader = send(&cache, after(3001));
    assert!(matches!(get(&cache, after(4100)), Lookup::Coalesced(_)));
}

#[test]
fn a_gap_and_a_restart_are_two_epochs() {
    let cache = cache(config());
    fill(&cache, 5, START);
    cache.mark_gap(ONLY, None);
    assert_eq!((cache.applied(ONLY), cache.feed_epochs_total(ONLY)), (None, 1));
    assert_eq!(served_at(&cache, START), None);
    fill(&cache, 6, START);
    assert_eq!(
        served_at(&cache, START),
        Some((6, Freshness::Fresh)),
        "read between the two: good until the bound"
    );
    let started = Position { incarnation: 2, at: 3 };
    cache.mark_gap(ONLY, Some(started));
    assert_eq!(cache.applied(ONLY), Some(started));
    assert_eq!(served_at(&cache, START), None);
}

#[test]
fn the_feed_vouches_for_an_age_only_within_an_epoch() {
    let cache = cache(Config { when_stale: WhenStale::Stale, ..config() });
    fill(&cache, 5, START);
    let Lookup::Hit(record, _) = get(&cache, START) else { panic!() };
    cache.advance(ONLY, after(5000), None);
    assert_eq!(cache.age(&record, after(5100)), Duration::from_millis(100));
    // A gap, then a feed that is behind: it vouches only for what was read after the gap.
    cache.mark_gap(ONLY, None);
    cache.mark_gap(ONLY, None);
    cache.advance(ONLY, after(6000), None);
    let Lookup::Hit(record, Freshness::Stale) = get(&cache, after(7500)) else { panic!() };
    assert_eq!(cache.age(&record, after(7500)), Duration::from_millis(7500));
}

#[test]
fn expired_entries_are_served_while_refreshed_and_invalidated_ones_never() {
    let cache = cache(Config { stale_while_revalidate: Duration::from_secs(5), ..config() });
    fill(&cache, 5, START);
    let now = after(60_000);
    cache.advance(ONLY, now, None);
    assert_eq!(served_at(&cache, now), Some((5, Freshness::Expired)));
    assert!(cache.refresh(&key(KEY)));
    assert!(cache.refresh(&key(KEY)), "still queued: a leader may be missing");
    let mut loader = send(&cache, now);
    assert!(!cache.refresh(&key(KEY)), "it is being read");
    assert_eq!(served_at(&cache, now), Some((5, Freshness::Expired)));
    loader.complete(answers(6, 1), now);
    assert_eq!(served_at(&cache, now), Some((6, Freshness::Fresh)));
    let now = after(120_000);
    cache.advance(ONLY, now, None);
    assert_eq!(served_at(&cache, now), Some((6, Freshness::Expired)));
    cache.invalidate(&key(KEY), LOGGED);
    assert_eq!(served_at(&cache, now), None);
    let end = after(125_000);
    cache.advance(ONLY, end, None);
    let kept = self::cache(Config { stale_while_revalidate: Duration::from_secs(5), ..config() });
    fill(&kept, 5, START);
    kept.advance(ONLY, after(65_000), None);
    assert_eq!(served_at(&kept, after(65_000)), None, "past the window");
}

#[test]
fn hot_records_are_read_again_when_they_change() {
    let cache = cache(Config { prefetch_on_change: true, ..config() });
    let served = |times: u8| (0..times).for_each(|_| assert!(served_at(&cache, START).is_some()));
    fill(&cache, 5, START);
    served(HOT_HITS_MIN - 1);
    assert!(!cache.invalidate(&key(KEY), LOGGED), "hardly used");
    fill(&cache, 6, START);
    served(HOT_HITS_MIN);
    assert!(cache.invalidate(&key(KEY), LOGGED));
    // Requests in the meantime wait for that read and do not begin another one.
    let Lookup::Coalesced(mut waiter) = cache.lookup(&key(KEY), ReadMode::Normal, START) else {
        panic!("no read is in flight")
    };
    assert!(
        !cache.invalidate(&key(KEY), LOGGED),
        "the read has not begun: it will see this change too"
    );
    send(&cache, START).complete(answers(7, 1), START);
    assert_eq!(
        (body(poll(&mut waiter)), served_at(&cache, START)),
        (Some(7), Some((7, Freshness::Fresh)))
    );
    assert_eq!(cache.stats(FIRST).hot_refreshes_total, 1);
    // A change during the read: its answer is not kept, and a new read was queued for later
    // requests.
    served(HOT_HITS_MIN);
    assert!(cache.invalidate(&key(KEY), LOGGED));
    let mut loader = send(&cache, START);
    assert!(!cache.invalidate(&key(KEY), LOGGED), "no entry, so nothing is known to be hot");
    loader.complete(answers(8, 1), START);
    assert_eq!(served_at(&cache, START), None);
}

#[test]
fn a_read_without_a_revocable_lease_is_joined_only_within_the_bound() {
    let late = after(1500);
    for (aliased, joins) in [(false, true), (true, false)] {
        let cache = cache(config());
        if aliased {
            cache.expect_aliases(FIRST);
        }
        let _first = waiter(cache.lookup(&key(KEY), ReadMode::Normal, START));
        let _loader = send(&cache, START);
        cache.advance(ONLY, late, None);
        let again = cache.lookup(&key(KEY), ReadMode::Normal, late);
        assert_eq!(matches!(again, Lookup::Coalesced(_)), joins, "{again:?}");
        assert_eq!(matches!(again, Lookup::Miss(_)), !joins);
    }
}

#[test]
fn refreshes_leave_queue_room_for_requests() {
    let cache = cache(Config { prefetch_on_change: true, waiting_keys: 2, ..config() });
    for id in [1, 2] {
        let Lookup::Miss(waiter) = cache.lookup(&key(id), ReadMode::Normal, START) else {
            panic!("{id}")
        };
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(loader.next_batch(START), Some(vec![key(id)]));
        loader.complete(answers(5, 1), START);
        drop((loader, waiter));
        (0..HOT_HITS_MIN).for_each(|_| {
            assert!(matches!(cache.lookup(&key(id), ReadMode::Normal, START), Lookup::Hit(..)))
        });
    }
    assert!(cache.invalidate(&key(1), LOGGED));
    assert!(!cache.invalidate(&key(2), LOGGED), "half of the places are taken");
}

#[test]
fn a_failed_refresh_waits_for_error_ttl() {
    let cache = cache(Config { stale_while_revalidate: Duration::from_secs(5), ..config() });
    fill(&cache, 5, START);
    let now = after(60_000);
    cache.advance(ONLY, now, None);
    assert!(cache.refresh(&key(KEY)));
    send(&cache, now).complete(Err("down"), now);
    assert_eq!(served_at(&cache, now), Some((5, Freshness::Expired)));
    assert!(!cache.refresh(&key(KEY)), "it failed a moment ago");
    cache.advance(ONLY, after(60_500), None);
    assert!(cache.refresh(&key(KEY)));
}

#[test]
fn a_refresh_with_a_cancelled_loader_can_be_requested_again() {
    let cache = cache(config());
    assert!(cache.refresh(&key(KEY)));
    drop(cache.batch_loader(FIRST).unwrap());
    assert!(cache.refresh(&key(KEY)), "queued, without a leader");
    drop(send(&cache, START));
    assert!(cache.refresh(&key(KEY)));
    send(&cache, START).complete(answers(4, 1), START);
    assert_eq!(served_at(&cache, START), Some((4, Freshness::Fresh)));
}

#[test]
fn stale_if_error_serves_entries_unless_removed() {
    let config = || Config { stale_if_error: Duration::from_secs(10), ..config() };
    let now = after(65_000);
    let filled = || {
        let cache = cache(config());
        fill(&cache, 5, START);
        cache
    };
    assert_eq!(filled().stale_if_error(&key(KEY), now).unwrap().body(), b"5");
    assert!(filled().stale_if_error(&key(KEY), after(70_000)).is_none());
    for how in ["invalidate", "purge", "flush", "replaced by nothing"] {
        let cache = filled();
        match how {
            "invalidate" => assert!(!cache.invalidate(&key(KEY), LOGGED)),
            "purge" => assert!(cache.purge(&key(KEY))),
            "flush" => cache.flush(FIRST, None),
            _ => {
                let _new = cache.lookup(&key(KEY), ReadMode::Revalidate, START);
                send(&cache, START).complete(missing(6, 1), START);
            }
        }
        let body = cache.stale_if_error(&key(KEY), after(5)).map(|record| record.body().to_vec());
        let want = (how == "replaced by nothing").then(Vec::new);
        assert_eq!(body, want, "{how}");
    }
}

#[test]
fn missing_records_have_their_own_ttl_and_are_fenced_too() {
    let cache = cache(config());
    let _waiter = get(&cache, START);
    send(&cache, START).complete(missing(3, 1), START);
    cache.advance(ONLY, after(10_000), None);
    assert!(matches!(get(&cache, after(9_999)), Lookup::Negative(_, Freshness::Fresh)));
    let expired = get(&cache, after(10_000));
    assert!(matches!(expired, Lookup::Miss(_)));
    let mut loader = send(&cache, after(10_000));
    cache.invalidate(&key(KEY), LOGGED);
    loader.complete(missing(4, 1), after(10_000));
    assert!(matches!(get(&cache, after(10_000)), Lookup::Miss(_)));
}

#[test]
fn flushed_entries_are_freed_on_request() {
    let cache = cache(config());
    fill(&cache, 5, START);
    cache.flush(FIRST, None);
    assert_eq!(cache.stats(FIRST).entries, 1);
    assert_eq!(served_at(&cache, START), None);
    let stats = cache.stats(FIRST);
    assert_eq!((stats.entries, stats.bytes, stats.flushes_total), (0, 0, 1));
    assert_eq!(stats.removed[Removal::Flushed as usize], 1);
    let other = key_of(CollectionId(1), KEY);
    let _waiter = cache.lookup(&other, ReadMode::Normal, START);
    let mut loader = cache.batch_loader(CollectionId(1)).unwrap();
    loader.next_batch(START).unwrap();
    cache.flush(FIRST, None);
    loader.complete(answers(1, 1), START);
    assert!(
        matches!(cache.lookup(&other, ReadMode::Normal, START), Lookup::Hit(..)),
        "another collection's affair"
    );
}

#[test]
fn hits_do_not_wait_for_the_database() {
    let cache = cache(Config { reads_in_flight: 1, waiting_keys: 2, ..config() });
    fill(&cache, 5, START);
    let _held: Vec<_> =
        (10..12).map(|id| cache.lookup(&key(id), ReadMode::Normal, START)).collect();
    assert!(matches!(
        cache.lookup(&key(12), ReadMode::Normal, START),
        Lookup::Refused(LookupError::QueueFull)
    ));
    assert_eq!(served_at(&cache, START), Some((5, Freshness::Fresh)));
    let waiting = cache.lookup(&key(10), ReadMode::Normal, START);
    assert!(!matches!(poll(&mut waiter(waiting)), Some(Waited::Done(_))));
}
