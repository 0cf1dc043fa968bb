mod floods;

use proptest::prelude::*;

use super::*;
use crate::frame::unpadded;

const LIMITS: Limits = Limits { head_bytes: 1_000 };
const NOW_NS: u64 = 1_000_000_000;

/// A client, and the server that it speaks with.
struct Peer {
    server: Connection,
    scratch: Scratch,
    out: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHeader { length: payload.len(), kind, flags, stream }.write(&mut out);
    out.extend_from_slice(payload);
    out
}

fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        block.push(text.len() as u8);
        block.extend_from_slice(text.as_bytes());
    }
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "x")];
    pseudo.iter().chain(fields).for_each(|(name, value)| literal(&mut block, name, value));
    block
}

fn request(stream: u32, is_last: bool) -> Vec<u8> {
    let last = if is_last { flag::END_STREAM } else { 0 };
    frame(kind::HEADERS, flag::END_HEADERS | last, stream, &block(&[]))
}

fn data(stream: u32, content: &[u8], is_last: bool) -> Vec<u8> {
    frame(kind::DATA, u8::from(is_last), stream, content)
}

fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

impl Peer {
    fn unsettled() -> Self {
        let mut out = Vec::new();
        let server = Connection::new(NOW_NS, LIMITS, &mut out);
        Self { server, scratch: Scratch::default(), out }
    }

    fn new() -> Self {
        let mut peer = Self::unsettled();
        peer.ask(PREFACE).unwrap();
        peer.ask(&frame(kind::SETTINGS, 0, 0, &[])).unwrap();
        peer.out.clear();
        peer
    }

    /// Sends frames. Returns the meaning of the last one.
    fn ask(&mut self, bytes: &[u8]) -> Result<Event, ConnectionError> {
        self.ask_at(bytes, NOW_NS)
    }

    fn ask_at(&mut self, mut bytes: &[u8], now_ns: u64) -> Result<Event, ConnectionError> {
        let mut last = Event::None;
        while !bytes.is_empty() {
            let Self { server, scratch, out } = self;
            let received = server.receive(bytes, now_ns, LIMITS, scratch, out)?;
            let received = received.expect("complete frames");
            bytes = &bytes[received.bytes..];
            last = received.event;
        }
        Ok(last)
    }

    /// Opens a stream whose request has content.
    fn open(&mut self, stream: u32) -> Slot {
        let event = self.ask(&request(stream, false)).unwrap();
        assert!(matches!(event, Event::Request(start) if start.has_content));
        self.server.open(stream, self.scratch.head.content_length(), true)
    }

    /// Returns the frames that the server has written.
    fn frames(&mut self) -> Vec<(FrameHeader, Vec<u8>)> {
        let mut frames = Vec::new();
        let mut bytes = &self.out[..];
        while let Some(header) = FrameHeader::parse(bytes) {
            let end = HEADER_BYTES + header.length;
            frames.push((header, bytes[HEADER_BYTES..end].to_vec()));
            bytes = &bytes[end..];
        }
        self.out.clear();
        frames
    }

    /// Returns stream and code of the only frame, a reset.
    fn reset_code(&mut self) -> (u32, u8) {
        let frames = self.frames();
        assert_eq!(frames.len(), 1, "{frames:?}");
        assert_eq!(frames[0].0.kind, kind::RST_STREAM);
        (frames[0].0.stream, frames[0].1[3])
    }
}

#[test]
fn a_connection_begins_with_settings() {
    let mut peer = Peer::unsettled();
    assert_eq!(peer.frames()[0].1, [0, 3, 0, 0, 0, 100, 0, 6, 0, 0, 3, 0xe8]);
    peer.ask(PREFACE).unwrap();
    peer.ask(&frame(kind::SETTINGS, 0, 0, &[])).unwrap();
    let acks = peer.frames();
    assert!(acks.len() == 1 && acks[0].0.has(flag::ACK));
    for wrong in [&b"GET / HTTP/1.1\r\n"[..], &[0; 24]] {
        assert_eq!(Peer::unsettled().ask(wrong), Err(ConnectionError::Protocol));
    }
    let mut peer = Peer::unsettled();
    peer.ask(PREFACE).unwrap();
    assert_eq!(peer.ask(&frame(kind::PING, 0, 0, &[0; 8])), Err(ConnectionError::Protocol));
}

