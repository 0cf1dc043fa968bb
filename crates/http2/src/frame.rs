//! Frames: their header, and the writers of those that a server sends (RFC 9113 sections 4 and 6).

use crate::PAYLOAD_BYTES_MAX;
use crate::error::{ConnectionError, ErrorCode};

/// Length of a frame's header.
pub const HEADER_BYTES: usize = 9;
/// Highest bit of a stream's number, which is reserved.
const STREAM_MASK: u32 = (1 << 31) - 1;

/// Types of frames.
pub mod kind {
    /// Content.
    pub const DATA: u8 = 0;
    /// A head, or its first part.
    pub const HEADERS: u8 = 1;
    /// A priority, which is ignored.
    pub const PRIORITY: u8 = 2;
    /// The end of a stream before its time.
    pub const RST_STREAM: u8 = 3;
    /// Settings, or their acknowledgement.
    pub const SETTINGS: u8 = 4;
    /// A promise, which only a server may make.
    pub const PUSH_PROMISE: u8 = 5;
    /// A question whether the peer is there, or the answer.
    pub const PING: u8 = 6;
    /// The announced end of the connection.
    pub const GOAWAY: u8 = 7;
    /// A grown window.
    pub const WINDOW_UPDATE: u8 = 8;
    /// Another part of a head.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    /// Nothing follows on the stream.
    pub const END_STREAM: u8 = 1;
    /// An acknowledgement.
    pub const ACK: u8 = 1;
    /// The head ends.
    pub const END_HEADERS: u8 = 4;
    /// The payload has padding.
    pub const PADDED: u8 = 8;
    /// The head begins with a priority.
    pub const PRIORITY: u8 = 0x20;
}

/// Settings that are sent or used.
pub mod setting {
    /// Size of the dynamic table.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Whether the server may promise.
    pub const ENABLE_PUSH: u16 = 2;
    /// Most open streams.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Initial window of each stream.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Longest payload of a frame.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Most bytes of a head.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload.
    pub length: usize,
    /// Type.
    pub kind: u8,
    /// Flags, of which unknown ones are ignored.
    pub flags: u8,
    /// Number of the stream; 0: the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the header at the front of `bytes`; `None`: it is incomplete.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes.first_chunk::<HEADER_BYTES>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([d, e, f, g]) & STREAM_MASK;
        Some(Self { length, kind, flags, stream })
    }

    /// Returns whether it has the flag.
    #[must_use]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn bytes(self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Appends the header.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }
}

/// Returns the payload without its padding.
///
/// # Errors
/// The padding is longer than the payload.
pub fn unpadded(header: FrameHeader, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(ConnectionError::FrameSize)?;
    let length = rest.len().checked_sub(usize::from(*padding)).ok_or(ConnectionError::Protocol)?;
    Ok(&rest[..length])
}

/// Appends settings.
pub fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let length = settings.len() * 6;
    FrameHeader { length, kind: kind::SETTINGS, flags: 0, stream: 0 }.write(out);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of settings.
