//! Followers of changes over HTTP/2: events as DATA frames within the client's windows.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::events::{followed, start};
use crate::common::frames::{Frame, Http2Client, kind};
use crate::common::{limits, wait_until};
use hotrow_config::transport::Transport;
use hotrow_config::{Config, Limits};

const ALL: &str = "/_changes/products";

fn over_http2(config: Config) -> Config {
    Config { transport: Transport { http2: true, ..Transport::default() }, ..config }
}

/// A connection whose streams are read.
struct Streams {
    client: Http2Client,
    /// Content of each stream that was not looked at.
    texts: BTreeMap<u32, String>,
    has_goaway: bool,
}

impl Streams {
    fn over(client: Http2Client) -> Self {
        Self { client, texts: BTreeMap::new(), has_goaway: false }
    }

    /// Reads a frame, and opens the windows by its content, except that of `unread`.
    #[track_caller]
    fn read(&mut self, unread: u32) -> Frame {
        let frame = self.client.next().expect("a frame");
        self.has_goaway |= frame.kind == kind::GOAWAY;
        if frame.kind == kind::DATA {
            let text = std::str::from_utf8(&frame.payload).expect("text");
            self.texts.entry(frame.stream).or_default().push_str(text);
            let bytes = frame.payload.len() as u32;
            if bytes > 0 && !frame.ends_stream() && frame.stream != unread {
                self.client.send(&Frame::window_update(frame.stream, bytes));
                self.client.send(&Frame::window_update(0, bytes));
            }
        }
        frame
    }

    /// Reads until the content of a stream has `text`.
    #[track_caller]
    fn read_until(&mut self, stream: u32, text: &str) {
        loop {
            let received = self.texts.entry(stream).or_default();
            if let Some(at) = received.find(text) {
                received.drain(..at + text.len());
                return;
            }
            self.read(0);
        }
    }
}

#[test]
fn several_followers_share_a_connection_with_other_requests() {
    // Idle followers are no late readers.
    let limits = Limits { write_timeout: Duration::from_millis(300), ..limits() };
    let server = start(&over_http2(Config { limits, ..followed() }));
    server.begin(100);
    let mut streams = Streams::over(Http2Client::connect(server.address));
    streams.client.get(1, ALL).get(3, "/_changes/products?ids=2");
    streams.read_until(1, "event: begin");
    streams.read_until(3, "event: begin");
    streams.client.get(5, "/products/1");
    streams.read_until(5, "\"id\":1");
    // Longer than `write_timeout`.
    for _ in 0..10 {
        streams.read_until(1, "event: heartbeat");
    }
    server.commit(7, 200, &[1, 2, 3]);
    streams.read_until(1, "\"key\":\"3\"");
    streams.read_until(3, "\"key\":\"2\"");
    assert_eq!(server.metric("hotrow_followers "), 2);
    streams.client.send(&Frame::reset(1));
    wait_until(|| server.metric("hotrow_followers ") == 1);
    assert_eq!(server.metric("hotrow_followers_ended_total{reason=\"client\"} "), 1);
    server.commit(8, 300, &[2]);
    streams.read_until(3, "\"key\":\"2\"");
}

#[test]
fn events_go_on_after_many_at_once() {
    let server = start(&over_http2(followed()));
    server.begin(100);
    let mut streams = Streams::over(Http2Client::connect(server.address));
    streams.client.get(1, ALL);
    streams.read_until(1, "event: begin");
    for round in 1..=3 {
        let of_round = |n: u64| 1_000_000_000 * round + 10 * n;
        (1..=400).for_each(|n| server.deliver(n, of_round(n), &[n as i64]));
        server.advance(of_round(500), Some(&[]));
        (1..=400).for_each(|n| streams.read_until(1, &format!("\"key\":\"{n}\"")));
        streams.read_until(1, "event: heartbeat");
    }
}

#[test]
fn a_follower_whose_window_stays_closed_is_reset_and_others_are_not() {
    let limits = Limits { write_timeout: Duration::from_millis(500), ..limits() };
    let server = start(&over_http2(Config { limits, ..followed() }));
    server.begin(100);
    let settings = Frame::initial_window(600);
    let mut streams = Streams::over(Http2Client::connect_with(server.address, &settings));
    streams.client.get(1, ALL).get(3, "/_changes/products?ids=0");
    streams.read_until(3, "event: begin");
    server.commit(1, 200, &(1..100).collect::<Vec<i64>>());
    // The other one is read, so that the connection makes progress.
    let reset = loop {
        let frame = streams.read(1);
        if frame.kind == kind::RST_STREAM {
            break frame;
        }
    };
    // CANCEL.
    assert_eq!((reset.stream, reset.payload.as_slice()), (1, &[0, 0, 0, 8][..]));
    assert_eq!(server.metric("hotrow_followers_ended_total{reason=\"slow\"} "), 1);
    server.commit(2, 300, &[0]);
    streams.read_until(3, "\"key\":\"0\"");
}

#[test]
fn a_drain_ends_followers_with_an_event_and_goaway() {
    let server = start(&over_http2(followed()));
    server.begin(100);
    let mut streams = Streams::over(Http2Client::connect(server.address));
    streams.client.get(1, ALL);
    streams.read_until(1, "event: begin");
    server.shutdown.leave();
    while !streams.read(0).ends_stream() {}
    streams.read_until(1, "\"reason\":\"draining\"");
    assert!(streams.has_goaway);
    assert_eq!(server.metric("hotrow_followers_ended_total{reason=\"draining\"} "), 1);
}
