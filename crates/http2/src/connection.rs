//! One connection as its server sees it: each frame of the client becomes an [`Event`], and what
//! must be answered by the protocol itself (settings, pings, windows, resets) is appended to the
//! output.

mod content;
mod heads;

use crate::budget::Budget;
use crate::error::{ConnectionError, ErrorCode};
use crate::flow::{ReceiveWindow, SendWindow};
use crate::frame::{self, FrameHeader, HEADER_BYTES, flag, kind, setting};
use crate::head::{HeadFault, HeadText};
use crate::hpack::decoder::Decoder;
use crate::streams::{Slot, Streams};
use crate::{
    CONTROL_FRAMES_BURST, CONTROL_FRAMES_PER_S, Limits, PAYLOAD_BYTES_MAX, PREFACE, RESETS_BURST,
    RESETS_PER_S, STREAMS_MAX, WINDOW_BYTES, settings,
};

/// Streams that this side has reset last and whose frames may still come. Frames of others that
/// have ended are an error of the client.
const RESETS_REMEMBERED: usize = 32;
/// Number above that of each stream: a client may still open some (RFC 9113 section 6.8).
const STREAM_MAX: u32 = (1 << 31) - 1;
/// Frames that do nothing for a request and that an answer allows, besides those for its content.
const CONTROL_PER_ANSWER: u32 = 2;
/// Content of the ping that finds out when the client knows of the connection's end.
const LEAVE_PING: [u8; 8] = *b"leaving.";

/// Memory for one frame, which the connections of a thread share.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// The head that was decoded last.
    pub head: HeadText,
    decoded: Vec<u8>,
}

/// State of one connection.
#[derive(Clone, Debug)]
pub struct Connection {
    expects: Expects,
    decoder: Decoder,
    /// Head of which another part must come next.
    open_head: Option<Box<OpenHead>>,
    /// Highest number of a stream that the client has opened.
    last_stream: u32,
    streams: Streams,
    send_window: SendWindow,
    /// Window of a new stream.
    initial_window: u32,
    receive_window: ReceiveWindow,
    control: Budget,
    resets: Budget,
    error_resets: Budget,
    /// Frames that do nothing for a request and that answers have allowed.
    control_earned: u32,
    /// Whether the client has left out numbers of streams.
    has_skipped: bool,
    /// Streams that this side has reset, the oldest first; 0: none.
    reset_streams: [u32; RESETS_REMEMBERED],
    /// Whether the next head must begin with a change of the table's size.
    must_shrink: bool,
    leaving: Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expects {
    Preface,
    Settings,
    Any,
}

/// Progress of leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// Announced: the client may not know of it yet.
    Announced,
    /// The client knows. Streams above this one are refused.
    After(u32),
}

/// A head that is not complete.
#[derive(Clone, Debug)]
struct OpenHead {
    stream: u32,
    ends_stream: bool,
    block: Vec<u8>,
    continuations: usize,
}

/// Meaning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// None for the server: it was handled, or is ignored.
    None,
    /// A request has arrived; its head is in [`Scratch::head`].
    Request(RequestStart),
    /// Content of an open stream, a range of the frame. It is read by [`Connection::read`].
    Content {
        /// The stream.
        slot: Slot,
        /// Its beginning in the bytes that were passed in.
        from: usize,
        /// Its end.
        to: usize,
        /// Whether it is the last.
        is_last: bool,
    },
    /// The content of an open stream has ended with a trailer.
    ContentEnd(Slot),
    /// An open stream has ended before its time. It has been closed.
    Closed(Slot),
    /// There may be room for answers that wait for it.
    Room,
    /// The client opens no more streams.
    ClientLeaves,
}

/// A request whose head has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStart {
    /// Its stream.
    pub stream: u32,
    /// Whether content follows.
    pub has_content: bool,
    /// Reason for which there is no text; it is answered.
    pub fault: Option<HeadFault>,
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its length.
    pub bytes: usize,
    /// Its meaning.
    pub event: Event,
}

