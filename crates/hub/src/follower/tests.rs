use super::*;
use crate::message::{Loss, Predecessor};

const COLLECTION: Tag = Tag(7);

fn follower() -> Follower {
    let mut follower = Follower::new(vec![COLLECTION], Rules::default());
    assert!(!follower.set_origin(Some("a".to_owned())));
    follower
}

fn message(number: u64, counter: u64, body: Body) -> Message {
    let generation = Generation { number, identity: number * 100 };
    Message { generation, counter, complete: counter * 10, landmark: None, body }
}

fn changes(number: u64, counter: u64) -> Message {
    message(number, counter, Body::Changes(Vec::new()))
}

fn watermark() -> Watermark {
    Watermark {
        answers: vec![9, 4],
        end: 0,
        visible: None,
        hidden: Some(Vec::new()),
        gaps: Vec::new(),
        collections: vec![Tag(1), COLLECTION],
        watched: Some(8),
        origin: "a".to_owned(),
    }
}

fn mark(number: u64, counter: u64) -> Message {
    message(number, counter, Body::Watermark(Box::new(watermark())))
}

fn beginning(number: u64, predecessor: Option<(u64, u64)>, resumed_at: Option<u64>) -> Message {
    let predecessor = predecessor.map(|(number, counter)| Predecessor {
        generation: Generation { number, identity: number * 100 },
        counter,
    });
    let (origin, reason, watched) = ("a".to_owned(), "why".to_owned(), Some(8));
    let beginning = Beginning { predecessor, resumed_at, watched, origin, reason };
    message(number, 0, Body::Beginning(beginning))
}

/// Returns a server that has joined chain 5 by its message 20.
fn joined() -> Follower {
    let mut follower = follower();
    assert_eq!(follower.receive(&changes(5, 19)), Step::Ignored, "not before it has joined");
    let mark = mark(5, 20);
    let step = follower.receive(&mark);
    assert!(matches!(step, Step::Join(_)), "{step:?}");
    follower
}

#[test]
fn only_the_next_message_is_applied() {
    let mut follower = joined();
    let next = changes(5, 21);
    assert!(matches!(follower.receive(&next), Step::Apply { complete: 210, .. }));
    assert!(matches!(follower.receive(&mark(5, 22)), Step::Advance(_)));
    for counter in [24, 22, 21, 0] {
        let mut follower = joined();
        follower.receive(&changes(5, 21));
        follower.receive(&changes(5, 22));
        let other = changes(5, counter);
        assert!(matches!(follower.receive(&other), Step::Lost(Lost::Gap { expected: 23, .. })));
        assert_eq!(follower.receive(&changes(5, counter + 1)), Step::Ignored, "not joined");
        assert!(matches!(follower.receive(&mark(5, counter + 2)), Step::Join(_)));
    }
}

#[test]
fn the_last_beginning_counts() {
    let mut follower = joined();
    assert!(matches!(
        follower.receive(&beginning(6, Some((5, 20)), None)),
        Step::Lost(Lost::Began { number: 6, .. })
    ));
    for old in [changes(5, 21), mark(5, 22), beginning(4, None, None)] {
        assert_eq!(follower.receive(&old), Step::Ignored, "of a relay that woke");
    }
    assert!(matches!(follower.receive(&mark(6, 1)), Step::Join(_)));
    // A chain whose beginning was lost.
    assert!(matches!(follower.receive(&mark(7, 5)), Step::Lost(Lost::NoBeginning(7))));
    assert!(matches!(follower.receive(&mark(7, 6)), Step::Join(_)));
    // The same number again: the stream had lost a beginning.
    let mut other = changes(7, 7);
    other.generation.identity = 1;
    assert!(matches!(follower.receive(&other), Step::Lost(Lost::NoBeginning(7))));
}

#[test]
fn a_lower_chain_that_goes_on_alone_is_followed_after_a_loss() {
    let mut follower = joined();
    for counter in 0..20 {
        assert_eq!(follower.receive(&changes(4, counter)), Step::Ignored, "of a relay that woke");
        follower.receive(&changes(5, 21 + counter));
    }
    let steps: Vec<bool> = (0..IGNORED_MAX)
        .map(|counter| follower.receive(&mark(4, u64::from(counter))) == Step::Ignored)
        .collect();
    assert_eq!(steps.iter().filter(|ignored| !**ignored).count(), 1, "{steps:?}");
    assert!(!follower.is_joined());
    assert!(matches!(follower.receive(&mark(4, IGNORED_MAX.into())), Step::Join(_)));
}

