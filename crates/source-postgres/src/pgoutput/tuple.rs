//! The columns of a row.

use super::DecodeError;
use super::cursor::Cursor;

/// A row's columns, in the order of its table's [`super::Relation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<'a> {
    columns: &'a [u8],
    count: u16,
}

/// One column's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL, or a column that is not part of the replica identity in an old row.
    Null,
    /// Stored out of line (TOAST) and not changed, so not sent.
    Unchanged,
    /// The text of the type's output function.
    Text(&'a [u8]),
    /// The bytes of the type's send function; sent only on request.
    Binary(&'a [u8]),
}

impl<'a> Tuple<'a> {
    pub(super) fn read(input: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let count = input.u16("the number of columns")?;
        let before = input.rest();
        for _ in 0..count {
            value(input)?;
        }
        // The columns are the bytes consumed by the loop.
        let columns = &before[..before.len() - input.rest().len()];
        Ok(Self { columns, count })
    }

    /// Returns the number of columns.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the values, in order.
    pub fn values(&self) -> Values<'a> {
        Values { rest: Cursor::new(self.columns), left: self.count }
    }
}

/// Iterator over a row's values.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    rest: Cursor<'a>,
    left: u16,
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        // Validated when the message was decoded, so none fails here.
        value(&mut self.rest).ok()
    }
}

fn value<'a>(input: &mut Cursor<'a>) -> Result<Value<'a>, DecodeError> {
    let kind = input.u8("the kind of a value")?;
    match kind {
        b'n' => Ok(Value::Null),
        b'u' => Ok(Value::Unchanged),
        b't' | b'b' => {
            let length = input.length("the length of a value")?;
            let bytes = input.take(length, "a value")?;
            Ok(if kind == b't' { Value::Text(bytes) } else { Value::Binary(bytes) })
        }
        kind => Err(DecodeError::Kind { what: "the value's kind", kind }),
    }
}
