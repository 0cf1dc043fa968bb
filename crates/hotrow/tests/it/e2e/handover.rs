//! Handover: the next process takes the listening sockets, and no request fails.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use hotrow_testkit::harness::server::binary;
use hotrow_testkit::harness::{Client, Config, Database, Ended, SOON, Server, await_until};

/// Restarts of the short test.
const RESTARTS: usize = 3;

/// A database, and the configuration of the processes that follow each other over it.
pub(super) struct Succession {
    pub(super) database: Database,
    config: Config,
}

impl Succession {
    /// Returns it with its first process.
    fn start() -> (Self, Server) {
        Self::start_with(|_, config| config)
    }

    /// Like [`Succession::start`]; `change` adds to the configuration.
    pub(super) fn start_with(change: impl FnOnce(&Database, Config) -> Config) -> (Self, Server) {
        let database = Database::with_products(3);
        let folder = database.folder();
        let quoted = |name: &str| format!("\"{}\"", folder.join(name).display());
        let config = Config::new(database.path())
            .collection("products")
            .set("listen.handover_socket", &quoted("handover.sock"))
            .set("listen.unix", &quoted("data.sock"))
            // Longer than any pause of a client that is starved.
            .set("limits.drain_delay", "\"2s\"");
        let config = change(&database, config);
        let first = Server::start(&config);
        let config = config
            .set("listen.data", &format!("\"{}\"", first.data))
            .set("listen.admin", &format!("\"{}\"", first.admin));
        let succession = Self { database, config };
        succession.await_offer();
        (succession, first)
    }

    fn await_offer(&self) {
        let path = self.database.folder().join("handover.sock");
        await_until("the handover socket", SOON, || path.exists());
    }

    /// Replaces `before` by a new process; returns when the old one has ended.
    pub(super) fn replace(&self, before: Server) -> Server {
        let next = Server::start_unready(&self.config);
        assert_eq!((next.data, next.admin), (before.data, before.admin));
        let ended = before.ended(SOON);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(ended.log.contains("the next process accepts"), "{}", ended.log);
        self.await_offer();
        next
    }
}

/// Clients that ask until they are stopped; a failed request panics.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    answers: AtomicU64,
}

impl Load {
    fn run(&self, address: SocketAddr, keeps: bool) {
        let mut client = Client::connect(address);
        while !self.stop.load(Ordering::Relaxed) {
            let answer = client.get("/products/1");
            assert_eq!(answer.status, 200, "{answer:?}");
            self.answers.fetch_add(1, Ordering::Relaxed);
            if !keeps || answer.header("connection") == Some("close") {
                client = Client::connect(address);
            }
        }
    }

    fn run_unix(&self, path: &std::path::Path) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut stream = UnixStream::connect(path).expect("a listening Unix socket");
            let request = b"GET /products/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("a request sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn run_admin(&self, address: SocketAddr) {
        while !self.stop.load(Ordering::Relaxed) {
            let answer = Client::connect(address).get("/readyz");
            // Until it accepts, the process before answers; it is ready until then.
            assert_eq!(answer.status, 200, "{answer:?}");
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn await_more(&self, more: u64) {
        let before = self.answers.load(Ordering::Relaxed);
        await_until("answers", SOON, || self.answers.load(Ordering::Relaxed) > before + more);
    }
}

/// Ends the clients when the test fails: their scope waits for them.
struct StopOnDrop<'a>(&'a Load);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Replaces the process `restarts` times while clients ask at `front`, or directly. Returns the
/// number of answers.
fn restart_under_load(restarts: usize, start_front: impl FnOnce(&Server) -> Front) -> u64 {
    let (succession, server) = Succession::start();
    let front = start_front(&server);
    let load = Load::default();
    let unix = succession.database.folder().join("data.sock");
    let admin = server.admin;
    let last = std::thread::scope(|scope| {
        let mut server = server;
        let _stop = StopOnDrop(&load);
        for keeps in [true, true, false] {
            let (load, address) = (&load, front.address);
            scope.spawn(move || load.run(address, keeps));
        }
        scope.spawn(|| load.run_unix(&unix));
        scope.spawn(|| load.run_admin(admin));
        for _ in 0..restarts {
            load.await_more(200);
            server = succession.replace(server);
        }
        load.await_more(200);
        server
    });
    last.signal(Signal::TERM);
    assert_eq!(last.ended(SOON).code(), 0);
    assert!(!unix.exists(), "the last process removes the socket's file");
    load.answers.into_inner()
}

/// Address that clients use, and the proxy there.
struct Front {
    address: SocketAddr,
    _proxy: Option<crate::overload::fronts::Running>,
}

impl Front {
    fn none(server: &Server) -> Self {
        Self { address: server.data, _proxy: None }
    }

