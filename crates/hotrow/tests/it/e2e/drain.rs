//! End of the process.

use std::time::{Duration, Instant};

use rustix::process::Signal;

#[cfg(feature = "failpoints")]
use hotrow_testkit::harness::Gate;
use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::new();
    database.add_table("slow", 100);
    let server = Server::start(&Config::new(database.path()).collection("slow").with(settings));
    (database, server)
}

/// Starts a server whose reads of row 1 wait for the gate.
#[cfg(feature = "failpoints")]
fn start_gated() -> (Database, Gate, Server) {
    let database = Database::new();
    let gate = Gate::new("slow/1");
    database.add_table("slow", 100);
    let server = Server::start(&Config::new(database.path()).collection("slow").gate(&gate));
    (database, gate, server)
}

/// Opens a connection whose request is being read from the database.
#[cfg(feature = "failpoints")]
fn in_flight(server: &Server) -> Client {
    let mut client = server.client();
    client.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to begin", SOON, || {
        server.metrics().sum("hotrow_queries_in_flight", &[]) > 0.0
    });
    client
}

#[test]
fn a_stop_is_announced_before_anything_is_closed() {
    let (_database, server) = start(&[("limits.drain_delay", "\"1m\"")]);
    let mut idle = server.client();
    let mut kept = server.client();
    assert_eq!((idle.get("/slow/2").status, kept.get("/slow/2").status), (200, 200));
    server.signal(Signal::TERM);
    let mut report = serde_json::Value::Null;
    await_until("not ready", SOON, || {
        let answer = server.admin_client().get("/readyz");
        report = answer.json();
        answer.status == 503
    });
    assert_eq!(
        (&report["unmet"], &report["process"]),
        (&serde_json::json!(["process"]), &"draining".into())
    );
    assert_eq!(server.admin_client().get("/healthz").status, 200);
    // It still accepts, and each answer is the last of its connection.
    await_until("workers to announce it", SOON, || {
        let answer = server.get("/slow/3");
        assert_eq!(answer.status, 200);
        answer.header("connection") == Some("close")
    });
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    await_until("all workers to announce it", SOON, || {
        (0..8 * workers).all(|_| server.get("/slow/3").header("connection") == Some("close"))
    });
    assert_eq!(kept.get("/slow/2").header("connection"), Some("close"));
    kept.closed(SOON);
    assert_eq!(idle.get("/slow/2").status, 200, "it was idle, and has stayed");
    // The second signal waits for nothing.
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 1);
}

#[cfg(feature = "failpoints")]
#[test]
fn a_request_in_flight_is_finished_and_idle_connections_are_closed() {
    for signal in [Signal::TERM, Signal::INT] {
        let (_database, gate, server) = start_gated();
        let mut idle = server.client();
        assert_eq!(idle.get("/slow/2").status, 200);
        let mut begun = in_flight(&server);
        let data = server.data;
        server.signal(signal);
        idle.closed(SOON);
        await_until("no more to be accepted", SOON, || Client::try_connect(data).is_err());
        gate.open();
        let answer = begun.answer();
        assert_eq!((answer.status, &answer.json()["id"]), (200, &serde_json::json!(1)));
        assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
        begun.closed(SOON);
        let ended = server.ended(SOON);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(ended.log.contains("stop requested"), "{}", ended.log);
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn a_second_signal_ends_at_once() {
    for (signal, code) in [(Signal::TERM, 1), (Signal::INT, 130)] {
        let (_database, _gate, server) = start_gated();
        let mut begun = in_flight(&server);
        // Half a head delays the drain by the time limit of a head.
        let mut half = server.client();
        half.send("GET /slow/2 HTTP/1.1\r\n");
        server.signal(signal);
        let data = server.data;
        await_until("the drain", SOON, || Client::try_connect(data).is_err());
        let since = Instant::now();
        server.signal(signal);
        let ended = server.ended(SOON);
        assert_eq!(ended.code(), code, "{ended:?}");
        assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
        let _ = begun.rest(SOON);
    }
}

#[test]
fn requests_that_do_not_end_are_cut_off_after_drain_timeout() {
    let (_database, server) =
        start(&[("limits.drain_timeout", "\"200ms\""), ("limits.header_timeout", "\"1m\"")]);
    let mut half = server.client();
    half.send("GET /slow/2 HTTP/1.1\r\n");
    assert_eq!(server.get("/slow/3").status, 200, "by now the half head has arrived too");
    let since = Instant::now();
    server.signal(Signal::TERM);
    let ended = server.ended(Duration::from_secs(10));
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(
        since.elapsed() >= Duration::from_millis(190),
        "the drain waited: {:?}",
        since.elapsed()
    );
    let _ = half.rest(SOON);
}

#[test]
fn a_restart_can_use_the_same_port_at_once() {
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products");
    let first = Server::start(&config);
    let mut client = first.client();
    assert_eq!(client.get("/products/1").status, 200);
    let data = first.data;
    let admin = first.admin;
    first.signal(Signal::TERM);
    assert_eq!(first.ended(SOON).code(), 0);
    let again = config
        .set("listen.data", &format!("\"{data}\""))
        .set("listen.admin", &format!("\"{admin}\""));
    database.execute("UPDATE products SET price = 1 WHERE id = 1");
    let second = Server::start(&again);
    assert_eq!(second.get("/products/1").json()["price"], 1);
}

#[test]
fn sighup_ends_nothing() {
    let database = Database::with_products(3);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let mut client = server.client();
    for _ in 0..3 {
        server.signal(Signal::HUP);
        assert_eq!(client.get("/products/1").status, 200);
    }
    // Started by nohup, as this test may be, the server ignores the signal without a log line.
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    if u64::from_str_radix(mask.trim(), 16).expect("a number") & 1 == 0 {
        server.await_log("says what is in force");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
}