#[test]
fn a_request_is_text_of_http_1_1() {
    let mut peer = Peer::new();
    let start = RequestStart { stream: 1, has_content: false, fault: None };
    assert_eq!(peer.ask(&request(1, true)), Ok(Event::Request(start)));
    assert_eq!(peer.scratch.head.text(), b"POST /a HTTP/1.1\r\nhost: x\r\n\r\n");
    // In three parts, with padding and a priority.
    let block = block(&[("accept", "a")]);
    let first = [&[3, 0, 0, 0, 0, 7][..], &block[..4], &[0; 3]].concat();
    let flags = flag::PADDED | flag::PRIORITY | flag::END_STREAM;
    peer.ask(&frame(kind::HEADERS, flags, 3, &first)).unwrap();
    assert!(peer.server.is_head_open());
    peer.ask(&frame(kind::CONTINUATION, 0, 3, &block[4..9])).unwrap();
    let start = RequestStart { stream: 3, has_content: false, fault: None };
    let last = frame(kind::CONTINUATION, flag::END_HEADERS, 3, &block[9..]);
    assert_eq!(peer.ask(&last), Ok(Event::Request(start)));
    assert!(peer.scratch.head.text().ends_with(b"accept: a\r\n\r\n"));
}

#[test]
fn frames_that_break_the_protocol_end_the_connection() {
    let open_head = frame(kind::HEADERS, 0, 1, &block(&[]));
    let used = request(1, true);
    use ConnectionError as E;
    for (before, bytes, error) in [
        (&[][..], request(2, true), E::Protocol),
        (&[], request(0, true), E::Protocol),
        (&[], data(0, b"a", false), E::Protocol),
        (&[], data(1, b"a", false), E::Protocol),
        (&[], reset(1), E::Protocol),
        (&[], window_update(1, 1), E::Protocol),
        (&[], window_update(0, 0), E::Protocol),
        (&[], window_update(0, (1 << 31) - 1), E::FlowControl),
        (&[], frame(kind::WINDOW_UPDATE, 0, 0, &[1]), E::FrameSize),
        (&[], frame(kind::RST_STREAM, 0, 1, &[1]), E::FrameSize),
        (&[], frame(kind::PRIORITY, 0, 1, &[0; 4]), E::FrameSize),
        (&[], frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), E::Protocol),
        (&[], frame(kind::PRIORITY, 0, 0, &[0, 0, 0, 1, 0]), E::Protocol),
        (&[], frame(kind::SETTINGS, 0, 1, &[]), E::Protocol),
        (&[], frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]), E::FrameSize),
        (&[], frame(kind::SETTINGS, 0, 0, &[0; 5]), E::FrameSize),
        (&[], frame(kind::PING, 0, 1, &[0; 8]), E::Protocol),
        (&[], frame(kind::PING, 0, 0, &[0; 7]), E::FrameSize),
        (&[], frame(kind::GOAWAY, 0, 1, &[0; 8]), E::Protocol),
        (&[], frame(kind::PUSH_PROMISE, 4, 1, &[0; 4]), E::Protocol),
        (&[], frame(kind::CONTINUATION, 4, 1, &[]), E::Protocol),
        (&[], frame(kind::DATA, 0, 1, &[0; PAYLOAD_BYTES_MAX + 1]), E::FrameSize),
        (&[], frame(kind::HEADERS, 4, 1, &[0x80]), E::Compression),
        (&[], frame(kind::HEADERS, 4 | flag::PADDED, 1, &[9, 0]), E::Protocol),
        (&open_head[..], frame(kind::PING, 0, 0, &[0; 8]), E::Protocol),
        (&open_head, frame(99, 0, 1, &[]), E::Protocol),
        (&open_head, frame(kind::CONTINUATION, 4, 3, &[]), E::Protocol),
        (&used, request(1, true), E::StreamClosed),
    ] {
        let mut peer = Peer::new();
        peer.ask(before).unwrap();
        assert_eq!(peer.ask(&bytes), Err(error), "{:?}", FrameHeader::parse(&bytes));
    }
    let mut peer = Peer::new();
    peer.ask(&request(5, true)).unwrap();
    assert_eq!(peer.ask(&request(3, true)), Err(E::Protocol), "it was never opened");
}

#[test]
fn frames_that_break_a_request_end_its_stream() {
    let malformed = frame(kind::HEADERS, 5, 1, &block(&[("A", "b")]));
    let contradicted = frame(kind::HEADERS, 5, 1, &block(&[("content-length", "1")]));
    for (bytes, code) in [(malformed, 1), (contradicted, 1)] {
        let mut peer = Peer::new();
        assert_eq!(peer.ask(&bytes), Ok(Event::None));
        assert_eq!(peer.reset_code(), (1, code));
    }
    let trailer = |flags, fields: &[(&str, &str)]| {
        let mut block = Vec::new();
        fields.iter().for_each(|(name, value)| literal(&mut block, name, value));
        frame(kind::HEADERS, flags, 1, &block)
    };
    for (bytes, code) in [
        (trailer(4, &[]), 1),
        (trailer(5, &[(":path", "/")]), 1),
        (window_update(1, 0), 1),
        (window_update(1, (1 << 31) - 1), 3),
    ] {
        let mut peer = Peer::new();
        let slot = peer.open(1);
        assert_eq!(peer.ask(&bytes), Ok(Event::Closed(slot)));
        assert_eq!(peer.reset_code(), (1, code));
        assert_eq!(peer.server.open_streams(), 0);
    }
    let mut peer = Peer::new();
    let slot = peer.open(1);
    assert_eq!(peer.ask(&trailer(5, &[("a", "b")])), Ok(Event::ContentEnd(slot)));
    assert_eq!(peer.ask(&data(1, b"a", true)), Ok(Event::Closed(slot)));
    assert_eq!(peer.reset_code(), (1, 5), "half closed");
}

