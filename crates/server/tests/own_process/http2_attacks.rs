//! Known attacks on servers of HTTP/2: each ends its own connection at most, takes no memory, and
//! others are served in the meantime.

use std::time::Duration;

use crate::common::frames::{END_HEADERS, Frame, Http2Client, block, kind, literal};
use crate::common::{Server, limits, wait_until};
use hotrow_answer::metrics::CloseCause;
use hotrow_config::Limits;
use hotrow_config::transport::Transport;

/// Memory that the process may grow by during an attack that sends several times as much.
const GROWTH_MAX_BYTES: u64 = 24 << 20;

fn server(limits: Limits) -> Server {
    Server::start_over(limits, 1, Transport { http2: true, ..Transport::default() })
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Runs `attack` until the server has closed its connection, with another client beside it.
fn survives(server: &Server, attack: impl FnOnce(&mut Http2Client)) {
    let mut other = Http2Client::connect(server.address);
    other.get(1, "/a").await_frame(Frame::ends_stream);
    let before = resident_bytes();
    let mut attacker = Http2Client::connect(server.address);
    attack(&mut attacker);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX_BYTES, "grown by {grown} bytes");
    other.get(3, "/a").await_frame(|frame| frame.stream == 3 && frame.ends_stream());
    let request = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(server.connect().send(request).rest().statuses(), [200]);
}

/// Sends a head on stream 1 that further frames continue.
fn begin_head(client: &mut Http2Client) {
    let payload = block("GET", "/a");
    client.send(&Frame { kind: kind::HEADERS, flags: 0, stream: 1, payload });
}

/// Sends `bytes` again and again; returns how often until the server closed.
fn flood(client: &mut Http2Client, times: usize, bytes: impl Fn(usize) -> Vec<u8>) -> usize {
    client.stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    (0..times).take_while(|i| client.write(&bytes(*i)).is_ok()).count()
}

#[test]
fn rapid_reset() {
    let _alone = crate::alone();
    let server = server(limits());
    survives(&server, |client| {
        let sent = flood(client, 100_000, |i| {
            let stream = 2 * u32::try_from(i).unwrap() + 1;
            let request = Frame::request(stream, "GET", "/wait", false);
            [request.bytes(), Frame::reset(stream).bytes()].concat()
        });
        assert!(sent < 100_000, "the connection is closed");
    });
    // Each reset has cancelled its request.
    wait_until(|| server.metrics().open() <= 1);
}

#[test]
fn continuations_without_end() {
    let _alone = crate::alone();
    let server = server(limits());
    survives(&server, |client| {
        begin_head(client);
        let mut more = Vec::new();
        while more.len() < 16_000 {
            literal(&mut more, "a", &"b".repeat(100));
        }
        let sent = flood(client, 10_000, |_| {
            let payload = more.clone();
            Frame { kind: kind::CONTINUATION, flags: 0, stream: 1, payload }.bytes()
        });
        assert!(sent < 10_000, "the connection is closed");
    });
}

#[test]
fn empty_continuations_without_end() {
    let _alone = crate::alone();
    let server = server(limits());
    survives(&server, |client| {
        begin_head(client);
        let empty = Frame { kind: kind::CONTINUATION, flags: 0, stream: 1, payload: vec![] };
        let sent = flood(client, 100_000, |_| empty.bytes().repeat(10));
        assert!(sent < 100_000, "the connection is closed");
    });
}

