//! What `hotrow lab run` says of a limit that was put in place on purpose.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A machine that is busy with other things may give the service less than its limit: then it is tried again.
const TRIES_MAX: usize = 5;

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

/// Runs it once; the results, and the report in Markdown.
fn run(folder: &Path) -> (Value, String) {
    std::fs::write(folder.join("limit.toml"), EXPERIMENT).unwrap();
    lab_run(&folder.join("limit.toml"), &folder.join("out"), &[])
}

/// Runs an experiment, anew where it has run before; the results, and the report in Markdown.
pub(super) fn lab_run(file: &Path, out: &Path, options: &[&str]) -> (Value, String) {
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
    for tried in 1.. {
        let (results, report) = run(folder.path());
        let limited = results.pointer("/host/cpu_limits").and_then(Value::as_str).unwrap_or_default();
        if !limited.starts_with("cgroup") {
            println!("nothing to find here: CPU limits are {limited:?}");
            return;
        }
        let measurement = &results["measurements"][0];
        assert!(measurement["looking_cpu_s"].as_f64() > Some(0.0), "{measurement:#}");
        let findings = measurement["findings"].as_array().expect("it was looked at");
        let found = findings.iter().any(|finding| finding["class"] == "Throttled");
        // Its processes are called by their names.
        if found
            && report.contains("CPU limit of the service")
            && report.contains("the group of app (")
            && report.contains(" was held up in ")
        {
            return;
        }
        assert!(tried < TRIES_MAX, "{measurement:#}\n{report}");
    }
}
