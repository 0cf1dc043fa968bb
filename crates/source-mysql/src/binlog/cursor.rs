//! Reader of an event's fields, front to back.

/// Error of decoding an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The bytes end too early.
    #[error("an event ends before its {0}")]
    Short(&'static str),
    /// The rows are compressed or partial.
    #[error("rows are compressed or partial")]
    Unreadable,
    /// A field has an invalid value.
    #[error("an event's {what} is {value}")]
    Value {
        /// Name of the field.
        what: &'static str,
        /// Value of the field.
        value: u64,
    },
}

/// Remaining bytes of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(
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

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array(what).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads a little-endian number of `bytes` bytes, at most 8.
    pub(crate) fn number(&mut self, bytes: usize, what: &'static str) -> Result<u64, DecodeError> {
        let digits = self.take(bytes, what)?;
        Ok(digits.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Reads a length-encoded integer. Source: MySQL's "Protocol::LengthEncodedInteger".
    pub(crate) fn packed(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match self.u8(what)? {
            small @ 0..=250 => Ok(u64::from(small)),
            0xfc => self.number(2, what),
            0xfd => self.number(3, what),
            0xfe => self.number(8, what),
            other => Err(DecodeError::Value { what, value: u64::from(other) }),
        }
    }

    /// Reads a length-encoded byte string.
    pub(crate) fn packed_bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let bytes = self.packed(what)?;
        self.take(usize::try_from(bytes).map_err(|_| DecodeError::Short(what))?, what)
    }
}
