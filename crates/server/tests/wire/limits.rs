//! Bounds of the connections: their number, and what one of them begins.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{self, Client, Server, limits, wait_until};
use hotrow_answer::metrics::CloseCause;
use hotrow_config::Limits;
use socket2::{Domain, Socket, Type};

#[test]
fn connections_over_the_limit_are_answered_and_closed_and_free_their_place() {
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
        assert!(
            head.contains("retry-after: 1\r\n") && head.contains("application/problem+json"),
            "{head}"
        );
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
fn a_flood_over_the_limit_does_not_harm_admitted_connections() {
    let server = Server::start(Limits { connections: 1, ..limits() });
    let mut inside = server.connect();
    inside.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    common::wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == 1);
    // More than are answered at once: the others are closed without an answer.
    let flood: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for mut client in flood {
        let statuses = client.rest().statuses();
        assert!(statuses.is_empty() || statuses == [503], "{statuses:?}");
    }
    server.limiter.open();
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

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// Connects until a connection is admitted.
fn connect_admitted(server: &Server) -> Client {
    loop {
        let mut client = server.connect();
        let status = client.send(GET).answer().status;
        if status == 200 {
            return client;
        }
        assert_eq!(status, 503);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_longest_idle_connection_makes_room_and_busy_ones_stay() {
    let idle_reclaim = Duration::from_millis(300);
    let server = Server::start(Limits { connections: 3, idle_reclaim, ..limits() });
    let mut busy = server.connect();
    busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    common::wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == 1);
    let mut idle = server.connect();
    assert_eq!(idle.send(GET).answer().status, 200);
    // Opened after the idle one, so that it is never the longest idle.
    let mut half = server.connect();
    half.send(&GET[..10]);
    let _new = connect_admitted(&server);
    let closed = idle.rest();
    assert_eq!(
        (closed.statuses(), closed.closed),
        (vec![], true),
        "closed in order, between requests"
    );
    server.await_closed(CloseCause::Reclaimed, 1);
    assert_eq!(half.send(&GET[10..]).answer().status, 200, "half a head is no idleness");
    server.limiter.open();
    assert_eq!(busy.answer().status, 200);
    common::wait_until(|| server.metrics().open() == 3);
}

#[test]
fn thousands_of_idle_connections_do_not_exclude_others() {
    let server = Server::start(Limits {
        connections: 200,
        idle_reclaim: Duration::from_millis(100),
        ..limits()
    });
    let idle: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    let inside: Vec<Client> = (0..200).map(|_| connect_admitted(&server)).collect();
    common::wait_until(|| server.metrics().open() <= 200);
    assert!(server.metrics().closed_count(CloseCause::Reclaimed) >= 200);
    drop((idle, inside));
}

#[test]
fn connections_per_client_are_limited_if_configured() {
    let server = Server::start_with(Limits { connections_per_client: 2, ..limits() }, 2);
    let mut mine: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    mine.iter_mut().for_each(|client| assert_eq!(client.send(GET).answer().status, 200));
    let received = server.connect().rest();
    assert_eq!((received.statuses(), received.closed), (vec![429], true));
    assert!(received.answers[0].head.contains("retry-after: 1\r\n"), "{received:?}");
    let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    other.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0)).into()).unwrap();
    other.connect(&server.address.into()).unwrap();
    assert_eq!(Client(other.into()).send(GET).answer().status, 200, "another client");
    mine.pop();
    // There is room as soon as the server has seen the end of the earlier connection.
    common::wait_until(|| server.connect().send(GET).answer().status == 200);
}

#[test]
fn a_flood_of_pipelined_requests_does_not_delay_others() {
    let server = Server::start(limits());
    let count = "GET /count HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut flood = server.connect();
    let mut polite = server.connect();
    let mut holder = server.connect();
    assert_eq!(flood.send(GET).answer().status, 200);
    assert_eq!(polite.send(GET).answer().status, 200);
    // The only worker blocks until both have sent.
    holder.send("GET /block HTTP/1.1\r\nHost: a\r\n\r\n");
    common::wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == 1);
    flood.send(count.repeat(500));
    polite.send(count);
    server.limiter.open();
    let body = polite.answer().body;
    let before: usize = body.split(' ').nth(2).unwrap().parse().unwrap();
    assert!(before <= 100, "{before} of the flood's 500 requests came first");
    // hyper takes 16 requests of a connection before others get their turn.
    assert_eq!(flood.half_close().rest().answers.len(), 500);
}

#[test]
fn answers_before_a_waiting_request_leave_at_once_and_nothing_behind_it_begins() {
    let server = Server::start(limits());
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut client = server.connect();
    client.send(get("/a") + &get("/wait") + &get("/count"));
    assert_eq!(client.next_status(), 200);
    wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == 1);
    let mut other = server.connect();
    assert_eq!(other.send(get("/count")).answer().body, "GET /count 0");
    server.limiter.open();
    assert_eq!(client.next_status(), 200);
    assert_eq!(client.answer().body, "GET /count 1");
}
