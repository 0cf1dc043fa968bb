//! A service that ignores what strict reads and snapshots request: the rules `strict` and
//! `snapshot` find it. A service that refuses them leaves the run without a result.

use std::time::Duration;

use serde_json::json;

use crate::verify::balancer::Balancer;
use crate::verify::checker::{Checker, with_all_capabilities};
use hotrow_testkit::harness::{Config, Database, Server};

/// Time limit for finding it.
const FOUND_WITHIN: Duration = Duration::from_secs(60);
/// Few keys, so that the same ones are written and read repeatedly.
const ARGUMENTS: [&str; 6] = ["--json", "--keys", "60", "--rate", "300", "-d"];

fn service() -> (Database, Config, Server) {
    let database = Database::new();
    let config = with_all_capabilities(Config::new(database.path()));
    assert_eq!(Checker::start(&config, &["--create"]).ended(Duration::ZERO).status, Some(0));
    let server = Server::start(&config);
    (database, config, server)
}

/// Makes an ordinary request of one for a strict read or a snapshot.
fn ordinary(request: Vec<u8>) -> Vec<u8> {
    let mut text = String::from_utf8(request).expect("requests are text");
    for (asked, ignored) in [
        ("hotrow-min-position: now", "x-ignored: now"),
        ("&snapshot=true", ""),
        // As long, because of Content-Length.
        (",\"snapshot\":true", "                "),
    ] {
        text = text.replace(asked, ignored);
    }
    text.into_bytes()
}

fn find(skipped: &str) -> (String, String) {
    let (_database, config, server) = service();
    let ignoring = Balancer::rewriting([server.data, server.data], ordinary);
    let url = format!("http://{}", ignoring.address);
    let duration = format!("{}s", FOUND_WITHIN.as_secs());
    let more = [duration.as_str(), "--url", &url, "--skip", skipped];
    let checker = Checker::start(&config, &[&ARGUMENTS[..], &more].concat());
    checker.ended(FOUND_WITHIN).assert_violated()
}

#[test]
fn a_plain_read_is_not_strict() {
    let (rule, counterexample) = find("snapshot");
    assert!(rule == "strict" && counterexample.contains("Min-Position: now"), "{counterexample}");
}

#[test]
fn a_plain_batch_is_no_snapshot() {
    let (rule, counterexample) = find("strict");
    assert!(rule == "snapshot" && counterexample.contains("it also shows"), "{counterexample}");
}

#[test]
fn refusals_are_reported_and_are_no_result() {
    let (_database, config, server) = service();
    let refusing = Balancer::rewriting([server.data, server.data], |request| {
        let text = String::from_utf8(request).expect("requests are text");
        let text = text.replace("hotrow-min-position: now", "hotrow-min-position: then");
        text.replace("&snapshot=true", "&snapshot=perhaps").into_bytes()
    });
    let url = format!("http://{}", refusing.address);
    let run = |more: &[&str]| {
        let own = [&ARGUMENTS[1..], &["1s", "--url", &url], more].concat();
        Checker::start(&config, &own).ended(Duration::from_secs(1))
    };
    let report = run(&["--json"]).report();
    assert_eq!((&report["verdict"], &report["problems"]), (&json!("inconclusive"), &json!([])));
    assert_eq!(report["targets"][0]["strict"], false, "{report:#}");
    let ended = run(&[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    for rule in ["strict", "snapshot"] {
        let note = format!("{url} refuses what the rule {rule} needs");
        assert!(ended.output.contains(&note), "{note}: {ended:?}");
    }
    run(&["--json", "--skip", "strict", "--skip", "snapshot"]).assert_passed(20, 5);
}
