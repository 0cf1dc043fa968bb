//! What a collection's table looks like in the database: what to serve, what names a row, what the feed will tell of it.
//!
//! Used at the start, by the schema poll, and by a reader whose statement no longer fits.

mod catalog;
mod keys;
mod rules;
mod types;

use hotrow_cache::key::{CollectionId, KeySchema, KeyType};
use tokio_postgres::{Client, Error};

use self::catalog::Facts;
use super::config::CollectionSpec;
use super::error::Finding;
use super::json::{Scalar, Shape};

/// Most names that a message lists.
const NAMES_LISTED_MAX: usize = 20;

/// A collection's table as far as reading and watching it needs to know. Two that are equal are read alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) collection: CollectionId,
    /// Another one after DROP and CREATE.
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) replica_identity: ReplicaIdentity,
    /// All columns in the table's order, whether served or not.
    pub(crate) columns: Vec<Column>,
    /// In the order of the configuration.
    pub(crate) key: Vec<KeyColumn>,
    /// What to serve, in order.
    pub(crate) served: Vec<Served>,
}

/// What kind of table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Partitioned,
}

/// What the feed tells of a row that was changed or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaIdentity {
    /// The collection's key columns, through the primary key or another unique index.
    Key,
    /// The whole old row.
    Full,
}

/// A column as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// `attnum`: stays when the column is renamed.
    pub(crate) number: i16,
    pub(crate) name: String,
    pub(crate) type_oid: u32,
}

/// A key column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    /// `attnum`.
    pub(crate) number: i16,
    /// How an id names it.
    pub(crate) ty: KeyType,
    /// How the database stores it, domains resolved.
    pub(crate) stored: KeyStored,
}

/// The database's types that ids can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStored {
    Int2,
    Int4,
    Int8,
    /// `text` and `varchar`, which compare alike.
    Text,
    Uuid,
    Bytea,
}

/// A column to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) name: String,
    pub(crate) type_oid: u32,
    /// What to select.
    pub(crate) select: Select,
    /// How to read what comes.
    pub(crate) shape: Shape,
}

/// How a column is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    /// As it is, in binary form.
    Plain,
    /// As the server's text, because its binary form is its own affair.
    Text,
    /// An array of such.
    TextArray,
    /// As the server's JSON, because such a type is inside.
    ToJson,
}

/// Why a collection cannot be served: all that is wrong with it.
pub(crate) type Refused = Vec<Finding>;

impl Table {
    pub(crate) fn key_schema(&self) -> KeySchema {
        KeySchema::new(self.collection, self.key.iter().map(|k| k.ty).collect())
    }

    /// `"schema"."table"`.
    pub(crate) fn sql_name(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }
}

/// Looks at the tables of all collections. Each is a table, or what keeps it from being served.
///
/// # Errors
/// Of the driver: nothing is known then.
pub(crate) async fn tables(client: &Client, specs: &[CollectionSpec]) -> Result<Vec<Result<Table, Refused>>, Error> {
    let mut tables = Vec::with_capacity(specs.len());
    for (i, spec) in specs.iter().enumerate() {
        // The configuration allows fewer collections than that.
        tables.push(table(client, CollectionId(i as u16), spec).await?);
    }
    Ok(tables)
}

/// Looks at the table of one collection.
///
/// # Errors
/// Of the driver.
pub(crate) async fn table(
    client: &Client,
    collection: CollectionId,
    spec: &CollectionSpec,
) -> Result<Result<Table, Refused>, Error> {
    let facts = match catalog::facts(client, spec).await? {
        Ok(facts) => facts,
        Err(missing) => return Ok(Err(vec![missing])),
    };
    let types = types::load(client, facts.columns.iter().map(|c| c.type_oid)).await?;
    let mut findings = rules::check(spec, &facts);
    let mut note = |result: Result<_, Refused>| result.map_err(|more| findings.extend(more)).ok();
    let key = note(keys::columns(spec, &facts, &types));
    let chosen = served(spec, &facts).map_err(|more| findings.extend(more)).ok();
    if let Some(key) = &key {
        findings.extend(keys::check_identity(spec, &facts, key));
        findings.extend(rules::check_privileges(spec, &facts, key, chosen.as_deref().unwrap_or_default()));
    }
    let (Some(key), Some(chosen), true) = (key, chosen, findings.is_empty()) else { return Ok(Err(findings)) };
    let served = chosen.into_iter().map(|column| {
        let (select, mut shape) = types.shape(column.type_oid);
        if key.iter().any(|k| k.number == column.number && k.stored == KeyStored::Bytea) {
            shape = Shape::Scalar(Scalar::Hex);
        }
        Served { name: column.name.clone(), type_oid: column.type_oid, select, shape }
    });
    Ok(Ok(Table {
        collection,
        oid: facts.oid,
        schema: facts.schema.clone(),
        name: facts.name.clone(),
        kind: if facts.relkind == 'p' { Kind::Partitioned } else { Kind::Plain },
        replica_identity: if facts.relreplident == 'f' { ReplicaIdentity::Full } else { ReplicaIdentity::Key },
        columns: facts
            .columns
            .iter()
            .map(|c| Column { number: c.number, name: c.name.clone(), type_oid: c.type_oid })
            .collect(),
        served: served.collect(),
        key,
    }))
}

fn served<'a>(spec: &CollectionSpec, facts: &'a Facts) -> Result<Vec<&'a catalog::Column>, Refused> {
    let mut unknown = Vec::new();
    let mut find = |setting: &str, name: &String| {
        let found = facts.column(name);
        if found.is_none() {
            unknown.push(facts.no_column(spec, setting, name));
        }
        found
    };
    let mut chosen: Vec<&catalog::Column> = match &spec.columns {
        None => facts.columns.iter().collect(),
        Some(names) => names.iter().filter_map(|name| find("columns", name)).collect(),
    };
    let excluded: Vec<i16> = spec.exclude.iter().filter_map(|n| find("exclude", n)).map(|c| c.number).collect();
    let mut seen = std::collections::HashSet::new();
    chosen.retain(|c| !excluded.contains(&c.number) && seen.insert(c.number));
    if chosen.is_empty() && unknown.is_empty() {
        unknown.push(Finding::new(
            format!("collection `{}`: `columns` and `exclude` leave no column of `{}` to serve", spec.name, spec.table),
            "name columns that the table has",
        ));
    }
    if unknown.is_empty() { Ok(chosen) } else { Err(unknown) }
}

/// An identifier in SQL.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names for a message, cut off at a bound.
fn listed<S: AsRef<str>>(names: &[S]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    let shown: Vec<String> = names.iter().take(NAMES_LISTED_MAX).map(|n| format!("`{}`", n.as_ref())).collect();
    let more = names.len().saturating_sub(NAMES_LISTED_MAX);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// Findings as one line for a log.
pub(crate) fn told(findings: &[Finding]) -> String {
    findings.iter().map(|f| format!("{} ({})", f.what, f.mend)).collect::<Vec<_>>().join("; ")
}
