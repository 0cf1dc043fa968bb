//! Parser of a client's commands: arrays of strings, or single lines as people type them.
//!
//! It is called with all bytes from the beginning of a command on, again when more have arrived,
//! and goes on where it stopped: no byte is looked at twice, however the input is cut into pieces.

mod inline;

use crate::Limits;
use crate::arguments::{Arguments, Place};
use crate::error::ProtocolError;

/// Most bytes of a command of one line.
pub const INLINE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a line with a number, its first byte and its end included.
const NUMBER_LINE_BYTES_MAX: usize = 32;
/// Places for which memory is kept between commands.
const KEPT_PLACES_MAX: usize = 1_024;

/// State of one command. Its memory is used for the next one.
#[derive(Debug, Default)]
pub struct Parser {
    /// The arguments that are complete.
    places: Vec<Place>,
    /// Number of arguments still to come; `None`: not known yet.
    missing: Option<usize>,
    /// Length of the argument whose length has been read.
    length: Option<usize>,
    /// First byte that has not been used.
    at: usize,
    /// Arguments of a single line, without quotes.
    line: Vec<u8>,
    /// `true`: the places are in `line`.
    is_line: bool,
}

/// A number with its line.
enum Number {
    Incomplete,
    /// The number, and the byte behind its line.
    Complete(i64, usize),
    Invalid,
    TooLong,
}

impl Parser {
    /// Forgets the command.
    #[inline]
    pub fn reset(&mut self) {
        self.places.clear();
        self.places.shrink_to(KEPT_PLACES_MAX);
        self.line.clear();
        self.line.shrink_to(KEPT_PLACES_MAX);
        (self.missing, self.length, self.at, self.is_line) = (None, None, 0, false);
    }

    /// Returns the bytes of its memory.
    pub fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.line.capacity()
    }

    /// Parses the command at the beginning of `bytes`. Returns the number of its bytes; `None`: it
    /// is not complete. Then the next call gets the same bytes and more.
    ///
    /// # Errors
    /// The bytes begin with no command. Nothing behind them can be understood.
    #[inline]
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        match bytes.first() {
            None => return Ok(None),
            Some(b'*') => {}
            Some(_) => return self.parse_line(bytes, limits),
        }
        let mut missing = match self.missing {
            Some(missing) => missing,
            None => match number(bytes, 0) {
                Number::Incomplete => return Ok(None),
                Number::TooLong => return Err(ProtocolError::CountLine),
                Number::Invalid => return Err(ProtocolError::MultibulkLength),
                Number::Complete(count, at) => {
                    // A negative one is an empty array, as Redis has it.
                    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
                    if count > limits.arguments {
                        return Err(ProtocolError::MultibulkLength);
                    }
                    (self.at, self.missing) = (at, Some(count));
                    count
                }
            },
        };
        while missing > 0 {
            if !self.parse_argument(bytes, limits)? {
                return Ok(None);
            }
            missing -= 1;
            self.missing = Some(missing);
        }
        Ok(Some(self.at))
    }

    /// Parses the next argument. Returns `false` if it is not complete.
    #[inline]
    fn parse_argument(&mut self, bytes: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let length = match self.length {
            Some(length) => length,
            None => {
                match bytes.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => return Err(ProtocolError::Dollar(*other)),
                }
                match number(bytes, self.at) {
                    Number::Incomplete => return Ok(false),
                    Number::TooLong => return Err(ProtocolError::LengthLine),
                    Number::Invalid => return Err(ProtocolError::BulkLength),
                    Number::Complete(length, at) => {
                        let length = usize::try_from(length)
                            .ok()
                            .filter(|length| *length <= limits.argument_bytes)
                            .ok_or(ProtocolError::BulkLength)?;
                        // Before its bytes are received.
                        if at.saturating_add(length) > limits.command_bytes {
                            return Err(ProtocolError::CommandBytes);
                        }
                        (self.at, self.length) = (at, Some(length));
                        length
                    }
                }
            }
        };
        let end = self.at + length;
        match (bytes.get(end), bytes.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => {}
            (None, _) | (Some(b'\r'), None) => return Ok(false),
            (Some(_), _) => return Err(ProtocolError::Terminator),
        }
        // Within the limit on a command, which fits 32 bits.
        self.places.push(Place { from: self.at as u32, to: end as u32 });
        (self.at, self.length) = (end + 2, None);
        Ok(true)
    }

    /// Returns the arguments of the command that was parsed from `bytes`.
    #[inline]
    pub fn arguments<'a>(&'a self, bytes: &'a [u8]) -> Arguments<'a> {
        Arguments::new(if self.is_line { &self.line } else { bytes }, &self.places)
    }
}

/// Reads the number between the byte at `at` and the end of its line. It has one spelling: decimal
/// digits without leading zeros, and a minus sign if it is negative.
#[inline]
fn number(bytes: &[u8], at: usize) -> Number {
    let line = bytes.get(at + 1..).unwrap_or_default();
    let is_negative = line.first() == Some(&b'-');
    let digits = &line[usize::from(is_negative)..];
    let mut value = 0_i64;
    for (index, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {}
            b'\r' => return end_of_number(digits, index, (value, is_negative), at),
            _ => return Number::Invalid,
        }
        if index + 2 >= NUMBER_LINE_BYTES_MAX {
            return Number::TooLong;
        }
        value = value.saturating_mul(10).saturating_add(i64::from(byte - b'0'));
    }
    Number::Incomplete
}

#[inline]
fn end_of_number(
    digits: &[u8],
    index: usize,
    (value, is_negative): (i64, bool),
    at: usize,
) -> Number {
    let has_leading_zero = digits[0] == b'0' && (index > 1 || is_negative);
    if index == 0 || has_leading_zero || value == i64::MAX {
        return Number::Invalid;
    }
    match digits.get(index + 1) {
        None => Number::Incomplete,
        Some(b'\n') => {
            let behind = at + 1 + usize::from(is_negative) + index + 2;
            Number::Complete(if is_negative { -value } else { value }, behind)
        }
        Some(_) => Number::Invalid,
    }
}

#[cfg(test)]
mod tests;
