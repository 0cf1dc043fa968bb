//! Chunked bodies (RFC 9112 section 7.1). Lines end in CRLF only, and extensions and trailers are
//! bounded, so that another parser finds the same end.

use super::body::Decoded;
use super::error::{Malformed, ParseError};
use super::{Limits, is_token};

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

impl Default for Chunked {
    fn default() -> Self {
        let state = BodyState::Size { digits: 0, size: 0 };
        Self { state, data_bytes: 0, extension_bytes: 0, trailer_bytes: 0 }
    }
}

impl Chunked {
    /// Returns whether the body and its trailers are complete.
    pub(super) fn is_complete(&self) -> bool {
        self.state == BodyState::End
    }

    /// Decodes the next bytes up to the end of one run of content. A chunk that exceeds
    /// `body_bytes` is refused when its size is known, before its data; at most `head_bytes` of
    /// trailers pass.
    pub(super) fn decode(&mut self, bytes: &[u8], limits: &Limits) -> Result<Decoded, ParseError> {
        let mut at = 0;
        while at < bytes.len() && self.state != BodyState::End {
            if let BodyState::Data { left } = &mut self.state {
                let here = (*left).min((bytes.len() - at) as u64);
                *left -= here;
                let end = at + here as usize;
                if *left == 0 {
                    self.state = BodyState::DataCr;
                }
                return Ok(Decoded { consumed: end, data: at..end });
            }
            self.state = self.step(bytes[at]).ok_or(ParseError::Malformed(Malformed::Chunk))?;
            if self.extension_bytes > EXTENSION_BYTES_MAX || self.trailer_bytes > limits.head_bytes
            {
                return Err(ParseError::Malformed(Malformed::Chunk));
            }
            if let BodyState::Data { left } = self.state {
                self.data_bytes = self.data_bytes.saturating_add(left);
                if self.data_bytes > limits.body_bytes as u64 {
                    return Err(ParseError::BodyBytes);
                }
            }
            at += 1;
        }
        Ok(Decoded { consumed: at, data: at..at })
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
