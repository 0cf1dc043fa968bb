//! Refusals at the start, each with its remedy.

use hotrow_supervisor::Supervisor;
use mongodb::bson::doc;

use hotrow_source::Source as _;

use super::harness::{config, refusal};
use super::mongo::MongoDatabase;
use super::standin::{Failure, Fault, Kind, Standin};
use crate::config::Follow;
use crate::{Hooks, open};

#[track_caller]
fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` in: {text}");
    }
}

#[test]
fn a_standalone_is_refused_with_the_remedy_and_accepted_without_a_feed() {
    let mongo = MongoDatabase::on_kind(Kind::Standalone, 1);
    mongo.insert("things", [doc! { "_id": 1 }]);
    let mut settings = config(mongo.url(), &["things"]);
    has(
        &refusal(settings.clone()),
        &["standalone", "--replSet", "rs.initiate()", "feed = \"none\""],
    );
    settings.server.follow = Follow::Nothing;
    let engine = super::harness::Engine::launch(settings, Hooks::default(), |_| {});
    assert_eq!(engine.text(0, "1"), r#"{"_id":1}"#);
}

#[test]
fn all_problems_are_reported_at_once() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("mixed", [doc! { "_id": 1 }, doc! { "_id": "1" }]);
    let mut settings = config(mongo.url(), &["mixed", "mixd", "mixed"]);
    settings.server.collections[2].key = vec!["sku".into()];
    let text = refusal(settings);
    has(
        &text,
        &[
            "several types",
            "key_type",
            "no collection `mixd`",
            "did you mean `mixed`?",
            "createCollection",
            "only their `_id`",
        ],
    );
}

#[test]
fn an_old_server_is_refused() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    mongo.standin().pretend("4.2.0", 8);
    has(&refusal(config(mongo.url(), &["things"])), &["MongoDB 4.4"]);
}

#[test]
fn snapshots_need_version_5() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    for (version, wire, has_snapshots) in [("4.4.0", 9, false), ("5.0.0", 13, true)] {
        mongo.standin().pretend(version, wire);
        let settings = config(mongo.url(), &["things"]);
        let opened = open(settings, Hooks::default(), &Supervisor::default()).unwrap();
        assert_eq!(opened.source.snapshot_refusal().is_none(), has_snapshots, "{version}");
    }
}

#[test]
fn an_account_without_privileges_gets_the_grant_command() {
    let mongo = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    for command in ["listCollections", "watch"] {
        mongo.standin().inject(command, Fault::Fail(Failure::unauthorized("do that")));
        has(
            &refusal(config(mongo.url(), &["things"])),
            &["grantRolesToUser", "role: \"read\"", "shop"],
        );
        mongo.standin().clear_faults(command);
    }
    // The deployment's own id is useful but not required.
    mongo.standin().inject("replSetGetConfig", Fault::Fail(Failure::unauthorized("do that")));
    assert!(
        open(config(mongo.url(), &["things"]), Hooks::default(), &Supervisor::default()).is_ok()
    );
}

#[test]
fn an_unreachable_server_is_reported_in_time() {
    let port = Standin::start().port(0);
    let mut settings = config(&format!("mongodb://u:s3cr3t@127.0.0.1:{port}/shop"), &["things"]);
    settings.server.connect_timeout = std::time::Duration::from_millis(300);
    let text = refusal(settings);
    has(&text, &["no server can be used", "rs.status()"]);
    assert!(!text.contains("s3cr3t"), "{text}");
}

#[test]
fn a_feed_url_that_leads_elsewhere_is_refused() {
    let mongo = MongoDatabase::on_standin();
    let other = MongoDatabase::on_standin();
    mongo.insert("things", [doc! { "_id": 1 }]);
    other.insert("things", [doc! { "_id": 1 }]);
    let mut settings = config(mongo.url(), &["things"]);
    settings.server.feed_url = Some(other.url().to_owned());
    has(&refusal(settings), &["`feed_url` leads to", "one deployment"]);
}
