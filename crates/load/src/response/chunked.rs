//! The chunked coding (RFC 9112 section 7.1), a state machine that any split of the bytes leaves in the same state.

use super::Malformed;

/// Longest extension of one chunk, and all trailer fields together, in bytes.
pub const EXTRA_BYTES_MAX: u32 = 16 * 1024;

/// How far a chunked body has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunked {
    at: At,
    /// The size being read, or the bytes left of the chunk.
    size: u64,
    /// Bytes of extensions of this chunk, or of trailers.
    extra: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// The first digit of a size.
    #[default]
    Size,
    /// A further digit.
    SizeMore,
    /// The rest of the line with the size.
    Extension,
    /// The line feed after the size's carriage return.
    SizeEnd,
    Data,
    /// The carriage return after the data.
    DataEnd,
    /// The line feed after it.
    DataEndFeed,
    /// The beginning of a trailer line, or of the empty line that ends the body.
    Trailer,
    TrailerLine,
    /// The line feed of the empty line.
    LastFeed,
}

impl Chunked {
    /// Bytes used, and whether the body is complete.
    ///
    /// # Errors
    /// [`Malformed::Chunk`] when a size is missing, too large, or data does not end where it should.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            if self.at == At::Data {
                let taken = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len() - used);
                self.size -= taken as u64;
                used += taken;
                if self.size == 0 {
                    self.at = At::DataEnd;
                }
                continue;
            }
            used += 1;
            if matches!((self.at, byte), (At::LastFeed | At::Trailer, b'\n')) {
                return Ok((used, true));
            }
            self.at = self.step(byte)?;
        }
        Ok((used, false))
    }

    fn step(&mut self, byte: u8) -> Result<At, Malformed> {
        Ok(match (self.at, byte) {
            (At::Size | At::SizeMore, _) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                self.size = self.size.checked_mul(16).ok_or(Malformed::Chunk)? + digit;
                At::SizeMore
            }
            (At::SizeMore | At::Extension, b'\r') => At::SizeEnd,
            (At::SizeMore | At::Extension | At::SizeEnd, b'\n') => self.after_size(),
            (At::SizeMore, b';' | b' ' | b'\t') | (At::Extension, _) => self.extra(At::Extension)?,
            (At::DataEnd, b'\r') => At::DataEndFeed,
            (At::DataEnd | At::DataEndFeed, b'\n') => At::Size,
            (At::Trailer, b'\r') => At::LastFeed,
            (At::TrailerLine, b'\n') => At::Trailer,
            (At::Trailer | At::TrailerLine, _) => self.extra(At::TrailerLine)?,
            _ => return Err(Malformed::Chunk),
        })
    }

    fn after_size(&mut self) -> At {
        self.extra = 0;
        if self.size == 0 { At::Trailer } else { At::Data }
    }

    fn extra(&mut self, next: At) -> Result<At, Malformed> {
        self.extra += 1;
        if self.extra > EXTRA_BYTES_MAX { Err(Malformed::Chunk) } else { Ok(next) }
    }
}
