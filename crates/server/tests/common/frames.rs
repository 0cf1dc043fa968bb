//! A client that writes and reads frames of HTTP/2 as the test says, valid or not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::DEADLINE;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 section 6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[self.kind, self.flags], &self.stream.to_be_bytes(), &self.payload].concat()
    }

    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.kind, kind::DATA | kind::HEADERS) && self.flags & END_STREAM != 0
    }

    pub(crate) fn ping() -> Self {
        Self { kind: kind::PING, flags: 0, stream: 0, payload: vec![7; 8] }
    }

    /// Sets the initial window of streams (RFC 9113 section 6.5.2).
    pub(crate) fn initial_window(bytes: u32) -> Self {
        let payload = [&[0, 4][..], &bytes.to_be_bytes()].concat();
        Self { kind: kind::SETTINGS, flags: 0, stream: 0, payload }
    }

    pub(crate) fn window_update(stream: u32, bytes: u32) -> Self {
        let payload = bytes.to_be_bytes().to_vec();
        Self { kind: kind::WINDOW_UPDATE, flags: 0, stream, payload }
    }

    pub(crate) fn reset(stream: u32) -> Self {
        let cancel = 8u32.to_be_bytes().to_vec();
        Self { kind: kind::RST_STREAM, flags: 0, stream, payload: cancel }
    }

    /// A request without a body, or the begin of one with a body.
    pub(crate) fn request(stream: u32, method: &str, target: &str, has_body: bool) -> Self {
        let flags = END_HEADERS | if has_body { 0 } else { END_STREAM };
        Self { kind: kind::HEADERS, flags, stream, payload: block(method, target) }
    }
}

/// Encodes the head of a request with literals only (RFC 7541 section 6.2.2).
pub(crate) fn block(method: &str, target: &str) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", "x"), (":path", target)];
    let mut block = Vec::new();
    fields.iter().for_each(|(name, value)| literal(&mut block, name, value));
    block
}

/// Adds a field that is not indexed. Name and value have at most 126 bytes.
pub(crate) fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        assert!(text.len() < 127, "a length of one byte");
        block.push(text.len() as u8);
        block.extend_from_slice(text.as_bytes());
    }
}

pub(crate) struct Http2Client {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

impl Http2Client {
    /// Connects, and sends preface and settings.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with(
            address,
            &Frame { kind: kind::SETTINGS, flags: 0, stream: 0, payload: vec![] },
        )
    }

    pub(crate) fn connect_with(address: SocketAddr, settings: &Frame) -> Self {
        Self::over(TcpStream::connect(address).unwrap(), settings)
    }

    /// Sends preface and settings over an open connection.
    pub(crate) fn over(stream: TcpStream, settings: &Frame) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self { stream, received: Vec::new() };
        client.write(PREFACE).unwrap();
        client.send(settings);
        client
    }

    /// Writes bytes; an error if the server has closed.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn send(&mut self, frame: &Frame) -> &mut Self {
        // The server may have closed, which the frames that it sent show.
        let _ = self.write(&frame.bytes());
        self
    }

    pub(crate) fn get(&mut self, stream: u32, target: &str) -> &mut Self {
        self.send(&Frame::request(stream, "GET", target, false))
    }

    /// Begins a request whose body does not come.
    pub(crate) fn open(&mut self, stream: u32, method: &str, target: &str) -> &mut Self {
        self.send(&Frame::request(stream, method, target, true))
    }

    /// Reads the next frame, and acknowledges pings and settings. `None`: the server has closed.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.parse() {
                if matches!(frame.kind, kind::PING | kind::SETTINGS) && frame.flags & ACK == 0 {
                    let payload =
                        if frame.kind == kind::PING { frame.payload.clone() } else { Vec::new() };
                    self.send(&Frame { kind: frame.kind, flags: ACK, stream: 0, payload });
                }
                return Some(frame);
            }
            let mut bytes = [0; 16_384];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(length) => self.received.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn parse(&mut self) -> Option<Frame> {
        let header = self.received.get(..9)?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let stream = u32::from_be_bytes(header[5..].try_into().unwrap());
        let (kind, flags) = (header[3], header[4]);
        let payload = self.received.get(9..9 + length)?.to_vec();
        self.received.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }

    /// Reads until a frame fits.
    pub(crate) fn await_frame(&mut self, fits: impl Fn(&Frame) -> bool) -> Frame {
        self.await_frame_while(fits, |_| {})
    }

    /// The same, doing `between` after each frame.
    pub(crate) fn await_frame_while(
        &mut self,
        fits: impl Fn(&Frame) -> bool,
        between: impl Fn(&mut Self),
    ) -> Frame {
        loop {
            let frame = self.next().expect("the server has closed");
            if fits(&frame) {
                return frame;
            }
            between(self);
        }
    }

    /// Reads until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next()).collect()
    }
}
