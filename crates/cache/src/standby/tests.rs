//! The rules of standbys, one by one. The simulator has their combinations.

use std::sync::Arc;

use super::*;
use crate::config::Config;
use crate::flight::{Waited, Waiter};
use crate::testkit::*;
use crate::{Answers, BatchLoader, Fetched, Freshness, Lookup, ReadMode};
use hotrow_types::version::{ChangeId, Snapshot};

fn at(at: u64) -> Position {
    Position { incarnation: 1, at }
}

/// A cache without a feed. A failed read is not remembered.
fn unstarted() -> TestCache {
    cache(Config { error_ttl: std::time::Duration::ZERO, ..config() })
}

/// A cache whose feed started at 100 and has passed a probe since.
fn started() -> TestCache {
    let cache = unstarted();
    cache.expect_standbys(ONLY);
    cache.mark_gap(ONLY, Some(at(100)));
    cache.release_all_standbys_after(ONLY, START);
    cache.advance(ONLY, ms(1_000_001), Some(at(100)));
    cache
}

const NOW: Nanos = ms(1_000_002);

fn ask(cache: &TestCache, id: i64) -> Waiter<TestError> {
    waiter(cache.lookup(&key(id), ReadMode::Normal, NOW))
}

fn send(cache: &TestCache) -> BatchLoader<TestError> {
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert!(loader.next_batch(NOW).is_some());
    loader
}

/// Asks for a key and returns what a standby must have replayed for it.
fn floor(cache: &TestCache, id: i64) -> Option<u64> {
    let _waiter = ask(cache, id);
    let mut loader = send(cache);
    let floor = loader.standby_floor();
    loader.complete(Err("the test ends here"), NOW);
    floor.map(|floor| floor.at)
}

fn row(version: Version, end: u64, body: u64) -> Result<Answers<TestError>, TestError> {
    let rows = vec![Fetched::Found(body.to_string().into_bytes())];
    Ok(Answers { version, position: Some(at(end)), rows })
}

/// Answer of a standby that had replayed `from` and shows at most `to`.
fn of_standby(from: u64, to: u64, body: u64) -> Result<Answers<TestError>, TestError> {
    row(Version::Replayed { from: at(from), to: at(to) }, to, body)
}

/// Answer of the primary with these transactions running.
fn of_primary(
    xmax: u64,
    running: &[u64],
    end: u64,
    body: u64,
) -> Result<Answers<TestError>, TestError> {
    let xmin = running.first().copied().unwrap_or(xmax);
    let snapshot = Arc::new(Snapshot { xmin, xmax, running: running.to_vec() });
    row(Version::Snapshot { incarnation: 1, snapshot }, end, body)
}

fn change(xid: u64, commit: u64) -> ChangeId {
    ChangeId::Transaction { xid, commit }
}

#[test]
fn standbys_wait_for_a_probe_after_the_start_of_the_feed() {
    let cache = unstarted();
    cache.expect_standbys(ONLY);
    assert_eq!(floor(&cache, 1), None, "no feed");
    cache.mark_gap(ONLY, Some(at(100)));
    cache.release_all_standbys_after(ONLY, START);
    cache.advance(ONLY, START, Some(at(100)));
    assert_eq!(floor(&cache, 2), None, "that probe was sent before");
    cache.advance(ONLY, ms(1_000_001), Some(at(120)));
    assert_eq!(floor(&cache, 3), Some(120), "what was committed before is not delivered");
    cache.mark_gap(ONLY, None);
    assert_eq!(floor(&cache, 4), None, "the feed is lost");
}

