//! Near caches: readers of the Redis protocol that keep what they have read until it is
//! invalidated, and the mistakes of a server that leave them an outdated copy.

use std::time::Duration;

use serde_json::Value;

use crate::verify::checker::{
    Checker, MODEST, NAME, assert_followers, assert_near_caches, with_all_capabilities,
    with_near_caches,
};
use hotrow_testkit::harness::{Config, Database, Server};

/// Rows that are read slowly, so that changes happen during reads.
fn stage() -> (Database, Config) {
    let database = Database::new();
    let slow = "length(replace(hex(zeroblob(100000 + id % 2)), '00', 'abc'))";
    database.execute(&format!(
        "CREATE TABLE {NAME}(id INTEGER PRIMARY KEY, version INTEGER NOT NULL,
         payload TEXT NOT NULL, slow INTEGER GENERATED ALWAYS AS ({slow}) VIRTUAL)"
    ));
    let config = with_near_caches(with_all_capabilities(Config::new(database.path())));
    let created = Checker::start(&config, &["--create"]).ended(Duration::ZERO);
    assert_eq!(created.status, Some(0), "{created:?}");
    (database, config)
}

#[track_caller]
fn count(report: &Value, path: &str) -> u64 {
    report.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {report:#}"))
}

#[test]
fn copies_are_checked_in_both_modes() {
    let (_database, config) = stage();
    let server = Server::start(&config);
    let ended = Checker::against(
        &config,
        &[&server],
        &[&["-d", "4s", "--rate", "100"][..], &MODEST].concat(),
    )
    .ended(Duration::from_secs(4));
    let report = ended.assert_passed(300, 50);
    for path in ["/near_caches/copies_read", "/near_caches/kept", "/near_caches/invalidations"] {
        assert!(count(&report, path) > 50, "{path}: {report:#}");
    }
    assert_near_caches(&report);
    assert_followers(&report);
}

#[test]
fn a_server_that_does_not_broadcast_is_checked_in_the_other_mode() {
    let (_database, config) = stage();
    let config = config.set(&format!("collections.{NAME}.changes"), "false");
    let server = Server::start(&config);
    let ended = Checker::against(&config, &[&server], &[&["-d", "2s"][..], &MODEST].concat())
        .ended(Duration::from_secs(2));
    let report = ended.assert_passed(100, 1);
    assert_eq!(report["near_caches"]["targets"][0]["broadcast"], false, "{report:#}");
    assert!(count(&report, "/near_caches/copies_read") > 0, "{report:#}");
}

#[test]
fn wrong_addresses_are_refused_by_name() {
    let (_database, config) = stage();
    let server = Server::start(&config);
    let url = format!("http://{}", server.data);
    let redis = format!("redis://{}", server.redis());
    let run = |config: &Config, more: &[&str]| {
        let arguments = [&["--url", &url, "--redis"], more].concat();
        Checker::start(config, &arguments).ended(Duration::ZERO)
    };
    let stale = config.clone().set("redis.allow_stale", "true");
    let bare = redis.trim_start_matches("redis://");
    for (config, arguments, status, why) in [
        (&config, &[bare][..], 2, "--redis: must be redis://HOST:PORT"),
        (&config, &[&redis, "--redis", &redis], 2, "there are 2 of them for 1 times --url"),
        (&stale, &[&redis], 2, "redis.allow_stale"),
        (&config, &["redis://127.0.0.1:1"], 1, "redis://127.0.0.1:1: no connection"),
    ] {
        let ended = run(config, arguments);
        assert!(ended.status == Some(status) && ended.log.contains(why), "{why}: {ended:?}");
    }
}

#[cfg(feature = "failpoints")]
mod planted {
    use super::{Checker, Duration, Server, stage};

    /// Asserts that the checker finds what a server without this rule does, within a minute.
    #[track_caller]
    fn assert_found(rule: &str) {
        let (_database, config) = stage();
        let server = Server::start_with(&config, &[("HOTROW_FAILPOINTS", rule)]);
        server.await_ready();
        let arguments = ["-d", "60s", "--rate", "60", "--keys", "2000"];
        let checker = Checker::against(&config, &[&server], &arguments);
        let (rule, counterexample) = checker.ended(Duration::from_secs(60)).assert_violated();
        assert_eq!(rule, "copied", "{counterexample}");
        assert!(counterexample.contains("in its near cache"), "{counterexample}");
    }

    #[ignore = "long: in the short form the wire's tests find it"]
    #[test]
    fn late_interest_is_found() {
        assert_found("copy-interest");
    }

    #[ignore = "long: in the short form the wire's tests find it"]
    #[test]
    fn an_invalidation_before_the_reply_is_found() {
        assert_found("copy-order");
    }
}
