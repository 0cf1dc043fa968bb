//! A service whose successor has taken over some of its listening sockets.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use crate::common::service::{Running, config};
use crate::common::{Client, wait_until};
use hotrow_config::Config;
use hotrow_config::transport::{Transport, UnixSocket};
use hotrow_net::listen::inherited::{Inherited, ListenerKind};
use hotrow_server::service::Service;

const GET: &str = "GET /products/1 HTTP/1.1\r\nHost: a\r\n\r\n";

/// Returns the end of this connection's only answer: the worker has seen the announcement.
fn is_last_answer(service: &Running) -> bool {
    let answer = Client::connect(service.address).send(GET).answer();
    assert_eq!(answer.status, 200);
    answer.head.contains("connection: close")
}

#[test]
fn sockets_of_the_successor_are_left_at_once_and_the_others_at_the_drain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.sock");
    let unix = Some(UnixSocket { path: path.clone(), mode: 0o600 });
    let config = Config { transport: Transport { unix, ..Transport::default() }, ..config() };
    let service = Service::bind(&config).unwrap();
    let offered = service.offer().unwrap();
    let kinds: Vec<_> = offered.sockets().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [ListenerKind::Data, ListenerKind::Admin, ListenerKind::Unix]);
    let taken = offered.sockets().find(|(kind, _)| *kind == ListenerKind::Unix).unwrap();
    let taken: OwnedFd = taken.1.try_clone_to_owned().unwrap();
    let service = Running::serve(&config, service);

    offered.succeed(&[ListenerKind::Unix]);
    service.shutdown.leave();
    wait_until(|| is_last_answer(&service));
    // The worker has left the Unix socket: only the successor can accept.
    let mut client = UnixStream::connect(&path).unwrap();
    let (mut accepted, _) = UnixListener::from(taken).accept().unwrap();
    client.write_all(b"a").unwrap();
    accepted.read_exact(&mut [0]).unwrap();
    // The data address is only its own.
    assert!(is_last_answer(&service));
    service.shutdown.drain();
    wait_until(|| std::net::TcpStream::connect(service.address).is_err());
    drop(service);
    assert!(path.exists(), "the successor removes the file");
}

#[test]
fn a_successor_serves_what_waits_in_the_queues() {
    let before = Service::bind(&config()).unwrap();
    let mut waiting = Client::connect(before.data());
    let mut waiting_at_admin = Client::connect(before.admin());
    let offered = before.offer().unwrap();
    let mut inherited = Inherited::of_predecessor();
    for (kind, socket) in offered.sockets() {
        inherited.add(kind, socket.try_clone_to_owned().unwrap()).unwrap();
    }
    inherited.keep_configured(&config());
    assert_eq!(inherited.kinds(), [ListenerKind::Data, ListenerKind::Admin]);
    let next = Service::bind_or_take(&config(), inherited).unwrap();
    assert_eq!((next.data(), next.admin()), (before.data(), before.admin()));
    let _next = Running::serve(&config(), next);
    drop(offered);
    drop(before);
    assert_eq!(waiting.send(GET).answer().status, 200);
    let ready = waiting_at_admin.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").answer();
    assert_eq!(ready.status, 200, "{ready:?}");
}

#[test]
fn the_unix_socket_of_the_admin_api_is_passed_on_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let unix = Some(UnixSocket { path: path.clone(), mode: 0o600 });
    let admin_transport = Transport { unix, ..Transport::default() };
    let config = Config { admin_transport, ..config() };
    let before = Service::bind(&config).unwrap();
    let mut waiting = UnixStream::connect(&path).unwrap();
    let offered = before.offer().unwrap();
    let mut inherited = Inherited::of_predecessor();
    for (kind, socket) in offered.sockets() {
        inherited.add(kind, socket.try_clone_to_owned().unwrap()).unwrap();
    }
    inherited.keep_configured(&config);
    let kinds = [ListenerKind::Data, ListenerKind::Admin, ListenerKind::AdminUnix];
    assert_eq!(inherited.kinds(), kinds);
    let next = Service::bind_or_take(&config, inherited).unwrap();
    let next = Running::serve(&config, next);
    offered.succeed(&kinds);
    drop(before);
    let head = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    waiting.write_all(head).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(path.exists(), "the process before leaves the file");
    drop(next);
    assert!(!path.exists(), "the last process removes the file");
}

#[test]
fn sockets_at_other_addresses_are_not_taken() {
    let before = Service::bind(&config()).unwrap();
    let offered = before.offer().unwrap();
    let mut inherited = Inherited::of_predecessor();
    for (kind, socket) in offered.sockets() {
        inherited.add(kind, socket.try_clone_to_owned().unwrap()).unwrap();
    }
    let other = Config { data: "127.0.0.2:0".parse().unwrap(), ..config() };
    inherited.keep_configured(&other);
    assert_eq!(inherited.kinds(), [ListenerKind::Admin]);
    let next = Service::bind_or_take(&other, inherited).unwrap();
    assert_ne!(next.data(), before.data());
    assert_eq!(next.admin(), before.admin());
}
