//! Decoder of a request's body: by length, or in chunks.

use std::ops::Range;

use super::Limits;
use super::chunked::Chunked;
use super::error::ParseError;

/// The body that a head announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// None.
    Empty,
    /// This many bytes, at least one.
    Bytes(u64),
    /// Chunks, whose sizes follow.
    Chunked,
}

/// Position in a body.
#[derive(Debug)]
pub struct BodyDecoder(Position);

#[derive(Debug)]
enum Position {
    Left(u64),
    Chunked(Chunked),
}

/// Meaning of the next bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Number of leading bytes that belong to the body.
    pub consumed: usize,
    /// Those of them that are its content; the others are framing.
    pub data: Range<usize>,
}

impl BodyDecoder {
    /// Returns the decoder of a body that begins with the next byte.
    #[must_use]
    pub fn new(length: BodyLength) -> Self {
        Self(match length {
            BodyLength::Empty => Position::Left(0),
            BodyLength::Bytes(bytes) => Position::Left(bytes),
            BodyLength::Chunked => Position::Chunked(Chunked::default()),
        })
    }

    /// Returns whether the body is complete.
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            Position::Left(bytes) => *bytes == 0,
            Position::Chunked(chunked) => chunked.is_complete(),
        }
    }

    /// Decodes the next bytes, up to the end of one run of content. To be repeated until the body
    /// is complete or no bytes are left.
    ///
    /// # Errors
    /// The body is malformed or too large. Its end is unknown then.
    pub fn decode(&mut self, bytes: &[u8], limits: &Limits) -> Result<Decoded, ParseError> {
        match &mut self.0 {
            Position::Left(left) => {
                let here = (*left).min(bytes.len() as u64);
                *left -= here;
                // At most `bytes.len()`.
                let here = here as usize;
                Ok(Decoded { consumed: here, data: 0..here })
            }
            Position::Chunked(chunked) => chunked.decode(bytes, limits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Malformed;

    const LIMITS: Limits = Limits { head_bytes: 64, fields: 4, target_bytes: 32, body_bytes: 10 };

    /// Returns the content and the number of bytes of the body.
    fn decoded(length: BodyLength, pieces: &[&[u8]]) -> Result<(Vec<u8>, usize), ParseError> {
        let (mut decoder, mut content, mut consumed) = (BodyDecoder::new(length), Vec::new(), 0);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() && !decoder.is_complete() {
                let step = decoder.decode(rest, &LIMITS)?;
                content.extend_from_slice(&rest[step.data]);
                consumed += step.consumed;
                rest = &rest[step.consumed..];
            }
        }
        assert!(decoder.is_complete(), "{content:?}");
        Ok((content, consumed))
    }

    #[test]
    fn content_is_separated_from_framing_in_any_pieces() {
        let chunks = b"3;x=y\r\nabc\r\n02 \r\nde\r\n0\r\nT: v\r\n\r\nGET".as_slice();
        let chunked = BodyLength::Chunked;
        let expected = Ok((b"abcde".to_vec(), chunks.len() - 3));
        assert_ne!(decoded(chunked, &[b"0\r\n\r\n"]), expected);
        for cut in 0..chunks.len() {
            // A space without an extension behind it is refused, see below.
            let sound = String::from_utf8_lossy(chunks).replace("02 ", "02");
            let sound = sound.as_bytes();
            let (one, other) = sound.split_at(cut.min(sound.len()));
            let expected = Ok((b"abcde".to_vec(), sound.len() - 3));
            assert_eq!(decoded(chunked, &[one, other]), expected, "{cut}");
        }
        assert_eq!(decoded(BodyLength::Bytes(3), &[b"a", b"bcd"]), Ok((b"abc".to_vec(), 3)));
        assert_eq!(decoded(BodyLength::Empty, &[b"abc"]), Ok((Vec::new(), 0)));
    }

    #[test]
    fn malformed_and_large_bodies_are_refused() {
        let chunk = Err(ParseError::Malformed(Malformed::Chunk));
        for (input, error) in [
            (&b"2 \r\nde\r\n0\r\n\r\n"[..], &chunk),
            (b"g\r\n", &chunk),
            (b"3\nabc", &chunk),
            (b"3\r\nabcd", &chunk),
            (b"ffffffffffffffff\r\n", &chunk),
            (b"0\r\n: v\r\n", &chunk),
            (b"6\r\nabcdef\r\n5\r\nabcde", &Err(ParseError::BodyBytes)),
        ] {
            assert_eq!(&decoded(BodyLength::Chunked, &[input]), error, "{input:?}");
        }
    }
}
