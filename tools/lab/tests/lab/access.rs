//! Services that are reached with certificates, with credentials, or on a Unix socket.

use std::path::Path;
use std::process::{Command, Output};

use hotrow_proxies::nginx::{Tls, self_signed};
use serde_json::Value;

/// Answers only who sends the token and the header field.
const SERVICE: &str = r#"
import socketserver, ssl, sys
from http.server import BaseHTTPRequestHandler

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        sent = self.headers["Authorization"], self.headers["X-Team"]
        self.send_response(200 if sent == ("Bearer s3cret", "blue") else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass

class Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True

class Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

if len(sys.argv) == 2:
    server = Unix(sys.argv[1], Handler)
else:
    server = Tcp(("127.0.0.1", int(sys.argv[1])), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    context.load_verify_locations(sys.argv[4])
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

fn experiment(service: &str, deployment: &str) -> String {
    format!(
        "title = \"A test\"\nquestion = \"Is it reached?\"\n\
         [run]\nrounds = 1\nrequests = 20\nwarmup = \"20ms\"\n\
         [services.app]\n{service}\nfiles.\"service.py\" = '''{SERVICE}'''\n\
         [[deployments]]\nname = \"direct\"\nservice = \"app\"\n{deployment}\n\
         [[loads]]\nname = \"get\"\npath = \"/\"\nconnections = [2]\nexpect = {{ status = 200 }}\n"
    )
}

fn run(folder: &Path, text: &str) -> Output {
    std::fs::write(folder.join("test.toml"), text).unwrap();
    // A run continues what it finds.
    let _ = std::fs::remove_dir_all(folder.join("out"));
    Command::new(env!("CARGO_BIN_EXE_hotrow-lab"))
        .arg("run")
        .arg(folder.join("test.toml"))
        .args(["--quiet", "--out"])
        .arg(folder.join("out"))
        .output()
        .unwrap()
}

/// Returns what failed, and the number of good responses.
fn measured(folder: &Path) -> (Value, Value) {
    let text = std::fs::read_to_string(folder.join("out/results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let measurement = &results["measurements"][0];
    (measurement["failed"].clone(), measurement["load"].clone())
}

fn write_credentials(folder: &Path, token: &str) {
    std::fs::write(folder.join("token"), token).unwrap();
    std::fs::write(folder.join("headers"), "X-Team: blue\n").unwrap();
}

fn certificates(folder: &Path, name: &str) -> Tls {
    std::fs::create_dir(folder.join(name)).unwrap();
    self_signed(&folder.join(name)).unwrap()
}

fn of_tls(server: &Tls, client: &Tls) -> String {
    let [cert, key] = [&server.certificate, &server.key].map(|path| path.display());
    let [own, own_key] = [&client.certificate, &client.key].map(|path| path.display());
    format!(
        "command = [\"python3\", \"{{dir}}/service.py\", \"{{port}}\", \"{cert}\", \"{key}\", \
         \"{own}\"]\n\
         access = {{ cacert = \"{cert}\", cert = \"{own}\", key = \"{own_key}\", \
         token_file = \"{{here}}/token\", headers_file = \"{{here}}/headers\" }}"
    )
}

#[test]
fn a_service_is_measured_over_tls_with_a_client_certificate_and_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) =
        (certificates(folder.path(), "server"), certificates(folder.path(), "client"));
    write_credentials(folder.path(), "s3cret\n");
    let relayed = "delay = \"1ms\"";
    for deployment in ["", relayed] {
        let ran = run(folder.path(), &experiment(&of_tls(&server, &client), deployment));
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let (failed, load) = measured(folder.path());
        assert!(failed.is_null() && load.is_object(), "{failed} {load}");
    }
    let text = std::fs::read_to_string(folder.path().join("out/results.json")).unwrap();
    assert!(!text.contains("s3cret"), "{text}");

    write_credentials(folder.path(), "wrong\n");
    run(folder.path(), &experiment(&of_tls(&server, &client), ""));
    let (failed, _) = measured(folder.path());
    assert!(failed.as_str().unwrap().contains("401"), "{failed}");

    // A certificate that the service does not know.
    write_credentials(folder.path(), "s3cret\n");
    let other = certificates(folder.path(), "other");
    let unknown = of_tls(&server, &client)
        .replace(
            &format!("cert = \"{}\"", client.certificate.display()),
            &format!("cert = \"{}\"", other.certificate.display()),
        )
        .replace(&client.key.display().to_string(), &other.key.display().to_string());
    run(folder.path(), &experiment(&unknown, ""));
    assert!(measured(folder.path()).0.is_string());
}

#[test]
fn a_service_is_measured_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    write_credentials(folder.path(), "s3cret");
    let service = "command = [\"python3\", \"{dir}/service.py\", \"{dir}/s\"]\n\
        ready_command = [\"test\", \"-S\", \"{dir}/s\"]\n\
        access = { unix = \"{dir}/s\", token_file = \"{here}/token\", \
        headers_file = \"{here}/headers\" }";
    let ran = run(folder.path(), &experiment(service, ""));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let (failed, load) = measured(folder.path());
    assert!(failed.is_null() && load.is_object(), "{failed} {load}");

    std::fs::remove_file(folder.path().join("token")).unwrap();
    run(folder.path(), &experiment(service, ""));
    let text = std::fs::read_to_string(folder.path().join("out/results.json")).unwrap();
    assert!(text.contains("/token"), "{text}");
}

#[test]
fn ways_that_contradict_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = "proxy = { kind = \"nginx\", profile = \"tuned\" }";
    for (service, deployment, what) in [
        ("access = { cert = \"a\" }", "", "services.app.access.cert"),
        ("access = { cert = \"a\", key = \"b\" }", "", "needs access.cacert"),
        ("access = { unix = \"a\", cacert = \"b\" }", "", "cannot be combined with access.cacert"),
        ("access = { unix = \"a\" }", "", "needs ready with ready_on_admin"),
        ("ready = \"/\"\naccess = { token_file = \"a\" }", "", "services.app.ready"),
        ("count = \"/\"\naccess = { token_file = \"a\" }", "", "services.app.count"),
        ("access = { token_file = \"{nowhere}\" }", "", "{nowhere} is not known"),
        ("access = { cacert = \"a\" }", proxy, "deployments[0].proxy"),
        ("ready_command = [\"true\"]\naccess = { unix = \"a\" }", "delay = \"1ms\"", "is of TCP"),
        ("access = { token = \"a\" }", "", "access.token: unknown key"),
    ] {
        let service = format!("command = [\"true\"]\n{service}");
        let ran = run(folder.path(), &experiment(&service, deployment));
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && said.contains(what), "{what}: {said}");
    }
}
