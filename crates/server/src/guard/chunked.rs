//! Follows a chunked body (RFC 9112 section 7.1) to its end without storing it. Stricter than
//! hyper: lines end in CRLF only, extensions and trailers are bounded.

use super::is_token;
use super::refusal::{Malformed, Rejection};
use crate::config::Limits;

/// Most bytes of chunk extensions in one body; nothing here uses them.
pub(super) const EXTENSION_BYTES_MAX: usize = 1024;
/// Most hexadecimal digits of a chunk's size: as many as a `u64` has.
const SIZE_DIGITS_MAX: u8 = 16;
/// Largest chunk size. Above it parsers differ: some count in signed numbers. A body's limit is far
/// lower.
const SIZE_MAX: u64 = i64::MAX as u64;

/// Position of the next byte in a chunked body.
#[derive(Debug)]
pub(super) struct Chunked {
    state: BodyState,
    /// Sum of the announced chunk sizes so far.
    data_bytes: u64,
    extension_bytes: usize,
    trailer_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    Size { digits: u8, size: u64 },
    SpaceBeforeExtension { size: u64 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerLine,
    TrailerName,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

/// Extent of a body in the given bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All bytes belong to the body, which continues.
    Open,
    /// The body ends after this number of bytes.
    End(usize),
    /// This many are valid, then comes invalid input.
    Refused(usize, Rejection),
}

impl Default for Chunked {
    fn default() -> Self {
        let state = BodyState::Size { digits: 0, size: 0 };
        Self { state, data_bytes: 0, extension_bytes: 0, trailer_bytes: 0 }
    }
}

impl Chunked {
    /// Takes the next bytes of the connection. A chunk that exceeds `body_bytes` is refused when
    /// its size is known, before its data; at most `header_bytes` of trailers pass.
    pub(super) fn advance(&mut self, bytes: &[u8], limits: &Limits) -> Progress {
        let mut at = 0;
        while at < bytes.len() {
            if let BodyState::Data { left } = &mut self.state {
                let here = (*left).min((bytes.len() - at) as u64);
                *left -= here;
                at += here as usize;
                if *left == 0 {
                    self.state = BodyState::DataCr;
                }
                continue;
            }
            match self.step(bytes[at]) {
                Some(state) => self.state = state,
                None => return Progress::Refused(at, Rejection::Malformed(Malformed::Chunk)),
            }
            if self.extension_bytes > EXTENSION_BYTES_MAX
                || self.trailer_bytes > limits.header_bytes
            {
                return Progress::Refused(at, Rejection::Malformed(Malformed::Chunk));
            }
            if let BodyState::Data { left } = self.state {
                self.data_bytes = self.data_bytes.saturating_add(left);
                if self.data_bytes > limits.body_bytes as u64 {
                    return Progress::Refused(at, Rejection::BodyBytes);
                }
            }
            at += 1;
            if self.state == BodyState::End {
                return Progress::End(at);
            }
        }
        Progress::Open
    }

    /// Returns the position after `byte`; `None` when the byte is invalid here.
    fn step(&mut self, byte: u8) -> Option<BodyState> {
        Some(match (self.state, byte) {
            (BodyState::Size { digits: 1.., size }, b'\r') => BodyState::SizeLf { size },
            (BodyState::Size { digits: 1.., size }, b';') => BodyState::Extension { size },
            (BodyState::Size { digits: 1.., size }, b' ' | b'\t') => {
                BodyState::SpaceBeforeExtension { size }
            }
            (BodyState::Size { digits, size }, _)
                if digits < SIZE_DIGITS_MAX && size <= SIZE_MAX >> 4 =>
            {
                BodyState::Size { digits: digits + 1, size: size << 4 | hex(byte)? }
            }
            (BodyState::SpaceBeforeExtension { size }, b';') => BodyState::Extension { size },
            (BodyState::SpaceBeforeExtension { .. }, b' ' | b'\t') => {
                self.extension_bytes += 1;
                self.state
            }
            (BodyState::Extension { size }, b'\r') => BodyState::SizeLf { size },
            (BodyState::Extension { .. }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extension_bytes += 1;
                self.state
            }
            (BodyState::SizeLf { size: 0 }, b'\n') => BodyState::TrailerLine,
            (BodyState::SizeLf { size }, b'\n') => BodyState::Data { left: size },
            (BodyState::DataCr, b'\r') => BodyState::DataLf,
            (BodyState::DataLf, b'\n') => BodyState::Size { digits: 0, size: 0 },
            (BodyState::TrailerLine, b'\r') => BodyState::EndLf,
            (BodyState::Trailer, b'\r') => BodyState::TrailerLf,
            // To a parser that missed the end before, a line that is no field could be the next
            // request.
            (BodyState::TrailerLine | BodyState::TrailerName, name) if is_token(name) => {
                self.trailer_bytes += 1;
                BodyState::TrailerName
            }
            (BodyState::TrailerName, b':') | (BodyState::Trailer, b'\t' | b' '..=b'~' | 0x80..) => {
                self.trailer_bytes += 1;
                BodyState::Trailer
            }
            (BodyState::TrailerLf, b'\n') => BodyState::TrailerLine,
            (BodyState::EndLf, b'\n') => BodyState::End,
            _ => return None,
        })
    }
}

fn hex(byte: u8) -> Option<u64> {
    (byte as char).to_digit(16).map(u64::from)
}
