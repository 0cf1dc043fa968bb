//! What `hotrow lab run` says of a limit that was put in place on purpose.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A machine that is busy with other things may give the service less than its limit, or stop the generator: then it is tried again.
const TRIES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(90);
/// What is said where the machine was full: what was put in place is not what limits then, and that is right.
const FULL: [&str; 4] = ["AllCpus", "Competitor", "Steal", "Generator"];

/// 20 ms of work for each answer, in one process that may use a fifth of a core.
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

[[setups]]
name = "direct"
service = "app"

[[loads]]
name = "work"
path = "/"
connections = [2]
keepalive = false
"#;

/// Runs an experiment, anew where it has run before, until its results and the report in Markdown are as they should be. Where the machine was full to the last, nothing can be found, and that is told.
pub(super) fn lab_run_until(file: &Path, out: &Path, options: &[&str], holds: impl Fn(&Value, &str) -> bool) {
    let (begun, mut tries) = (Instant::now(), 0);
    loop {
        let (results, report) = lab_run(file, out, options);
        if holds(&results, &report) {
            return;
        }
        tries += 1;
        if tries < TRIES || begun.elapsed() < PATIENCE {
            continue;
        }
        let measurement = &results["measurements"][0];
        let first = measurement["findings"][0]["class"].as_str().expect("it was looked at");
        assert!(FULL.contains(&first), "{measurement:#}\n{report}");
        println!("skipped: the machine was full at each of {tries} tries: {first}");
        return;
    }
}

/// The results, and the report in Markdown.
fn lab_run(file: &Path, out: &Path, options: &[&str]) -> (Value, String) {
    let _ = std::fs::remove_dir_all(out);
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
    command.args(["lab", "run"]).arg(file).arg("--out").arg(out).args(options);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    (serde_json::from_str(&read("results.json")).unwrap(), read("report.md"))
}

#[test]
fn a_services_cpu_limit_is_found_at_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("limit.toml"), folder.path().join("out"));
    std::fs::write(&file, EXPERIMENT).unwrap();
    lab_run_until(&file, &out, &[], |results, report| {
        let limited = results.pointer("/host/cpu_limits").and_then(Value::as_str).unwrap_or_default();
        if !limited.starts_with("cgroup") {
            println!("nothing to find here: CPU limits are {limited:?}");
            return true;
        }
        let measurement = &results["measurements"][0];
        assert!(measurement["looking_cpu_s"].as_f64() > Some(0.0), "{measurement:#}");
        let findings = measurement["findings"].as_array().expect("it was looked at");
        // Its processes are called by their names.
        findings.iter().any(|finding| finding["class"] == "Throttled")
            && report.contains("CPU limit of the service")
            && report.contains("the group of app (")
            && report.contains(" was held up in ")
    });
}
