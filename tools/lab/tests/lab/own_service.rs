//! The documented example of a user's own service, run as documented.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn the_example_service_is_measured_in_every_deployment() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../experiments/own-service/own-service.toml");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
    command
        .args(["run"])
        .arg(file)
        .args(["--rounds", "1", "--duration", "1s", "--quiet", "--out"])
        .arg(&out);
    // Run from another folder than the experiment's, so `{here}` must resolve to the latter.
    let run = command.current_dir(folder.path()).output().expect("it starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));

    let text = std::fs::read_to_string(out.join("results.json")).expect("results");
    let results: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(results["complete"], true);
    let measurements = results["measurements"].as_array().expect("a list");
    let measured = |deployment: &str| {
        let of_it = |m: &&Value| {
            m["row"].as_str().is_some_and(|row| row.starts_with(&format!("{deployment}/")))
        };
        let good = measurements
            .iter()
            .filter(of_it)
            .filter(|m| m["failed"].is_null() && m["load"].is_object());
        good.count()
    };
    // With 1 and with 16 connections.
    for deployment in ["alone", "two-behind-nginx", "cached-by-nginx"] {
        assert_eq!(measured(deployment), 2, "{deployment}: {results:#}");
    }
}
