//! Commands of one line, as people type them into `telnet`: words separated by white space, with
//! quotes as in a shell. Inside double quotes a backslash escapes.

use memchr::memchr;

use super::{INLINE_BYTES_MAX, Parser};
use crate::Limits;
use crate::arguments::Place;
use crate::error::ProtocolError;

impl Parser {
    /// Parses the line at the beginning of `bytes`.
    #[cold]
    pub(super) fn parse_line(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        let limit = INLINE_BYTES_MAX.min(limits.command_bytes);
        let end = memchr(b'\n', &bytes[self.at..]).map(|end| self.at + end);
        let Some(end) = end.filter(|end| *end < limit) else {
            if bytes.len() >= limit {
                return Err(ProtocolError::InlineBytes);
            }
            self.at = bytes.len();
            return Ok(None);
        };
        let line = &bytes[..end];
        self.is_line = true;
        self.split(line.strip_suffix(b"\r").unwrap_or(line), limits)?;
        Ok(Some(end + 1))
    }

    fn split(&mut self, mut rest: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return Ok(());
            }
            if self.places.len() >= limits.arguments {
                return Err(ProtocolError::MultibulkLength);
            }
            // A line fits 32 bits.
            let from = self.line.len() as u32;
            rest = self.take_word(rest)?;
            let to = self.line.len() as u32;
            if (to - from) as usize > limits.argument_bytes {
                return Err(ProtocolError::BulkLength);
            }
            self.places.push(Place { from, to });
        }
    }

    /// Takes one word, and returns what follows it.
    fn take_word<'a>(&mut self, mut rest: &'a [u8]) -> Result<&'a [u8], ProtocolError> {
        while let Some((byte, behind)) = rest.split_first() {
            match byte {
                b'"' | b'\'' => {
                    rest = self.take_quoted(*byte, behind)?;
                    // So that two words are not taken for one.
                    return match rest.first().is_none_or(u8::is_ascii_whitespace) {
                        true => Ok(rest),
                        false => Err(ProtocolError::Quotes),
                    };
                }
                byte if byte.is_ascii_whitespace() => break,
                byte => self.line.push(*byte),
            }
            rest = behind;
        }
        Ok(rest)
    }

    /// Takes a word up to its closing quote, and returns what follows that.
    fn take_quoted<'a>(
        &mut self,
        quote: u8,
        mut rest: &'a [u8],
    ) -> Result<&'a [u8], ProtocolError> {
        loop {
            let (byte, behind) = rest.split_first().ok_or(ProtocolError::Quotes)?;
            rest = behind;
            match (*byte, quote) {
                (byte, quote) if byte == quote => return Ok(rest),
                (b'\\', b'"') => {
                    if let [b'x', high, low, behind @ ..] = rest
                        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
                    {
                        self.line.push(high << 4 | low);
                        rest = behind;
                        continue;
                    }
                    let (escaped, behind) = rest.split_first().ok_or(ProtocolError::Quotes)?;
                    rest = behind;
                    self.line.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        other => *other,
                    });
                }
                (b'\\', b'\'') if rest.first() == Some(&b'\'') => {
                    self.line.push(b'\'');
                    rest = &rest[1..];
                }
                (byte, _) => self.line.push(byte),
            }
        }
    }
}

/// Returns the value of a hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    // At most 15.
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}
