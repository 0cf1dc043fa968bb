//! Rows events: what is in the key columns of each row's images.

use mysql_async::Value;

use super::cursor::Cursor;
use super::table::Layout as ColumnLayout;
use super::{DecodeError, Event, NO_TABLE};

/// What kind of change rows tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Insert,
    Update,
    Delete,
}

/// How a rows event is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    operation: Operation,
    /// Further bytes before the rows (version 2).
    has_extra: bool,
    /// Whether its rows can be read: compressed ones, and parts of JSON, cannot.
    is_readable: bool,
}

/// Rows of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows<'a> {
    /// The number of the table map.
    pub(crate) table: u64,
    /// Whether the statement ends here, and with it the table maps.
    pub(crate) ends_statement: bool,
    /// What happened to the rows.
    pub(crate) operation: Operation,
    is_readable: bool,
    rest: &'a [u8],
}

impl Layout {
    /// The layout of events of this type, none when they are no rows.
    pub(super) fn of(kind: u8) -> Option<Self> {
        use Operation::{Delete, Insert, Update};
        let (operation, has_extra, is_readable) = match kind {
            23 => (Insert, false, true),
            24 => (Update, false, true),
            25 => (Delete, false, true),
            30 => (Insert, true, true),
            31 => (Update, true, true),
            32 => (Delete, true, true),
            // MySQL's PARTIAL_UPDATE_ROWS_EVENT; MariaDB's compressed ones, versions 1 and 2.
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

pub(super) fn decode<'a>(cursor: &mut Cursor<'a>, layout: Layout) -> Result<Event<'a>, DecodeError> {
    const STATEMENT_END: u16 = 1;
    let table = cursor.number(6, "table")?;
    let ends_statement = cursor.u16("flags")? & STATEMENT_END != 0;
    if table == NO_TABLE {
        return Ok(Event::StatementEnd);
    }
    if layout.has_extra {
        let bytes = cursor.u16("extra data")?;
        let beyond_length = usize::from(bytes).checked_sub(2).ok_or(DecodeError::Short("extra data"))?;
        cursor.take(beyond_length, "extra data")?;
    }
    let Layout { operation, is_readable, .. } = layout;
    Ok(Event::Rows(Rows { table, ends_statement, operation, is_readable, rest: cursor.rest() }))
}

/// What a key column holds: an integer, its bits taken for one with a sign; bytes; NULL for what is no key. None where the
/// image lacks the column.
pub(crate) type Cell = Option<Value>;

impl Rows<'_> {
    /// Whether nothing can be told of its rows.
    pub(crate) fn is_unreadable(&self) -> bool {
        !self.is_readable
    }

    /// Gives the key columns of every image to `take`, row after row, of an update's two images first the old one, with
    /// what the new one lacks filled in from the old. `key` are the key columns' places, in the key's order.
    ///
    /// # Errors
    /// When the rows cannot be read, or not to their end: then nothing that was given before counts.
    pub(crate) fn keys(
        &self,
        columns: &[ColumnLayout],
        key: &[usize],
        mut take: impl FnMut(&[Cell]),
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
        let first = cursor.take(bitmap_bytes, "columns that are there")?;
        let is_update = self.operation == Operation::Update;
        let second = if is_update { cursor.take(bitmap_bytes, "columns that are there")? } else { first };
        while !cursor.is_empty() {
            let before_bytes = cursor.rest().len();
            let old = image(&mut cursor, columns, first, key)?;
            take(&old);
            if is_update {
                let new = image(&mut cursor, columns, second, key)?;
                let new: Vec<Cell> = new.into_iter().zip(old).map(|(new, old)| new.or(old)).collect();
                take(&new);
            }
            // A row of nothing would go on for ever.
            if cursor.rest().len() == before_bytes {
                return Err(DecodeError::Short("row"));
            }
        }
        Ok(())
    }
}

/// One image of a row.
fn image(
    cursor: &mut Cursor<'_>,
    columns: &[ColumnLayout],
    present: &[u8],
    key: &[usize],
) -> Result<Vec<Cell>, DecodeError> {
    let is_set = |bits: &[u8], i: usize| bits.get(i / 8).is_some_and(|b| b & (1 << (i % 8)) != 0);
    let there = (0..columns.len()).filter(|i| is_set(present, *i)).count();
    let nulls = cursor.take(there.div_ceil(8), "columns that are NULL")?;
    let mut cells = vec![None; key.len()];
    let present = columns.iter().enumerate().filter(|(i, _)| is_set(present, *i));
    for (nth, (place, column)) in present.enumerate() {
        let raw = if is_set(nulls, nth) { None } else { Some(value(cursor, *column)?) };
        if let Some(slot) = key.iter().position(|k| *k == place) {
            cells[slot] = Some(raw.map_or(Value::NULL, |raw| cell(raw, *column)));
        }
    }
    Ok(cells)
}

/// The bytes of one value.
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

fn cell(raw: &[u8], column: ColumnLayout) -> Value {
    match column {
        ColumnLayout::Integer(_) => {
            let value = raw.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
            // At most 8 bytes: moved up and back, the sign fills what is above them.
            let above = 64 - 8 * raw.len().clamp(1, 8);
            Value::Int((value << above).cast_signed() >> above)
        }
        ColumnLayout::Bytes(_) => Value::Bytes(raw.to_vec()),
        ColumnLayout::Fixed(_) | ColumnLayout::Opaque(_) => Value::NULL,
    }
}