    fn of(proxy: crate::overload::fronts::Running) -> Self {
        Self { address: proxy.address(), _proxy: Some(proxy) }
    }
}

#[test]
fn no_request_fails_while_processes_follow_each_other() {
    let answers = restart_under_load(RESTARTS, Front::none);
    assert!(answers > 200);
}

#[test]
#[ignore = "long: 20 restarts in each of three ways"]
fn no_request_fails_in_twenty_restarts_directly_and_behind_proxies() {
    use crate::overload::routing::{haproxy, nginx};
    for (name, front) in [
        ("directly", &(|server: &Server| Front::none(server)) as &dyn Fn(&Server) -> Front),
        ("haproxy", &|server| Front::of(haproxy(&[server]))),
        ("nginx", &|server| Front::of(nginx(&[server]))),
    ] {
        let answers = restart_under_load(20, front);
        println!("{name}: 20 restarts, {answers} requests answered, 0 failed");
    }
}

#[test]
fn a_process_that_warms_up_before_it_is_ready_takes_over() {
    let (mut succession, first) = Succession::start();
    let keys = succession.database.folder().join("hot-keys");
    succession.config = succession
        .config
        .set("warm.file", &format!("\"{}\"", keys.display()))
        .set("warm.before_ready", "true");
    let second = succession.replace(first);
    assert_eq!(second.status()["warm_start"]["stage"], "no_file");
    assert_eq!(second.get("/products/1").status, 200);
}

/// Connects as the next process does, and returns the first line.
fn greeting(stream: &mut UnixStream) -> String {
    stream.set_read_timeout(Some(SOON)).expect("a time-out");
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") {
        stream.read_exact(&mut byte).expect("a line");
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}

#[test]
fn a_next_process_that_ends_before_it_is_ready_changes_nothing() {
    let (succession, first) = Succession::start();
    let path = succession.database.folder().join("handover.sock");
    let mut next = UnixStream::connect(&path).expect("the handover socket");
    let line = greeting(&mut next);
    assert!(line.starts_with(&format!("hotrow-handover 1 {} ", first.pid())), "{line}");
    drop(next);
    first.await_log("this one goes on serving");
    assert_eq!(first.get("/products/1").status, 200);
    assert_eq!(first.admin_client().get("/readyz").status, 200);
    // The next one after it takes over.
    let second = succession.replace(first);
    assert_eq!(second.get("/products/1").status, 200);
}

#[test]
fn a_next_process_that_is_stopped_before_it_is_ready_changes_nothing() {
    let (succession, first) = Succession::start();
    let folder = succession.database.folder();
    // No server answers there: without keys it is never ready.
    let config = succession
        .config
        .clone()
        .set("access.jwt.jwks_url", "\"http://127.0.0.1:1/\"")
        .set("access.jwt.issuer", "\"hotrow\"")
        .set("access.jwt.audience", "\"hotrow\"")
        .set("access.roles.reader.collections", "\"*\"");
    let (file, log) = (folder.join("next.toml"), folder.join("next.log"));
    std::fs::write(&file, config.text()).expect("write the configuration");
    let mut command = Command::new(binary());
    command.args(["serve", "--config"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(&log).expect("a file"));
    let mut next = Running(command.spawn().expect("start the binary"));
    await_until("the sockets to be taken", SOON, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        assert!(next.0.try_wait().expect("wait").is_none(), "it ended: {text}");
        text.contains("taking over listening sockets")
    });
    kill_process(Pid::from_child(&next.0), Signal::TERM).expect("signal");
    await_until("its end", SOON, || next.0.try_wait().expect("wait").is_some());
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    assert!(next.0.wait().expect("wait").success() && text.contains("draining"), "{text}");
    first.await_log("this one goes on serving");
    assert_eq!(first.get("/products/1").status, 200);
    assert_eq!(first.admin_client().get("/readyz").status, 200);
    succession.replace(first);
}

/// A process; killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_second_process_is_refused_while_one_takes_over() {
    let (succession, first) = Succession::start();
    let path = succession.database.folder().join("handover.sock");
    let mut one = UnixStream::connect(&path).expect("the handover socket");
    greeting(&mut one);
    let ended = Ended::run_config(&succession.config, Duration::from_secs(60));
    assert_eq!(ended.code(), 1, "{ended:?}");
    let said = format!("{}{}", ended.output, ended.log);
    assert!(said.contains("another process is taking over"), "{said}");
    assert_eq!(first.get("/products/1").status, 200);
}

#[test]
fn listeners_at_other_addresses_are_not_taken_and_their_queue_is_served() {
    let (mut succession, first) = Succession::start();
    succession.config = succession.config.set("listen.data", "\"127.0.0.1:0\"");
    succession.config = succession.config.set("listen.admin", "\"127.0.0.1:0\"");
    // Port 0 takes any, so the same ones are taken.
    let second = Server::start_unready(&succession.config);
    assert_eq!((second.data, second.admin), (first.data, first.admin));
    assert_eq!(first.ended(SOON).code(), 0);
    succession.await_offer();
    // Another address: it opens its own, and the old one ends with what waits for it.
    succession.config = succession.config.set("listen.data", "\"127.0.0.2:0\"");
    let third = Server::start_unready(&succession.config);
    assert_ne!(third.data, second.data);
    assert_eq!(third.get("/products/1").status, 200);
    let data = second.data;
    assert_eq!(second.ended(SOON).code(), 0);
    await_until("the old address to close", SOON, || Client::try_connect(data).is_err());
}

#[test]
fn a_stop_signal_ends_the_offer() {
    let (succession, first) = Succession::start();
    first.signal(Signal::TERM);
    let path = succession.database.folder().join("handover.sock");
    await_until("the socket to be removed", SOON, || !path.exists());
    assert_eq!(first.ended(SOON).code(), 0);
}
