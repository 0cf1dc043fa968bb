//! Key columns of a table, from its primary key or another unique index, and their types.

use hotrow_types::key::{KEY_PARTS_MAX, KeyType};

use super::super::keys::KeyColumn;
use super::super::keys::{Charset, KeyStored, Spelling, text_type};
use super::catalog::{Column, Facts, UniqueIndex};
use super::{Refused, listed};
use hotrow_source::default_key;
use hotrow_source::preflight::Finding;
use hotrow_source::spec::{CollectionConfig, KeyTypeName};

/// Returns the unique index of a collection's key, and its columns in the order of the
/// configuration.
///
/// # Errors
/// All problems of the key.
pub(super) fn columns(
    spec: &CollectionConfig,
    facts: &Facts,
) -> Result<(String, Vec<KeyColumn>), Refused> {
    let mut findings = Vec::new();
    let mut key = Vec::new();
    if spec.key.is_empty() {
        return Err(vec![default_key::none(spec)]);
    }
    if spec.key.len() > KEY_PARTS_MAX {
        let what = format!("collection `{}`: `key` names {} columns", spec.name, spec.key.len());
        findings.push(Finding::new(what, format!("name one to {KEY_PARTS_MAX}")));
    }
    for (i, name) in spec.key.iter().enumerate() {
        let Some((position, column)) = facts.column(name) else {
            findings.push(facts.no_column(spec, "key", name));
            continue;
        };
        match typed(column, position, spec.key_types.get(i).copied()) {
            Ok(column) => key.push(column),
            Err((why, fix)) => {
                let what = format!(
                    "collection `{}`: key column `{name}` of type {} {why}",
                    spec.name, column.sql_type
                );
                findings.push(Finding::new(what, fix));
            }
        }
    }
    let index = unique_index(spec, facts).map_err(|finding| findings.push(finding)).ok();
    match index {
        Some(index) if findings.is_empty() => Ok((index.name.clone(), key)),
        _ => Err(findings),
    }
}

/// Returns the unique index with exactly the key's columns, preferably the primary key. A unique
/// index makes reads cheap and identifies one row.
fn unique_index<'a>(spec: &CollectionConfig, facts: &'a Facts) -> Result<&'a UniqueIndex, Finding> {
    let table = facts.name.sql();
    let columns = spec.key.iter().map(|name| super::quote(name)).collect::<Vec<_>>().join(", ");
    if facts.unique.is_empty() {
        return Err(Finding::new(
            format!("collection `{}`: table `{}` has no primary key", spec.name, spec.table),
            format!("ALTER TABLE {table} ADD PRIMARY KEY ({columns});"),
        ));
    }
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let wanted = sorted(spec.key.iter().map(|name| name.to_lowercase()).collect());
    let is_match = |index: &&UniqueIndex| {
        let columns: Option<Vec<String>> =
            index.columns.iter().map(|c| c.as_ref().map(|c| c.to_lowercase())).collect();
        columns.is_some_and(|columns| sorted(columns) == wanted)
    };
    let matching = || facts.unique.iter().filter(is_match);
    let Some(index) = matching().find(|index| index.is_usable).or_else(|| matching().next()) else {
        let described = facts.unique.iter().map(described).collect::<Vec<_>>().join(", ");
        return Err(Finding::new(
            format!(
                "collection `{}`: `key` is {}, and no unique index of `{}` has just these columns; \
                 it has {described}",
                spec.name,
                listed(&spec.key),
                spec.table
            ),
            format!(
                "name all columns of one of them, or create one:\n\
                 ALTER TABLE {table} ADD UNIQUE ({columns});"
            ),
        ));
    };
    if !index.is_usable {
        let name = super::quote(&index.name);
        return Err(Finding::new(
            format!(
                "collection `{}`: the unique index `{}` of `{}` is INVISIBLE or IGNORED, so no \
                 statement may use it",
                spec.name, index.name, spec.table
            ),
            format!(
                "ALTER TABLE {table} ALTER INDEX {name} VISIBLE;\n\
                 or on MariaDB ALTER TABLE {table} ALTER INDEX {name} NOT IGNORED;"
            ),
        ));
    }
    if index.has_prefix {
        return Err(Finding::new(
            format!(
                "collection `{}`: the unique index `{}` of `{}` has only a prefix of a column",
                spec.name, index.name, spec.table
            ),
            "make the whole column part of the index".to_owned(),
        ));
    }
    Ok(index)
}

/// Describes an index in words: the primary key of `id`.
fn described(index: &UniqueIndex) -> String {
    let columns: Vec<&str> =
        index.columns.iter().map(|c| c.as_deref().unwrap_or("an expression")).collect();
    match index.name.as_str() {
        super::PRIMARY => format!("the primary key {}", listed(&columns)),
        name => format!("`{name}` of {}", listed(&columns)),
    }
}

/// What is wrong with a column, and the remedy.
pub(super) type Problem = (String, String);

/// Returns a column as one of a key.
///
/// # Errors
/// The reason that its values are no keys.
pub(super) fn typed(
    column: &Column,
    position: usize,
    wanted: Option<KeyTypeName>,
) -> Result<KeyColumn, Problem> {
    let stored = stored(column)?;
    let (natural, spelling) = match stored {
        KeyStored::Integer { bytes: 8, unsigned: true } => (KeyType::Unsigned, Spelling::One),
        KeyStored::Integer { .. } => (KeyType::Integer, Spelling::One),
        KeyStored::Text { .. } => text_type(column.collation.as_deref().unwrap_or_default()),
        KeyStored::Binary { .. } | KeyStored::VarBinary => (KeyType::Bytes, Spelling::One),
        KeyStored::Uuid => (KeyType::Uuid, Spelling::One),
    };
    let ty = match (wanted, natural) {
        (None, _)
        | (Some(KeyTypeName::Integer), KeyType::Integer | KeyType::Unsigned)
        | (Some(KeyTypeName::Text), KeyType::Text(_))
        | (Some(KeyTypeName::Bytes), KeyType::Bytes)
        | (Some(KeyTypeName::Uuid), KeyType::Uuid) => natural,
        (Some(KeyTypeName::Uuid), KeyType::Bytes)
            if stored != (KeyStored::Binary { bytes: 16 }) =>
        {
            return Err((
                "cannot hold a UUID, which has 16 bytes".into(),
                "use BINARY(16), or `bytes` in `key_type`".into(),
            ));
        }
        (Some(KeyTypeName::Uuid), KeyType::Bytes) => KeyType::Uuid,
        (Some(_), _) => {
            return Err((
                "does not match its type in `key_type`".into(),
                "omit `key_type`, or set `uuid` or `bytes` for a BINARY column".into(),
            ));
        }
    };
    Ok(KeyColumn { name: column.name.clone(), position, stored, ty, spelling })
}

fn stored(column: &Column) -> Result<KeyStored, Problem> {
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
                let what = format!("has the character set {named}, which is not supported for ids");
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
                _ => "is not among the types of ids",
            };
            Err((
                why.into(),
                "use an integer, CHAR, VARCHAR, BINARY, VARBINARY or UUID column as key".into(),
            ))
        }
    }
}
