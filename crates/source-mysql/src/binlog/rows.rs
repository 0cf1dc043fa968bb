//! Rows events: decodes the key columns of each row image.

use mysql_async::Value;

use super::cursor::{Cursor, DecodeError};
use super::table::Layout as ColumnLayout;

/// Table number of an event without rows, which only ends a statement.
const NO_TABLE: u64 = 0xff_ffff;

/// Kind of change to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Insert,
    Update,
    Delete,
}

/// Layout of a rows event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    operation: Operation,
    /// True if extra data precedes the rows (version 2).
    has_extra: bool,
    /// True if the rows can be decoded: neither compressed nor partial JSON.
    is_readable: bool,
}

/// Rows of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows<'a> {
    /// Number of the table map.
    pub(crate) table: u64,
    /// True if the statement ends here, and its table maps with it.
    pub(crate) ends_statement: bool,
    /// Kind of change.
    pub(crate) operation: Operation,
    is_readable: bool,
    rest: &'a [u8],
}

impl Layout {
    /// Returns the layout of an event type. None if it is no rows event.
    pub(super) fn of(kind: u8) -> Option<Self> {
        use Operation::{Delete, Insert, Update};
        let (operation, has_extra, is_readable) = match kind {
            23 => (Insert, false, true),
            24 => (Update, false, true),
            25 => (Delete, false, true),
            30 => (Insert, true, true),
            31 => (Update, true, true),
            32 => (Delete, true, true),
            // MySQL's PARTIAL_UPDATE_ROWS_EVENT, and MariaDB's compressed events, versions 1 and 2.
            39 | 170 => (Update, true, false),
            166 => (Insert, false, false),
            167 => (Update, false, false),
            168 => (Delete, false, false),
            169 => (Insert, true, false),
            171 => (Delete, true, false),
            _ => return None,
        };
        Some(Self { operation, has_extra, is_readable })
    }
}

/// Decodes the rows of an event; none if it only ends a statement.
pub(super) fn decode<'a>(
    cursor: &mut Cursor<'a>,
    layout: Layout,
) -> Result<Option<Rows<'a>>, DecodeError> {
    const STATEMENT_END: u16 = 1;
    let table = cursor.number(6, "table")?;
    let ends_statement = cursor.u16("flags")? & STATEMENT_END != 0;
    if table == NO_TABLE {
        return Ok(None);
    }
    if layout.has_extra {
        let bytes = cursor.u16("extra data")?;
        let beyond_length =
            usize::from(bytes).checked_sub(2).ok_or(DecodeError::Short("extra data"))?;
        cursor.take(beyond_length, "extra data")?;
    }
    let Layout { operation, is_readable, .. } = layout;
    Ok(Some(Rows { table, ends_statement, operation, is_readable, rest: cursor.rest() }))
}

/// Value of a key column: an integer as signed bits, bytes, or NULL. None if the image lacks the
/// column or the type cannot be in a key.
pub(crate) type Cell = Option<Value>;

impl Rows<'_> {
    /// Returns true if the rows cannot be decoded.
    pub(crate) fn is_unreadable(&self) -> bool {
        !self.is_readable
    }

    /// Calls `visit` with the key columns of each image, row by row. Of an update the old image
    /// comes first, and columns that the new one lacks are filled from the old. `key` has the
    /// indices of the key columns in the key's order.
    ///
    /// # Errors
    /// Fails if the rows cannot be decoded to their end. Previous visits are invalid then.
    pub(crate) fn keys(
        &self,
        columns: &[ColumnLayout],
        key: &[usize],
        mut visit: impl FnMut(&[Cell]),
    ) -> Result<(), DecodeError> {
        if !self.is_readable {
            return Err(DecodeError::Unreadable);
        }
        let mut cursor = Cursor::new(self.rest);
        let count = cursor.packed("number of columns")?;
        if count != columns.len() as u64 {
            return Err(DecodeError::Value { what: "number of columns", value: count });
        }
        let bitmap_bytes = columns.len().div_ceil(8);
        let first = cursor.take(bitmap_bytes, "present columns")?;
        let is_update = self.operation == Operation::Update;
        let second = if is_update { cursor.take(bitmap_bytes, "present columns")? } else { first };
        while !cursor.is_empty() {
            let before_bytes = cursor.rest().len();
            let old = image(&mut cursor, columns, first, key)?;
            visit(&old);
            if is_update {
                let new = image(&mut cursor, columns, second, key)?;
                let new: Vec<Cell> =
                    new.into_iter().zip(old).map(|(new, old)| new.or(old)).collect();
                visit(&new);
            }
            // An empty row would repeat without end.
            if cursor.rest().len() == before_bytes {
                return Err(DecodeError::Short("row"));
            }
        }
        Ok(())
    }
}

/// Decodes one row image.
fn image(
    cursor: &mut Cursor<'_>,
    columns: &[ColumnLayout],
    present: &[u8],
    key: &[usize],
) -> Result<Vec<Cell>, DecodeError> {
    let is_set = |bits: &[u8], i: usize| bits.get(i / 8).is_some_and(|b| b & (1 << (i % 8)) != 0);
    let present_count = (0..columns.len()).filter(|i| is_set(present, *i)).count();
    let nulls = cursor.take(present_count.div_ceil(8), "columns that are NULL")?;
    let mut cells = vec![None; key.len()];
    let present = columns.iter().enumerate().filter(|(i, _)| is_set(present, *i));
    for (nth, (index, column)) in present.enumerate() {
        let raw = if is_set(nulls, nth) { None } else { Some(value(cursor, *column)?) };
        if let Some(slot) = key.iter().position(|k| *k == index) {
            cells[slot] = raw.map_or(Some(Value::NULL), |raw| cell(raw, *column));
        }
    }
    Ok(cells)
}

/// Returns the bytes of one value.
fn value<'a>(cursor: &mut Cursor<'a>, column: ColumnLayout) -> Result<&'a [u8], DecodeError> {
    const WHAT: &str = "value";
    match column {
        ColumnLayout::Integer(bytes) | ColumnLayout::Fixed(bytes) => cursor.take(bytes, WHAT),
        ColumnLayout::Bytes(length_bytes) | ColumnLayout::Opaque(length_bytes) => {
            let bytes = cursor.number(length_bytes, WHAT)?;
            cursor.take(usize::try_from(bytes).map_err(|_| DecodeError::Short(WHAT))?, WHAT)
        }
    }
}

fn cell(raw: &[u8], column: ColumnLayout) -> Cell {
    Some(match column {
        ColumnLayout::Integer(_) => {
            let value = raw.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
            // At most 8 bytes, so shifting up and back extends the sign.
            let shift = 64 - 8 * raw.len().clamp(1, 8);
            Value::Int((value << shift).cast_signed() >> shift)
        }
        ColumnLayout::Bytes(_) => Value::Bytes(raw.to_vec()),
        ColumnLayout::Fixed(_) | ColumnLayout::Opaque(_) => return None,
    })
}