#[test]
fn content_is_as_long_as_announced() {
    for (pieces, is_sound) in [
        (&[(&b"ab"[..], false), (b"c", true)][..], true),
        (&[(b"abc", true)], true),
        (&[(b"abc", false), (b"", true)], true),
        (&[(b"abcd", true)], false),
        (&[(b"abcd", false)], false),
        (&[(b"ab", true)], false),
    ] {
        let mut peer = Peer::new();
        let head = frame(kind::HEADERS, 4, 1, &block(&[("content-length", "3")]));
        peer.ask(&head).unwrap();
        let announced = peer.scratch.head.content_length();
        let slot = peer.server.open(1, announced, true);
        let events: Vec<Event> = pieces
            .iter()
            .map(|(piece, is_last)| peer.ask(&data(1, piece, *is_last)).unwrap())
            .collect();
        let refused = events.contains(&Event::Closed(slot));
        assert_eq!(!refused, is_sound, "{pieces:?}");
    }
}

#[test]
fn content_is_given_room_as_it_is_read() {
    let mut peer = Peer::new();
    let slot = peer.open(1);
    let piece = vec![b'x'; 16_000];
    for _ in 0..4 {
        peer.ask(&data(1, &piece, false)).unwrap();
    }
    assert_eq!(peer.frames(), []);
    let mut over = peer.server.clone();
    let more = data(1, &piece, false);
    let error = over.receive(&more, NOW_NS, LIMITS, &mut Scratch::default(), &mut Vec::new());
    assert_eq!(error, Err(ConnectionError::FlowControl));
    peer.server.read(slot, 64_000, &mut peer.out);
    let updates: Vec<u32> = peer.frames().iter().map(|(header, _)| header.stream).collect();
    assert_eq!(updates, [0, 1]);
    let padded = frame(kind::DATA, flag::PADDED, 1, &[3, b'a', b'b', 0, 0, 0]);
    let event = peer.ask(&padded).unwrap();
    assert_eq!(event, Event::Content { slot, from: 10, to: 12, is_last: false });
}

#[test]
fn content_of_a_stream_that_was_reset_is_dropped() {
    let mut peer = Peer::new();
    let slot = peer.open(1);
    peer.server.reset(slot, ErrorCode::NoError, &mut peer.out);
    assert_eq!(peer.reset_code(), (1, 0));
    for _ in 0..10 {
        assert_eq!(peer.ask(&data(1, &[0; 16_000], false)), Ok(Event::None));
    }
    assert!(peer.frames().iter().all(|(header, _)| header.kind == kind::WINDOW_UPDATE));
    assert_eq!(peer.ask(&frame(kind::HEADERS, 5, 1, &[])), Ok(Event::None), "a trailer");
    peer.ask(&request(3, true)).unwrap();
    assert_eq!(peer.ask(&data(3, b"a", true)), Ok(Event::None));
    assert_eq!(peer.reset_code(), (3, 5), "the client had ended it");
}

#[test]
fn windows_of_the_client_bound_what_is_sent() {
    let mut peer = Peer::new();
    peer.ask(&frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10])).unwrap();
    let slot = peer.open(1);
    assert_eq!((peer.server.sendable(slot), peer.server.has_room(11)), (10, false));
    peer.server.sent(slot, 10);
    assert_eq!(peer.server.sendable(slot), 0);
    assert_eq!(peer.ask(&window_update(1, 5)), Ok(Event::Room));
    assert_eq!(peer.server.sendable(slot), 5);
    peer.ask(&frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    assert_eq!(peer.server.sendable(slot), 0, "minus five");
    assert_eq!(peer.ask(&frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])), Ok(Event::Room));
    assert_eq!(peer.server.sendable(slot), PAYLOAD_BYTES_MAX);
    peer.server.sent_at_once(WINDOW_BYTES as usize - 10);
    assert_eq!((peer.server.sendable(slot), peer.server.has_room(1)), (0, false));
}

