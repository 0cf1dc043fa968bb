//! Orders of changes, reads and transactions around a snapshot batch, each forced.

use std::sync::Arc;

use hotrow_types::version::{ChangeId, Gtid, GtidSet, Position, Snapshot, SourceId, Version};

use super::*;
use crate::testkit::*;
use crate::{Lookup, ReadMode};

const OTHER: CollectionId = CollectionId(1);

fn at(at: u64) -> Position {
    Position { incarnation: 1, at }
}

fn commit(n: u64) -> ChangeId {
    ChangeId::Commit(at(n))
}

/// Returns a cache that has the key 1 of two collections, read at the point 5.
fn filled() -> TestCache {
    let cache = cache(config());
    cache.advance(ONLY, START, Some(at(5)));
    for collection in [FIRST, OTHER] {
        fill(&cache, collection, 5);
    }
    cache
}

fn fill(cache: &TestCache, collection: CollectionId, point: u64) {
    let _waiter = waiter(cache.lookup(&key_of(collection, 1), ReadMode::Normal, START));
    let mut loader = cache.batch_loader(collection).unwrap();
    assert!(loader.next_batch(START).is_some());
    loader.complete(answers(point, 1), START);
}

fn held(cache: &TestCache, collection: CollectionId) -> Option<Position> {
    match cache.lookup(&key_of(collection, 1), ReadMode::Normal, START) {
        Lookup::Hit(record, _) => record.position(),
        _ => None,
    }
}

fn register(cache: &TestCache) -> SnapshotKeys<TestError> {
    let keys = [FIRST, OTHER].map(|collection| [key_of(collection, 1)]);
    let parts = keys.iter().map(|keys| (keys[0].collection(), &keys[..]));
    cache.register_snapshot(parts)
}

fn none_changed() -> Vec<Vec<usize>> {
    vec![vec![], vec![]]
}

#[test]
fn a_transaction_that_arrives_between_two_takes_is_seen_at_the_point_that_it_reaches() {
    let cache = filled();
    let mut keys = register(&cache);
    // The transaction at 7 changes both keys. Its first change is delivered, and the key read
    // again, before the second one.
    assert!(!cache.invalidate(&key_of(FIRST, 1), commit(7)));
    fill(&cache, FIRST, 7);
    let positions = [FIRST, OTHER].map(|collection| held(&cache, collection));
    assert_eq!(positions, [Some(at(7)), Some(at(5))], "torn");
    assert!(!cache.invalidate(&key_of(OTHER, 1), commit(7)));
    cache.advance(ONLY, START, Some(at(7)));
    assert_eq!(keys.take_changed(), [[0], [0]]);
    assert_eq!(keys.take_changed(), none_changed(), "taken");
    fill(&cache, OTHER, 7);
    assert_eq!(keys.take_changed(), none_changed());
}

#[test]
fn only_changes_mark() {
    let cache = filled();
    let mut keys = register(&cache);
    assert!(cache.purge(&key_of(FIRST, 1)), "an operator's purge changes no row");
    assert!(!cache.invalidate(&key_of(FIRST, 2), commit(7)), "another key");
    cache.advance(ONLY, START, Some(at(9)));
    assert_eq!(keys.take_changed(), none_changed());
    assert!(!cache.invalidate(&key_of(OTHER, 1), commit(10)));
    assert_eq!(keys.take_changed(), [vec![], vec![0]]);
}

#[test]
fn what_concerns_every_key_marks_all() {
    let marked = |happens: fn(&TestCache)| {
        let cache = filled();
        let mut keys = register(&cache);
        happens(&cache);
        let changed = keys.take_changed();
        assert_eq!(keys.take_changed(), none_changed());
        [!changed[0].is_empty(), !changed[1].is_empty()]
    };
    assert_eq!(marked(|cache| cache.flush(FIRST, Some(commit(7)))), [true, false]);
    assert_eq!(marked(|cache| cache.mark_gap(ONLY, None)), [true, true], "a loss");
    assert_eq!(marked(|cache| cache.mark_gap(ONLY, Some(at(9)))), [true, true], "a new feed");
    let a_past_gap = |cache: &TestCache| {
        cache.open_gap(FIRST);
        cache.close_gap(FIRST);
    };
    assert_eq!(marked(a_past_gap), [true, false]);
    let cache = filled();
    let mut keys = register(&cache);
    cache.open_gap(OTHER);
    for _ in 0..2 {
        assert_eq!(keys.take_changed(), [vec![], vec![0]], "no change is delivered");
    }
}

