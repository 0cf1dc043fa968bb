//! The service of one's own that the documentation shows, as its readers run it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn the_service_of_ones_own_is_measured_in_every_set_up() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/own-service/own-service.toml");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
    command.args(["lab", "run"]).arg(file).args(["--rounds", "1", "--duration", "1s", "--quiet", "--out"]).arg(&out);
    // Elsewhere than the file: `{here}` leads there.
    let run = command.current_dir(folder.path()).output().expect("it starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));

    let text = std::fs::read_to_string(out.join("results.json")).expect("results");
    let results: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(results["complete"], true);
    let measurements = results["measurements"].as_array().expect("a list");
    let measured = |setup: &str| {
        let of_it = |m: &&Value| m["row"].as_str().is_some_and(|row| row.starts_with(&format!("{setup}/")));
        let good = measurements.iter().filter(of_it).filter(|m| m["failed"].is_null() && m["load"].is_object());
        good.count()
    };
    // With 1 and with 16 connections.
    for setup in ["alone", "two-behind-nginx", "cached-by-nginx"] {
        assert_eq!(measured(setup), 2, "{setup}: {results:#}");
    }
}
