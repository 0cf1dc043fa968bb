//! Instances that are killed and started behind real proxies: which keys are read again.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A service that keeps each record once it has read it, and counts requests and reads.
const SERVICE: &str = r#"
import socket, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

kept, requests, reads = set(), 0, 0
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global requests, reads
        body = b"{}"
        if self.path == "/metrics":
            body = b"requests %d\nreads %d\n" % (requests, reads)
        elif self.path != "/healthz":
            requests += 1
            if self.path not in kept:
                kept.add(self.path)
                reads += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.daemon_threads = True
server.serve_forever()
"#;
const INSTANCES: f64 = 3.0;

/// Returns an experiment with three instances and a spare behind each proxy.
fn experiment(proxies: &[(&str, &str)], duration: &str) -> String {
    let deployment = |(name, proxy): &(&str, &str)| {
        format!(
            "[[deployments]]\nname = \"{name}\"\nservice = \"app\"\ninstances = 4\nspares = 1\n\
             proxy = {{ {proxy} }}\n"
        )
    };
    let deployments: String = proxies.iter().map(deployment).collect();
    let goal = |(name, _): &(&str, &str)| {
        format!(
            "[[goals]]\nrow = \"{name}/all/4\"\nfigure = \"read again, instance 2 killed\"\n\
             at_most = 1.6\nclaim = \"{name}\"\n"
        )
    };
    let goals: String = proxies.iter().map(goal).collect();
    format!(
        "title = \"A test\"\nquestion = \"What is read again?\"\n\
         [run]\nrounds = 1\nduration = \"{duration}\"\nwarmup = \"2s\"\n\
         [services.app]\ncommand = [\"python3\", \"{{dir}}/service.py\", \"{{port}}\"]\n\
         ready = \"/healthz\"\nmetrics = \"/metrics\"\ncount_metric = \"requests\"\n\
         reads_metric = \"reads\"\nfiles.\"service.py\" = '''{SERVICE}'''\n\
         figures = [{{ name = \"reads\", of = [\"reads\"] }}]\n\
         {deployments}\
         [[loads]]\nname = \"all\"\npath = \"/items/{{id}}\"\nids = \"1..300\"\n\
         distribution = \"sequential\"\nconnections = [4]\nrate = 400.0\n\
         events = [{{ at = 0.2, kill = 2 }}, {{ at = 0.6, start = 4 }}]\n\
         [[loads]]\nname = \"after\"\npath = \"/items/1\"\nconnections = [1]\nrequests = 5\n\
         warmup = \"0s\"\n\
         {goals}"
    )
}

fn run(folder: &Path, text: &str) -> (Option<i32>, String) {
    std::fs::write(folder.join("test.toml"), text).unwrap();
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"))
        .arg("run")
        .arg(folder.join("test.toml"))
        .args(["--quiet", "--out"])
        .arg(folder.join("out"))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout) + &text(stderr))
}

fn measurement(folder: &Path, row: &str) -> Value {
    let text = std::fs::read_to_string(folder.join("out/results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let all = results["measurements"].as_array().unwrap();
    all.iter().find(|measurement| measurement["row"] == row).unwrap().clone()
}

fn figure(measurement: &Value, name: &str) -> f64 {
    let figures = measurement["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure[0] == name);
    found.and_then(|figure| figure[1].as_f64()).unwrap_or_else(|| panic!("{measurement:#}"))
}

#[test]
fn a_consistent_hash_moves_the_keys_of_one_instance_only() {
    let folder = tempfile::tempdir().unwrap();
    let proxies = [
        ("ring", "kind = \"haproxy\", balance = \"hash_on_id\""),
        ("nginx", "kind = \"nginx\", profile = \"tuned\", balance = \"hash_on_id\", max_fails = 0"),
        ("modulo", "kind = \"haproxy\", balance = \"modulo_on_id\""),
    ];
    let (code, text) = run(folder.path(), &experiment(&proxies, "10s"));
    // Modulo misses its goal.
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("ring: ") && text.contains("≤ 1.60 of 1/N: reached"), "{text}");
    assert!(text.contains("modulo: ") && text.contains("≤ 1.60 of 1/N: missed"), "{text}");
    for (name, _) in proxies {
        let found = measurement(folder.path(), &format!("{name}/all/4"));
        assert_eq!(found["failed"], Value::Null, "{found:#}");
        let phases = found["phases"].as_array().unwrap();
        let names: Vec<&str> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
        assert_eq!(names, ["before", "instance 2 killed", "instance 4 started"]);
        let running: Vec<_> = phases.iter().map(|phase| phase["instances"].as_u64()).collect();
        assert_eq!(running, [Some(3), Some(2), Some(3)]);
        assert_eq!(phases[2]["backends"].as_array().unwrap().len(), 3, "{found:#}");
        // Everything was in memory, so that what is read was moved.
        assert_eq!(phases[0]["figures"][0][1], 0.0, "{found:#}");
        let killed = figure(&found, "read again, instance 2 killed");
        let reads = phases[1]["figures"][0][1].as_f64().unwrap();
        assert!((killed - reads / 300.0 * INSTANCES).abs() < 1e-9, "{found:#}");
        let all_reads: f64 =
            phases.iter().filter_map(|phase| phase["figures"][0][1].as_f64()).sum();
        assert_eq!(figure(&found, "reads"), all_reads, "{found:#}");
        if name == "modulo" {
            // Half of the keys of the others go elsewhere too.
            assert!(killed > 1.7, "{found:#}");
        } else {
            // What it had, which is about a third.
            assert!((0.5..1.6).contains(&killed), "{found:#}");
            let started = figure(&found, "read again, instance 4 started");
            assert!((0.5..1.6).contains(&started), "{found:#}");
        }
        // The next load finds the instances of the begin.
        let after = measurement(folder.path(), &format!("{name}/after/1"));
        assert_eq!(after["failed"], Value::Null, "{after:#}");
        let services = after["tiers"].as_array().unwrap().iter();
        assert_eq!(services.filter(|tier| tier["kind"] == "service").count(), 3, "{after:#}");
    }
    let report = std::fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    for words in ["## Goals", "Before and after each event", "instance 4 started", "HAProxy"] {
        assert!(report.contains(words), "{words} is not in {report}");
    }
}

#[test]
fn a_phase_that_is_too_short_for_all_keys_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let proxies = [("ring", "kind = \"haproxy\", balance = \"hash_on_id\"")];
    let (code, text) = run(folder.path(), &experiment(&proxies, "2s"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("≤ 1.60: not known"), "{text}");
    let found = measurement(folder.path(), "ring/all/4");
    let why = found["failed"].as_str().unwrap();
    assert!(why.contains("needs 2 for each of its 300 ids; measure for longer"), "{why}");
    // The spare that it started, and the missing instance, do not outlive it.
    assert_eq!(measurement(folder.path(), "ring/after/1")["failed"], Value::Null);
}