#[test]
fn a_smaller_table_is_confirmed_by_the_next_head() {
    let mut peer = Peer::new();
    peer.ask(&frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0])).unwrap();
    let mut out = Vec::new();
    let _ = peer.server.begin_head(&mut out);
    assert_eq!(out[HEADER_BYTES..], [0x20]);
    let _ = peer.server.begin_head(&mut out);
    assert_eq!(out.len(), 2 * HEADER_BYTES + 1, "once");
}

#[test]
fn a_head_that_unfolds_is_too_large_and_the_next_is_read() {
    let mut peer = Peer::new();
    let mut bomb = block(&[]);
    bomb.extend([0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    bomb.extend(vec![b'b'; 4_000]);
    bomb.extend(vec![0x80 | 62; 12_000]);
    let start = RequestStart { stream: 1, has_content: false, fault: Some(HeadFault::TooLarge) };
    assert_eq!(peer.ask(&frame(kind::HEADERS, 5, 1, &bomb)), Ok(Event::Request(start)));
    let start = RequestStart { stream: 3, has_content: false, fault: None };
    assert_eq!(peer.ask(&request(3, true)), Ok(Event::Request(start)));
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let mut peer = Peer::new();
    let streams = STREAMS_MAX as u32;
    let slots: Vec<Slot> = (0..streams).map(|i| peer.open(2 * i + 1)).collect();
    let next = 2 * streams + 1;
    assert_eq!(peer.ask(&request(next, true)), Ok(Event::None));
    assert_eq!(peer.reset_code(), (next, 7));
    peer.server.close(slots[7]);
    peer.open(next + 2);
}

#[test]
fn a_client_learns_of_the_end_before_it_is_refused() {
    let mut peer = Peer::new();
    let slot = peer.open(1);
    peer.server.leave(&mut peer.out);
    peer.server.leave(&mut peer.out);
    let frames = peer.frames();
    assert_eq!(frames.iter().map(|(h, _)| h.kind).collect::<Vec<_>>(), [kind::GOAWAY, kind::PING]);
    assert_eq!(frames[0].1[..4], [0x7f, 0xff, 0xff, 0xff]);
    assert!(matches!(peer.ask(&request(3, true)), Ok(Event::Request(_))), "it was on its way");
    assert!(!peer.server.has_left());
    peer.ask(&frame(kind::PING, flag::ACK, 0, &frames[1].1)).unwrap();
    let last = peer.frames();
    assert_eq!((last[0].0.kind, &last[0].1[..4]), (kind::GOAWAY, &[0, 0, 0, 3][..]));
    peer.ask(&request(5, true)).unwrap();
    assert_eq!(peer.reset_code(), (5, 7));
    assert!(!peer.server.has_left());
    peer.server.close(slot);
    assert!(peer.server.has_left());
}

proptest! {
    /// Any frames are followed or refused, and what is held stays within its bounds.
    #[test]
    fn no_frames_panic(
        frames in prop::collection::vec(
            (0_u8..11, any::<u8>(), 0_u32..8, prop::collection::vec(any::<u8>(), 0..40)), 0..40,
        ),
    ) {
        let mut peer = Peer::new();
        for (kind, flags, stream, payload) in frames {
            let bytes = frame(kind, flags, stream, &payload);
            match peer.ask(&bytes) {
                Ok(Event::Request(start)) => {
                    let text = peer.scratch.head.text();
                    prop_assert!(start.fault.is_some() || text.ends_with(b"\r\n\r\n"));
                    peer.server.open(start.stream, None, start.has_content);
                }
                Ok(Event::Content { from, to, .. }) => {
                    let header = FrameHeader::parse(&bytes).unwrap();
                    let content = unpadded(header, &payload).unwrap();
                    prop_assert_eq!(&bytes[from..to], content);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        prop_assert!(peer.server.open_streams() <= STREAMS_MAX);
    }

    /// The same bytes mean the same in any pieces.
    #[test]
    fn pieces_do_not_matter(cut in 1_usize..60) {
        let bytes = [
            &PREFACE[..],
            &frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]),
            &request(1, false),
            &data(1, b"content", true),
            &request(3, true),
        ].concat();
        let mut peer = Peer::unsettled();
        let (mut held, mut events) = (Vec::new(), 0);
        for piece in bytes.chunks(cut) {
            held.extend_from_slice(piece);
            let Peer { server, scratch, out } = &mut peer;
            loop {
                let received = server.receive(&held, NOW_NS, LIMITS, scratch, out).unwrap();
                let Some(received) = received else { break };
                held.drain(..received.bytes);
                events += usize::from(received.event != Event::None);
                if let Event::Request(RequestStart { has_content: true, stream, .. }) =
                    received.event
                {
                    server.open(stream, None, true);
                }
            }
        }
        prop_assert_eq!((events, held.len()), (3, 0));
    }
}
