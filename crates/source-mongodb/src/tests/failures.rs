//! Interruptions that the feed survives without a loss, and losses that it reports.

use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;
use mongodb::bson::doc;

use super::harness::{Engine, config, wait};
use super::mongo::MongoDatabase;
use super::standin::{Failure, Fault, Kind, Standin};
use crate::Hooks;
use hotrow_source::testkit::Event;
use hotrow_source::{LossCause, Source as _, SourceError};

#[test]
fn cut_connections_lose_nothing() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let mut expected = Vec::new();
    let mut keys = engine.keys(|| {
        for n in 1..=20_i32 {
            mongo.insert("things", [doc! { "_id": n }]);
            expected.push(engine.key(0, &n.to_string()));
            if n % 5 == 0 {
                mongo.standin().cut(None);
            }
        }
    });
    // The last change before a cut may be delivered again; no other one.
    let at_a_cut = [5, 10, 15, 20].map(|n| engine.key(0, &n.to_string()));
    keys.dedup_by(|repeated, key| repeated == key && at_a_cut.contains(key));
    assert_eq!(keys, expected, "each one, in order, and no loss between them");
    wait("a read", || engine.read(0, &["20"]).is_ok());
}

#[test]
fn an_election_loses_nothing() {
    let mongo = MongoDatabase::on_kind(Kind::ReplicaSet, 3);
    mongo.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let before = engine.settle();
    let keys = engine.keys(|| {
        mongo.insert("things", [doc! { "_id": 1 }]);
        mongo.standin().elect(1);
        mongo.insert("things", [doc! { "_id": 2 }]);
    });
    assert_eq!(keys, ["1", "2"].map(|id| engine.key(0, id)));
    let after = engine.settle();
    assert!(after.reaches(&before), "one incarnation");
    assert_eq!(engine.text(0, "2"), r#"{"_id":2}"#);
}

#[test]
fn a_lost_history_is_reported_as_a_loss() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let from = engine.sink.len();
    let standin = mongo.standin();
    standin.refuse_connections(true);
    standin.cut(None);
    wait("no stream", || standin.streams() == 0 || standin.connections() == 0);
    standin.inject("watch", Fault::Cut);
    standin.refuse_connections(false);
    mongo.insert("things", [doc! { "_id": 1 }]);
    standin.prune_oplog();
    standin.cut(None);
    standin.clear_faults("watch");
    let detail = engine.recovers(from, LossCause::LogPruned);
    assert!(detail.contains("286") || detail.contains("136"), "{detail}");
    engine.settle();
    assert_eq!(engine.keys(|| mongo.insert("things", [doc! { "_id": 2 }])), [engine.key(0, "2")]);
}

/// Cuts all connections and inserts documents, so that the next session of the feed finds them in
/// one batch, to which `left` malformed answers apply.
fn malform_next_batch(mongo: &MongoDatabase, left: Option<u32>) {
    let standin = mongo.standin();
    let sessions = standin.commands("watch");
    standin.inject("watch", Fault::Fail(Failure::new(11_600, "InterruptedAtShutdown", "bye")));
    standin.inject("getMore", Fault::Cut);
    wait("a session that ends", || standin.commands("watch") > sessions);
    standin.clear_faults("getMore");
    standin.inject_times("getMore", Fault::Malform, left);
    mongo.insert("things", (1..=3).map(|n| doc! { "_id": n }));
    standin.clear_faults("watch");
}

#[test]
fn a_malformed_batch_is_requested_again_and_loses_nothing() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let keys = engine.keys(|| malform_next_batch(&mongo, Some(1)));
    assert_eq!(keys, ["1", "2", "3"].map(|id| engine.key(0, id)));
}

