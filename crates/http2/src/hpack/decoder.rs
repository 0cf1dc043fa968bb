//! Decoder of heads. What it holds and does is bounded by the bytes that it is given: a field from
//! a table is passed on where it lies.

use super::dynamic_table::DynamicTable;
use super::{CompressionError, huffman, integer, static_table};
use crate::TABLE_BYTES_MAX;

/// Entries of the static table.
const STATIC_ENTRIES: usize = 61;
/// Bytes that a head may add to the table for each of its own. Two bytes can add a name of 4 KiB
/// again; no client has a reason to.
const ADDED_PER_BYTE: usize = 16;

/// Decoder of one connection.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    table: DynamicTable,
    /// Bytes that the present head may still add to the table.
    may_add: usize,
}

/// A string in the bytes of a head, or in the memory of what was decoded.
#[derive(Clone, Copy, Debug)]
enum Text<'a> {
    Plain(&'a [u8]),
    Decoded(usize, usize),
}

impl<'a> Text<'a> {
    fn of(self, decoded: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Decoded(from, to) => &decoded[from..to],
        }
    }
}

/// Where the name of a field is.
#[derive(Clone, Copy, Debug)]
enum Name<'a> {
    Text(Text<'a>),
    Static(&'static [u8]),
    /// In the dynamic table, by its age.
    Dynamic(usize),
}

impl Decoder {
    /// Decodes the fields of a whole head, in order. `scratch` is memory that is used again.
    ///
    /// # Errors
    /// The head breaks the format. Nothing behind it can be decoded.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        scratch: &mut Vec<u8>,
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CompressionError> {
        self.may_add = TABLE_BYTES_MAX + ADDED_PER_BYTE * block.len();
        block = self.resized(block)?;
        while let Some(first) = block.first() {
            block = match first {
                0x80.. => {
                    let (index, rest) = integer::decode(block, 7)?;
                    let (name, value) = self.entry(index)?;
                    field(name, value);
                    rest
                }
                0x40.. => self.literal(block, 6, true, scratch, &mut field)?,
                // A change of size is allowed only before the first field.
                0x20.. => return Err(CompressionError),
                _ => self.literal(block, 4, false, scratch, &mut field)?,
            };
        }
        Ok(())
    }

    /// Follows changes of the table's size at the front of a head.
    fn resized<'a>(&mut self, mut block: &'a [u8]) -> Result<&'a [u8], CompressionError> {
        while let Some(0x20..=0x3f) = block.first() {
            let (size_max, rest) = integer::decode(block, 5)?;
            if size_max > TABLE_BYTES_MAX {
                return Err(CompressionError);
            }
            self.table.resize(size_max);
            block = rest;
        }
        Ok(block)
    }

    #[inline]
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), CompressionError> {
        match static_table::entry(index) {
            Some(entry) => Ok(entry),
            None => {
                let age = index.checked_sub(STATIC_ENTRIES + 1).ok_or(CompressionError)?;
                self.table.get(age).ok_or(CompressionError)
            }
        }
    }

    /// Decodes a field that is not, or not as a whole, in a table.
    fn literal<'a>(
        &mut self,
        block: &'a [u8],
        prefix_bits: u32,
        is_added: bool,
        scratch: &mut Vec<u8>,
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<&'a [u8], CompressionError> {
        scratch.clear();
        let (index, mut rest) = integer::decode(block, prefix_bits)?;
        let name = if index == 0 {
            let (name, behind) = string(rest, scratch)?;
            rest = behind;
            Name::Text(name)
        } else if let Some((name, _)) = static_table::entry(index) {
            Name::Static(name)
        } else {
            let age = index - STATIC_ENTRIES - 1;
            self.table.get(age).ok_or(CompressionError)?;
            Name::Dynamic(age)
        };
        let (value, rest) = string(rest, scratch)?;
        let value = value.of(scratch);
        let text = match name {
            Name::Text(name) => name.of(scratch),
            Name::Static(name) => name,
            Name::Dynamic(age) => self.table.get(age).ok_or(CompressionError)?.0,
        };
        field(text, value);
        if !is_added {
            return Ok(rest);
        }
        let bytes = text.len() + value.len();
        self.may_add = self.may_add.checked_sub(bytes).ok_or(CompressionError)?;
        match name {
            Name::Text(name) => self.table.add(name.of(scratch), value),
            Name::Static(name) => self.table.add(name, value),
            Name::Dynamic(age) => self.table.add_named(age, value),
        }
        Ok(rest)
    }
}

/// Reads a string (RFC 7541 section 5.2). Returns it and the bytes behind it.
fn string<'a>(
    block: &'a [u8],
    scratch: &mut Vec<u8>,
) -> Result<(Text<'a>, &'a [u8]), CompressionError> {
    let is_coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let (length, rest) = integer::decode(block, 7)?;
    let (bytes, rest) = rest.split_at_checked(length).ok_or(CompressionError)?;
    if !is_coded {
        return Ok((Text::Plain(bytes), rest));
    }
    let from = scratch.len();
    huffman::decode(bytes, scratch)?;
    Ok((Text::Decoded(from, scratch.len()), rest))
}

#[cfg(test)]
mod tests;
