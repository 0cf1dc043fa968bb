//! Forms of a column's values in JSON, for descriptions of the API. Outside of STRICT tables a
//! declared type only prefers a storage class (its affinity), so most columns may hold several.
//! Source: SQLite documentation, "Datatypes In SQLite", section 3.

use hotrow_source::field_schema::{FieldSchema, JsonForm};
use hotrow_types::key::KeyType;

use super::{Column, Rowid};

/// Returns the schema of a column. `key`: its type in ids; rows whose key has another type are not
/// served.
pub(super) fn schema(
    column: &Column,
    key: Option<KeyType>,
    is_strict: bool,
    rowid: &Rowid,
) -> FieldSchema {
    let is_rowid = matches!(rowid, Rowid::Column(name) if *name == column.name);
    let form = match key {
        Some(KeyType::Integer) => JsonForm::Integer,
        Some(KeyType::Text(_)) => JsonForm::Text,
        Some(KeyType::Uuid) => JsonForm::Uuid,
        Some(KeyType::Bytes) => JsonForm::Hex,
        // No key of this engine has one of the last three.
        None | Some(KeyType::Unsigned | KeyType::ObjectId | KeyType::Canonical(_)) => {
            if is_rowid {
                JsonForm::Integer
            } else {
                form(&column.declared.to_ascii_uppercase(), is_strict)
            }
        }
    };
    FieldSchema::new(&column.name, form, !(column.not_null || is_rowid || key.is_some()))
}

fn form(declared: &str, is_strict: bool) -> JsonForm {
    if is_strict {
        return match declared {
            "INT" | "INTEGER" => JsonForm::Integer,
            "REAL" => JsonForm::Real,
            "TEXT" => JsonForm::Text,
            "BLOB" => JsonForm::Base64,
            _ => JsonForm::Scalar,
        };
    }
    let has = |part| declared.contains(part);
    // With text affinity numbers become texts; a blob is text here too.
    if !has("INT") && (has("CHAR") || has("CLOB") || has("TEXT")) {
        JsonForm::Text
    } else {
        JsonForm::Scalar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strict_tables_and_text_affinity_promise_a_form() {
        for (declared, strict, form_of) in [
            ("INTEGER", true, JsonForm::Integer),
            ("REAL", true, JsonForm::Real),
            ("BLOB", true, JsonForm::Base64),
            ("ANY", true, JsonForm::Scalar),
            ("INTEGER", false, JsonForm::Scalar),
            ("VARCHAR(9)", false, JsonForm::Text),
            ("CHARINT", false, JsonForm::Scalar),
            ("", false, JsonForm::Scalar),
        ] {
            assert_eq!(form(declared, strict), form_of, "{declared} {strict}");
        }
    }

    #[test]
    fn a_rowid_and_a_key_are_never_null() {
        let column = |declared: &str| Column {
            name: "id".into(),
            declared: declared.into(),
            not_null: false,
            default: None,
        };
        let rowid = Rowid::Column("id".into());
        let id = schema(&column("INTEGER"), None, false, &rowid);
        assert_eq!(id, FieldSchema::new("id", JsonForm::Integer, false));
        let key = schema(&column("BLOB"), Some(KeyType::Uuid), false, &Rowid::None);
        assert_eq!(key, FieldSchema::new("id", JsonForm::Uuid, false));
        let other = schema(&column("BLOB"), None, false, &Rowid::None);
        assert!(other.nullable);
    }
}
