//! The published workloads, the limiter's vectors, cache policies and a failing backend, by the
//! real binary.

use std::process::{Command, Output};

use serde_json::Value;

fn lab(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
    let Output { status, stdout, stderr } = command.args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout) + &text(stderr))
}

#[test]
fn every_workload_is_an_experiment_or_names_its_command() {
    for number in 1..=hotrow_lab::workloads::WORKLOADS {
        let name = format!("w{number}");
        let (code, text) = lab(&["list", &name]);
        match code {
            Some(0) => assert!(text.starts_with("title = "), "{name}: {text}"),
            _ => {
                let (ran, answer) = lab(&["run", &name]);
                assert_eq!((ran, code), (Some(2), Some(2)), "{name}: {answer}");
                assert!(answer.contains(&format!("{name} is not an experiment")), "{answer}");
                assert!(answer.contains("run: hotrow"), "{answer}");
            }
        }
    }
}

#[test]
fn the_limits_of_the_server_pass_the_vectors() {
    let (code, text) = lab(&["limiter"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1250 ms") && text.contains("published: 175 ns"), "{text}");
}

#[test]
fn policies_are_compared_on_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ids.txt");
    let ids: String = (0..2_000_u32).map(|n| format!("{}\n", n.wrapping_mul(n) % 53)).collect();
    std::fs::write(&path, ids).expect("a file");
    let path = path.to_str().expect("UTF-8");
    let (code, text) = lab(&["policies", path, "--percent", "10,100"]);
    assert_eq!(code, Some(0), "{text}");
    for word in ["ids: 2000 requests", "LRU", "LFU", "S3-FIFO", "Hotrow", "Bound", "100 %"] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    let (code, text) = lab(&["policies", &format!("{path}.none")]);
    assert_eq!((code, text.contains("ids.txt.none")), (Some(2), true), "{text}");
}

fn figure(measurement: &Value, name: &str) -> f64 {
    let figures = measurement["figures"].as_array().expect("a list");
    let found = figures.iter().find(|figure| figure[0] == name);
    found.and_then(|figure| figure[1].as_f64()).unwrap_or_else(|| panic!("{name} in {figures:?}"))
}

/// The shipped experiment in its short form: a backup serves while the other backend is down, and
/// one attempt at a dead backend fails.
#[test]
fn a_backup_serves_while_a_backend_is_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let (code, text) = lab(&[
        "run",
        "failing-backend",
        "--quick",
        "--only",
        "last-resort,one-attempt",
        "--out",
        out.to_str().expect("UTF-8"),
    ]);
    assert_eq!(code, Some(0), "{text}");
    let results = std::fs::read_to_string(out.join("results.json")).expect("results");
    let results: Value = serde_json::from_str(&results).expect("JSON");
    let measurements = results["measurements"].as_array().expect("a list");
    let of = |deployment: &str| {
        let row = format!("{deployment}/killed/20");
        measurements.iter().find(|m| m["row"] == row.as_str()).expect("a measurement")
    };
    let backup = of("last-resort");
    let served = |measurement: &Value, phase: usize| {
        let backends = measurement["phases"][phase]["backends"].as_array().expect("a list");
        let of = |backend: &Value| Some((backend["name"].as_str()?.to_owned(), backend.clone()));
        backends.iter().filter_map(of).map(|(name, of)| (name, of["requests"].as_u64())).collect()
    };
    let before: Vec<(String, Option<u64>)> = served(backup, 0);
    assert_eq!((before[0].0.as_str(), before[1].1), ("app-1", Some(0)), "{backup:#}");
    let during = served(backup, 1);
    assert_eq!((during.len(), during[0].0.as_str()), (1, "app-2"), "{backup:#}");
    assert!(during[0].1 > Some(0), "{backup:#}");
    assert!(figure(backup, "outage") > 0.5, "{backup:#}");
    let one_attempt = of("one-attempt");
    assert!(figure(one_attempt, "failed requests") > 0.0, "{one_attempt:#}");
    assert_eq!(one_attempt["phases"][1]["instances"], 2, "{one_attempt:#}");
    // CPU time of the killed and of the restarted process.
    let tier = &one_attempt["tiers"][0];
    assert!(tier["name"] == "app-1" && tier["cpu_s"].as_f64() > Some(0.0), "{tier:#}");
}