#[test]
fn registrations_of_one_key_are_independent_and_end() {
    let cache = filled();
    let mut first = register(&cache);
    assert!(!cache.invalidate(&key_of(FIRST, 1), commit(7)));
    let mut second = register(&cache);
    assert_eq!(second.take_changed(), none_changed(), "before it registered");
    assert_eq!(first.take_changed(), [vec![0], vec![]]);
    drop(first);
    assert!(!cache.invalidate(&key_of(FIRST, 1), commit(8)));
    assert_eq!(second.take_changed(), [vec![0], vec![]]);
    second.transaction_sent();
    drop(second);
    cache.advance_visibility(ONLY, &log(9));
    for collection in [FIRST, OTHER] {
        let fetches = cache.collection(collection).0.fetch_queue.lock();
        assert!(fetches.marks.is_empty() && fetches.fence.is_open());
    }
}

/// Two transactions of an engine, one after the other, and reads that see neither or the first.
struct Engine {
    first: ChangeId,
    later: ChangeId,
    /// Point of the log that contains the first alone.
    end: Position,
    blind: Version,
    seeing: Version,
}

fn engines() -> [Engine; 3] {
    let snapshot = |xmin, xmax, running: &[u64]| Version::Snapshot {
        incarnation: 1,
        snapshot: Arc::new(Snapshot { xmin, xmax, running: running.to_vec() }),
    };
    let xid = |xid, commit| ChangeId::Transaction { xid, commit };
    let source = SourceId::new(5, "").unwrap();
    let gtid = |number| ChangeId::Gtid(Gtid { source, number });
    let gtids = |numbers: &str| {
        let text = format!("00000000-0000-0000-0000-000000000005:{numbers}");
        Version::Gtids(Arc::new(GtidSet::parse(&text).unwrap()))
    };
    let span = |from, to| Version::Span { from: at(from), to: at(to) };
    [
        Engine {
            first: commit(7),
            later: commit(8),
            end: at(7),
            blind: span(5, 7),
            seeing: span(7, 9),
        },
        Engine {
            first: xid(7, 60),
            later: xid(8, 70),
            end: at(61),
            blind: snapshot(7, 8, &[7]),
            seeing: snapshot(8, 8, &[]),
        },
        Engine {
            first: gtid(7),
            later: gtid(8),
            end: at(7),
            blind: gtids("1-6"),
            seeing: gtids("1-7"),
        },
    ]
}

#[test]
fn a_transaction_that_lacks_a_change_up_to_its_point_is_repeated() {
    for Engine { first, later, end, blind, seeing } in engines() {
        let cache = filled();
        let mut keys = register(&cache);
        keys.transaction_sent();
        assert!(!cache.invalidate(&key_of(OTHER, 1), first));
        // Another read proves that it is visible: the fence keeps it for the transaction.
        cache.advance_visibility(ONLY, &seeing);
        assert!(keys.lacks(&blind, &end), "{first:?}");
        keys.transaction_sent();
        assert!(!keys.lacks(&seeing, &end));
        // A later change is none of that point; the GTIDs of MySQL have no points.
        assert!(!cache.invalidate(&key_of(OTHER, 1), later));
        keys.transaction_sent();
        assert_eq!(keys.lacks(&seeing, &end), matches!(later, ChangeId::Gtid(_)), "{later:?}");
    }
}

#[test]
fn another_spelling_of_a_key_and_a_new_feed_repeat_the_transaction() {
    let [Engine { first, end, blind, seeing, .. }, ..] = engines();
    let cache = filled();
    cache.expect_aliases(FIRST);
    assert!(!cache.invalidate(&key(2), first));
    let mut keys = register(&cache);
    keys.transaction_sent();
    assert!(keys.lacks(&blind, &end), "the key of the change may be this one");
    keys.transaction_sent();
    cache.mark_gap(ONLY, None);
    cache.mark_gap(ONLY, Some(at(9)));
    assert!(keys.lacks(&seeing, &end), "what the old feed delivered is forgotten");
    keys.transaction_sent();
    assert!(!keys.lacks(&seeing, &end));
    cache.open_gap(OTHER);
    keys.transaction_sent();
    assert!(keys.lacks(&seeing, &end), "its changes are not delivered");
}

#[test]
fn a_record_of_a_transaction_is_that_of_its_row() {
    let cache = filled();
    let [Engine { seeing, .. }, ..] = engines();
    let of = |row| cache.snapshot_record(&key(1), row, (&seeing, at(9)), START);
    let found = of(Some(b"{}"));
    assert_eq!((found.body(), found.position()), (&b"{}"[..], Some(at(9))));
    assert_eq!(of(None).presence(), crate::Presence::Missing);
    assert_eq!(held(&cache, FIRST), Some(at(5)), "nothing is stored");
}
