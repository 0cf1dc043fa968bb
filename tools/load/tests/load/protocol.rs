//! Protocol traps: what a server may do and what it must not do.

use std::io::{Read, Write};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::NO_ERRORS;
use crate::scripted::{Server, Step, config, mix, ok, outcome, send, try_run};
use hotrow_load::plan::StopCondition;
use hotrow_load::run::{ExpectedStatus, RunError};
use hotrow_load::stats::Errors;

/// Every answer of these kinds is accepted, in any split.
#[test]
fn answers_of_every_kind_are_understood() {
    for (answer, status) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nTrailer: \
             1\r\n\r\n",
            200,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200),
    ] {
        for pieces in [1, 7, 1000] {
            let server = Server::start(move |_| {
                let cut = |piece: &[u8]| {
                    [Step::Send(piece.to_vec()), Step::Pause(Duration::from_micros(300))]
                };
                answer.as_bytes().chunks(answer.len().div_ceil(pieces)).flat_map(cut).collect()
            });
            let outcome = outcome(&config(server.address, 5));
            let counts = &outcome.total.counts;
            assert_eq!(
                (counts.ok, counts.errors, counts.status.get(&status)),
                (5, NO_ERRORS, Some(&5)),
                "{answer:?}"
            );
            assert_eq!(server.seen.connections.load(SeqCst), 1, "{answer:?}");
        }
    }
}

#[test]
fn an_answer_to_head_has_no_body() {
    let server = Server::start(|request| {
        assert_eq!(request.method, "HEAD");
        vec![send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")]
    });
    let mut config = config(server.address, 20);
    config.requests = mix("HEAD", true);
    let counts = outcome(&config).total.counts;
    assert_eq!((counts.ok, counts.errors, counts.reconnects), (20, NO_ERRORS, 0));
}

#[test]
fn a_server_that_closes_after_each_answer_is_no_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\n\r\nuntil close",
    ] {
        let server = Server::start(move |_| vec![send(answer), Step::Close]);
        let counts = outcome(&config(server.address, 20)).total.counts;
        assert_eq!(
            (counts.ok, counts.errors, counts.reconnects),
            (20, NO_ERRORS, 19),
            "{answer:?}"
        );
        assert_eq!(server.requests(), 20);
    }
}

/// The server closes without announcement: the end of an idle connection is no error. Repeated,
/// because a request sent at that moment is really lost, which slow threads can cause.
#[test]
fn an_idle_connection_that_is_closed_costs_no_request() {
    crate::scripted::retry_until_ok(|| {
        let server = Server::start(|request| {
            let close = request.number % 3 == 2;
            let mut steps = vec![Step::Send(ok())];
            steps.extend(close.then_some(Step::Close));
            steps
        });
        let mut config = crate::scripted::open(
            server.address,
            20.0,
            hotrow_load::plan::Arrivals::Uniform,
            Duration::from_secs(1),
        );
        config.connections = 2;
        let counts = outcome(&config).total.counts;
        let fine = (counts.ok, counts.errors, counts.unsent) == (20, NO_ERRORS, 0)
            && counts.reconnects >= 5;
        if fine { Ok(()) } else { Err(format!("{counts:?}")) }
    });
}

