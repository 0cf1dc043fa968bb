//! The drain, its deadline, and the immediate end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{Client, DEADLINE, Server, limits, wait_until};
use hotrow_config::Limits;

const WAIT: &str = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";

fn wait_for_waiting(server: &Server, count: usize) {
    wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == count);
}

#[test]
fn a_drain_finishes_what_is_in_flight_and_closes_the_rest_at_once() {
    let server = Server::start(limits());
    let mut idle = server.connect();
    assert_eq!(idle.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").answer().status, 200);
    let mut busy = server.connect();
    busy.send(WAIT);
    wait_for_waiting(&server, 1);
    let start = Instant::now();
    server.shutdown.drain();
    let received = idle.rest();
    assert!(received.closed && received.answers.is_empty());
    assert!(start.elapsed() < DEADLINE / 4, "an idle connection waits for nothing");
    // The listener closes before the requests in flight have ended.
    wait_until(|| std::net::TcpStream::connect(server.address).is_err());
    server.limiter.open();
    let received = busy.rest();
    assert_eq!((received.statuses(), received.closed), (vec![200], true));
    assert!(received.answers[0].head.contains("connection: close"), "{}", received.answers[0].head);
    server.join().unwrap();
    assert!(start.elapsed() < DEADLINE / 2);
}

#[test]
fn an_announced_end_makes_each_next_answer_the_last_and_keeps_idle_connections() {
    const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let server = Server::start(limits());
    let mut kept: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut kept {
        let answer = client.send(GET).answer();
        assert!(!answer.head.contains("connection: close"), "{}", answer.head);
    }
    let mut busy = server.connect();
    busy.send(WAIT);
    wait_for_waiting(&server, 1);
    server.shutdown.leave();
    // New connections are accepted, and theirs is the last answer too. When it has come, the
    // worker has seen the announcement.
    wait_until(|| {
        let answer = server.connect().send(GET).answer();
        assert_eq!(answer.status, 200);
        answer.head.contains("connection: close")
    });
    // Nothing was closed for being idle: each connection has one more answer.
    for mut client in kept.drain(1..) {
        let received = client.send(GET).rest();
        assert_eq!((received.statuses(), received.closed), (vec![200], true));
        assert!(received.answers[0].head.contains("connection: close"));
    }
    server.limiter.open();
    let received = busy.rest();
    assert_eq!((received.statuses(), received.closed), (vec![200], true));
    assert!(received.answers[0].head.contains("connection: close"));
    // The drain closes the one that stayed idle.
    server.shutdown.drain();
    let received = kept[0].rest();
    assert!(received.closed && received.answers.is_empty());
    server.join().unwrap();
}

#[test]
fn a_drain_serves_connections_waiting_to_be_accepted() {
    const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let server = Server::start(limits());
    // While a handler blocks the only worker, nothing is accepted.
    let mut blocking = server.connect();
    blocking.send("GET /block HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for_waiting(&server, 1);
    let mut queued: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    // Some have sent their request, some half of it, some nothing yet.
    for (i, client) in queued.iter_mut().enumerate() {
        client.send(&GET[..[GET.len(), 10, 0][i % 3]]);
    }
    server.shutdown.drain();
    server.limiter.open();
    for (i, client) in queued.iter_mut().enumerate() {
        client.send(&GET[[GET.len(), 10, 0][i % 3]..]);
    }
    for mut client in queued {
        let received = client.rest();
        assert_eq!((received.statuses(), received.closed), (vec![200], true));
    }
    assert_eq!(blocking.rest().statuses(), [200]);
    server.join().unwrap();
}

#[test]
fn a_half_sent_head_may_be_finished_during_a_drain() {
    let server = Server::start(limits());
    let mut half = server.connect();
    half.send("GET /late HT");
    let mut busy = server.connect();
    busy.send(WAIT);
    wait_for_waiting(&server, 1);
    server.shutdown.drain();
    wait_until(|| std::net::TcpStream::connect(server.address).is_err());
    half.send("TP/1.1\r\nHost: a\r\n\r\n");
    let received = half.rest();
    assert_eq!((received.statuses(), received.closed), (vec![200], true));
    server.limiter.open();
    assert_eq!(busy.rest().statuses(), [200]);
    server.join().unwrap();
}

#[test]
fn unfinished_requests_are_cut_off_at_the_end_of_the_drain() {
    let server = Server::start(Limits { drain_timeout: Duration::from_millis(300), ..limits() });
    let mut busy = server.connect();
    busy.send(WAIT);
    wait_for_waiting(&server, 1);
    let start = Instant::now();
    server.shutdown.drain();
    assert!(busy.rest().answers.is_empty());
    server.join().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300) && start.elapsed() < DEADLINE / 4);
}

#[test]
fn the_second_stage_ends_at_once() {
    let server = Server::start(limits());
    let mut busy = server.connect();
    busy.send(WAIT);
    wait_for_waiting(&server, 1);
    server.shutdown.drain();
    let start = Instant::now();
    server.shutdown.now();
    assert!(busy.rest().answers.is_empty());
    server.join().unwrap();
    assert!(start.elapsed() < DEADLINE / 4);
}