#[test]
fn what_became_known_without_a_mark_holds_standbys_back() {
    let changes: [fn(&TestCache); 4] = [
        |cache| cache.flush(FIRST, None),
        |cache| _ = cache.purge(&key(1)),
        |cache| cache.open_gap(FIRST),
        |cache| {
            cache.open_gap(FIRST);
            cache.close_gap(FIRST);
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let cache = started();
        change(&cache);
        cache.advance(ONLY, ms(1_000_002), Some(at(130)));
        assert_eq!(floor(&cache, 1), None, "{i}: nothing says when");
        cache.release_standbys_after(FIRST, ms(1_000_002));
        cache.advance(ONLY, ms(1_000_002), Some(at(140)));
        assert_eq!(floor(&cache, 2), None, "{i}");
        cache.advance(ONLY, ms(1_000_003), Some(at(150)));
        let is_open = i == 2;
        assert_eq!(floor(&cache, 3), (!is_open).then_some(150), "{i}");
    }
}

#[test]
fn a_standby_needs_the_changes_of_its_keys_and_what_was_shown() {
    let cache = started();
    cache.invalidate(&key(1), change(7, 200));
    assert_eq!(floor(&cache, 1), Some(201));
    assert_eq!(floor(&cache, 2), Some(100));
    let mut waiter = ask(&cache, 3);
    let mut loader = send(&cache);
    loader.complete(of_primary(7, &[], 300, 5), NOW);
    assert_eq!(body(poll(&mut waiter)), Some(5));
    cache.invalidate(&key(3), change(8, 250));
    assert_eq!(floor(&cache, 3), Some(300), "an answer may have shown all up to there");
    let both = Snapshot { xmin: 9, xmax: 9, running: Vec::new() };
    let seen = Version::Snapshot { incarnation: 1, snapshot: Arc::new(both) };
    cache.advance_visibility(ONLY, &seen);
    assert_eq!(floor(&cache, 2), Some(251), "forgotten changes count for every key");
}

#[test]
fn only_the_primary_answers_some_requests() {
    let cache = started();
    let _fresh = waiter(cache.lookup(&key(1), ReadMode::Revalidate, NOW));
    assert_eq!(send(&cache).standby_floor(), None, "no-cache");
    let cache = started();
    let _first = ask(&cache, 1);
    let joined = cache.lookup(&key(1), ReadMode::Revalidate, NOW);
    assert!(matches!(joined, Lookup::Coalesced(_)), "a read that has not begun");
    assert_eq!(send(&cache).standby_floor(), None);
    let cache = started();
    cache.expect_aliases(FIRST);
    assert_eq!(floor(&cache, 1), None, "several spellings");
    let cache = started();
    let late = ms(1_000_001).after(cache.config().max_staleness * 2);
    let _waiter = waiter(cache.lookup(&key(1), ReadMode::Normal, late));
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert!(loader.next_batch(late).is_some());
    assert_eq!(loader.standby_floor(), None, "the feed is behind");
}

#[test]
fn a_refused_read_goes_to_the_primary() {
    let cache = started();
    let mut waiter = ask(&cache, 1);
    let mut loader = send(&cache);
    assert!(loader.standby_floor().is_some());
    loader.read_primary();
    assert_eq!(loader.next_batch(NOW).unwrap(), [key(1)]);
    assert_eq!(loader.standby_floor(), None);
    loader.complete(of_primary(7, &[], 100, 5), NOW);
    assert_eq!(body(poll(&mut waiter)), Some(5));
}

#[test]
fn an_answer_waits_until_the_feed_has_delivered_what_it_may_show() {
    let cache = started();
    let bound = StandbyBound { past: 110, end: 150 };
    assert_eq!(cache.delivered_through(ONLY, at(100), bound), None);
    cache.advance(ONLY, NOW, Some(at(110)));
    assert_eq!(cache.delivered_through(ONLY, at(100), bound), None);
    cache.advance(ONLY, NOW, Some(at(111)));
    assert_eq!(cache.delivered_through(ONLY, at(100), bound), Some(at(111)));
    cache.advance(ONLY, NOW, Some(at(180)));
    assert_eq!(
        cache.delivered_through(ONLY, at(100), bound),
        Some(at(150)),
        "no more than it shows"
    );
    assert_eq!(cache.delivered_through(ONLY, Position { incarnation: 2, at: 100 }, bound), None);
}

#[test]
fn after_a_standby_the_primary_must_see_as_much() {
    let cache = started();
    // Delivered, and not visible on the primary yet.
    cache.invalidate(&key(1), change(7, 200));
    cache.advance(ONLY, NOW, Some(at(220)));
    let mut first = ask(&cache, 1);
    let mut loader = send(&cache);
    loader.complete(of_standby(201, 220, 7), NOW);
    assert_eq!(body(poll(&mut first)), Some(7));
    assert!(loader.next_batch(NOW).is_none());
    let mut second = waiter(cache.lookup(&key(1), ReadMode::Revalidate, NOW));
    let mut loader = send(&cache);
    loader.complete(of_primary(8, &[7], 230, 6), NOW);
    assert_eq!(loader.fills().hidden, 1);
    assert!(poll(&mut second).is_none(), "it would be older than the answer before");
    assert!(loader.next_batch(NOW).is_some());
    loader.complete(of_primary(8, &[], 240, 7), NOW);
    assert_eq!(body(poll(&mut second)), Some(7));
}

#[test]
fn a_change_that_no_standby_showed_needs_no_second_read() {
    let cache = started();
    let mut first = ask(&cache, 1);
    let mut loader = send(&cache);
    loader.complete(of_standby(100, 150, 6), NOW);
    assert_eq!(body(poll(&mut first)), Some(6));
    assert!(loader.next_batch(NOW).is_none());
    cache.invalidate(&key(1), change(7, 200));
    let mut second = waiter(cache.lookup(&key(1), ReadMode::Revalidate, NOW));
    let mut loader = send(&cache);
    loader.complete(of_primary(8, &[7], 230, 6), NOW);
    assert_eq!(body(poll(&mut second)), Some(6), "hidden, and never shown");
}

#[test]
fn a_late_answer_of_a_standby_is_not_given_after_a_newer_one() {
    let cache = started();
    let mut first = ask(&cache, 1);
    let mut late = send(&cache);
    assert_eq!(late.standby_floor(), Some(at(100)));
    // The change ends its lease, and the next request reads the primary before it returns.
    cache.invalidate(&key(1), change(7, 200));
    let mut second = waiter(cache.lookup(&key(1), ReadMode::Revalidate, NOW));
    let mut loader = send(&cache);
    loader.complete(of_primary(8, &[], 250, 7), NOW);
    assert_eq!(body(poll(&mut second)), Some(7));
    late.complete(of_standby(150, 160, 6), NOW);
    assert!(poll(&mut first).is_none());
    assert!(late.next_batch(NOW).is_some());
    assert_eq!(late.standby_floor(), None, "the second time the primary is read");
    late.complete(of_primary(8, &[], 260, 7), NOW);
    assert!(matches!(poll(&mut first), Some(Waited::Done(Ok(_)))));
}

#[test]
fn a_record_of_a_standby_is_not_served_past_the_bound() {
    let cache = started();
    let _waiter = ask(&cache, 1);
    let mut loader = send(&cache);
    loader.complete(of_standby(100, 100, 6), NOW);
    let (record, freshness) = cache.peek(&key(1), NOW).unwrap();
    assert_eq!(freshness, Freshness::Fresh);
    let bound = cache.config().max_staleness;
    assert_eq!(cache.age(&record, NOW), NOW.since(ms(1_000_001)), "that of the feed");
    // A record that the primary read at the same time would be shared for one bound more.
    let behind = ms(1_000_001).after(bound + std::time::Duration::from_nanos(1));
    assert!(cache.peek(&key(1), behind).is_none());
}
