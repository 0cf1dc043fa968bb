//! Over SQLite.

use std::time::Duration;

use rustix::process::Signal;

use crate::checker::{ALL_RULES, Checker, NAME, assert_all_rules, assert_self_checked, granting};
use crate::harness::{Config, Database, Server, await_until};

/// A database with the checker's table, and its configuration.
fn stage(config: impl FnOnce(Config) -> Config) -> (Database, Config) {
    let database = Database::new();
    let config = config(granting(Config::new(database.path())));
    let created = Checker::start(&config, &["--create"]).ended(Duration::ZERO);
    assert_eq!(created.status, Some(0), "{created:?}");
    (database, config)
}

#[test]
fn a_sound_service_passes_and_every_rule_was_asked() {
    let (_database, config) = stage(|config| config);
    let server = Server::start(&config);
    // On a machine that is busy with other things, few reads may come near a change; then once more.
    let check = || {
        let ended = Checker::against(&config, &[&server], &["-d", "4s", "--rate", "300"]).ended(Duration::from_secs(4));
        ended.assert_kept(300, 100)
    };
    let is_near = |report: &serde_json::Value| report["reads"]["near_share"].as_f64() >= Some(0.2);
    let report =
        (0..3).map(|_| check()).find(is_near).expect("a fifth of the reads near a change, in one of three runs");
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&server);
    for form in ["get", "conditional", "head", "batch_get", "batch_post"] {
        assert!(report["reads"]["forms"][form].as_u64() > Some(0), "{form}: {report:#}");
    }
    assert_eq!(report["feed_losses"][0], 0);
    assert_eq!(report["refused"], serde_json::json!({}));
}

#[test]
fn keys_may_be_texts_and_grants_may_be_missing() {
    let (_database, config) = stage(|config| {
        let key = format!("collections.{NAME}");
        config
            .set(&format!("{key}.key_type"), "\"text\"")
            .set(&format!("{key}.allow_no_cache"), "false")
            .set(&format!("{key}.allow_min_position"), "false")
    });
    let server = Server::start(&config);
    let ended = Checker::against(&config, &[&server], &["-d", "2s", "--keys", "60"]).ended(Duration::from_secs(2));
    let report = ended.assert_kept(100, 20);
    assert_eq!(
        (&report["targets"][0]["no_cache"], &report["targets"][0]["min_position"]),
        (&false.into(), &false.into())
    );
    assert_eq!((&report["reads"]["sessions"], &report["reads"]["no_cache"]), (&0.into(), &0.into()));
}

/// The service answers as its own bound allows. Held to a tighter one, it must be found out: it is stopped for longer than that
/// bound, so that its feed must have been behind when it wakes.
#[test]
fn a_service_that_allows_itself_more_than_is_promised_is_found_out() {
    let (_database, config) =
        stage(|config| config.set("cache.max_staleness", "\"60s\"").set("cache.when_stale", "\"stale\""));
    let server = Server::start(&config);
    let promised = config.set("cache.max_staleness", "\"10ms\"");
    let mut checker = Checker::against(&promised, &[&server], &["-d", "60s", "--rate", "400", "--keys", "30"]);
    // Each time it wakes, requests are waiting that were sent while it slept, and its feed has slept too.
    while checker.runs() {
        server.stop();
        std::thread::sleep(Duration::from_millis(120));
        server.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(200));
    }
    let (rule, story) = checker.ended(Duration::from_secs(60)).assert_broken();
    assert_eq!(rule, "fresh", "{story}");
}

/// A writer that disables triggers is on the list of what no feed shows. The service's own check finds it.
#[test]
fn the_service_itself_finds_an_entry_that_no_change_reached() {
    let (database, config) = stage(|config| config.set("cache.max_staleness", "\"300ms\""));
    let server = Server::start(&config);
    let path = format!("/{NAME}/1");
    let before = server.get(&path).text();
    let writer = database.another();
    let setting = rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER;
    writer.set_db_config(setting, false).expect("a setting");
    writer.execute(&format!("UPDATE {NAME} SET version = version + 1 WHERE id = 1"), []).expect("an update");
    let mut client = server.client();
    assert_eq!(client.get(&path).text(), before, "nobody told the service");
    await_until("the check to find it", Duration::from_secs(30), || {
        client.get(&path);
        server.metrics().sum("hotrow_inconsistent_answers_total", &[]) == 1.0
    });
    // It is dropped, so the next read sees the row as it is, and nothing more is found.
    assert_ne!(client.get(&path).text(), before);
    let log = server.log();
    assert!(log.contains("an answer was inconsistent") && !log.contains("hotrow-verify:"), "{log}");
}
