//! Usage, refusals and interruption.

use std::time::Duration;

use rustix::process::Signal;

use crate::verify::checker::{Checker, Ended, NAME, with_all_capabilities};
use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

fn run(config: &Config, arguments: &[&str]) -> Ended {
    Checker::start(config, arguments).ended(Duration::ZERO)
}

#[track_caller]
fn assert_refused(ended: &Ended, why: &str) {
    assert!(
        ended.status == Some(2) && ended.log.contains(why) && ended.output.is_empty(),
        "{why}: {ended:?}"
    );
}

#[test]
fn a_missing_or_foreign_table_is_refused() {
    let database = Database::new();
    let config = with_all_capabilities(Config::new(database.path()));
    let url = ["--url", "http://127.0.0.1:1"];
    assert_refused(&run(&config, &url), "--create creates it");
    // `--create` alone creates the table; a repetition is harmless.
    for _ in 0..2 {
        let ended = run(&config, &["--create"]);
        assert!(ended.status == Some(0) && ended.output.contains(NAME), "{ended:?}");
    }
    database.execute(&format!("INSERT INTO {NAME} VALUES (7777, 1, 'foreign')"));
    assert_refused(&run(&config, &url), "1 foreign rows");
    let ended = run(&config, &[&url[..], &["--reuse-table", "--keys", "20"]].concat());
    assert!(
        ended.status == Some(1) && ended.log.contains("127.0.0.1:1: no connection"),
        "{ended:?}"
    );
    let rows: i64 = database
        .connection
        .query_row(&format!("SELECT count(*) FROM {NAME} WHERE payload = 'foreign'"), [], |row| {
            row.get(0)
        })
        .expect("a count");
    assert_eq!(rows, 1, "rows beyond the checker's keys stay");
}

#[test]
fn invalid_arguments_are_refused_by_name() {
    let database = Database::with_products(1);
    let config = with_all_capabilities(Config::new(database.path())).collection("products");
    let url = ["--url", "http://127.0.0.1:1"];
    let with = |more: &[&str]| run(&config, &[&url[..], more].concat());
    assert_refused(&with(&[]), "--collection");
    assert_refused(&with(&["--collection", "nothing"]), "there is no nothing");
    assert_refused(&run(&config, &["--collection", NAME, "--url", "https://a"]), "--url");
    assert_refused(&with(&["--collection", NAME, "--balancer", "a:80"]), "--balancer");
    assert_refused(&with(&["--collection", NAME, "--database", "db2:x"]), "--database");
    let admins =
        ["--collection", NAME, "--admin", "http://127.0.0.1:1", "--admin", "http://127.0.0.1:1"];
    assert_refused(&with(&admins), "--admin");
    for rate in ["0", "nan", "1e9"] {
        assert_refused(&with(&["--read-rate", rate]), "requests per second above 0 and up to 1");
    }
    let uuid = config.clone().set(&format!("collections.{NAME}.key_type"), "\"uuid\"");
    assert_refused(&run(&uuid, &[&url[..], &["--collection", NAME]].concat()), "key_type");
    assert_refused(&run(&config.set("cache.ttl", "\"1\""), &url), "cache.ttl");
}

#[test]
fn a_read_rate_bounds_the_requests_of_all_readers() {
    const RATE: f64 = 40.0;
    let database = Database::new();
    let config = with_all_capabilities(Config::new(database.path()));
    assert_eq!(run(&config, &["--create", "--keys", "10"]).status, Some(0));
    let server = Server::start(&config);
    let arguments = ["-d", "2s", "--keys", "10", "--read-rate", &RATE.to_string()];
    let report = Checker::against(&config, &[&server], &arguments)
        .ended(Duration::from_secs(2))
        .assert_passed(20, 5);
    assert_eq!(report["read_rate"], RATE);
    let duration_s = report["duration_s"].as_f64().expect("a time");
    let requests = server.metrics().sum("hotrow_http_requests_total", &[]);
    // At the start and at the end each key is asked for too, and capabilities are tried.
    assert!(requests <= RATE * duration_s + 100.0, "{requests} in {duration_s} s");
}

#[test]
fn an_interrupted_run_has_a_report() {
    let database = Database::new();
    let config = with_all_capabilities(Config::new(database.path()));
    assert_eq!(run(&config, &["--create"]).status, Some(0));
    let server = Server::start(&config);
    let checker = Checker::against(&config, &[&server], &["-d", "10m", "--keys", "50"]);
    let mut admin = Client::connect(server.admin);
    await_until("the checker to read", SOON, || {
        let metrics = admin.get("/metrics").text();
        let hits = metrics
            .lines()
            .find(|line| line.contains("hotrow_lookups_total") && line.contains("\"hit\""));
        hits.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .is_some_and(|hits| hits > 500.0)
    });
    checker.signal(Signal::INT);
    let ended = checker.ended(Duration::ZERO);
    let report = ended.report();
    assert_eq!(
        (ended.status, report["verdict"].as_str()),
        (Some(130), Some("interrupted")),
        "{report:#}"
    );
    assert!(report["reads"]["total"].as_u64() > Some(0), "{report:#}");
}

/// The admin API is used at the beginning and at the end; its connection is idle in between.
#[test]
fn a_run_longer_than_idle_timeouts_has_a_complete_report() {
    let database = Database::new();
    let config =
        with_all_capabilities(Config::new(database.path())).set("limits.idle_timeout", "\"500ms\"");
    assert_eq!(run(&config, &["--create"]).status, Some(0));
    let server = Server::start(&config);
    let ended = Checker::against(&config, &[&server], &["-d", "2s", "--keys", "50"])
        .ended(Duration::from_secs(2));
    let report = ended.assert_passed(50, 5);
    assert_eq!(
        (&report["feed_losses"][0], &report["problems"]),
        (&0.into(), &serde_json::json!([]))
    );
}
