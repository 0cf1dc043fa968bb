//! Slow clients, each against the time-out made for them.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{self, Server, limits};
use hotrow_answer::metrics::CloseCause;
use hotrow_config::Limits;

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn an_idle_connection_is_closed_after_its_time_and_not_before() {
    let server = Server::start(Limits { idle_timeout: SHORT, ..limits() });
    for sent in ["", "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let start = Instant::now();
        let mut client = server.connect();
        let received = client.send(sent).rest();
        assert!(start.elapsed() >= SHORT, "closed after {:?}", start.elapsed());
        assert_eq!(
            (received.answers.len(), received.closed),
            (usize::from(!sent.is_empty()), true)
        );
    }
    server.await_closed(CloseCause::Idle, 2);
}

#[test]
fn a_head_that_drips_does_not_renew_its_deadline() {
    let server = Server::start(Limits { header_timeout: SHORT, ..limits() });
    let mut client = server.connect();
    let start = Instant::now();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n");
    // Sends one byte whenever the clock has advanced by a millisecond, until the server gives up.
    let mut drip = client.0.try_clone().unwrap();
    let dripper = std::thread::spawn(move || {
        let mut sent = Instant::now();
        while start.elapsed() < common::DEADLINE {
            if sent.elapsed() >= Duration::from_millis(1) {
                sent = Instant::now();
                if drip.write_all(b"x").is_err() {
                    break;
                }
            }
            std::thread::yield_now();
        }
    });
    let answer = client.answer();
    let took = start.elapsed();
    assert_eq!(answer.status, 408);
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
    assert!(took >= SHORT && took < common::DEADLINE / 4, "{took:?}");
    server.await_closed(CloseCause::HeaderTimeout, 1);
    dripper.join().unwrap();
}

#[test]
fn an_incomplete_second_head_times_out_after_the_first_answer() {
    let server = Server::start(Limits { header_timeout: SHORT, ..limits() });
    let received = server.connect().send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b").rest();
    assert_eq!((received.statuses(), received.closed), (vec![200, 408], true));
}

#[test]
fn incomplete_bodies_time_out() {
    let server = Server::start(Limits { body_timeout: SHORT, ..limits() });
    for sent in [
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nxyz",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n",
    ] {
        let received = server.connect().send(sent).rest();
        assert_eq!((received.statuses(), received.closed), (vec![408], true));
    }
    let expecting =
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(server.connect().send(expecting).rest().statuses(), [100, 408]);
    server.await_closed(CloseCause::BodyTimeout, 3);
}

#[test]
fn a_client_that_never_reads_is_cut_off() {
    let server = Server::start(Limits { write_timeout: SHORT, ..limits() });
    let mut client = server.connect();
    client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    server.await_closed(CloseCause::WriteTimeout, 1);
    assert_eq!(server.metrics().open(), 0);
}

#[test]
fn a_client_that_reads_slowly_but_steadily_is_served() {
    // Long enough that no unintended pause of this thread comes near it.
    let limit = 5 * SHORT;
    let server = Server::start(Limits { write_timeout: limit, ..limits() });
    let mut client = server.connect();
    let start = Instant::now();
    client.send("GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    let mut pauses = 0;
    loop {
        let n = std::io::Read::read(&mut client.0, &mut buffer).unwrap();
        if n == 0 {
            break;
        }
        total += n;
        // A pause well below the limit after every megabyte; their sum far exceeds the limit.
        if total >> 20 == pauses {
            continue;
        }
        pauses = total >> 20;
        let pause = Instant::now();
        while pause.elapsed() < limit / 25 {
            std::thread::yield_now();
        }
    }
    assert!(total > 64 << 20, "{total}");
    assert!(start.elapsed() > limit * 2);
    server.await_closed(CloseCause::Finished, 1);
}

#[test]
fn slow_answers_do_not_time_out_the_connection() {
    let server = Server::start(Limits {
        idle_timeout: SHORT,
        header_timeout: SHORT,
        body_timeout: SHORT,
        ..limits()
    });
    let mut waiting = server.connect();
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    common::wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == 1);
    // The end of an idle connection shows that the limits have expired.
    server.connect().rest();
    server.limiter.open();
    assert_eq!(waiting.answer().status, 200);
}