#[test]
fn a_head_that_unfolds() {
    let _alone = crate::alone();
    // One large field in the dynamic table, and a byte for each use of it (RFC 7541 section 6.1).
    let server = server(limits());
    survives(&server, |client| {
        let mut payload = block("GET", "/a");
        payload.extend([0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
        payload.extend(vec![b'b'; 4_000]);
        payload.extend(vec![0x80 | 62; 12_000]);
        client.send(&Frame { kind: kind::HEADERS, flags: END_HEADERS | 1, stream: 1, payload });
        let end = client.await_frame(|frame| {
            frame.stream == 1 && matches!(frame.kind, kind::HEADERS | kind::RST_STREAM)
                || frame.kind == kind::GOAWAY
        });
        assert!(end.payload.len() < 100, "{end:?}");
    });
}

#[test]
fn pings_settings_and_empty_frames_without_end() {
    let _alone = crate::alone();
    let server = server(limits());
    let empty = Frame { kind: kind::DATA, flags: 0, stream: 1, payload: vec![] };
    // `h2` has a limit of its own on empty frames.
    let causes = [CloseCause::Refused, CloseCause::Broken];
    let closed = || causes.map(|cause| server.metrics().closed_count(cause)).iter().sum::<u64>();
    for frame in [Frame::ping(), Frame::initial_window(65_535), empty] {
        let before = closed();
        survives(&server, |client| {
            client.open(1, "POST", "/a");
            let sent = flood(client, 100_000, |_| frame.bytes().repeat(100));
            assert!(sent < 100_000, "the connection is closed");
        });
        wait_until(|| closed() == before + 1);
    }
}

#[test]
fn a_window_that_never_opens() {
    let _alone = crate::alone();
    let limits = Limits { write_timeout: Duration::from_millis(400), ..limits() };
    let server = server(limits);
    survives(&server, |client| {
        // Nothing at all, and one byte of each answer.
        client.send(&Frame::initial_window(0));
        for i in 0..50 {
            client.get(2 * i + 1, "/a");
        }
        for i in 0..25 {
            client.send(&Frame::window_update(2 * i + 1, 1));
        }
        let frames = client.rest();
        let bytes: usize =
            frames.iter().filter(|f| f.kind == kind::DATA).map(|f| f.payload.len()).sum();
        assert_eq!(bytes, 25, "{frames:?}");
    });
    server.await_closed(CloseCause::WriteTimeout, 1);
}

#[test]
fn pings_do_not_excuse_a_closed_window() {
    let _alone = crate::alone();
    let limits = Limits { write_timeout: Duration::from_millis(400), ..limits() };
    let server = server(limits);
    survives(&server, |client| {
        client.send(&Frame::initial_window(0)).get(1, "/a");
        client.send(&Frame::ping());
        while client.next().is_some() {
            client.send(&Frame::ping());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    server.await_closed(CloseCause::WriteTimeout, 1);
}

#[test]
fn a_client_that_takes_a_byte_at_a_time() {
    let _alone = crate::alone();
    let write_timeout = Duration::from_millis(500);
    let limits = Limits { write_timeout, drain_rate_min: 1_000, ..limits() };
    let server = server(limits);
    survives(&server, |client| {
        let target = format!("/{}", "x".repeat(110));
        client.send(&Frame::initial_window(1)).get(1, &target);
        while let Some(frame) = client.next() {
            if frame.kind == kind::DATA {
                std::thread::sleep(Duration::from_millis(10));
                client.send(&Frame::window_update(1, 1));
            }
        }
    });
    server.await_closed(CloseCause::DrainRate, 1);
}

#[test]
fn a_head_that_does_not_end() {
    let _alone = crate::alone();
    let limits = Limits { header_timeout: Duration::from_millis(300), ..limits() };
    let server = server(limits);
    survives(&server, |client| {
        begin_head(client);
        // Without a frame's end either.
        client.write(&[0, 0, 9]).unwrap();
        client.rest();
    });
    server.await_closed(CloseCause::HeaderTimeout, 1);
}

#[test]
fn more_streams_than_allowed_are_refused_and_the_others_served() {
    let _alone = crate::alone();
    const STREAMS: u32 = 100;
    let server = server(limits());
    survives(&server, |client| {
        for i in 0..STREAMS + 20 {
            client.get(2 * i + 1, "/wait");
        }
        for i in STREAMS..STREAMS + 20 {
            let stream = 2 * i + 1;
            client.await_frame(|f| f.stream == stream && f.kind == kind::RST_STREAM);
        }
        server.limiter.open();
        let mut ended = 0;
        while ended < STREAMS {
            let frame = client.next().unwrap();
            ended += u32::from(frame.ends_stream());
        }
    });
}