impl Connection {
    /// Begins a connection at `now_ns`, and writes the server's settings.
    #[must_use]
    pub fn new(now_ns: u64, limits: Limits, out: &mut Vec<u8>) -> Self {
        let head_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
        frame::put_settings(
            out,
            &[
                (setting::MAX_CONCURRENT_STREAMS, STREAMS_MAX as u32),
                (setting::MAX_HEADER_LIST_SIZE, head_bytes),
            ],
        );
        Self {
            expects: Expects::Preface,
            decoder: Decoder::default(),
            open_head: None,
            last_stream: 0,
            streams: Streams::default(),
            send_window: SendWindow::new(WINDOW_BYTES),
            initial_window: WINDOW_BYTES,
            receive_window: ReceiveWindow::new(WINDOW_BYTES),
            control: Budget::new(CONTROL_FRAMES_BURST, CONTROL_FRAMES_PER_S, now_ns),
            resets: Budget::new(RESETS_BURST, RESETS_PER_S, now_ns),
            error_resets: Budget::new(RESETS_BURST, RESETS_PER_S, now_ns),
            control_earned: 0,
            has_skipped: false,
            reset_streams: [0; RESETS_REMEMBERED],
            must_shrink: false,
            leaving: Leaving::No,
        }
    }

    /// Reads the frame at the front of `bytes`, which arrived before `now_ns`. `None`: it is not
    /// complete.
    ///
    /// # Errors
    /// The client broke the protocol, or a bound. Nothing more is read.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        limits: Limits,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<Received>, ConnectionError> {
        if self.expects == Expects::Preface {
            return self.preface(bytes);
        }
        let Some(header) = FrameHeader::parse(bytes) else { return Ok(None) };
        if header.length > PAYLOAD_BYTES_MAX {
            return Err(ConnectionError::FrameSize);
        }
        let length = HEADER_BYTES + header.length;
        let Some(payload) = bytes.get(HEADER_BYTES..length) else { return Ok(None) };
        self.check_order(header)?;
        let mut turn = Turn { connection: self, now_ns, limits, scratch, out };
        let event = turn.frame(header, payload)?;
        Ok(Some(Received { bytes: length, event }))
    }

    fn preface(&mut self, bytes: &[u8]) -> Result<Option<Received>, ConnectionError> {
        let length = bytes.len().min(PREFACE.len());
        if bytes[..length] != PREFACE[..length] {
            return Err(ConnectionError::Protocol);
        }
        if length < PREFACE.len() {
            return Ok(None);
        }
        self.expects = Expects::Settings;
        Ok(Some(Received { bytes: length, event: Event::None }))
    }

    /// Refuses a frame that must not follow those before it.
    fn check_order(&self, header: FrameHeader) -> Result<(), ConnectionError> {
        let is_expected = match (self.expects, &self.open_head) {
            (Expects::Any, Some(open)) => {
                header.kind == kind::CONTINUATION && header.stream == open.stream
            }
            (Expects::Any, None) => header.kind != kind::CONTINUATION,
            (Expects::Settings | Expects::Preface, _) => {
                header.kind == kind::SETTINGS && !header.has(flag::ACK)
            }
        };
        if is_expected { Ok(()) } else { Err(ConnectionError::Protocol) }
    }

    /// Returns whether the client has sent a part of a head, and must send the rest.
    pub fn is_head_open(&self) -> bool {
        self.open_head.is_some()
    }

    /// Returns the number of open streams.
    pub fn open_streams(&self) -> usize {
        self.streams.open()
    }

    /// Announces that the connection ends, and asks the client to say when it knows.
    pub fn leave(&mut self, out: &mut Vec<u8>) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Announced;
            frame::put_goaway(out, STREAM_MAX, ErrorCode::NoError);
            frame::put_ping(out, LEAVE_PING, false);
        }
    }

    /// Returns whether the client knows that the connection ends, and nothing is open.
    pub fn has_left(&self) -> bool {
        matches!(self.leaving, Leaving::After(_)) && self.streams.open() == 0
    }

    /// Writes the last frame of a connection that ends at once.
    pub fn end(&self, code: ErrorCode, out: &mut Vec<u8>) {
        let is_said = code == ErrorCode::NoError && matches!(self.leaving, Leaving::After(_));
        if !is_said {
            frame::put_goaway(out, self.last_stream, code);
        }
    }

    /// Begins the head of an answer. The fields are appended, and [`frame::end_head`] ends it.
    #[inline]
    #[must_use]
    pub fn begin_head(&mut self, out: &mut Vec<u8>) -> usize {
        // Clients send pings, priorities, settings and resets in proportion to their requests.
        self.earn(CONTROL_PER_ANSWER);
        self.resets.give();
        self.error_resets.give();
        let start = frame::begin_head(out);
        if std::mem::take(&mut self.must_shrink) {
            crate::hpack::encoder::shrink(out);
        }
        start
    }
}