#[test]
fn lost_requests_are_counted_by_kind() {
    type Steps = fn() -> Vec<Step>;
    let cases: [(Steps, Errors); 6] = [
        (|| vec![Step::Close], Errors { closed: 9, ..NO_ERRORS }),
        (
            || vec![send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"), Step::Close],
            Errors { closed: 9, ..NO_ERRORS },
        ),
        (|| vec![Step::Reset], Errors { reset: 9, ..NO_ERRORS }),
        (|| vec![send("SSH-2.0-x\r\n")], Errors { malformed: 9, ..NO_ERRORS }),
        (
            || vec![send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n")],
            Errors { malformed: 9, ..NO_ERRORS },
        ),
        (
            || vec![send("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")],
            Errors { unexpected_status: 9, ..NO_ERRORS },
        ),
    ];
    for (i, (steps, errors)) in cases.into_iter().enumerate() {
        let server = Server::start(move |_| steps());
        let outcome = outcome(&config(server.address, 9));
        assert_eq!((outcome.total.counts.ok, outcome.total.counts.errors), (0, errors), "case {i}");
        assert_eq!(server.requests(), outcome.total.counts.sent);
        let said = errors.unexpected_status > 0 || !outcome.failure_messages.is_empty();
        assert!(said, "case {i} has no message: {:?}", outcome.failure_messages);
    }
}

#[test]
fn expected_statuses_are_ok() {
    let server = Server::start(|_| vec![send("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")]);
    let mut config = config(server.address, 5);
    config.expect = ExpectedStatus::Status(vec![404]);
    assert_eq!(outcome(&config).total.counts.ok, 5);
}

#[test]
fn each_answer_of_a_pipeline_is_a_sample() {
    let server = Server::start(|_| vec![Step::Send(ok())]);
    let mut config = config(server.address, 1000);
    (config.depth, config.connections) = (8, 2);
    let total = outcome(&config).total;
    assert_eq!((total.counts.ok, total.latency.count(), server.requests()), (1000, 1000, 1000));
    assert_eq!(server.seen.connections.load(SeqCst), 2);
}

#[test]
fn without_keep_alive_each_request_has_its_connection() {
    let server = Server::start(|_| {
        vec![send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), Step::Close]
    });
    let mut config = config(server.address, 50);
    (config.keepalive, config.requests, config.connections) = (false, mix("GET", false), 3);
    let counts = outcome(&config).total.counts;
    assert_eq!(
        (counts.ok, counts.errors, counts.connections_opened, counts.reconnects),
        (50, NO_ERRORS, 50, 0)
    );
    assert_eq!(server.seen.connections.load(SeqCst), 51, "and one connection before the run");
}

/// An answer that never ends, as fast as possible: other requests and the end of the run must not
/// wait for it.
#[test]
fn an_answer_without_an_end_delays_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut number = 0;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            number += 1;
            let endless = number == 1;
            std::thread::spawn(move || {
                let portion = vec![b'x'; 1 << 20];
                while let Ok(1..) = stream.read(&mut [0; 4096]) {
                    let head: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
                    let _ =
                        stream.write_all(if endless { head } else { b"HTTP/1.1 204 No\r\n\r\n" });
                    while endless && stream.write_all(&portion).is_ok() {}
                }
            });
        }
    });
    let mut config = config(address, 0);
    config.plan.stop = StopCondition { duration: Some(Duration::from_secs(1)), requests: None };
    (config.connections, config.timeout) = (2, Duration::from_millis(300));
    let begun = std::time::Instant::now();
    let counts = outcome(&config).total.counts;
    assert!(
        counts.ok > 100 && (1..=4).contains(&counts.timeouts) && counts.errors == NO_ERRORS,
        "{counts:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// A length that is too small: each answer counts once, and the bytes after it are reported.
#[test]
fn unrequested_bytes_are_reported() {
    let server = Server::start(|_| vec![send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokay")]);
    let outcome = outcome(&config(server.address, 5));
    let counts = &outcome.total.counts;
    assert_eq!((counts.ok, counts.errors, counts.reconnects), (5, NO_ERRORS, 4));
    assert!(
        outcome
            .failure_messages
            .iter()
            .any(|(words, n)| words.contains("Content-Length") && *n >= 4),
        "{outcome:?}"
    );
}

/// A server that sends some bytes and closes every new connection.
#[test]
fn a_server_that_closes_at_once_does_not_hang_the_run() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = std::io::Write::write_all(
                &mut stream,
                b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
            );
        }
    });
    for keepalive in [true, false] {
        let mut config = config(address, 30);
        (config.connections, config.keepalive, config.requests) =
            (2, keepalive, mix("GET", keepalive));
        let begun = std::time::Instant::now();
        let counts = outcome(&config).total.counts;
        assert_eq!(
            (counts.ok, counts.timeouts, counts.unsent + counts.errors.total()),
            (0, 0, 30),
            "{counts:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_refused_connection_is_reported_at_once() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a free port")
        .local_addr()
        .expect("bound");
    match try_run(&config(port, 5)) {
        Err(RunError::NoConnection { why, .. }) => assert!(why.contains("refused"), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// Only a number of requests would end this run, and the target is gone: the run must still end.
#[test]
fn a_target_that_is_gone_ends_a_run_without_duration() {
    let server = Server::start(|_| vec![Step::Send(ok()), Step::Close]);
    let mut config = config(server.address, 1_000_000);
    config.connections = 2;
    let running = std::thread::spawn(move || outcome(&config));
    let begun = std::time::Instant::now();
    while server.requests() < 5 {
        assert!(begun.elapsed() < Duration::from_secs(20), "too few requests arrived");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(server);
    let outcome = running.join().expect("an outcome");
    assert_eq!(outcome.end, hotrow_load::outcome::RunEnd::TargetUnreachable);
    assert!(outcome.total.counts.ok >= 4 && outcome.total.counts.connect_errors > 0);
    assert!(
        outcome.failure_messages.iter().any(|(words, _)| words.contains("refused")),
        "{:?}",
        outcome.failure_messages
    );
}
