//! Connections that are not plain TCP from their client: the Unix socket, and proxies that name
//! their client with the PROXY protocol.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{self, Client, DEADLINE, Server, limits};
use hotrow_answer::metrics::CloseCause;
use hotrow_config::Limits;
use hotrow_config::transport::{Transport, UnixSocket};

const REQUEST: &str = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
const LAST: &str = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// A server on a Unix socket too, and the socket's path.
fn unix_server(name: &str, limits: Limits, workers: usize) -> (Server, PathBuf) {
    let path = std::env::temp_dir().join(format!("hotrow-{}-{name}.sock", std::process::id()));
    let unix = Some(UnixSocket { path: path.clone(), mode: 0o600 });
    let transport = Transport { unix, ..Transport::default() };
    (Server::start_over(limits, workers, transport), path)
}

fn exchange(path: &PathBuf) -> std::io::Result<String> {
    let mut client = UnixStream::connect(path)?;
    client.set_read_timeout(Some(DEADLINE))?;
    client.write_all(LAST.as_bytes())?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn the_unix_socket_is_served_beside_tcp_by_all_workers_and_removed() {
    let (server, path) = unix_server("served", limits(), 3);
    for _ in 0..20 {
        let answer = exchange(&path).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("GET /a "), "{answer}");
    }
    assert_eq!(server.connect().send(LAST).rest().statuses(), [200]);
    server.shutdown.drain();
    server.join().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_drain_finishes_requests_of_the_unix_socket() {
    let (server, path) = unix_server("drain", limits(), 1);
    let mut waiting = UnixStream::connect(&path).unwrap();
    waiting.write_all(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    common::wait_until(|| server.limiter.waiting.load(std::sync::atomic::Ordering::Relaxed) == 1);
    server.shutdown.drain();
    common::wait_until(|| UnixStream::connect(&path).is_err());
    server.limiter.open();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("connection: close"), "{answer}");
    server.join().unwrap();
}

#[test]
fn connections_of_one_user_are_limited() {
    let limits = Limits { connections_per_client: 1, ..limits() };
    let (_server, path) = unix_server("limited", limits, 1);
    let mut first = UnixStream::connect(&path).unwrap();
    first.write_all(REQUEST.as_bytes()).unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).unwrap();
    let mut second = UnixStream::connect(&path).unwrap();
    let mut answer = String::new();
    second.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
}

/// A server whose proxy is this machine.
fn proxied(limits: Limits, handshake_timeout: Duration) -> Server {
    let proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let transport = Transport { proxies, handshake_timeout, ..Transport::default() };
    Server::start_over(limits, 1, transport)
}

/// Header of a proxy for a client at 192.0.2.`host`.
fn header(host: u8) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([192, 0, 2, host, 192, 0, 2, 200, 0xdc, 4, 1, 0xbb]);
    header
}

#[test]
fn a_proxy_names_the_client_that_limits_count() {
    let limits = Limits { connections_per_client: 1, ..limits() };
    let server = proxied(limits, DEADLINE);
    let mut first = server.connect();
    // Byte by byte, and with the first request behind it.
    for byte in [&header(1), REQUEST.as_bytes()].concat() {
        first.send([byte]);
    }
    assert_eq!(first.answer().status, 200);
    let mut second = server.connect();
    assert_eq!(second.send(header(1)).rest().statuses(), [429]);
    let mut third = server.connect();
    assert_eq!(third.send(header(2)).send(LAST).rest().statuses(), [200]);
    // A health check of the proxy itself.
    let mut own = server.connect();
    own.send(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
    assert_eq!(own.send(LAST).rest().statuses(), [200]);
}

#[test]
fn a_connection_of_a_proxy_without_the_header_is_closed_unanswered() {
    let server = proxied(limits(), DEADLINE);
    for bytes in [LAST.as_bytes(), b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"] {
        let received = server.connect().send(bytes).rest();
        assert!(received.answers.is_empty(), "{received:?}");
    }
    server.await_closed(CloseCause::Handshake, 2);
}

#[test]
fn a_header_that_does_not_arrive_ends_the_connection() {
    let server = proxied(limits(), Duration::from_millis(50));
    let mut client = server.connect();
    assert!(client.send(&header(1)[..20]).rest().answers.is_empty());
    server.await_closed(CloseCause::HandshakeTimeout, 1);
}

#[test]
fn a_drain_does_not_wait_for_a_header() {
    let server = proxied(limits(), DEADLINE);
    let mut client: Client = server.connect();
    client.send(&header(1)[..20]);
    common::wait_until(|| server.metrics().accepted.get() == 1);
    server.shutdown.drain();
    assert!(client.rest().answers.is_empty());
    server.join().unwrap();
}

#[test]
fn a_header_from_anyone_else_is_malformed_http() {
    let server = Server::start(limits());
    assert_eq!(server.connect().send(header(1)).send(LAST).rest().statuses(), [400]);
    let elsewhere = vec!["10.0.0.0/8".parse().unwrap()];
    let transport = Transport { proxies: elsewhere, ..Transport::default() };
    let server = Server::start_over(limits(), 1, transport);
    assert_eq!(server.connect().send(header(1)).send(LAST).rest().statuses(), [400]);
}
