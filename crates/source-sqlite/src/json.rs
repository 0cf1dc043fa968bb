//! Rows as JSON, written directly into bytes.
//!
//! Reference `databases`: Values of SQLite
//!
//! Generated columns are served. A record above 16 MiB of JSON is not.
//!
//! - INTEGER: number; JavaScript may round beyond 2⁵³.
//! - REAL: shortest exact number, with point or exponent (`1.0`); `"Infinity"`, `"-Infinity"`.
//! - TEXT: string; invalid UTF-8 becomes U+FFFD.
//! - BLOB: base64 with padding; in a key `uuid` or `bytes` as in its id.

use hotrow_types::key::KeyType;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::inspect::Served;
use hotrow_source::json::{
    self, BEFORE_OBJECT, JsonError, label, make_room, push_hex, write_base64, write_real,
    write_text, write_uuid,
};

pub use hotrow_source::json::BODY_BYTES_MAX;

/// Column with its precomputed JSON label.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// `"name":`, escaped once.
    label: Box<[u8]>,
    blob: BlobForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlobForm {
    Base64,
    /// Key columns are served in the form in which an id names them.
    Uuid,
    Hex,
}

impl Field {
    pub(crate) fn new(column: &Served) -> Self {
        let blob = match column.key {
            Some(KeyType::Uuid) => BlobForm::Uuid,
            Some(KeyType::Bytes) => BlobForm::Hex,
            Some(
                KeyType::Integer
                | KeyType::Unsigned
                | KeyType::Text(_)
                | KeyType::ObjectId
                | KeyType::Canonical(_),
            )
            | None => BlobForm::Base64,
        };
        let label = if column.is_tenant { BEFORE_OBJECT.into() } else { label(&column.name) };
        Self { label, blob }
    }
}

/// Writes the columns from `first` on as one object.
///
/// # Errors
/// See [`JsonError`]; `Shape` means that the statement does not have these columns.
pub(crate) fn row(fields: &[Field], row: &Row<'_>, first: usize) -> Result<Vec<u8>, JsonError> {
    json::object(fields.iter().map(|field| &*field.label), |out, i| {
        let value = row.get_ref(first + i).map_err(|_| JsonError::Shape)?;
        let bytes = match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        };
        make_room(out, bytes)?;
        write_value(out, value, fields[i].blob);
        Ok(())
    })
}

fn write_value(out: &mut Vec<u8>, value: ValueRef<'_>, blob: BlobForm) {
    match (value, blob) {
        (ValueRef::Null, _) => out.extend_from_slice(b"null"),
        (ValueRef::Integer(i), _) => {
            out.extend_from_slice(itoa::Buffer::new().format(i).as_bytes())
        }
        (ValueRef::Real(r), _) => write_real(out, r),
        (ValueRef::Text(bytes), _) => write_text(out, bytes),
        (ValueRef::Blob(bytes), BlobForm::Uuid) if bytes.len() == 16 => write_uuid(out, bytes),
        (ValueRef::Blob(bytes), BlobForm::Hex) => {
            out.push(b'"');
            bytes.iter().for_each(|b| push_hex(out, *b));
            out.push(b'"');
        }
        (ValueRef::Blob(bytes), _) => write_base64(out, bytes),
    }
}

#[cfg(test)]
mod tests;
