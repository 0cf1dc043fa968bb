//! Usage, refusals, interruption.

use std::time::Duration;

use rustix::process::Signal;

use crate::checker::{Checker, Ended, NAME, granting};
use crate::harness::{Client, Config, Database, SOON, Server, await_until};

fn run(config: &Config, arguments: &[&str]) -> Ended {
    Checker::start(config, arguments).ended(Duration::ZERO)
}

#[track_caller]
fn assert_refused(ended: &Ended, why: &str) {
    assert!(ended.status == Some(2) && ended.log.contains(why) && ended.output.is_empty(), "{why}: {ended:?}");
}

#[test]
fn a_table_that_is_missing_or_somebody_elses_is_refused() {
    let database = Database::new();
    let config = granting(Config::new(database.path()));
    let url = ["--url", "http://127.0.0.1:1"];
    assert_refused(&run(&config, &url), "--create creates it");
    // Alone, it creates the table; again, it does no harm.
    for _ in 0..2 {
        let ended = run(&config, &["--create"]);
        assert!(ended.status == Some(0) && ended.output.contains(NAME), "{ended:?}");
    }
    database.execute(&format!("INSERT INTO {NAME} VALUES (7777, 1, 'somebody''s')"));
    assert_refused(&run(&config, &url), "1 rows that are not this checker's");
    let ended = run(&config, &[&url[..], &["--adopt", "--keys", "20"]].concat());
    assert!(ended.status == Some(1) && ended.log.contains("127.0.0.1:1: there is no answer"), "{ended:?}");
    let rows: i64 = database
        .connection
        .query_row(&format!("SELECT count(*) FROM {NAME} WHERE payload LIKE 'somebody%'"), [], |row| row.get(0))
        .expect("a count");
    assert_eq!(rows, 1, "rows beyond the checker's keys stay");
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    let database = Database::with_products(1);
    let config = granting(Config::new(database.path())).collection("products");
    let url = ["--url", "http://127.0.0.1:1"];
    let with = |more: &[&str]| run(&config, &[&url[..], more].concat());
    assert_refused(&with(&[]), "--collection");
    assert_refused(&with(&["--collection", "nothing"]), "there is no nothing");
    assert_refused(&run(&config, &["--collection", NAME, "--url", "https://a"]), "--url");
    assert_refused(&with(&["--collection", NAME, "--balancer", "a:80"]), "--balancer");
    assert_refused(&with(&["--collection", NAME, "--database", "db2:x"]), "--database");
    let admins = ["--collection", NAME, "--admin", "http://127.0.0.1:1", "--admin", "http://127.0.0.1:1"];
    assert_refused(&with(&admins), "--admin");
    let uuid = config.clone().set(&format!("collections.{NAME}.key_type"), "\"uuid\"");
    assert_refused(&run(&uuid, &[&url[..], &["--collection", NAME]].concat()), "key_type");
    assert_refused(&run(&config.set("cache.ttl", "\"1\""), &url), "cache.ttl");
}

#[test]
fn interrupted_it_reports_what_it_has() {
    let database = Database::new();
    let config = granting(Config::new(database.path()));
    assert_eq!(run(&config, &["--create"]).status, Some(0));
    let server = Server::start(&config);
    let checker = Checker::against(&config, &[&server], &["-d", "10m", "--keys", "50"]);
    let mut admin = Client::connect(server.admin);
    await_until("the checker to read", SOON, || {
        let metrics = admin.get("/metrics").text();
        let hits = metrics.lines().find(|line| line.contains("hotrow_lookups_total") && line.contains("\"hit\""));
        hits.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).is_some_and(|hits| hits > 500.0)
    });
    checker.signal(Signal::INT);
    let ended = checker.ended(Duration::ZERO);
    let report = ended.report();
    assert_eq!((ended.status, report["verdict"].as_str()), (Some(130), Some("interrupted")), "{report:#}");
    assert!(report["reads"]["all"].as_u64() > Some(0), "{report:#}");
}

/// The admin API is asked at the beginning and at the end; in between its connection idles for as long as the run lasts.
#[test]
fn a_run_that_outlasts_idle_connections_has_a_whole_report() {
    let database = Database::new();
    let config = granting(Config::new(database.path())).set("limits.idle_timeout", "\"500ms\"");
    assert_eq!(run(&config, &["--create"]).status, Some(0));
    let server = Server::start(&config);
    let ended = Checker::against(&config, &[&server], &["-d", "2s", "--keys", "50"]).ended(Duration::from_secs(2));
    let report = ended.assert_kept(50, 5);
    assert_eq!((&report["feed_losses"][0], &report["trouble"]), (&0.into(), &serde_json::json!([])));
}