#[test]
fn a_batch_that_is_malformed_again_is_a_loss() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 0 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let from = engine.sink.len();
    malform_next_batch(&mongo, None);
    let detail = engine.recovers(from, LossCause::Unavailable);
    assert!(detail.contains("no batch of events"), "{detail}");
    mongo.standin().clear_faults("getMore");
    engine.settle();
    assert_eq!(engine.keys(|| mongo.insert("things", [doc! { "_id": 4 }])), [engine.key(0, "4")]);
}

#[test]
fn another_deployment_at_the_same_address_is_a_loss() {
    let mut standin = Some(Standin::start());
    let port = standin.as_ref().unwrap().port(0);
    let mongo = MongoDatabase::over(
        &format!("mongodb://127.0.0.1:{port}/shop?directConnection=true"),
        "shop",
    );
    mongo.insert("things", [doc! { "_id": 1, "v": "here" }]);
    let engine = Engine::on(&mongo, &["things"]);
    let from = engine.sink.len();
    let before = engine.settle();
    standin.take();
    let other = Standin::at(port);
    wait("a write there", || {
        mongo
            .try_ask(async |db| {
                db.collection("things").insert_one(doc! { "_id": 2, "v": "there" }).await
            })
            .is_ok()
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
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let from = engine.sink.len();
    mongo.standin().inject("watch", Fault::Fail(Failure::unauthorized("watch")));
    mongo.standin().cut(None);
    engine.sink.loses(from, LossCause::NotWatched);
    mongo.standin().clear_faults("watch");
    engine.recovers(from, LossCause::NotWatched);
    engine.settle();
}

#[test]
fn a_silent_server_is_abandoned_and_the_feed_continues() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::launch(config(mongo.url(), &["things"]), Hooks::default(), |tuning| {
        tuning.silence_max = Duration::from_millis(500);
    });
    engine.settle();
    let keys = engine.keys(|| {
        mongo.standin().inject("getMore", Fault::Hold);
        wait("a held answer", || mongo.standin().held("getMore") > 0);
        mongo.insert("things", [doc! { "_id": 2 }]);
        let opened = mongo.standin().commands("watch");
        wait("another session", || mongo.standin().commands("watch") > opened);
        mongo.standin().clear_faults("getMore");
    });
    assert_eq!(keys, [engine.key(0, "2")]);
}

#[test]
fn an_unanswered_probe_does_not_advance_freshness() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    mongo.standin().inject("hello", Fault::Hold);
    wait("a held probe", || mongo.standin().held("hello") > 0);
    let held_at = Nanos::now();
    mongo.insert("things", [doc! { "_id": 2 }]);
    engine.sink.wait("the change", |events| {
        events
            .iter()
            .any(|e| matches!(e, Event::Change(c) if c.key == engine.key(0, "2")))
            .then_some(())
    });
    assert!(
        engine.sink.newest_advance().unwrap() < held_at,
        "a delivered change proves no freshness"
    );
    mongo.standin().clear_faults("hello");
    engine.settle();
}

#[test]
fn a_slow_read_ends_in_time_and_a_read_survives_one_cut() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let mut settings = config(mongo.url(), &["things"]);
    // The driver looks for a server at most twice a second.
    settings.server.read_timeout = Duration::from_secs(3);
    let engine = Engine::launch(settings, Hooks::default(), |_| {});
    engine.settle();
    let standin = mongo.standin();
    standin.inject("find", Fault::Hold);
    let began_at = Instant::now();
    assert!(matches!(engine.read(0, &["1"]), Err(SourceError::Timeout { .. })));
    assert!(began_at.elapsed() < Duration::from_secs(20));
    standin.clear_faults("find");
    wait("the next read", || engine.read(0, &["1"]).is_ok());
    standin.inject_times("find", Fault::Cut, Some(1));
    assert_eq!(engine.text(0, "1"), r#"{"_id":1}"#);
    standin.inject_times(
        "find",
        Fault::Fail(Failure::new(11_600, "InterruptedAtShutdown", "bye")),
        Some(1),
    );
    wait("a read after that", || engine.read(0, &["1"]).is_ok());
    standin.inject("find", Fault::Cut);
    wait("an outage to be reported", || {
        engine.read(0, &["1"]).is_err() && engine.source.health().is_err()
    });
    standin.clear_faults("find");
    // Without another read: the answer to a probe suffices.
    wait("health", || engine.source.health().is_ok());
}

