//! Key columns of a table: existence, uniqueness and the type of their ids.

use hotrow_source::default_key::{self, DefaultKeys};
use hotrow_types::key::{Collation, KEY_PARTS_MAX, KeyType};

use super::super::config::{CollectionConfig, KeyTypeName};
use super::super::error::OpenError;
use super::{
    Column, Facts, Filter, Index, IndexColumn, Inspected, KeyColumn, Refused, Relation, Rowid,
    find_relation, listed,
};
use rusqlite::Connection;

/// Returns the key columns as the database spells them.
pub(super) fn columns(spec: &CollectionConfig, facts: &Facts) -> Inspected<Vec<String>> {
    let refuse =
        |detail: String| Err(OpenError::KeyShape { collection: spec.name.clone(), detail }.into());
    if spec.key.is_empty() {
        return Err(OpenError::default_key(&default_key::none(spec)).into());
    }
    let configured = spec.key.len();
    if !(1..=KEY_PARTS_MAX).contains(&configured) {
        return refuse(format!(
            "`key` names {configured} columns; one to {KEY_PARTS_MAX} are possible"
        ));
    }
    let types = spec.key_types.len();
    if types != 0 && types != configured {
        return refuse(format!(
            "`key_type` has {types} entries for {configured} key columns; \
             name one per column, or none"
        ));
    }
    let mut names: Vec<String> = Vec::new();
    for name in &spec.key {
        let column = facts.column_or_refuse(spec, "key", name)?;
        if names.contains(&column.name) {
            return refuse(format!("`key` names column `{name}` twice"));
        }
        names.push(column.name.clone());
    }
    Ok(names)
}

/// Notes the primary key of a table. What is no table has none; the checks say why.
pub(crate) fn note_default(
    conn: &Connection,
    spec: &CollectionConfig,
    found: &mut DefaultKeys,
) -> Inspected<()> {
    let name = match find_relation(conn, spec) {
        Ok(Relation::Table(name)) => name,
        Ok(Relation::View(_)) | Err(Refused::Rule(_)) => return Ok(()),
        Err(e) => return Err(e),
    };
    let primary = conn
        .prepare("SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE pk > 0 ORDER BY pk")?
        .query_map([&name], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    let facts = Facts::read(conn, name)?;
    // Without a unique index the checks name that alone.
    if primary.is_empty() && facts.indexes.is_empty() {
        return Ok(());
    }
    let id = facts.column(default_key::ID).map(|column| column.name.as_str());
    found.note(spec, id, primary);
    Ok(())
}

/// Returns the unique index on exactly the key columns; `None` if the key is the rowid.
pub(super) fn unique_index(
    spec: &CollectionConfig,
    facts: &Facts,
    key: &[String],
) -> Inspected<Option<usize>> {
    if let (Rowid::Column(rowid), [only]) = (&facts.rowid, key)
        && rowid == only
    {
        return Ok(None);
    }
    let fits = |index: &Index| {
        let on_key =
            |c: &IndexColumn| matches!(c, IndexColumn::Column { name, .. } if key.contains(name));
        matches!(index.filter, Filter::None)
            && index.columns.len() == key.len()
            && index.columns.iter().all(on_key)
    };
    let binary = |index: &Index| {
        index
            .columns
            .iter()
            .all(|c| matches!(c, IndexColumn::Column { collation, .. } if collation == "BINARY"))
    };
    // The primary key first, then an index with binary collation: the chosen index also determines
    // how ids compare.
    let candidates = facts.indexes.iter().enumerate().filter(|(_, i)| fits(i));
    let best = candidates.min_by_key(|(_, i)| (!i.primary_key, !binary(i)));
    best.map(|(i, _)| Some(i)).ok_or_else(|| {
        OpenError::KeyNotUnique {
            collection: spec.name.clone(),
            table: spec.table.clone(),
            key: key.join(", "),
            have: unique_sets(facts),
        }
        .into()
    })
}

fn unique_sets(facts: &Facts) -> String {
    let mut sets = Vec::new();
    if let Rowid::Column(name) = &facts.rowid {
        sets.push(name.clone());
    }
    for index in facts.indexes.iter().filter(|i| matches!(i.filter, Filter::None)) {
        let names = index.columns.iter().map(|c| match c {
            IndexColumn::Column { name, .. } => name.as_str(),
            IndexColumn::Rowid => "rowid",
            IndexColumn::Expression => "an expression",
        });
        sets.push(names.collect::<Vec<_>>().join(", "));
    }
    listed(&sets)
}

/// Returns the key columns with their types. The collation of a text is that of its unique index.
pub(super) fn typed(
    spec: &CollectionConfig,
    facts: &Facts,
    key: &[String],
    index: Option<usize>,
) -> Inspected<Vec<KeyColumn>> {
    let index = index.and_then(|i| facts.indexes.get(i));
    let mut typed = Vec::new();
    for (i, name) in key.iter().enumerate() {
        let column = facts.column_or_refuse(spec, "key", name)?;
        let affinity = Affinity::of(&column.declared, facts.strict);
        let configured = spec.key_types.get(i).copied();
        let rowid = matches!(&facts.rowid, Rowid::Column(rowid) if rowid == name);
        let plain = holds_no_bytes(column, rowid, facts.strict, configured)
            .map_or_else(|| plain_type(affinity, configured), Err);
        let plain = plain.map_err(|rule| wrong_type(spec, column, rule))?;
        let ty = match plain {
            KeyTypeName::Integer => KeyType::Integer,
            KeyTypeName::Uuid => KeyType::Uuid,
            KeyTypeName::ObjectId => KeyType::ObjectId,
            KeyTypeName::Bytes => KeyType::Bytes,
            KeyTypeName::Text => KeyType::Text(collation(spec, name, index)?),
        };
        typed.push(KeyColumn { name: name.clone(), ty });
    }
    Ok(typed)
}

fn wrong_type(spec: &CollectionConfig, column: &Column, rule: &'static str) -> OpenError {
    OpenError::KeyType {
        collection: spec.name.clone(),
        column: column.name.clone(),
        declared: column.declared.clone(),
        rule,
    }
}

fn collation(spec: &CollectionConfig, column: &str, index: Option<&Index>) -> Inspected<Collation> {
    let of_column = index.into_iter().flat_map(|i| &i.columns).find_map(|c| match c {
        IndexColumn::Column { name, collation } if name == column => Some(collation.as_str()),
        _ => None,
    });
    match of_column.unwrap_or("BINARY").to_ascii_uppercase().as_str() {
        "BINARY" => Ok(Collation::Binary),
        "NOCASE" => Ok(Collation::NoCaseAscii),
        "RTRIM" => Ok(Collation::RightTrim),
        other => Err(OpenError::CustomCollation {
            collection: spec.name.clone(),
            column: column.into(),
            collation: other.into(),
        }
        .into()),
    }
}

/// Conversion that SQLite applies to a value stored in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Affinity {
    Integer,
    Text,
    /// Also called none: values stay as they are.
    Blob,
    Real,
    Numeric,
}

