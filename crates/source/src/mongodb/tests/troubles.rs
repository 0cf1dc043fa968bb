//! Interruptions that the feed outlives without a loss, and losses that it tells.

use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;
use mongodb::bson::doc;

use super::harness::{Engine, config, wait};
use super::place::Place;
use super::standin::{Failure, Kind, Standin, Trouble};
use crate::mongodb::Hooks;
use crate::testkit::Event;
use crate::{LossCause, ReadError, Source as _};

#[test]
fn cut_connections_lose_nothing() {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&place, &["things"]);
    let mut wanted = Vec::new();
    let mut keys = engine.keys(|| {
        for n in 1..=20_i32 {
            place.insert("things", [doc! { "_id": n }]);
            wanted.push(engine.key(0, &n.to_string()));
            if n % 5 == 0 {
                place.standin().cut(None);
            }
        }
    });
    // The last one before a cut may be told again, which harms nobody; no other one.
    let at_a_cut = [5, 10, 15, 20].map(|n| engine.key(0, &n.to_string()));
    keys.dedup_by(|again, key| again == key && at_a_cut.contains(key));
    assert_eq!(keys, wanted, "each one, in order, and no loss between them");
    wait("a read", || engine.read(0, &["20"]).is_ok());
}

#[test]
fn an_election_loses_nothing() {
    let place = Place::on_kind(Kind::ReplicaSet, 3);
    place.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&place, &["things"]);
    let before = engine.settle();
    let keys = engine.keys(|| {
        place.insert("things", [doc! { "_id": 1 }]);
        place.standin().elect(1);
        place.insert("things", [doc! { "_id": 2 }]);
    });
    assert_eq!(keys, ["1", "2"].map(|id| engine.key(0, id)));
    let after = engine.settle();
    assert!(after.reaches(&before), "one incarnation");
    assert_eq!(engine.text(0, "2"), r#"{"_id":2}"#);
}

#[test]
fn a_history_that_is_gone_is_a_loud_loss() {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&place, &["things"]);
    let from = engine.sink.len();
    let standin = place.standin();
    standin.refuse_connections(true);
    standin.cut(None);
    wait("no stream", || standin.streams() == 0 || standin.connections() == 0);
    standin.trouble("watch", Trouble::Cut);
    standin.refuse_connections(false);
    place.insert("things", [doc! { "_id": 1 }]);
    standin.prune_oplog();
    standin.cut(None);
    standin.calm("watch");
    let detail = engine.recovers(from, LossCause::LogPruned);
    assert!(detail.contains("286") || detail.contains("136"), "{detail}");
    engine.settle();
    assert_eq!(engine.keys(|| place.insert("things", [doc! { "_id": 2 }])), [engine.key(0, "2")]);
}

#[test]
fn another_deployment_at_the_same_address_is_a_loss() {
    let mut standin = Some(Standin::start());
    let port = standin.as_ref().unwrap().port(0);
    let place = Place::over(&format!("mongodb://127.0.0.1:{port}/shop?directConnection=true"), "shop");
    place.insert("things", [doc! { "_id": 1, "v": "here" }]);
    let engine = Engine::on(&place, &["things"]);
    let (from, before) = (engine.sink.len(), engine.settle());
    standin.take();
    let other = Standin::at(port);
    wait("a write there", || {
        place.try_ask(async |db| db.collection("things").insert_one(doc! { "_id": 2, "v": "there" }).await).is_ok()
    });
    let detail = engine.recovers(from, LossCause::OtherDatabase);
    assert!(detail.contains("was followed"), "{detail}");
    let after = engine.settle();
    assert_ne!(after.incarnation, before.incarnation);
    assert_eq!(engine.text(0, "1"), "-");
    drop(other);
}

#[test]
fn a_revoked_privilege_is_a_loss_with_its_reason() {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&place, &["things"]);
    let from = engine.sink.len();
    place.standin().trouble("watch", Trouble::Fail(Failure::unauthorized("watch")));
    place.standin().cut(None);
    engine.sink.wait("the loss", |events| {
        events[from..].iter().find(|e| matches!(e, Event::Loss(LossCause::NotWatched, _))).map(drop)
    });
    place.standin().calm("watch");
    engine.recovers(from, LossCause::NotWatched);
    engine.settle();
}