#[test]
fn refused_logins_become_rare() {
    const READS: u64 = 200;
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let url = mongo.url().replace("://", "://reader:password@") + "&authMechanism=PLAIN";
    let engine = Engine::launch(config(&url, &["things"]), Hooks::default(), |_| {});
    engine.settle();
    let standin = mongo.standin();
    let refused = Failure::new(18, "AuthenticationFailed", "Authentication failed.");
    standin.inject("saslStart", Fault::Fail(refused));
    standin.cut(None);
    wait("a refused login", || {
        let answer = engine.read(0, &["1"]);
        answer.is_err_and(|error| error.to_string().contains("Authentication failed"))
    });
    let before = standin.commands("saslStart");
    (0..READS).for_each(|_| assert!(engine.read(0, &["1"]).is_err()));
    let logins = standin.commands("saslStart") - before;
    assert!(logins < READS / 5, "{logins} logins for {READS} reads");
    standin.clear_faults("saslStart");
    wait("a read", || engine.read(0, &["1"]).is_ok());
}

#[test]
fn a_malformed_answer_fails_the_read_and_no_document_is_missing() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", (1..=3).map(|n| doc! { "_id": n }));
    let engine = Engine::on(&mongo, &["things"]);
    for ids in [&["1"][..], &["1", "2", "3"]] {
        mongo.standin().inject_times("find", Fault::Malform, Some(1));
        match engine.read(0, ids) {
            Err(SourceError::Unavailable { detail }) => {
                assert!(detail.contains("BSON"), "{detail}")
            }
            other => panic!("{other:?}"),
        }
        assert!(engine.read(0, ids).is_ok(), "the next read is answered");
    }
}

#[test]
fn reads_at_once_are_bounded() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    let connections = mongo.standin().connections();
    mongo.standin().inject("find", Fault::Hold);
    let readings: Vec<_> = (0..20).map(|_| engine.reader.reading(0, &["1"])).collect();
    let before = engine.source.queries_total();
    let sent = engine.reader.block_on(async {
        let running: Vec<_> = readings.into_iter().map(tokio::spawn).collect();
        let end = Instant::now() + super::harness::DEADLINE;
        while mongo.standin().held("find") < 4 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Often enough for each read to reach the point where it waits.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let sent = engine.source.queries_total() - before;
        mongo.standin().clear_faults("find");
        for reading in running {
            reading.await.unwrap().unwrap();
        }
        sent
    });
    assert_eq!(sent, 4, "as many as `reads_in_flight` says");
    let connections_now = mongo.standin().connections();
    assert!(connections_now <= connections + 4, "{connections} before, {connections_now} now");
}

#[test]
fn a_mongos_is_followed_and_notes_advance_an_idle_stream() {
    let mongo = MongoDatabase::on_kind(Kind::Mongos, 1);
    mongo.insert("things", [doc! { "_id": 1 }]);
    let engine = Engine::on(&mongo, &["things"]);
    assert_eq!(engine.keys(|| mongo.insert("things", [doc! { "_id": 2 }])), [engine.key(0, "2")]);
    assert!(
        mongo.standin().commands("dbStats") > 0 && mongo.standin().commands("appendOplogNote") > 0
    );
    assert_eq!(engine.text(0, "2"), r#"{"_id":2}"#);
    let dropped = engine.delivered(|| mongo.ask(async |database| database.drop().await));
    assert!(dropped.iter().all(|event| matches!(event, Event::Flush(..))), "{dropped:?}");
    assert_eq!(engine.keys(|| mongo.insert("things", [doc! { "_id": 3 }])), [engine.key(0, "3")]);
}
