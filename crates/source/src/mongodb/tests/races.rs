//! Race B: the feed ahead of what readers see, with its fix and without.

use std::time::Duration;

use hotrow_cache::version::{Mark, Version};
use mongodb::bson::doc;

use super::harness::{Engine, wait};
use super::place::Place;
use crate::Row;
use crate::testkit::Event;

/// Acknowledged by one member: a write that waits for a majority waits for its visibility.
fn write_new(place: &Place) {
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "v": "new" } } };
    place.run(doc! { "update": "things", "updates": [update], "writeConcern": { "w": 1 } });
}

/// A change that the feed has delivered and that majority reads do not show.
fn hidden_change() -> (Place, Engine, Mark) {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 1, "v": "old" }]);
    let engine = Engine::on(&place, &["things"]);
    assert!(engine.text(0, "1").contains("old"));
    let from = engine.sink.len();
    place.standin().hold_visibility();
    write_new(&place);
    let mark = engine.sink.wait("the change", |events| {
        events[from..].iter().find_map(|e| match e {
            Event::Change(change) => Some(change.mark),
            _ => None,
        })
    });
    (place, engine, mark)
}

#[test]
fn a_read_after_a_delivered_change_waits_until_it_is_visible() {
    let (place, engine, mark) = hidden_change();
    let reading = engine.reading(0, &["1"]);
    let set = engine.runtime.block_on(async {
        let mut reading = Box::pin(reading);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut reading).await;
        assert!(early.is_err(), "it must not be answered while the change is hidden: {early:?}");
        place.standin().release_visibility();
        reading.await.unwrap()
    });
    assert!(matches!(&set.rows[0], Row::Found(json) if json.ends_with(b"\"new\"}")), "{:?}", set.rows);
    assert!(set.version.sees(&mark));
}

#[test]
fn without_the_fix_it_brings_the_old_document_and_says_so() {
    let (place, engine, mark) = hidden_change();
    engine.source.take_out_causality();
    let set = engine.read(0, &["1"]).unwrap();
    assert!(matches!(&set.rows[0], Row::Found(json) if json.ends_with(b"\"old\"}")), "the race exists: {:?}", set.rows);
    // Then the cache's fence keeps it out.
    assert!(!set.version.sees(&mark));
    place.standin().release_visibility();
    wait("the change to be visible", || engine.text(0, "1").contains("new"));
}

#[test]
fn a_read_after_the_start_sees_what_the_stream_will_not_tell() {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 1, "v": "old" }]);
    place.standin().hold_visibility();
    write_new(&place);
    let engine = Engine::launch(super::harness::config(place.url(), &["things"]), Default::default(), |_| {});
    engine.sink.wait("the start", |events| events.iter().any(|e| matches!(e, Event::Started(_))).then_some(()));
    let reading = engine.reading(0, &["1"]);
    let set = engine.runtime.block_on(async {
        let mut reading = Box::pin(reading);
        let early = tokio::time::timeout(Duration::from_millis(200), &mut reading).await;
        // Either the stream tells of the change, or no read misses it.
        assert!(early.is_err(), "{early:?}");
        place.standin().release_visibility();
        reading.await.unwrap()
    });
    assert!(matches!(&set.rows[0], Row::Found(json) if json.ends_with(b"\"new\"}")));
    assert!(matches!(set.version, Version::Span { .. }));
}
