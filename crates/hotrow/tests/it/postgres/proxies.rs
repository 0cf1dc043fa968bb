//! The proxy, tested with plain sockets: it must provide what the tests of the service rely on.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::postgres::proxy::{BOTH, CLASSES, Class, Direction, Proxy};
use hotrow_testkit::harness::{SOON, await_until};

/// Long enough to differ from no delay on a busy machine.
const DELAY: Duration = Duration::from_millis(120);

/// Returns a startup message with these parameters.
fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    [(body.len() as u32 + 4).to_be_bytes().to_vec(), body].concat()
}

/// Returns both ends of a connection through the proxy, after its startup message.
fn connect(
    proxy: &Proxy,
    listener: &TcpListener,
    parameters: &[(&str, &str)],
) -> (TcpStream, TcpStream) {
    let first = startup(parameters);
    let mut service = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    service.write_all(&first).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for stream in [&service, &server] {
        stream.set_read_timeout(Some(SOON)).unwrap();
    }
    let mut got = vec![0; first.len()];
    server.read_exact(&mut got).unwrap();
    assert_eq!(got, first);
    (service, server)
}

fn start() -> (Proxy, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (Proxy::start(listener.local_addr().unwrap().port()), listener)
}

/// Sends a byte and returns the time until it arrived.
fn pass(mut from: &TcpStream, mut to: &TcpStream, byte: u8) -> Duration {
    let begun = Instant::now();
    from.write_all(&[byte]).unwrap();
    let mut got = [0];
    to.read_exact(&mut got).unwrap();
    assert_eq!(got, [byte]);
    begun.elapsed()
}

/// Returns whether nothing arrives for a while.
fn is_silent(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(DELAY)).unwrap();
    let got = stream.read(&mut [0]);
    stream.set_read_timeout(Some(SOON)).unwrap();
    got.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

const READER: &[(&str, &str)] = &[("user", "u"), ("application_name", "hotrow")];
const FEED_SQL: &[(&str, &str)] = &[("user", "u"), ("application_name", "hotrow feed")];
const REPLICATION: &[(&str, &str)] = &[("user", "u"), ("replication", "database")];

#[test]
fn each_class_and_direction_is_delayed_by_itself() {
    let (proxy, listener) = start();
    let reader = connect(&proxy, &listener, READER);
    let feed = connect(&proxy, &listener, FEED_SQL);
    let stream = connect(&proxy, &listener, REPLICATION);
    await_until("one of each", SOON, || CLASSES.map(|class| proxy.open(class)) == [1; 3]);
    proxy.delay(&[Class::Replication], &[Direction::ToService], DELAY);
    assert!(pass(&stream.1, &stream.0, 1) >= DELAY);
    for (service, server) in [&reader, &feed] {
        // Not delayed, except by the machine: one in several attempts must succeed.
        assert!(
            (0..5).any(|_| pass(server, service, 2) < DELAY)
                && (0..5).any(|_| pass(service, server, 3) < DELAY)
        );
    }
    assert!((0..5).any(|_| pass(&stream.0, &stream.1, 4) < DELAY), "the other direction is free");
    proxy.clear_faults();
    assert!((0..5).any(|_| pass(&stream.1, &stream.0, 5) < DELAY));
}

#[test]
fn held_bytes_arrive_in_order_and_holding_causes_back_pressure() {
    let (proxy, listener) = start();
    let (service, server) = connect(&proxy, &listener, READER);
    proxy.hold(&[Class::Readers], &[Direction::ToService]);
    let sent = std::thread::spawn(move || {
        let numbers: Vec<u8> = (0..4_000_000_u32).flat_map(u32::to_le_bytes).collect();
        (&server).write_all(&numbers).unwrap();
        numbers
    });
    assert!(is_silent(&service));
    await_until("held bytes", SOON, || proxy.waiting(Class::Readers, Direction::ToService) > 0);
    // Far more than all buffers in between: a proxy without a bound would let the writer finish.
    assert!(!sent.is_finished(), "holding must cause back-pressure");
    proxy.release(&[Class::Readers], &BOTH);
    let mut got = Vec::new();
    // The end of the writer closes its socket, which arrives as the end of the stream.
    (&service).read_to_end(&mut got).unwrap();
    assert!(got == sent.join().unwrap(), "not what was sent, in order");
}
