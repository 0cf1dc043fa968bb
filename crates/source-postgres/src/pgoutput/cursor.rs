//! Reads the parts of a message from the front.

use std::str::Utf8Error;

/// Error of decoding a message. Every text names the part that was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message ends inside a part.
    #[error("the message ends inside of {0}")]
    Short(&'static str),
    /// An impossible length or count.
    #[error("{what} is {value}, which is impossible")]
    Count {
        /// The part.
        what: &'static str,
        /// As sent.
        value: i64,
    },
    /// A kind that protocol version 1 does not have.
    #[error("{what} `{}` is unknown in protocol version 1", kind.escape_ascii())]
    Kind {
        /// The part.
        what: &'static str,
        /// As sent.
        kind: u8,
    },
    /// A name that is not UTF-8, although that encoding was requested.
    #[error("{what} is not UTF-8: {error}")]
    Utf8 {
        /// The name.
        what: &'static str,
        /// Position of the fault.
        error: Utf8Error,
    },
    /// Bytes follow the end of the message.
    #[error("{0} bytes follow the end of the message")]
    Long(usize),
}

/// Remaining bytes of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(
        &mut self,
        bytes: usize,
        what: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array(what).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// Reads a signed 32-bit count or length.
    pub(super) fn length(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let value = self.u32(what)?.cast_signed();
        usize::try_from(value).map_err(|_| DecodeError::Count { what, value: i64::from(value) })
    }

    /// Reads a text that ends with a NUL byte.
    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(DecodeError::Short(what))?;
        let text = self.take(end, what)?;
        self.u8(what)?;
        std::str::from_utf8(text).map_err(|error| DecodeError::Utf8 { what, error })
    }

    pub(super) fn expect(&mut self, wanted: u8, what: &'static str) -> Result<(), DecodeError> {
        match self.u8(what)? {
            kind if kind == wanted => Ok(()),
            kind => Err(DecodeError::Kind { what, kind }),
        }
    }

    pub(super) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Long(self.rest.len())) }
    }
}
