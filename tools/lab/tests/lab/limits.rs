//! `hotrow lab run` finds a deliberately set limit.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Attempts, because a busy machine may give the service less than its limit, or limit the
/// generator.
const TRIES: usize = 5;
const WAIT_MAX: Duration = Duration::from_secs(90);
/// Finding classes on a busy machine, on which the limit that was set is not the bottleneck.
const FULL: [&str; 4] = ["AllCpus", "Competitor", "Steal", "Generator"];

/// 20 ms of work per response, in one process limited to a fifth of a core.
const EXPERIMENT: &str = r#"
title = "A limit"
question = "Is it found?"

[run]
rounds = 1
duration = "1s"
warmup = "200ms"

[services.app]
command = ["python3", "{dir}/service.py", "{port}"]
cores = 0.2
files."service.py" = '''
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        until = time.process_time() + 0.02
        while time.process_time() < until:
            pass
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''

[[deployments]]
name = "direct"
service = "app"

[[loads]]
name = "work"
path = "/"
connections = [2]
keepalive = false
"#;

/// Runs an experiment repeatedly until its results and its Markdown report satisfy `holds`. If the
/// machine stayed busy, nothing can be found, and the test reports that.
pub(super) fn lab_run_until(
    file: &Path,
    out: &Path,
    options: &[&str],
    holds: impl Fn(&Value, &str) -> bool,
) {
    let started = Instant::now();
    let mut tries = 0;
    loop {
        let (results, report) = lab_run(file, out, options);
        if holds(&results, &report) {
            return;
        }
        tries += 1;
        if tries < TRIES || started.elapsed() < WAIT_MAX {
            continue;
        }
        let measurement = &results["measurements"][0];
        let first = measurement["findings"][0]["class"].as_str().expect("it was observed");
        assert!(FULL.contains(&first), "{measurement:#}\n{report}");
        println!("skipped: the machine was full at each of {tries} tries: {first}");
        return;
    }
}

/// Runs an experiment; returns its results and its Markdown report.
fn lab_run(file: &Path, out: &Path, options: &[&str]) -> (Value, String) {
    let _ = std::fs::remove_dir_all(out);
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
    command.args(["run"]).arg(file).arg("--out").arg(out).args(options);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    (serde_json::from_str(&read("results.json")).unwrap(), read("report.md"))
}

#[test]
fn a_services_cpu_limit_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limit.toml");
    let out = folder.path().join("out");
    std::fs::write(&file, EXPERIMENT).unwrap();
    lab_run_until(&file, &out, &[], |results, report| {
        let limited =
            results.pointer("/host/cpu_limits").and_then(Value::as_str).unwrap_or_default();
        if !limited.starts_with("cgroup") {
            println!("skipped: CPU limits are {limited:?}");
            return true;
        }
        let measurement = &results["measurements"][0];
        assert!(measurement["observer_cpu_s"].as_f64() > Some(0.0), "{measurement:#}");
        let findings = measurement["findings"].as_array().expect("it was observed");
        // Its processes are named.
        findings.iter().any(|finding| finding["class"] == "Throttled")
            && report.contains("CPU limit of the service")
            && report.contains("the group of app (")
            && report.contains(" was throttled in ")
    });
}
