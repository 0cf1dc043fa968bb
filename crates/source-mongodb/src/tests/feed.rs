//! Deliveries of the feed, and its freshness.

use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;
use hotrow_types::version::ChangeId;
use mongodb::bson::doc;

use super::harness::{Engine, config, wait};
use super::mongo::MongoDatabase;
use crate::Hooks;
use hotrow_source::testkit::Event;
use hotrow_source::{FlushCause, Source as _};

#[test]
fn every_kind_of_write_is_delivered_with_its_time() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let before = engine.settle();
    let events = engine.delivered(|| {
        mongo.insert("things", [doc! { "_id": 2 }, doc! { "_id": 3 }]);
        mongo.update("things", 2, doc! { "$set": { "v": 1 } });
        mongo.replace("things", 3, doc! { "v": 1 });
        mongo.delete("things", 1);
        mongo.insert("others", [doc! { "_id": 9 }]);
    });
    let mut ids = Vec::new();
    let mut last = before.at;
    for event in events {
        let Event::Change(change) = event else { panic!("{event:?}") };
        let ChangeId::Commit(at) = change.mark else { panic!("{change:?}") };
        assert!(at.incarnation == before.incarnation && at.at >= last, "in the order of the log");
        last = at.at;
        ids.push(change.key);
    }
    let expected = ["2", "3", "2", "3", "1"].map(|id| engine.key(0, id));
    assert_eq!(ids, expected);
    assert!(engine.settle().at >= last);
}

#[test]
fn an_idle_database_stays_fresh_and_so_does_one_with_other_writes() {
    const STALE_NS: u64 = 2_000_000_000;
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    for round in 0..3 {
        // Also directly after a write that nothing follows in the log.
        mongo.update("things", 1, doc! { "$set": { "v": round } });
        engine.settle();
        let mut fresh_from = Nanos::now();
        wait("half a second of freshness", || {
            if round > 0 {
                mongo.insert("unserved", [doc! { "n": round }]);
            }
            let now = Nanos::now();
            if now.0.saturating_sub(engine.sink.newest_advance().unwrap().0) > STALE_NS {
                fresh_from = now;
            }
            now.0 - fresh_from.0 > 500_000_000
        });
    }
}

#[test]
fn a_dropped_and_a_renamed_collection_are_flushed() {
    let mongo = MongoDatabase::any();
    mongo.insert("a", [doc! { "_id": 1 }]);
    mongo.insert("b", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["a", "b"]);
    let flushed = |write: &dyn Fn()| -> Vec<u16> {
        let events = engine.delivered(write);
        let of = |event: &Event| match event {
            Event::Flush(CollectionId(c), FlushCause::Bulk, Some(ChangeId::Commit(_))) => Some(*c),
            _ => None,
        };
        let mut flushed: Vec<u16> = events.iter().filter_map(of).collect();
        flushed.dedup();
        flushed
    };
    assert_eq!(flushed(&|| drop(mongo.run(doc! { "drop": "a" }))), [0]);
    let rename = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|name| format!("{}.{name}", mongo.name()));
        mongo.ask(async |db| {
            db.client()
                .database("admin")
                .run_command(doc! { "renameCollection": from, "to": to, "dropTarget": true })
                .await
        })
    };
    assert_eq!(flushed(&|| drop(rename("b", "elsewhere"))), [1]);
    assert_eq!(engine.text(1, "1"), "-");
    // A collection renamed to `a` is followed as `a`.
    assert_eq!(flushed(&|| drop(rename("elsewhere", "a"))), [0]);
    assert_eq!(engine.text(0, "1"), r#"{"_id":1}"#);
    assert_eq!(engine.keys(|| mongo.delete("a", 1)), [engine.key(0, "1")]);
    // Another one takes its name, and then loses it.
    mongo.insert("fresh", [doc! { "_id": 2 }]);
    assert_eq!(flushed(&|| drop(rename("fresh", "a"))), [0]);
    assert_eq!(engine.text(0, "2"), r#"{"_id":2}"#);
    assert_eq!(flushed(&|| drop(rename("a", "away"))), [0]);
    assert_eq!(engine.keys(|| mongo.insert("away", [doc! { "_id": 3 }])), []);
}

#[test]
fn the_feed_resumes_after_a_dropped_database() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let events = engine.delivered(|| mongo.ask(async |db| db.drop().await));
    assert!(
        events
            .iter()
            .all(|e| matches!(e, Event::Flush(CollectionId(0), FlushCause::Bulk, Some(_)))),
        "{events:?}"
    );
    assert!(!events.is_empty());
    assert_eq!(engine.keys(|| mongo.insert("things", [doc! { "_id": 2 }])), [engine.key(0, "2")]);
    assert_eq!(engine.text(0, "2"), r#"{"_id":2}"#);
}

#[test]
fn many_changes_are_delivered_in_order_without_a_gap() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let keys = engine.keys(|| mongo.insert("things", (1..=5000).map(|n| doc! { "_id": n })));
    let expected: Vec<_> = (1..=5000).map(|n: i32| engine.key(0, &n.to_string())).collect();
    assert!(keys == expected, "{} of {}", keys.len(), expected.len());
}

#[test]
fn a_feed_starts_with_the_next_write() {
    let mongo = MongoDatabase::any();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::launch(config(mongo.url(), &["things"]), Hooks::default(), |tuning| {
        tuning.probe_every = Duration::from_millis(20);
    });
    let started = engine.sink.wait("the start", |events| {
        events.iter().find_map(|e| match e {
            Event::Started(position) => *position,
            _ => None,
        })
    });
    assert!(mongo.operation_time() >= started.at);
    engine.settle();
    assert_eq!(engine.keys(|| mongo.insert("things", [doc! { "_id": 2 }])), [engine.key(0, "2")]);
    assert_eq!(engine.source.watch(), "change stream");
    assert_eq!(engine.source.health(), Ok(()));
}
