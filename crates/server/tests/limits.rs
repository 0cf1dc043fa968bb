//! The limit on connections.

mod common;

use std::sync::atomic::Ordering;

use common::{Client, Server, limits};
use hotrow_server::config::Limits;
use hotrow_server::metrics::CloseCause;

#[test]
fn connections_over_the_limit_are_told_and_closed_and_the_place_is_free_again() {
    let server = Server::start(Limits { connections: 3, ..limits() });
    let get = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut open: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.send(get).answer().status, 200);
            client
        })
        .collect();
    for _ in 0..5 {
        let received = server.connect().send(get).rest();
        assert_eq!((received.statuses(), received.closed), (vec![503], true));
        let head = &received.answers[0].head;
        assert!(head.contains("retry-after: 1\r\n") && head.contains("application/problem+json"), "{head}");
    }
    assert_eq!(open[0].send(get).answer().status, 200, "those that are in are not disturbed");
    drop(open.pop());
    common::wait_until(|| server.metrics().open() == 2);
    assert_eq!(server.connect().send(get).answer().status, 200);
}

#[test]
fn the_limit_counts_over_all_workers() {
    let server = Server::start_with(Limits { connections: 10, ..limits() }, 2);
    let mut open: Vec<Client> = Vec::new();
    let mut refused = 0;
    for _ in 0..30 {
        let mut client = server.connect();
        match client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").answer().status {
            200 => open.push(client),
            503 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((open.len(), refused), (10, 20));
}

#[test]
fn a_flood_over_the_limit_harms_nobody_within() {
    let server = Server::start(Limits { connections: 1, ..limits() });
    let mut inside = server.connect();
    inside.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    common::wait_until(|| server.gate.waiting.load(Ordering::Relaxed) == 1);
    // More than are answered at once: the others are closed without an answer.
    let flood: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for mut client in flood {
        let statuses = client.rest().statuses();
        assert!(statuses.is_empty() || statuses == [503], "{statuses:?}");
    }
    server.gate.open();
    assert_eq!(inside.answer().status, 200);
}

#[test]
fn a_handler_that_panics_costs_its_connection_and_nothing_else() {
    let server = Server::start(Limits { connections: 2, ..limits() });
    let mut other = server.connect();
    assert_eq!(other.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").answer().status, 200);
    for panics in 1..=5 {
        let received = server.connect().send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").rest();
        assert_eq!((received.answers.len(), received.closed), (0, true));
        server.await_closed(CloseCause::Cut, panics);
    }
    assert_eq!(other.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").answer().status, 200);
}
