//! What `hotrow lab run` says of a proxy that works harder than all the services behind it.

use std::path::Path;

use super::limits::lab_run;

/// A machine that others use may have no CPU left for the proxy, or stop its worker: then it is tried again.
const TRIES_MAX: usize = 5;
/// What is said where the machine was full: the proxy is not what limits then, and that is right.
const FULL: [&str; 3] = ["AllCpus", "Competitor", "Steal"];

/// One of its set-ups: two services whose texts nginx compresses anew for each answer, with one worker.
const EXPERIMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/diagnosis/proxy.toml");
const SHORT: [&str; 6] = ["--only", "level-9", "--rounds", "1", "--duration", "1500ms"];

#[test]
fn a_proxy_that_is_busier_than_its_services_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for tried in 1.. {
        let (results, report) = lab_run(Path::new(EXPERIMENT), &folder.path().join("out"), &SHORT);
        let measurement = &results["measurements"][0];
        let first = measurement["findings"][0]["class"].as_str().expect("it was looked at").to_owned();
        // Its worker is called by what it is.
        if first == "Proxy" && report.contains("the proxy in front") && report.contains("of a process of nginx uses") {
            return;
        }
        if tried >= TRIES_MAX && FULL.contains(&first.as_str()) {
            println!("nothing to find here: the machine was full at each try");
            return;
        }
        assert!(tried < TRIES_MAX, "{measurement:#}\n{report}");
    }
}