#[test]
fn a_server_that_says_nothing_is_given_up_and_the_feed_goes_on() {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::launch(config(place.url(), &["things"]), Hooks::default(), |tuning| {
        tuning.silence_max = Duration::from_millis(500);
    });
    engine.settle();
    let keys = engine.keys(|| {
        place.standin().trouble("getMore", Trouble::Hold);
        wait("a held answer", || place.standin().held("getMore") > 0);
        place.insert("things", [doc! { "_id": 2 }]);
        let opened = place.standin().commands("watch");
        wait("another session", || place.standin().commands("watch") > opened);
        place.standin().calm("getMore");
    });
    assert_eq!(keys, [engine.key(0, "2")]);
}

#[test]
fn a_probe_that_is_not_answered_makes_nothing_fresh() {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&place, &["things"]);
    place.standin().trouble("hello", Trouble::Hold);
    wait("a held probe", || place.standin().held("hello") > 0);
    let held_at = Nanos::now();
    place.insert("things", [doc! { "_id": 2 }]);
    engine.sink.wait("the change", |events| {
        events.iter().any(|e| matches!(e, Event::Change(c) if c.key == engine.key(0, "2"))).then_some(())
    });
    assert!(engine.sink.newest_advance().unwrap() < held_at, "a delivered change proves no freshness");
    place.standin().calm("hello");
    engine.settle();
}

#[test]
fn a_slow_read_ends_in_time_and_a_read_survives_one_cut() {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 1 }]);
    let mut wanted = config(place.url(), &["things"]);
    // The driver looks for a server no more often than twice a second.
    wanted.read_timeout = Duration::from_secs(3);
    let engine = Engine::launch(wanted, Hooks::default(), |_| {});
    engine.settle();
    let standin = place.standin();
    standin.trouble("find", Trouble::Hold);
    let begun = Instant::now();
    assert!(matches!(engine.read(0, &["1"]), Err(ReadError::Timeout { .. })));
    assert!(begun.elapsed() < Duration::from_secs(20));
    standin.calm("find");
    wait("the next read", || engine.read(0, &["1"]).is_ok());
    standin.trouble_times("find", Trouble::Cut, Some(1));
    assert_eq!(engine.text(0, "1"), r#"{"_id":1}"#);
    standin.trouble_times("find", Trouble::Fail(Failure::new(11_600, "InterruptedAtShutdown", "bye")), Some(1));
    wait("a read after that", || engine.read(0, &["1"]).is_ok());
    standin.trouble("find", Trouble::Cut);
    wait("an outage to be told", || engine.read(0, &["1"]).is_err() && engine.source.health().is_err());
    standin.calm("find");
    // Without another read: a probe's answer is enough.
    wait("health", || engine.source.health().is_ok());
}

#[test]
fn reads_at_once_are_bounded() {
    let place = Place::on_standin();
    place.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&place, &["things"]);
    place.standin().trouble("find", Trouble::Hold);
    let readings: Vec<_> = (0..20).map(|_| engine.reading(0, &["1"])).collect();
    let before = engine.source.queries_total();
    let sent = engine.runtime.block_on(async {
        let running: Vec<_> = readings.into_iter().map(tokio::spawn).collect();
        let end = Instant::now() + super::harness::DEADLINE;
        while place.standin().held("find") < 4 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // So often that each has come to what it waits for.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let sent = engine.source.queries_total() - before;
        place.standin().calm("find");
        for reading in running {
            reading.await.unwrap().unwrap();
        }
        sent
    });
    assert_eq!(sent, 4, "as many as `reads_in_flight` says");
}

#[test]
fn a_mongos_is_followed_and_a_stream_that_stands_still_is_nudged() {
    let place = Place::on_kind(Kind::Mongos, 1);
    place.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&place, &["things"]);
    assert_eq!(engine.keys(|| place.insert("things", [doc! { "_id": 2 }])), [engine.key(0, "2")]);
    assert!(place.standin().commands("dbStats") > 0 && place.standin().commands("appendOplogNote") > 0);
    assert_eq!(engine.text(0, "2"), r#"{"_id":2}"#);
}
