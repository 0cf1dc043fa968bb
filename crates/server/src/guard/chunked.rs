//! Follows a chunked body (RFC 9112 section 7.1) to its end without keeping any of it. Stricter than hyper: lines end in CRLF
//! only, extensions and trailers are bounded.

use super::is_token;
use super::refusal::{Malformed, Refusal};

/// Bytes of chunk extensions in one body; nothing here uses them.
pub(super) const EXTENSION_BYTES_MAX: usize = 1024;
/// Hexadecimal digits of a chunk's size: as many as a `u64` has.
const SIZE_DIGITS_MAX: u8 = 16;

/// Where in a chunked body the next byte stands.
#[derive(Debug)]
pub(super) struct Chunked {
    place: Place,
    extension_bytes: usize,
    trailer_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
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

/// How far a body reaches into the bytes at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All of them belong to the body, which goes on.
    Open,
    /// The body ends after this many.
    End(usize),
    /// This many are sound, then comes what is refused.
    Refused(usize, Refusal),
}

impl Default for Chunked {
    fn default() -> Self {
        Self { place: Place::Size { digits: 0, size: 0 }, extension_bytes: 0, trailer_bytes: 0 }
    }
}

impl Chunked {
    /// Takes the next bytes of the connection. At most `trailer_bytes_max` bytes of trailers pass.
    pub(super) fn advance(&mut self, bytes: &[u8], trailer_bytes_max: usize) -> Progress {
        let mut at = 0;
        while at < bytes.len() {
            if let Place::Data { left } = &mut self.place {
                let here = (*left).min((bytes.len() - at) as u64);
                *left -= here;
                at += here as usize;
                if *left == 0 {
                    self.place = Place::DataCr;
                }
                continue;
            }
            match self.step(bytes[at]) {
                Some(place) => self.place = place,
                None => return Progress::Refused(at, Refusal::Malformed(Malformed::Chunk)),
            }
            if self.extension_bytes > EXTENSION_BYTES_MAX || self.trailer_bytes > trailer_bytes_max {
                return Progress::Refused(at, Refusal::Malformed(Malformed::Chunk));
            }
            at += 1;
            if self.place == Place::End {
                return Progress::End(at);
            }
        }
        Progress::Open
    }

    /// The place after `byte`; none when it may not stand here.
    fn step(&mut self, byte: u8) -> Option<Place> {
        Some(match (self.place, byte) {
            (Place::Size { digits: 1.., size }, b'\r') => Place::SizeLf { size },
            (Place::Size { digits: 1.., size }, b';') => Place::Extension { size },
            (Place::Size { digits: 1.., size }, b' ' | b'\t') => Place::SpaceBeforeExtension { size },
            (Place::Size { digits, size }, _) if digits < SIZE_DIGITS_MAX => {
                Place::Size { digits: digits + 1, size: size << 4 | hex(byte)? }
            }
            (Place::SpaceBeforeExtension { size }, b';') => Place::Extension { size },
            (Place::SpaceBeforeExtension { .. }, b' ' | b'\t') => {
                self.extension_bytes += 1;
                self.place
            }
            (Place::Extension { size }, b'\r') => Place::SizeLf { size },
            (Place::Extension { .. }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extension_bytes += 1;
                self.place
            }
            (Place::SizeLf { size: 0 }, b'\n') => Place::TrailerLine,
            (Place::SizeLf { size }, b'\n') => Place::Data { left: size },
            (Place::DataCr, b'\r') => Place::DataLf,
            (Place::DataLf, b'\n') => Place::Size { digits: 0, size: 0 },
            (Place::TrailerLine, b'\r') => Place::EndLf,
            (Place::Trailer, b'\r') => Place::TrailerLf,
            // A line that is no field could be the next request, to whoever missed the end before it.
            (Place::TrailerLine | Place::TrailerName, name) if is_token(name) => {
                self.trailer_bytes += 1;
                Place::TrailerName
            }
            (Place::TrailerName, b':') | (Place::Trailer, b'\t' | b' '..=b'~' | 0x80..) => {
                self.trailer_bytes += 1;
                Place::Trailer
            }
            (Place::TrailerLf, b'\n') => Place::TrailerLine,
            (Place::EndLf, b'\n') => Place::End,
            _ => return None,
        })
    }
}

fn hex(byte: u8) -> Option<u64> {
    (byte as char).to_digit(16).map(u64::from)
}
