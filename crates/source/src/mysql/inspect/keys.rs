//! What names a row: the primary key's columns and their types.

use hotrow_cache::key::{KEY_PARTS_MAX, KeyType};

use super::super::keys::{Charset, KeyStored, Spelling, text_type};
use super::catalog::{Column, Facts};
use super::{KeyColumn, Refused, listed};
use crate::findings::Finding;
use crate::spec::{CollectionSpec, KeyTypeName};

/// The key columns of a collection.
///
/// # Errors
/// All that is wrong with them.
pub(super) fn columns(spec: &CollectionSpec, facts: &Facts) -> Result<Vec<KeyColumn>, Refused> {
    let mut findings = Vec::new();
    let mut key = Vec::new();
    if spec.key.is_empty() || spec.key.len() > KEY_PARTS_MAX {
        let what = format!("collection `{}`: `key` names {} columns", spec.name, spec.key.len());
        findings.push(Finding::new(what, format!("name one to {KEY_PARTS_MAX}")));
    }
    for (i, name) in spec.key.iter().enumerate() {
        let Some((position, column)) = facts.column(name) else {
            findings.push(facts.no_column(spec, "key", name));
            continue;
        };
        match typed(column, spec.key_types.get(i).copied()) {
            Ok((stored, ty, spelling)) => {
                key.push(KeyColumn { name: column.name.clone(), position, stored, ty, spelling });
            }
            Err((why, mend)) => {
                let what = format!("collection `{}`: key column `{name}` of type {} {why}", spec.name, column.sql_type);
                findings.push(Finding::new(what, mend));
            }
        }
    }
    findings.extend(check_primary(spec, facts));
    if findings.is_empty() { Ok(key) } else { Err(findings) }
}

/// The key must be the primary key: only that is in the log for every change, and only by that is a row read cheaply.
fn check_primary(spec: &CollectionSpec, facts: &Facts) -> Option<Finding> {
    let table = facts.name.sql();
    if facts.primary.is_empty() {
        let columns: Vec<String> = spec.key.iter().map(|name| super::quote(name)).collect();
        return Some(Finding::new(
            format!("collection `{}`: table `{}` has no primary key", spec.name, spec.table),
            format!("ALTER TABLE {table} ADD PRIMARY KEY ({});", columns.join(", ")),
        ));
    }
    let primary: Vec<&str> = facts.primary.iter().map(|(name, _)| name.as_str()).collect();
    let lower = |name: &str| name.to_lowercase();
    let mut wanted: Vec<String> = spec.key.iter().map(|name| lower(name)).collect();
    let mut have: Vec<String> = primary.iter().map(|name| lower(name)).collect();
    wanted.sort();
    have.sort();
    if wanted != have {
        return Some(Finding::new(
            format!(
                "collection `{}`: `key` is {}, the primary key of `{}` is {}",
                spec.name,
                listed(&spec.key),
                spec.table,
                listed(&primary)
            ),
            "name the primary key's columns, all of them: what else is unique is not in the log for every change"
                .to_owned(),
        ));
    }
    let prefix = facts.primary.iter().find(|(_, prefix)| *prefix)?;
    Some(Finding::new(
        format!("collection `{}`: the primary key of `{}` has only a prefix of `{}`", spec.name, spec.table, prefix.0),
        "make the whole column part of the key".to_owned(),
    ))
}

type Why = (String, String);

fn typed(column: &Column, wanted: Option<KeyTypeName>) -> Result<(KeyStored, KeyType, Spelling), Why> {
    let stored = stored(column)?;
    let (natural, spelling) = match stored {
        KeyStored::Integer { .. } => (KeyType::Integer, Spelling::One),
        KeyStored::Text { .. } => text_type(column.collation.as_deref().unwrap_or_default()),
        KeyStored::Binary { .. } | KeyStored::VarBinary => (KeyType::Bytes, Spelling::One),
        KeyStored::Uuid => (KeyType::Uuid, Spelling::One),
    };
    let ty = match (wanted, natural) {
        (None, _)
        | (Some(KeyTypeName::Integer), KeyType::Integer)
        | (Some(KeyTypeName::Text), KeyType::Text(_))
        | (Some(KeyTypeName::Bytes), KeyType::Bytes)
        | (Some(KeyTypeName::Uuid), KeyType::Uuid) => natural,
        (Some(KeyTypeName::Uuid), KeyType::Bytes) if stored != (KeyStored::Binary { bytes: 16 }) => {
            return Err(("is no UUID's: that has 16 bytes".into(), "use BINARY(16), or `bytes` in `key_types`".into()));
        }
        (Some(KeyTypeName::Uuid), KeyType::Bytes) => KeyType::Uuid,
        (Some(_), _) => {
            return Err((
                "is not of the kind that `key_types` says".into(),
                "leave `key_types` out, or say `uuid` or `bytes` for a BINARY column".into(),
            ));
        }
    };
    Ok((stored, ty, spelling))
}

fn stored(column: &Column) -> Result<KeyStored, Why> {
    let unsigned = column.sql_type.contains("unsigned") || column.sql_type.contains("zerofill");
    let integer = |bytes| Ok(KeyStored::Integer { bytes, unsigned });
    match column.data_type.as_str() {
        "tinyint" => integer(1),
        "smallint" => integer(2),
        "mediumint" => integer(3),
        "int" => integer(4),
        "bigint" => integer(8),
        "char" | "varchar" => {
            let named = column.charset.as_deref().unwrap_or_default();
            let charset = Charset::named(named).ok_or_else(|| {
                let what = format!("has the character set {named}, which ids cannot be told in");
                (what, "use utf8mb4 (`ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4`)".into())
            })?;
            Ok(KeyStored::Text { charset, padded: column.data_type == "char" })
        }
        // BINARY has at most 255 bytes.
        "binary" => Ok(KeyStored::Binary { bytes: column.length.unwrap_or(1).min(255) as u16 }),
        "varbinary" => Ok(KeyStored::VarBinary),
        "uuid" => Ok(KeyStored::Uuid),
        other => {
            let why = match other {
                "decimal" | "float" | "double" => "can be written in more than one way",
                "date" | "datetime" | "timestamp" | "time" | "year" => {
                    "can be written in more than one way and depends on settings"
                }
                _ => "is not among the types that ids can have",
            };
            Err((why.into(), "use an integer, CHAR, VARCHAR, BINARY, VARBINARY or UUID column as key".into()))
        }
    }
}