pub fn put_settings_ack(out: &mut Vec<u8>) {
    FrameHeader { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.write(out);
}

/// Appends a ping, or the answer to one.
pub fn put_ping(out: &mut Vec<u8>, payload: [u8; 8], is_answer: bool) {
    let flags = if is_answer { flag::ACK } else { 0 };
    FrameHeader { length: 8, kind: kind::PING, flags, stream: 0 }.write(out);
    out.extend_from_slice(&payload);
}

/// Appends the announced end of the connection. Streams above `last` are not processed.
pub fn put_goaway(out: &mut Vec<u8>, last: u32, code: ErrorCode) {
    FrameHeader { length: 8, kind: kind::GOAWAY, flags: 0, stream: 0 }.write(out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Appends the end of a stream before its time.
pub fn put_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    FrameHeader { length: 4, kind: kind::RST_STREAM, flags: 0, stream }.write(out);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Appends a grown window.
pub fn put_window_update(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    FrameHeader { length: 4, kind: kind::WINDOW_UPDATE, flags: 0, stream }.write(out);
    out.extend_from_slice(&bytes.to_be_bytes());
}

/// Appends content. It is no longer than [`PAYLOAD_BYTES_MAX`].
#[inline]
pub fn put_data(out: &mut Vec<u8>, stream: u32, content: &[u8], is_last: bool) {
    let flags = if is_last { flag::END_STREAM } else { 0 };
    FrameHeader { length: content.len(), kind: kind::DATA, flags, stream }.write(out);
    out.extend_from_slice(content);
}

/// Begins a frame of content, which is appended next. Returns its place for [`end_data`].
#[must_use]
pub fn begin_data(out: &mut Vec<u8>) -> usize {
    begin_head(out)
}

/// Ends the frame of content that begins at `start`.
pub fn end_data(out: &mut [u8], start: usize, stream: u32, is_last: bool) {
    let length = out.len() - start - HEADER_BYTES;
    let flags = if is_last { flag::END_STREAM } else { 0 };
    let header = FrameHeader { length, kind: kind::DATA, flags, stream };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.bytes());
}

/// Begins a head: its fields are appended next. Returns its place for [`end_head`].
#[inline]
#[must_use]
pub fn begin_head(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    start
}

/// Ends the head that begins at `start`. `is_last`: no content follows.
#[inline]
pub fn end_head(out: &mut Vec<u8>, start: usize, stream: u32, is_last: bool) {
    let length = out.len() - start - HEADER_BYTES;
    let last = if is_last { flag::END_STREAM } else { 0 };
    if length > PAYLOAD_BYTES_MAX {
        return divide_head(out, start, stream, last);
    }
    let flags = flag::END_HEADERS | last;
    let header = FrameHeader { length, kind: kind::HEADERS, flags, stream };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.bytes());
}

/// Divides a head among frames.
#[cold]
fn divide_head(out: &mut Vec<u8>, start: usize, stream: u32, flags: u8) {
    let block = out.split_off(start + HEADER_BYTES);
    out.truncate(start);
    let parts = block.len().div_ceil(PAYLOAD_BYTES_MAX);
    for (i, part) in block.chunks(PAYLOAD_BYTES_MAX).enumerate() {
        let (kind, first) = if i == 0 { (kind::HEADERS, flags) } else { (kind::CONTINUATION, 0) };
        let end = if i + 1 == parts { flag::END_HEADERS } else { 0 };
        FrameHeader { length: part.len(), kind, flags: first | end, stream }.write(out);
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the frames of `bytes`.
    fn frames(mut bytes: &[u8]) -> Vec<(FrameHeader, Vec<u8>)> {
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::parse(bytes) {
            let end = HEADER_BYTES + header.length;
            frames.push((header, bytes[HEADER_BYTES..end].to_vec()));
            bytes = &bytes[end..];
        }
        assert!(bytes.is_empty());
        frames
    }

    #[test]
    fn headers_are_read_as_they_are_written() {
        let header = FrameHeader { length: 0x01_02_03, kind: 9, flags: 5, stream: 0x7fff_fffe };
        let mut out = Vec::new();
        header.write(&mut out);
        assert_eq!(out, [1, 2, 3, 9, 5, 0x7f, 0xff, 0xff, 0xfe]);
        assert_eq!(FrameHeader::parse(&out), Some(header));
        out[5] = 0xff;
        assert_eq!(FrameHeader::parse(&out), Some(header), "the reserved bit is ignored");
        assert_eq!(FrameHeader::parse(&out[..8]), None);
    }

    #[test]
    fn small_frames_have_their_lengths() {
        let mut out = Vec::new();
        put_settings(&mut out, &[(setting::MAX_CONCURRENT_STREAMS, 100)]);
        put_settings_ack(&mut out);
        put_ping(&mut out, [7; 8], true);
        put_goaway(&mut out, 5, ErrorCode::NoError);
        put_reset(&mut out, 3, ErrorCode::RefusedStream);
        put_window_update(&mut out, 0, 9);
        put_data(&mut out, 1, b"abc", true);
        let frames = frames(&out);
        let kinds: Vec<u8> = frames.iter().map(|(header, _)| header.kind).collect();
        assert_eq!(kinds, [4, 4, 6, 7, 3, 8, 0]);
        assert_eq!(frames[0].1, [0, 3, 0, 0, 0, 100]);
        assert_eq!(frames[4].1, [0, 0, 0, 7]);
        assert_eq!(frames[6].1, b"abc");
    }

    #[test]
    fn a_long_head_is_divided() {
        for length in [0, 5, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, 3 * PAYLOAD_BYTES_MAX] {
            let mut out = b"before".to_vec();
            let start = begin_head(&mut out);
            out.resize(out.len() + length, b'x');
            end_head(&mut out, start, 7, true);
            let frames = frames(&out[6..]);
            assert_eq!(frames.iter().map(|(header, _)| header.length).sum::<usize>(), length);
            assert_eq!((frames[0].0.kind, frames[0].0.has(flag::END_STREAM)), (1, true));
            let ends = frames.iter().filter(|(header, _)| header.has(flag::END_HEADERS)).count();
            assert!(ends == 1 && frames.last().unwrap().0.has(flag::END_HEADERS));
            assert!(frames[1..].iter().all(|(header, _)| header.kind == kind::CONTINUATION));
        }
    }

    #[test]
    fn padding_is_within_the_payload() {
        let header = FrameHeader { length: 0, kind: 0, flags: flag::PADDED, stream: 1 };
        assert_eq!(unpadded(header, &[1, b'a', 0]), Ok(&b"a"[..]));
        assert_eq!(unpadded(header, &[2, 0, 0]), Ok(&b""[..]));
        assert_eq!(unpadded(header, &[2, 0]), Err(ConnectionError::Protocol));
        assert_eq!(unpadded(header, &[]), Err(ConnectionError::FrameSize));
    }
}
