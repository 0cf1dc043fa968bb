//! Rows as JSON, written directly into bytes.

use hotrow_types::key::KeyType;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::inspect::Served;
use hotrow_source::json::{
    NotWritten, make_room, push_hex, write_base64, write_real, write_text, write_uuid,
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
        let mut label = Vec::new();
        write_text(&mut label, column.name.as_bytes());
        label.push(b':');
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
        Self { label: label.into(), blob }
    }
}

/// Writes the columns from `first` on as one object.
///
/// # Errors
/// Returns [`NotWritten`]. An error of the driver means that the statement does not have these
/// columns.
pub(crate) fn row(
    fields: &[Field],
    row: &Row<'_>,
    first: usize,
) -> rusqlite::Result<Result<Vec<u8>, NotWritten>> {
    let mut out = Vec::with_capacity(256);
    out.push(b'{');
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&field.label);
        let value = row.get_ref(first + i)?;
        let bytes = match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        };
        // Before writing, so that a huge value is not even copied; JSON is never shorter than the
        // value.
        if out.len() + bytes > BODY_BYTES_MAX {
            return Ok(Err(NotWritten::TooLarge));
        }
        if let Err(no_memory) = make_room(&mut out, bytes) {
            return Ok(Err(no_memory));
        }
        write_value(&mut out, value, field.blob);
    }
    out.push(b'}');
    // All records of a query are held until the first is taken over.
    out.shrink_to_fit();
    Ok(if out.len() > BODY_BYTES_MAX { Err(NotWritten::TooLarge) } else { Ok(out) })
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
