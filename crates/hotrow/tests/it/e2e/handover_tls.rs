//! Handover with clients over TLS, in both versions of HTTP. `hotrow load` asks on connections that
//! it keeps, and counts what fails.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::handover::Succession;
use hotrow_testkit::harness::server::binary;
use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

/// Requests that each process answers before the next one takes over.
const REQUESTS_EACH: f64 = 300.0;

/// Adds TLS with a certificate for 127.0.0.1, and HTTP/2.
fn with_tls(database: &Database, config: Config) -> Config {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let write = |name: &str, text: &str| {
        let path = database.folder().join(name);
        std::fs::write(&path, text).expect("a file");
        format!("{path:?}")
    };
    config
        .set("listen.tls.cert", &write("cert.pem", &certificate.pem()))
        .set("listen.tls.key", &write("key.pem", &key.serialize_pem()))
}

/// A load generator; killed when dropped.
struct Generator(Option<Child>);

impl Generator {
    fn start(server: &Server, folder: &Path, more: &[&str]) -> Self {
        let url = format!("https://{}/products/1", server.data);
        let mut command = Command::new(binary());
        command.args(["load", &url, "--json", "--quiet", "-t", "1", "-c", "4", "-d", "5m"]);
        command.args(["--rate", "200", "--cacert"]).arg(folder.join("cert.pem")).args(more);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(child.spawn().expect("start the binary")))
    }

    /// Interrupts it, and returns its report.
    fn ended(mut self) -> Value {
        let child = self.0.take().expect("it runs");
        kill_process(Pid::from_child(&child), Signal::INT).expect("signal");
        let output = child.wait_with_output().expect("its output");
        let text = String::from_utf8_lossy(&output.stdout);
        let log = String::from_utf8_lossy(&output.stderr);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {log}"))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn answered(server: &Server) -> f64 {
    server.metrics().sum_or_zero("hotrow_http_requests_total", &[("status", "200")])
}

#[test]
fn no_request_over_tls_fails_while_processes_follow_each_other() {
    let (succession, mut server) = Succession::start_with(with_tls);
    let folder = succession.database.folder();
    let ways: [(&str, &[&str]); 3] = [
        ("HTTP/1.1", &[]),
        ("HTTP/2", &["--http2", "--streams", "4"]),
        ("a connection each", &["--no-keepalive"]),
    ];
    let generators = ways.map(|(way, more)| (way, Generator::start(&server, folder, more)));
    for _ in 0..3 {
        await_until("answers", SOON, || answered(&server) > REQUESTS_EACH);
        server = succession.replace(server);
    }
    await_until("answers", SOON, || answered(&server) > REQUESTS_EACH);
    for (way, generator) in generators {
        let report = generator.ended();
        let requests = &report["requests"];
        let count = |name: &str| requests[name].as_u64().unwrap_or(u64::MAX);
        assert!(count("ok") as f64 > REQUESTS_EACH, "{way}: {report}");
        assert_eq!((count("errors"), count("timeouts")), (0, 0), "{way}: {report}");
        assert_eq!(report["errors"]["connect"], 0, "{way}: {report}");
        assert_eq!(report["status"].as_object().map(|by| by.len()), Some(1), "{way}: {report}");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
}