impl Affinity {
    /// Source: SQLite documentation, "Datatypes In SQLite", section 3.1; for `ANY` "STRICT Tables".
    fn of(declared: &str, strict: bool) -> Self {
        let upper = declared.to_ascii_uppercase();
        let has = |part: &str| upper.contains(part);
        match () {
            () if strict && upper == "ANY" => Self::Blob,
            () if has("INT") => Self::Integer,
            () if has("CHAR") || has("CLOB") || has("TEXT") => Self::Text,
            () if has("BLOB") || upper.is_empty() => Self::Blob,
            () if has("REAL") || has("FLOA") || has("DOUB") => Self::Real,
            () => Self::Numeric,
        }
    }
}

/// Returns the reason why the column can never hold a BLOB, if `configured` is a BLOB type.
fn holds_no_bytes(
    column: &Column,
    rowid: bool,
    strict: bool,
    configured: Option<KeyTypeName>,
) -> Option<&'static str> {
    let upper = column.declared.to_ascii_uppercase();
    match configured {
        Some(KeyTypeName::Uuid | KeyTypeName::Bytes) if rowid => {
            Some("an INTEGER PRIMARY KEY holds integers alone")
        }
        Some(KeyTypeName::Uuid | KeyTypeName::Bytes)
            if strict && upper != "ANY" && upper != "BLOB" =>
        {
            Some("a column of this type in a STRICT table holds no BLOBs")
        }
        _ => None,
    }
}

/// Returns the id type of a column, or the rule that forbids it.
///
/// Invariant: an id bound as this type finds a row exactly when the row's stored value makes the
/// same key. Affinity converts numbers and texts into each other, so a text id is safe only if
/// texts stay texts. BLOBs are never converted, so they are always safe.
fn plain_type(
    affinity: Affinity,
    configured: Option<KeyTypeName>,
) -> Result<KeyTypeName, &'static str> {
    use {Affinity as A, KeyTypeName as K};
    match (affinity, configured) {
        (A::Integer, None | Some(K::Integer)) | (A::Numeric | A::Blob, Some(K::Integer)) => {
            Ok(K::Integer)
        }
        (A::Text, None | Some(K::Text)) | (A::Blob, Some(K::Text)) => Ok(K::Text),
        (_, Some(K::Uuid)) => Ok(K::Uuid),
        (_, Some(K::Bytes)) => Ok(K::Bytes),
        (_, Some(K::ObjectId)) => {
            Err("only MongoDB has ObjectIds; 12 bytes are an id of the type \"bytes\"")
        }
        (A::Blob, None) => {
            Err("its values can be of any type; say which with `key_type` (\"uuid\", \"bytes\", \
                 \"integer\" or \"text\")")
        }
        (A::Numeric, None) => {
            Err("SQLite stores numbers or texts there, depending on the value; if all keys are \
                 integers set `key_type = [\"integer\"]`, if they are BLOBs \"uuid\" or \"bytes\"")
        }
        (A::Real, _) => Err("a floating-point number has no one spelling, so it cannot be an id"),
        (A::Integer | A::Numeric, Some(K::Text)) => {
            Err("SQLite turns texts that look like numbers into numbers there, \
                 so it cannot be a text id")
        }
        (A::Text, Some(K::Integer)) => {
            Err("SQLite stores texts there, so it cannot be an integer id; leave `key_type` out")
        }
    }
}
