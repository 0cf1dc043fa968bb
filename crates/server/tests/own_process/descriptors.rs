//! Exhaustion of file descriptors. The limit applies to the whole process.

use std::time::{Duration, Instant};

use crate::common::{Client, Server, limits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn without_descriptors_connections_wait_without_a_busy_loop() {
    let _alone = crate::alone();
    let server = Server::start(limits());
    let mut open = server.connect();
    assert_eq!(open.send(GET).answer().status, 200);
    // The clients' sockets are created before descriptors run out and connected after that: only
    // the server lacks them.
    let waiting: Vec<Socket> =
        (0..3).map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()).collect();
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: usual.maximum }).unwrap();
    let start = Instant::now();
    waiting.iter().for_each(|socket| socket.connect(&server.address.into()).unwrap());
    crate::common::wait_until(|| server.metrics().accept_errors.get() >= 3);
    assert!(
        start.elapsed() >= Duration::from_millis(100),
        "two pauses of 50 ms: {:?}",
        start.elapsed()
    );
    assert_eq!(open.send(GET).answer().status, 200, "an open connection is served");
    setrlimit(Resource::Nofile, usual).unwrap();
    for socket in waiting {
        assert_eq!(
            Client(socket.into()).send(GET).answer().status,
            200,
            "a waiting connection is served"
        );
    }
    assert_eq!(server.connect().send(GET).answer().status, 200);
}
