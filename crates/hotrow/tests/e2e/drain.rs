//! How the process ends.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Client, Config, Database, SOON, Server, await_until};

/// A server whose row 1 takes half a second to read.
fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::new();
    database.add_slow_table(Duration::from_millis(500));
    let server = Server::start(&Config::new(database.path()).collection("slow").with(settings));
    (database, server)
}

/// A connection whose request is being read at the database.
fn in_flight(server: &Server) -> Client {
    let mut client = server.client();
    client.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to begin", SOON, || server.metrics().sum("hotrow_queries_in_flight", &[]) > 0.0);
    client
}

#[test]
fn a_request_in_flight_is_finished_and_idle_connections_are_closed() {
    for signal in [Signal::TERM, Signal::INT] {
        let (_database, server) = start(&[]);
        let mut idle = server.client();
        assert_eq!(idle.get("/slow/2").status, 200);
        let mut begun = in_flight(&server);
        let data = server.data;
        server.signal(signal);
        idle.closed(SOON);
        await_until("no more to be accepted", SOON, || Client::try_connect(data).is_err());
        let answer = begun.answer();
        assert_eq!((answer.status, &answer.json()["id"]), (200, &serde_json::json!(1)));
        assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
        begun.closed(SOON);
        let ended = server.ended(SOON);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(ended.log.contains("asked to stop"), "{}", ended.log);
    }
}

#[test]
fn what_waits_to_be_accepted_is_answered() {
    let (_database, server) = start(&[]);
    // While it is stopped it accepts nothing; the kernel does.
    server.stop();
    let mut queued: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for (i, client) in queued.iter_mut().enumerate() {
        client.send(format!("GET /slow/{} HTTP/1.1\r\nHost: h\r\n\r\n", i + 2));
    }
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    for (i, client) in queued.iter_mut().enumerate() {
        assert_eq!(client.answer().json()["id"], i + 2);
        client.closed(SOON);
    }
    assert_eq!(server.ended(SOON).code(), 0);
}

#[test]
fn a_second_signal_ends_at_once() {
    for (signal, code) in [(Signal::TERM, 1), (Signal::INT, 130)] {
        let (_database, server) = start(&[]);
        let mut begun = in_flight(&server);
        // Half a head keeps the drain waiting for as long as a head may take.
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
fn what_does_not_end_is_cut_off_after_drain_timeout() {
    let (_database, server) = start(&[("limits.drain_timeout", "\"200ms\""), ("limits.header_timeout", "\"1m\"")]);
    let mut half = server.client();
    half.send("GET /slow/2 HTTP/1.1\r\n");
    assert_eq!(server.get("/slow/3").status, 200, "by now the half has arrived, too");
    let since = Instant::now();
    server.signal(Signal::TERM);
    let ended = server.ended(Duration::from_secs(10));
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(since.elapsed() >= Duration::from_millis(190), "it was given its time: {:?}", since.elapsed());
    let _ = half.rest(SOON);
}

#[test]
fn a_restart_takes_the_same_port_at_once() {
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products");
    let first = Server::start(&config);
    let mut client = first.client();
    assert_eq!(client.get("/products/1").status, 200);
    let (data, admin) = (first.data, first.admin);
    first.signal(Signal::TERM);
    assert_eq!(first.ended(SOON).code(), 0);
    let again = config.set("listen.data", &format!("\"{data}\"")).set("listen.admin", &format!("\"{admin}\""));
    database.execute("UPDATE products SET price = 1 WHERE id = 1");
    let second = Server::start(&again);
    assert_eq!(second.get("/products/1").json()["price"], 1);
}
