//! What `hotrow lab run` says of a proxy that works harder than all the services behind it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A machine that others use may have no CPU left for the proxy, or stop its worker: then it is tried again.
const TRIES_MAX: usize = 5;
/// What is said where the machine was full: the proxy is not what limits then, and that is right.
const FULL: [&str; 3] = ["AllCpus", "Competitor", "Steal"];

/// Two services that answer with a text which lies ready, and one worker of nginx that compresses it anew for each answer.
const EXPERIMENT: &str = r#"
title = "A proxy with one worker"
question = "Is it found?"

[run]
rounds = 1
duration = "1500ms"
warmup = "300ms"

[services.text]
command = ["python3", "{dir}/service.py", "{port}"]
files."service.py" = '''
import random, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

words = random.Random(1).choices([f"{n:x}" for n in range(1 << 12)], k=16_000)
TEXT = " ".join(words).encode()

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT)
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.daemon_threads = True
server.serve_forever()
'''

[[setups]]
name = "compressed"
service = "text"
instances = 2
proxy = { kind = "nginx", template = "gzip.conf", upstream_keepalive = 16 }

[[loads]]
name = "text"
path = "/"
connections = [16]
headers = { Accept-Encoding = "gzip" }
"#;

const TEMPLATE: &str = "{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000;
    gzip on;
    gzip_types *;
    gzip_comp_level 9;
    upstream text { {backends} keepalive {keepalive}; }
    server {
        listen {listen};
        proxy_http_version 1.1;
        proxy_set_header Connection \"\";
        proxy_buffers 16 16k;
        location / { proxy_pass http://text; }
    }
}
";

/// Runs it once: its only measurement, and the report in Markdown.
fn run(folder: &Path) -> (Value, String) {
    std::fs::write(folder.join("proxy.toml"), EXPERIMENT).unwrap();
    std::fs::write(folder.join("gzip.conf"), TEMPLATE).unwrap();
    let out = folder.join("out");
    let _ = std::fs::remove_dir_all(&out);
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
    command.args(["lab", "run"]).arg(folder.join("proxy.toml")).arg("--out").arg(&out);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let results: Value = serde_json::from_str(&read("results.json")).unwrap();
    (results["measurements"][0].clone(), read("report.md"))
}

#[test]
fn a_proxy_that_is_busier_than_its_services_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for tried in 1.. {
        let (measurement, report) = run(folder.path());
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
