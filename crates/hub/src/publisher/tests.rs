use std::sync::Arc;

use hotrow_types::landmark::{CommitId, CommitMark};
use hotrow_types::version::Snapshot;

use super::*;

const COLLECTION: Tag = Tag(7);

fn publisher() -> Publisher {
    Publisher::new(vec![COLLECTION], Rules::default())
}

fn change(xid: u64) -> Event {
    Event::Change { collection: COLLECTION, key: [1].into(), mark: Mark::Transaction(xid) }
}

fn version(xmax: u64, running: &[u64]) -> Version {
    let xmin = running.first().copied().unwrap_or(xmax);
    let snapshot = Arc::new(Snapshot { xmin, xmax, running: running.to_vec() });
    Version::Snapshot { incarnation: 1, snapshot }
}

/// Begins a chain in an empty stream.
fn begin(publisher: &mut Publisher) -> Message {
    let message = publisher.begin(None, 0, 5).unwrap();
    publisher.began();
    message
}

/// Returns a chain's last message with this complete point.
fn last(complete: u64, body: Body) -> Message {
    let generation = Generation { number: 9, identity: 1 };
    Message { generation, counter: 30, complete, landmark: None, body }
}

fn resumed_at(message: &Message) -> Option<u64> {
    match &message.body {
        Body::Beginning(beginning) => beginning.resumed_at,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_chain_is_numbered_from_its_beginning() {
    let mut publisher = publisher();
    assert_eq!(publisher.begin(None, 0, 5), None, "there is no feed");
    publisher.feed_started("a".to_owned(), 100);
    publisher.deliver(change(10));
    assert_eq!(publisher.take(), None, "there is no chain");
    let beginning = begin(&mut publisher);
    assert_eq!((beginning.generation.number, beginning.counter, beginning.complete), (1, 0, 100));
    publisher.deliver(change(10));
    publisher.advance(Nanos(1), 110, None);
    let message = publisher.take().unwrap();
    assert_eq!((message.counter, message.complete), (1, 110));
    assert_eq!(message.body, Body::Changes(vec![change(10), change(10)]), "one message");
    assert_eq!(publisher.take(), None);
    publisher.failed("no answer");
    let beginning = publisher.begin(None, 40, 5).unwrap();
    assert_eq!(beginning.generation.number, 40, "of an emptied stream");
}

#[test]
fn a_point_follows_changes_that_were_taken_inside_their_commit() {
    let mut publisher = publisher();
    publisher.feed_started("a".to_owned(), 100);
    begin(&mut publisher);
    publisher.deliver(change(10));
    assert_eq!(publisher.take().unwrap().complete, 100);
    publisher.advance(Nanos(1), 110, None);
    let point = publisher.take().unwrap();
    assert_eq!((point.complete, point.body), (110, Body::Changes(Vec::new())));
    publisher.advance(Nanos(1), 120, None);
    assert_eq!(publisher.take(), None, "nothing waits for it");
}

#[test]
fn a_watermark_has_what_a_server_needs_to_join() {
    let mut publisher = publisher();
    publisher.feed_started("a".to_owned(), 100);
    begin(&mut publisher);
    let nonce = |question| Nonce { instance: 3, question };
    publisher.ask(nonce(1), Nanos(10));
    publisher.ask(nonce(2), Nanos(20));
    publisher.deliver(change(10));
    publisher.deliver(change(11));
    publisher.deliver(Event::OpenGap { collection: COLLECTION, detail: String::new() });
    publisher.advance(Nanos(15), 110, Some(&version(12, &[11])));
    assert!(matches!(publisher.take().unwrap().body, Body::Changes(_)), "first the changes");
    let Body::Watermark(watermark) = publisher.take().unwrap().body else { panic!() };
    assert_eq!(watermark.answers, [1]);
    assert_eq!(watermark.hidden, Some(vec![Mark::Transaction(11)]));
    assert_eq!((watermark.gaps, watermark.end), (vec![COLLECTION], 110));
    publisher.deliver(Event::CloseGap { collection: COLLECTION });
    publisher.advance(Nanos(30), 120, Some(&version(12, &[])));
    publisher.take();
    let Body::Watermark(watermark) = publisher.take().unwrap().body else { panic!() };
    assert_eq!((watermark.answers, watermark.gaps), (vec![2], Vec::new()));
    assert_eq!(watermark.hidden, Some(Vec::new()));
    publisher.advance(Nanos(30), 120, Some(&Version::Unknown));
    let Body::Watermark(watermark) = publisher.take().unwrap().body else { panic!() };
    assert_eq!((watermark.visible, watermark.hidden), (None, None));
}

#[test]
fn a_loss_ends_the_chain() {
    let mut publisher = publisher();
    publisher.feed_started("a".to_owned(), 100);
    begin(&mut publisher);
    publisher.feed_lost(2, "why");
    publisher.deliver(change(10));
    assert!(matches!(publisher.take().unwrap().body, Body::Loss(Loss { cause: 2, .. })));
    assert!(publisher.take().is_none() && !publisher.wants_beginning());
    publisher.feed_started("a".to_owned(), 200);
    assert!(publisher.wants_beginning());
}

#[test]
fn a_chain_continues_only_what_is_complete() {
    let empty = || Body::Changes(Vec::new());
    for (at, complete, body, continues) in [
        (100, 100, empty(), true),
        (100, 150, empty(), true),
        (100, 99, empty(), false),
        (100, 150, Body::Loss(Loss { cause: 0, detail: String::new() }), false),
    ] {
        let mut publisher = publisher();
        publisher.feed_resumed("a".to_owned(), at, None);
        let message = publisher.begin(Some(&last(complete, body)), 0, 5).unwrap();
        assert_eq!(message.generation.number, 10);
        assert_eq!(resumed_at(&message).is_some(), continues, "{complete}");
        assert_eq!(message.complete, if continues { complete } else { at });
    }
    // A chain that broke has dropped changes.
    let mut publisher = publisher();
    publisher.feed_resumed("a".to_owned(), 100, Some(7));
    publisher.failed("no answer");
    assert_eq!(resumed_at(&publisher.begin(Some(&last(150, empty())), 0, 5).unwrap()), None);
}

#[test]
fn a_feed_that_resumes_after_a_loss_continues_nothing() {
    let empty = last(150, Body::Changes(Vec::new()));
    let mut publisher = publisher();
    publisher.feed_resumed("a".to_owned(), 100, None);
    begin(&mut publisher);
    publisher.feed_lost(2, "why");
    // The loss was not written, and its message is dropped.
    publisher.feed_resumed("a".to_owned(), 100, None);
    assert_eq!(resumed_at(&publisher.begin(Some(&empty), 0, 5).unwrap()), None);
    // Another loss comes before that beginning is written.
    publisher.feed_lost(2, "why");
    publisher.began();
    publisher.feed_resumed("a".to_owned(), 100, None);
    assert_eq!(resumed_at(&publisher.begin(Some(&empty), 0, 5).unwrap()), None);
    publisher.began();
    publisher.feed_resumed("a".to_owned(), 100, None);
    assert_eq!(resumed_at(&publisher.begin(Some(&empty), 0, 5).unwrap()), Some(100));
}

#[test]
fn messages_say_what_is_watched() {
    let mut publisher = publisher();
    publisher.feed_resumed("a".to_owned(), 100, Some(7));
    let Body::Beginning(beginning) = begin(&mut publisher).body else { panic!() };
    assert_eq!(beginning.watched, Some(7));
    for watched in [Some(7), None, Some(8)] {
        publisher.watching(watched);
        publisher.advance(Nanos(1), 110, Some(&version(12, &[])));
        let Body::Watermark(watermark) = publisher.take().unwrap().body else { panic!() };
        assert_eq!(watermark.watched, watched);
    }
    publisher.feed_started("a".to_owned(), 100);
    let Body::Beginning(beginning) = begin(&mut publisher).body else { panic!() };
    assert_eq!(beginning.watched, None, "a feed without a place is not continued");
}

#[test]
fn only_what_is_acknowledged_is_confirmed() {
    let mut publisher = publisher();
    publisher.feed_resumed("a".to_owned(), 100, Some(7));
    begin(&mut publisher);
    for xid in 10..13 {
        publisher.deliver(change(xid));
        publisher.advance(Nanos(1), xid * 10, None);
        publisher.take().unwrap();
    }
    assert_eq!(publisher.confirmable(), 100);
    publisher.acknowledged(2);
    assert_eq!(publisher.confirmable(), 110);
    publisher.failed("no answer");
    publisher.acknowledged(3);
    assert_eq!(publisher.confirmable(), 110, "of a chain that is over");
}

fn landmark(at: u64) -> Landmark {
    let commit = Some(CommitMark { gtid: CommitId::MariaDb(0, 1, at), end: at + 5 });
    Landmark { at, file_created_s: 7, commit }
}

#[test]
fn a_landmark_travels_with_the_point_that_it_proves() {
    let mut publisher = publisher();
    publisher.feed_started("a".to_owned(), 100);
    assert_eq!(begin(&mut publisher).landmark, None);
    publisher.deliver(change(10));
    publisher.passed(landmark(100));
    assert_eq!(publisher.take().unwrap().landmark, None, "the commit is not complete yet");
    publisher.advance(Nanos(1), 105, None);
    let point = publisher.take().unwrap();
    assert_eq!((point.complete, point.landmark), (105, Some(landmark(100))));
    publisher.deliver(change(11));
    publisher.passed(landmark(105));
    publisher.advance(Nanos(1), 110, None);
    publisher.take().unwrap();
    assert_eq!(publisher.landmark(), None, "nothing is acknowledged");
    publisher.acknowledged(2);
    assert_eq!(publisher.landmark(), Some(landmark(100)));
    publisher.acknowledged(3);
    assert_eq!(publisher.landmark(), Some(landmark(105)));
    publisher.feed_lost(2, "why");
    assert_eq!((publisher.landmark(), publisher.take().unwrap().landmark), (None, None));
}

#[test]
fn a_relay_that_takes_over_has_the_landmark_of_the_chain_before() {
    let mut last = last(150, Body::Changes(Vec::new()));
    last.landmark = Some(landmark(140));
    let mut publisher = publisher();
    publisher.resume_from(last.landmark);
    let at = publisher.landmark().map(|landmark| landmark.end());
    assert_eq!(at, Some(145));
    publisher.feed_resumed("a".to_owned(), 145, None);
    let beginning = publisher.begin(Some(&last), 0, 5).unwrap();
    assert_eq!((resumed_at(&beginning), beginning.landmark), (Some(145), last.landmark));
    publisher.began();
    // Nothing was committed since: the next relay finds the same place.
    publisher.advance(Nanos(1), 160, Some(&version(12, &[])));
    assert_eq!(publisher.take().unwrap().landmark, last.landmark);
    publisher.feed_started("a".to_owned(), 200);
    assert_eq!(publisher.landmark(), None, "the place was not found");
}

#[test]
fn queue_and_messages_under_way_are_bounded() {
    let mut publisher = publisher();
    publisher.feed_started("a".to_owned(), 100);
    begin(&mut publisher);
    let key: Box<[u8]> = vec![0; 60_000].into();
    let big =
        |xid| Event::Change { collection: COLLECTION, key: key.clone(), mark: Mark::Commit(xid) };
    for n in 0..200 {
        publisher.deliver(big(n));
    }
    let taken = std::iter::from_fn(|| publisher.take()).count();
    assert_eq!(taken, IN_FLIGHT_MAX);
    publisher.acknowledged(1);
    assert!(publisher.take().is_some());
    while publisher.generation().is_some() {
        publisher.deliver(big(1));
        assert!(publisher.queued_bytes() <= QUEUE_BYTES_MAX);
    }
    assert!(publisher.wants_beginning(), "the next chain begins with a loss");
    // Without a chain the queue is bounded as well.
    for n in 0..2_000 {
        publisher.deliver(big(n));
    }
    assert!(publisher.queued_bytes() <= QUEUE_BYTES_MAX);
}
