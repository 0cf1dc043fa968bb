use hotrow_types::key::{KeyPart, KeySchema, KeyType};

use super::*;

const REPEAT_AFTER: Duration = s(10);
const ONE: CollectionId = CollectionId(0);
const OTHER: CollectionId = CollectionId(1);
const ALL: BatchLimits = BatchLimits { entries: 100, key_bytes: 10_000 };

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn record(collection: CollectionId, id: i64) -> Purge {
    let schema = KeySchema::new(collection, vec![KeyType::Integer]);
    Purge::Record(schema.key(&[KeyPart::Integer(id)]).unwrap())
}

fn queue(records: usize) -> PurgeQueue {
    PurgeQueue::new(PurgeLimits { repeat_after: REPEAT_AFTER, records, bytes: 1 << 20 })
}

fn add(queue: &mut PurgeQueue, purge: Purge, now: Duration) -> Added {
    queue.add(purge, None, now)
}

/// Takes a batch, and accepts it.
fn sent(queue: &mut PurgeQueue, now: Duration) -> Vec<Purge> {
    let Some(batch) = queue.take(ALL, now) else { return Vec::new() };
    let purges = batch.purges.iter().map(|(purge, _)| purge.clone()).collect();
    queue.complete(batch);
    purges
}

#[test]
fn a_change_is_purged_at_once_and_again_when_older_fetches_have_ended() {
    let mut queue = queue(10);
    let (seven, eight) = (record(ONE, 7), record(ONE, 8));
    add(&mut queue, seven.clone(), s(1));
    add(&mut queue, seven.clone(), s(2));
    add(&mut queue, eight.clone(), s(3));
    assert_eq!(queue.next_at(), Some(s(1)));
    assert_eq!(sent(&mut queue, s(3)), [seven.clone(), eight.clone()]);
    assert_eq!(queue.next_at(), Some(s(12)), "after the last change of 7");
    assert_eq!(sent(&mut queue, s(11)), []);
    assert_eq!(sent(&mut queue, s(12)), [seven]);
    assert_eq!(sent(&mut queue, s(13)), [eight]);
    assert_eq!((queue.entries(), queue.bytes(), queue.next_at()), (0, 0, None));
}

#[test]
fn a_purge_that_is_late_is_not_repeated() {
    let mut queue = queue(10);
    add(&mut queue, record(ONE, 7), s(1));
    assert_eq!(sent(&mut queue, s(11)).len(), 1);
    assert_eq!(queue.entries(), 0);
}

#[test]
fn a_change_during_a_purge_is_purged_again() {
    let mut queue = queue(10);
    let seven = record(ONE, 7);
    add(&mut queue, seven.clone(), s(1));
    let batch = queue.take(ALL, s(1)).unwrap();
    assert!(queue.take(ALL, s(1)).is_none() && queue.next_at().is_none(), "one at a time");
    add(&mut queue, seven.clone(), s(1));
    queue.complete(batch);
    assert_eq!(sent(&mut queue, s(1)), [record(ONE, 7)]);
    assert_eq!(sent(&mut queue, s(11)), [seven]);
    assert_eq!(queue.entries(), 0);
}