#[test]
fn a_chain_continues_where_all_of_the_one_before_was_applied() {
    let continues = |predecessor, resumed_at| {
        let mut follower = joined();
        let message = beginning(6, Some(predecessor), Some(resumed_at));
        let step = follower.receive(&message);
        assert!(matches!(step, Step::Continued | Step::Lost(_)), "{step:?}");
        step == Step::Continued
    };
    assert!(continues((5, 20), 200) && continues((5, 20), 150));
    assert!(!continues((5, 20), 201), "changes between the two are missing");
    assert!(!continues((5, 21), 150) && !continues((5, 19), 150) && !continues((4, 20), 150));
    let mut follower = joined();
    assert_eq!(follower.receive(&beginning(6, Some((5, 20)), Some(200))), Step::Continued);
    assert!(matches!(follower.receive(&changes(6, 1)), Step::Apply { .. }));
    // A server that has not joined joins by a watermark only.
    let mut follower = self::follower();
    follower.receive(&changes(5, 20));
    assert_eq!(follower.receive(&beginning(6, Some((5, 20)), Some(200))), Step::Ignored);
    assert_eq!(follower.receive(&changes(6, 1)), Step::Ignored);
}

#[test]
fn a_chain_continues_only_what_the_database_published_alike() {
    let continues = |before, now| {
        let mut follower = follower();
        let mark = Body::Watermark(Box::new(Watermark { watched: before, ..watermark() }));
        follower.receive(&message(5, 20, mark));
        follower.receive(&changes(5, 21));
        let mut message = beginning(6, Some((5, 21)), Some(200));
        let Body::Beginning(beginning) = &mut message.body else { panic!() };
        beginning.watched = now;
        matches!(follower.receive(&message), Step::Continued)
    };
    assert!(continues(Some(8), Some(8)));
    for (before, now) in [(Some(8), Some(9)), (None, Some(8)), (Some(8), None), (None, None)] {
        assert!(!continues(before, now), "{before:?} {now:?}");
    }
}

#[test]
fn a_loss_of_the_relay_is_one() {
    let mut follower = joined();
    let loss = Body::Loss(Loss { cause: 2, detail: "why".to_owned() });
    assert_eq!(
        follower.receive(&message(5, 21, loss)),
        Step::Lost(Lost::AtRelay(2, "why".to_owned()))
    );
    assert!(!follower.is_joined());
}

#[test]
fn some_watermarks_cannot_be_joined() {
    let refused = |change: &dyn Fn(&mut Watermark), follower: &mut Follower| {
        let mut watermark = watermark();
        change(&mut watermark);
        assert!(!follower.reset());
        let message = message(5, 20, Body::Watermark(Box::new(watermark)));
        match follower.receive(&message) {
            Step::CannotJoin(obstacle) => obstacle,
            other => panic!("{other:?}"),
        }
    };
    let follower = &mut follower();
    assert_eq!(refused(&|w| w.hidden = None, follower), Obstacle::Hidden);
    assert_eq!(refused(&|w| w.collections = vec![Tag(1)], follower), Obstacle::Collection(0));
    let other = refused(&|w| w.origin = "b".to_owned(), follower);
    assert!(matches!(other, Obstacle::OtherOrigin { .. }));
    assert!(!follower.set_origin(None), "it has not joined");
    assert!(matches!(refused(&|_| (), follower), Obstacle::OtherOrigin { .. }));
}

#[test]
fn readers_of_another_database_are_a_loss() {
    let mut follower = joined();
    assert!(!follower.set_origin(Some("a".to_owned())), "the same");
    assert!(follower.set_origin(Some("b".to_owned())));
    assert!(!follower.is_joined());
    let mut follower = joined();
    let mut other = watermark();
    other.origin = "b".to_owned();
    let message = message(5, 21, Body::Watermark(Box::new(other)));
    assert!(matches!(follower.receive(&message), Step::Lost(Lost::OtherOrigin { .. })));
    let mut follower = joined();
    assert!(follower.reset() && !follower.reset() && follower.place().is_none());
}
