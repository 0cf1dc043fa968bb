//! Chunked transfer coding (RFC 9112 section 7.1): a state machine that is independent of how reads
//! split the bytes.

use super::malformed::Malformed;

/// Longest extension of a chunk, and all trailer fields together, in bytes.
pub const EXTRA_BYTES_MAX: u32 = 16 * 1024;

/// The state of a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunked {
    at: ChunkState,
    /// The size being read, or the bytes left of the chunk.
    size: u64,
    /// Bytes of this chunk's extensions, or of trailers.
    extra: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// At the first digit of a size.
    #[default]
    Size,
    /// At a further digit.
    SizeMore,
    /// In the rest of the size line.
    Extension,
    /// At the LF of the size line.
    SizeEnd,
    Data,
    /// At the CR after the data.
    DataEnd,
    /// At the LF after it.
    DataEndFeed,
    /// At the beginning of a trailer line, or of the empty line that ends the body.
    Trailer,
    TrailerLine,
    /// At the LF of the empty line.
    LastFeed,
}

impl Chunked {
    /// Returns the bytes used and whether the body is complete.
    ///
    /// # Errors
    /// [`Malformed::Chunk`] when a size is missing or too large, or data does not end in CR LF.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            if self.at == ChunkState::Data {
                let taken =
                    usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len() - used);
                self.size -= taken as u64;
                used += taken;
                if self.size == 0 {
                    self.at = ChunkState::DataEnd;
                }
                continue;
            }
            used += 1;
            if matches!((self.at, byte), (ChunkState::LastFeed | ChunkState::Trailer, b'\n')) {
                return Ok((used, true));
            }
            self.at = self.step(byte)?;
        }
        Ok((used, false))
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, Malformed> {
        Ok(match (self.at, byte) {
            (ChunkState::Size | ChunkState::SizeMore, _) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                self.size = self.size.checked_mul(16).ok_or(Malformed::Chunk)? + digit;
                ChunkState::SizeMore
            }
            (ChunkState::SizeMore | ChunkState::Extension, b'\r') => ChunkState::SizeEnd,
            (ChunkState::SizeMore | ChunkState::Extension | ChunkState::SizeEnd, b'\n') => {
                self.after_size()
            }
            (ChunkState::SizeMore, b';' | b' ' | b'\t') | (ChunkState::Extension, _) => {
                self.extra(ChunkState::Extension)?
            }
            (ChunkState::DataEnd, b'\r') => ChunkState::DataEndFeed,
            (ChunkState::DataEnd | ChunkState::DataEndFeed, b'\n') => ChunkState::Size,
            (ChunkState::Trailer, b'\r') => ChunkState::LastFeed,
            (ChunkState::TrailerLine, b'\n') => ChunkState::Trailer,
            (ChunkState::Trailer | ChunkState::TrailerLine, _) => {
                self.extra(ChunkState::TrailerLine)?
            }
            _ => return Err(Malformed::Chunk),
        })
    }

    fn after_size(&mut self) -> ChunkState {
        self.extra = 0;
        if self.size == 0 { ChunkState::Trailer } else { ChunkState::Data }
    }

    fn extra(&mut self, next: ChunkState) -> Result<ChunkState, Malformed> {
        self.extra += 1;
        if self.extra > EXTRA_BYTES_MAX { Err(Malformed::Chunk) } else { Ok(next) }
    }
}
