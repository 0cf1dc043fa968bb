//! Race B: a feed ahead of the readers, with the safeguard and without it.

use std::time::Duration;

use hotrow_types::version::{ChangeId, Version};
use mongodb::bson::doc;

use super::harness::{Engine, wait};
use super::mongo::MongoDatabase;
use hotrow_source::Row;
use hotrow_source::testkit::Event;

/// Writes with the acknowledgement of one member, because a write acknowledged by a majority waits
/// for its visibility.
fn write_new(mongo: &MongoDatabase) {
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "v": "new" } } };
    mongo.run(doc! { "update": "things", "updates": [update], "writeConcern": { "w": 1 } });
}

/// Prepares a change that the feed has delivered and that majority reads do not show.
fn hidden_change() -> (MongoDatabase, Engine, ChangeId) {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1, "v": "old" }]);
    let engine = Engine::on(&mongo, &["things"]);
    assert!(engine.text(0, "1").contains("old"));
    let from = engine.sink.len();
    mongo.standin().hold_visibility();
    write_new(&mongo);
    let mark = engine.sink.wait("the change", |events| {
        events[from..].iter().find_map(|e| match e {
            Event::Change(change) => Some(change.mark),
            _ => None,
        })
    });
    (mongo, engine, mark)
}

#[test]
fn a_read_after_a_delivered_change_waits_until_it_is_visible() {
    let (mongo, engine, mark) = hidden_change();
    let reading = engine.reader.reading(0, &["1"]);
    let set = engine.reader.block_on(async {
        let mut reading = Box::pin(reading);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut reading).await;
        assert!(early.is_err(), "it must not be answered while the change is hidden: {early:?}");
        mongo.standin().release_visibility();
        reading.await.unwrap()
    });
    assert!(
        matches!(&set.rows[0], Row::Found(json) if json.ends_with(b"\"new\"}")),
        "{:?}",
        set.rows
    );
    assert!(set.version.contains(&mark));
}

#[test]
fn without_the_safeguard_a_read_returns_the_old_document_and_its_version() {
    let (mongo, engine, mark) = hidden_change();
    engine.source.disable_causality();
    let set = engine.read(0, &["1"]).unwrap();
    assert!(
        matches!(&set.rows[0], Row::Found(json) if json.ends_with(b"\"old\"}")),
        "the race exists: {:?}",
        set.rows
    );
    // In this case the cache's fence rejects the document.
    assert!(!set.version.contains(&mark));
    mongo.standin().release_visibility();
    wait("the change to be visible", || engine.text(0, "1").contains("new"));
}

#[test]
fn a_read_after_the_start_sees_changes_before_the_stream() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1, "v": "old" }]);
    mongo.standin().hold_visibility();
    write_new(&mongo);
    let engine = Engine::launch(
        super::harness::config(mongo.url(), &["things"]),
        Default::default(),
        |_| {},
    );
    engine.sink.wait("the start", |events| {
        events.iter().any(|e| matches!(e, Event::Started(_))).then_some(())
    });
    let reading = engine.reader.reading(0, &["1"]);
    let set = engine.reader.block_on(async {
        let mut reading = Box::pin(reading);
        let early = tokio::time::timeout(Duration::from_millis(200), &mut reading).await;
        // Either the stream reports the change, or every read sees it.
        assert!(early.is_err(), "{early:?}");
        mongo.standin().release_visibility();
        reading.await.unwrap()
    });
    assert!(matches!(&set.rows[0], Row::Found(json) if json.ends_with(b"\"new\"}")));
    assert!(matches!(set.version, Version::Span { .. }));
}