/// One frame, and what its handling needs.
struct Turn<'a> {
    connection: &'a mut Connection,
    now_ns: u64,
    limits: Limits,
    scratch: &'a mut Scratch,
    out: &'a mut Vec<u8>,
}

impl Turn<'_> {
    fn frame(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Event, ConnectionError> {
        match header.kind {
            kind::HEADERS => self.headers(header, payload),
            kind::CONTINUATION => self.continuation(header, payload),
            kind::DATA => self.data(header, payload),
            kind::WINDOW_UPDATE => self.window_update(header, payload),
            kind::RST_STREAM => self.reset_by_client(header, payload),
            kind::SETTINGS => self.settings(header, payload),
            kind::PING => self.ping(header, payload),
            kind::PRIORITY => self.priority(header, payload),
            kind::GOAWAY => self.goaway(header, payload),
            kind::PUSH_PROMISE => Err(ConnectionError::Protocol),
            // An unknown type is ignored, but not for ever.
            _ => self.control(),
        }
    }

    /// Counts a frame that does nothing for a request.
    fn control(&mut self) -> Result<Event, ConnectionError> {
        let connection = &mut *self.connection;
        if let Some(left) = connection.control_earned.checked_sub(1) {
            connection.control_earned = left;
            return Ok(Event::None);
        }
        let is_allowed = connection.control.take(self.now_ns);
        if is_allowed { Ok(Event::None) } else { Err(ConnectionError::Flood) }
    }

    fn settings(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Event, ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::Protocol);
        }
        self.control()?;
        if header.has(flag::ACK) {
            let is_empty = payload.is_empty();
            return if is_empty { Ok(Event::None) } else { Err(ConnectionError::FrameSize) };
        }
        let changes = settings::parse(payload)?;
        let connection = &mut *self.connection;
        connection.expects = Expects::Any;
        connection.must_shrink |= changes.shrinks_table;
        frame::put_settings_ack(self.out);
        let Some(window) = changes.initial_window else { return Ok(Event::None) };
        let grown = i64::from(window) - i64::from(connection.initial_window);
        connection.initial_window = window;
        connection.streams.change_windows(grown).map_err(|_| ConnectionError::FlowControl)?;
        Ok(if grown > 0 { Event::Room } else { Event::None })
    }

    fn ping(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Event, ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::Protocol);
        }
        let content = <[u8; 8]>::try_from(payload).map_err(|_| ConnectionError::FrameSize)?;
        self.control()?;
        let connection = &mut *self.connection;
        if !header.has(flag::ACK) {
            frame::put_ping(self.out, content, true);
        } else if content == LEAVE_PING && connection.leaving == Leaving::Announced {
            connection.leaving = Leaving::After(connection.last_stream);
            frame::put_goaway(self.out, connection.last_stream, ErrorCode::NoError);
        }
        Ok(Event::None)
    }

    fn priority(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Event, ConnectionError> {
        let Some(dependency) = payload.first_chunk::<4>() else {
            return Err(ConnectionError::FrameSize);
        };
        if payload.len() != 5 {
            return Err(ConnectionError::FrameSize);
        }
        heads::check_dependency(header.stream, *dependency)?;
        if header.stream == 0 {
            return Err(ConnectionError::Protocol);
        }
        self.control()
    }

    fn goaway(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Event, ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::Protocol);
        }
        if payload.len() < 8 {
            return Err(ConnectionError::FrameSize);
        }
        self.control()?;
        Ok(Event::ClientLeaves)
    }

    /// Resets a stream because of an error of the client.
    fn reset_by_error(&mut self, id: u32, code: ErrorCode) -> Result<Event, ConnectionError> {
        let connection = &mut *self.connection;
        if !connection.error_resets.take(self.now_ns) {
            return Err(ConnectionError::Flood);
        }
        connection.remember_reset(id);
        frame::put_reset(self.out, id, code);
        let slot = connection.streams.find(id);
        Ok(slot.map_or(Event::None, |slot| {
            connection.streams.remove(slot);
            Event::Closed(slot)
        }))
    }
}

#[cfg(test)]
mod tests;
