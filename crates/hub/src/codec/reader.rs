//! Parts of the binary form, read. No length is trusted before as many bytes have arrived.

use hotrow_types::key::KEY_BYTES_MAX;

use super::error::DecodeError;
use crate::tag::Tag;

const SHORT: DecodeError = DecodeError::Damaged("it ends too early");

/// The rest of a message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Checks that nothing is left.
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        let damaged = DecodeError::Damaged("it has bytes after its end");
        if self.rest.is_empty() { Ok(()) } else { Err(damaged) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn short(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn number(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn wide(&mut self) -> Result<u128, DecodeError> {
        self.array().map(u128::from_be_bytes)
    }

    pub(super) fn tag(&mut self) -> Result<Tag, DecodeError> {
        self.wide().map(Tag)
    }

    fn count(&mut self, most: usize) -> Result<usize, DecodeError> {
        let count = self.array().map(u32::from_be_bytes)? as usize;
        if count > most {
            return Err(DecodeError::Damaged("a list or text is longer than allowed"));
        }
        Ok(count)
    }

    fn bytes(&mut self, most: usize) -> Result<&'a [u8], DecodeError> {
        let count = self.count(most)?;
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(SHORT)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        self.bytes(KEY_BYTES_MAX)
    }

    pub(super) fn text(&mut self, most: usize) -> Result<String, DecodeError> {
        let text = std::str::from_utf8(self.bytes(most)?);
        text.map(str::to_owned).map_err(|_| DecodeError::Damaged("a text is not UTF-8"))
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(DecodeError::Damaged("an optional part is neither there nor absent")),
        }
    }

    /// Reads a list. Every element takes a byte at least, so that memory is bounded by what came.
    pub(super) fn list<T>(
        &mut self,
        most: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.count(most)?;
        if count > self.rest.len() {
            return Err(SHORT);
        }
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(read(self)?);
        }
        Ok(values)
    }
}
