//! Table maps: the table of rows and the layouts of its columns.

use super::cursor::{Cursor, DecodeError};

/// Description of a table in the log before its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableMap<'a> {
    /// Number of the table in rows events, until the statement's end.
    pub(crate) id: u64,
    /// Database of the table.
    pub(crate) database: &'a [u8],
    /// Name of the table.
    pub(crate) name: &'a [u8],
    types: &'a [u8],
    metadata: &'a [u8],
    optional: &'a [u8],
}

/// Layout of a column's values in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Integer of this many bytes.
    Integer(usize),
    /// Length field of this many bytes, then a text or bytes without the padding of CHAR and
    /// BINARY.
    Bytes(usize),
    /// This many bytes, of a type that no key has.
    Fixed(usize),
    /// As [`Layout::Bytes`], of a type that no key has.
    Opaque(usize),
}

impl<'a> TableMap<'a> {
    pub(super) fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let id = cursor.number(6, "table")?;
        cursor.u16("flags")?;
        let mut name = |what| {
            let bytes = cursor.u8(what)?;
            let name = cursor.take(usize::from(bytes), what)?;
            cursor.u8(what).map(|_| name)
        };
        let database = name("database")?;
        let name = name("table")?;
        let types = cursor.packed_bytes("column types")?;
        let metadata = cursor.packed_bytes("column metadata")?;
        cursor.take(types.len().div_ceil(8), "columns that may be NULL")?;
        Ok(Self { id, database, name, types, metadata, optional: cursor.rest() })
    }

    /// Returns the columns in the order of the rows.
    ///
    /// # Errors
    /// Fails on an unknown type and on a truncated description.
    pub(crate) fn columns(&self) -> Result<Vec<Layout>, DecodeError> {
        let mut metadata = Cursor::new(self.metadata);
        self.types.iter().map(|ty| layout(*ty, &mut metadata)).collect()
    }

    /// Returns the columns' names in the order of the rows. None if the log lacks them
    /// (`binlog_row_metadata`).
    ///
    /// # Errors
    /// Fails on a truncated list.
    pub(crate) fn names(&self) -> Result<Option<Vec<&'a [u8]>>, DecodeError> {
        /// Source: MySQL's `Table_map_event::Optional_metadata_field_type`.
        const COLUMN_NAME: u8 = 4;
        let mut fields = Cursor::new(self.optional);
        while !fields.is_empty() {
            let kind = fields.u8("field")?;
            let list = fields.packed_bytes("field")?;
            if kind == COLUMN_NAME {
                let mut list = Cursor::new(list);
                let names = self.types.iter().map(|_| list.packed_bytes("column's name"));
                return names.collect::<Result<_, _>>().map(Some);
            }
        }
        Ok(None)
    }

    /// Returns everything but the number. Tables with equal shapes have the same layout.
    pub(crate) fn shape(&self) -> Vec<u8> {
        [self.types, self.metadata, self.optional].concat()
    }
}

/// Returns a column's layout by its type and metadata. Source: MySQL's `Table_map_event`, the table
/// of column types. 140 and 141 are MariaDB's compressed columns.
fn layout(ty: u8, metadata: &mut Cursor<'_>) -> Result<Layout, DecodeError> {
    const METADATA: &str = "column metadata";
    // Each two digits of a fraction take one further byte.
    let with_fraction = |metadata: &mut Cursor<'_>, bytes: usize| {
        metadata.u8(METADATA).map(|digits| Layout::Fixed(bytes + usize::from(digits.div_ceil(2))))
    };
    Ok(match ty {
        1 => Layout::Integer(1),
        2 => Layout::Integer(2),
        3 => Layout::Integer(4),
        8 => Layout::Integer(8),
        9 => Layout::Integer(3),
        // FLOAT and DOUBLE contain their length.
        4 | 5 => Layout::Fixed(usize::from(metadata.u8(METADATA)?)),
        6 => Layout::Fixed(0),
        // YEAR; DATE, TIME, TIMESTAMP, DATETIME in the forms before fractions.
        13 => Layout::Fixed(1),
        10 | 11 | 14 => Layout::Fixed(3),
        7 => Layout::Fixed(4),
        12 => Layout::Fixed(8),
        17 => with_fraction(metadata, 4)?,
        18 => with_fraction(metadata, 5)?,
        19 => with_fraction(metadata, 3)?,
        // VARCHAR and VARBINARY; the same, compressed.
        15 => Layout::Bytes(length_of(usize::from(metadata.u16(METADATA)?))),
        141 => Layout::Opaque(length_of(usize::from(metadata.u16(METADATA)?))),
        16 => {
            let bits = metadata.u8(METADATA)?;
            let bytes = metadata.u8(METADATA)?;
            Layout::Fixed(usize::from(bytes) + usize::from(bits > 0))
        }
        246 => decimal(metadata.u8(METADATA)?, metadata.u8(METADATA)?)?,
        254 => string(metadata.u8(METADATA)?, metadata.u8(METADATA)?),
        252 => Layout::Bytes(length_bytes(metadata.u8(METADATA)?)?),
        // MySQL's JSON and vectors, geometry, MariaDB's compressed BLOB.
        245 | 242 | 255 | 140 => Layout::Opaque(length_bytes(metadata.u8(METADATA)?)?),
        other => return Err(DecodeError::Value { what: "column type", value: u64::from(other) }),
    })
}

/// CHAR, BINARY, ENUM and SET: the first byte is the real type and contains, inverted, two bits of
/// the length.
fn string(first: u8, second: u8) -> Layout {
    const ENUM: u8 = 247;
    const SET: u8 = 248;
    match first {
        ENUM | SET => Layout::Fixed(usize::from(second)),
        _ => {
            Layout::Bytes(length_of(usize::from((first & 0x30) ^ 0x30) << 4 | usize::from(second)))
        }
    }
}

/// Returns the bytes of the length field of a value of at most `bytes_max` bytes.
fn length_of(bytes_max: usize) -> usize {
    if bytes_max > 255 { 2 } else { 1 }
}

fn length_bytes(metadata: u8) -> Result<usize, DecodeError> {
    match metadata {
        1..=4 => Ok(usize::from(metadata)),
        _ => Err(DecodeError::Value { what: "length of a length", value: u64::from(metadata) }),
    }
}

/// Nine digits take four bytes and the rest as few as needed, separately before and after the
/// point. Source: MySQL's strings/decimal.cc, `decimal_bin_size`.
fn decimal(digits: u8, scale: u8) -> Result<Layout, DecodeError> {
    const BYTES: [usize; 9] = [0, 1, 1, 2, 2, 3, 3, 4, 4];
    let whole = digits
        .checked_sub(scale)
        .ok_or(DecodeError::Value { what: "scale", value: u64::from(scale) })?;
    let part = |digits: u8| usize::from(digits / 9) * 4 + BYTES[usize::from(digits % 9)];
    Ok(Layout::Fixed(part(whole) + part(scale)))
}