#[test]
fn failures_pause_and_lose_nothing() {
    let mut queue = queue(10);
    let seven = record(ONE, 7);
    add(&mut queue, seven.clone(), s(1));
    let mut pauses = Vec::new();
    let mut now = s(1);
    for _ in 0..9 {
        let batch = queue.take(ALL, now).unwrap();
        queue.fail(batch, None, 1.0, now);
        let next = queue.next_at().unwrap();
        assert!(queue.take(ALL, next - Duration::from_millis(1)).is_none());
        pauses.push((next - now).as_millis());
        now = next;
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    assert_eq!((queue.failures(), queue.overdue_by(now)), (9, now - s(1)));
    let batch = queue.take(ALL, now).unwrap();
    queue.fail(batch, Some(s(3_600)), 0.0, now);
    assert_eq!(queue.next_at(), Some(now + PAUSE_MAX), "however long the target asks for");
    assert_eq!(sent(&mut queue, now + PAUSE_MAX), [seven]);
    assert_eq!((queue.failures(), queue.entries()), (0, 0));
}

#[test]
fn what_a_lost_sender_had_is_sent_again() {
    let mut queue = queue(10);
    add(&mut queue, record(ONE, 7), s(1));
    drop(queue.take(ALL, s(1)));
    assert!(queue.take(ALL, s(2)).is_none());
    queue.abandon();
    assert_eq!(sent(&mut queue, s(2)), [record(ONE, 7)]);
}

#[test]
fn too_many_records_become_their_collection() {
    let mut queue = queue(3);
    let all = Purge::Collection(ONE);
    add(&mut queue, record(OTHER, 1), s(1));
    add(&mut queue, record(ONE, 1), s(1));
    add(&mut queue, record(ONE, 2), s(1));
    assert_eq!(add(&mut queue, record(OTHER, 2), s(2)), Added::Collapsed(ONE));
    // It covers the records of changes until it is sent.
    assert_eq!(add(&mut queue, record(ONE, 3), s(3)), Added::Queued);
    assert_eq!(queue.entries(), 3);
    let batch = queue.take(ALL, s(4)).unwrap();
    let taken: Vec<_> = batch.purges.iter().map(|(purge, _)| purge.clone()).collect();
    assert_eq!(taken, [record(OTHER, 1), record(OTHER, 2), all.clone()]);
    // Under way, it covers no more.
    add(&mut queue, record(ONE, 4), s(4));
    queue.complete(batch);
    assert_eq!(sent(&mut queue, s(5)), [record(ONE, 4)]);
    assert_eq!(sent(&mut queue, s(13)), [record(OTHER, 1), record(OTHER, 2), all]);
    assert_eq!(sent(&mut queue, s(14)), [record(ONE, 4)]);
    assert_eq!((queue.entries(), queue.bytes()), (0, 0));
}

#[test]
fn bytes_are_bounded_too() {
    let bytes = 10 * (ENTRY_OVERHEAD_BYTES + 30);
    let limits = PurgeLimits { repeat_after: REPEAT_AFTER, records: 1_000, bytes };
    let mut queue = PurgeQueue::new(limits);
    let collapsed = (0..100).find(|id| add(&mut queue, record(ONE, *id), s(1)) != Added::Queued);
    assert!(collapsed.is_some_and(|id| (9..15).contains(&id)), "{collapsed:?}");
    assert_eq!((queue.entries(), queue.bytes()), (1, 0));
}

#[test]
fn a_collection_takes_the_place_of_its_records() {
    let mut queue = queue(10);
    add(&mut queue, record(ONE, 1), s(1));
    add(&mut queue, record(OTHER, 1), s(1));
    let batch = queue.take(ALL, s(1)).unwrap();
    add(&mut queue, Purge::Collection(ONE), s(2));
    queue.complete(batch);
    assert_eq!(sent(&mut queue, s(2)), [Purge::Collection(ONE)]);
    assert_eq!(sent(&mut queue, s(12)), [record(OTHER, 1), Purge::Collection(ONE)]);
    assert_eq!(queue.entries(), 0);
}

#[test]
fn batches_are_bounded() {
    let mut queue = queue(100);
    (0..10).for_each(|id| _ = add(&mut queue, record(ONE, id), s(1)));
    let limits = BatchLimits { entries: 4, key_bytes: 1_000 };
    let batch = queue.take(limits, s(1)).unwrap();
    assert_eq!(batch.purges.len(), 4);
    queue.complete(batch);
    let limits = BatchLimits { entries: 100, key_bytes: 1 };
    let batch = queue.take(limits, s(1)).unwrap();
    assert_eq!(batch.purges.len(), 1, "a longer key alone");
}

#[test]
fn a_purge_without_a_position_leaves_that_of_a_change_that_waits() {
    let at = |at| Some(Position { incarnation: 1, at });
    let (seven, all) = (record(ONE, 7), Purge::Collection(ONE));
    let taken = |records, added: &[(&Purge, Option<Position>)]| {
        let mut queue = queue(records);
        added.iter().for_each(|(purge, at)| _ = queue.add((*purge).clone(), *at, s(1)));
        queue.take(ALL, s(1)).unwrap().purges
    };
    assert_eq!(taken(9, &[(&seven, at(5)), (&seven, None)]), [(seven.clone(), at(5))]);
    assert_eq!(taken(9, &[(&seven, None), (&seven, at(5))]), [(seven.clone(), at(5))]);
    let (eight, nine) = (record(ONE, 8), record(OTHER, 9));
    let of_both = [(&seven, at(5)), (&eight, at(6)), (&seven, None), (&all, None)];
    assert_eq!(taken(9, &of_both), [(all.clone(), at(6))], "that of its records");
    assert_eq!(taken(9, &[(&all, at(5)), (&seven, None)]), [(all.clone(), at(5))]);
    // What a collection of another log collapses for is none of its changes.
    let overflow = [(&seven, at(5)), (&eight, None), (&nine, at(70))];
    assert_eq!(taken(2, &overflow), [(nine.clone(), at(70)), (all, at(5))]);
}
