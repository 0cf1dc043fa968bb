//! Webhooks, with the receiver of examples/purge.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

use super::{purged, with_items};
use crate::alias::Users as _;
use crate::e2e::carriers::certificate_for;
use crate::overload::fronts::{Running, nginx_command, nginx_places};

const PROGRAM: &str = "../../examples/purge/receive.py";
const SECRET: &str = "a secret of some length";

/// The receiver; killed when dropped.
struct Receiver {
    child: Child,
    port: u16,
    /// Lines that it has printed.
    lines: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    fn start(port: u16, secret: &str) -> Self {
        let mut child = Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM))
            .arg(port.to_string())
            .env("HOTROW_PURGE_SECRET", secret)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let printed = Arc::clone(&lines);
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .for_each(|line| printed.lock().unwrap().push(line));
        });
        Self { child, port, lines }
    }

    #[track_caller]
    fn await_line(&self, begin: &str) {
        await_until(begin, SOON, || {
            self.lines.lock().unwrap().iter().any(|line| line.starts_with(begin))
        });
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|own| own.local_addr()).expect("a port").port()
}

fn with_hook(config: Config, port: u16) -> Config {
    config
        .set("purge.targets.hook.kind", "\"webhook\"")
        .set("purge.targets.hook.url", &format!("\"http://127.0.0.1:{port}/purge\""))
}

#[test]
fn a_receiver_verifies_the_signature_and_gets_the_keys() {
    let database = with_items::<Database>();
    let secret = database.folder().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let receiver = Receiver::start(free_port(), SECRET);
    let config = with_hook(purged(database.service()), receiver.port)
        .set("purge.targets.hook.secret_file", &format!("{secret:?}"))
        // It is down all the time, and delays nothing.
        .set("purge.targets.down.kind", "\"varnish_xkey\"")
        .set("purge.targets.down.url", "\"http://127.0.0.1:1\"");
    let server = Server::start(&config);
    receiver.await_line("items ");
    // While everything is due once more, a record is a part of that.
    await_until("the second purge of everything", SOON, || {
        server.metrics().sum("hotrow_purge_queue_entries", &[("target", "hook")]) == 0.0
    });
    database.execute("UPDATE items SET v = 1 WHERE id = 7");
    // With its position.
    let incarnation = server.get("/items/7");
    let position = incarnation.header("hotrow-position").expect("a position");
    let (incarnation, _) = position.split_once('-').expect("two parts");
    receiver.await_line(&format!("items/7 {incarnation}-"));
    let failed = |outcome| {
        let labels = [("target", "down"), ("outcome", outcome)];
        server.metrics().sum("hotrow_purge_requests_total", &labels)
    };
    assert!(failed("failed") > 0.0 && failed("accepted") == 0.0);
    // A new secret is in force with the next request.
    let port = receiver.port;
    drop(receiver);
    database.execute("UPDATE items SET v = 2 WHERE id = 8");
    let target = |name: &str| {
        let targets = server.status()["purges"]["targets"].as_array().expect("a list").clone();
        targets.into_iter().find(|target| target["name"] == name).expect("the target")
    };
    await_until("a failure", SOON, || target("hook")["failures"].as_u64() > Some(0));
    std::fs::write(&secret, "another secret of some length\n").unwrap();
    let receiver = Receiver::start(port, "another secret of some length");
    receiver.await_line("items/8 ");
}

#[test]
fn a_wrong_secret_is_refused_and_shown() {
    let database = with_items::<Database>();
    let receiver = Receiver::start(free_port(), SECRET);
    let config = with_hook(purged(database.service()), receiver.port)
        .set("purge.targets.hook.secret", "\"not the secret of the receiver\"");
    let server = Server::start(&config);
    await_until("the refusal", SOON, || {
        server.status()["purges"]["targets"][0]["last_error"] == "answers 401"
    });
    assert!(receiver.lines.lock().unwrap().is_empty());
    assert!(!server.log().contains("not the secret"));
}

/// Returns nginx that ends TLS in front of a receiver, with this certificate and its key.
fn with_tls(receiver: u16, certificate: &str, key: &str) -> Running {
    Running::start(|folder, address| {
        for (name, text) in [("cert.pem", certificate), ("key.pem", key)] {
            std::fs::write(folder.join(name), text).expect("writable");
        }
        let (places, folder_name) = (nginx_places(folder), folder.display());
        let text = format!(
            "daemon off; master_process off; pid {folder_name}/pid; error_log \
             {folder_name}/errors;\nevents {{ worker_connections 64; }}\nhttp {{\naccess_log \
             off;\n{places}server {{ listen {address} ssl;\nssl_certificate \
             {folder_name}/cert.pem; ssl_certificate_key {folder_name}/key.pem;\nlocation / {{ \
             proxy_pass http://127.0.0.1:{receiver}; }} }} }}\n"
        );
        nginx_command(folder, &text)
    })
}

#[test]
fn a_receiver_over_tls_is_verified_before_it_gets_a_key() {
    let database = with_items::<Database>();
    let receiver = Receiver::start(free_port(), SECRET);
    let (authority, certificate, key) = certificate_for("127.0.0.1");
    let (other, ..) = certificate_for("127.0.0.1");
    let front = with_tls(receiver.port, &certificate, &key);
    let hook = |name: &str, authority: &str, config: Config| {
        let file = database.folder().join(format!("{name}.pem"));
        std::fs::write(&file, authority).unwrap();
        let setting = |key: &str| format!("purge.targets.{name}.{key}");
        config
            .set(&setting("kind"), "\"webhook\"")
            .set(&setting("url"), &format!("\"https://{}/purge\"", front.address()))
            .set(&setting("secret"), &format!("{SECRET:?}"))
            .set(&setting("ca_file"), &format!("{file:?}"))
    };
    let config = hook("other", &other, purged(database.service()));
    let server = Server::start(&config);
    let target = |server: &Server, name: &str| {
        let targets = server.status()["purges"]["targets"].as_array().expect("a list").clone();
        targets.into_iter().find(|target| target["name"] == name).expect("the target")
    };
    await_until("the refusal", SOON, || target(&server, "other")["failures"].as_u64() > Some(0));
    let error = target(&server, "other")["last_error"].to_string();
    assert!(error.contains("certificate"), "{error}");
    assert!(receiver.lines.lock().unwrap().is_empty());
    drop(server);
    let server = Server::start(&hook("hook", &authority, config));
    receiver.await_line("items ");
    // While everything is due once more, a record is a part of that.
    await_until("the second purge of everything", SOON, || {
        server.metrics().sum("hotrow_purge_queue_entries", &[("target", "hook")]) == 0.0
    });
    database.execute("UPDATE items SET v = 1 WHERE id = 7");
    receiver.await_line("items/7 ");
    assert_eq!(target(&server, "hook")["failures"], 0);
}
