//! What a collection's table looks like in the database: what to serve, what names a row, what the feed will tell of it.
//!
//! Used at the start, by the schema poll, and by a reader whose statement no longer fits.

mod catalog;
mod keys;
mod types;

use std::collections::BTreeSet;

use hotrow_cache::key::{CollectionId, KeySchema, KeyType};
use mysql_async::{Conn, Error};

use self::catalog::{Cascade, Facts};
use super::json::Scalar;
use super::keys::{KeyStored, Spelling};
use super::server::Identity;
use crate::findings::Finding;
use crate::spec::CollectionSpec;

/// Most names that a message lists.
const NAMES_LISTED_MAX: usize = 20;

/// A collection's table as far as reading and watching it needs to know. Two that are equal are read alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) collection: CollectionId,
    pub(crate) name: TableName,
    /// All columns in the table's order, whether served or not: the order of a row image in the log.
    pub(crate) columns: Vec<Column>,
    /// In the order of the configuration.
    pub(crate) key: Vec<KeyColumn>,
    /// What to serve, in order.
    pub(crate) served: Vec<Served>,
    /// Tables whose changes can change rows here by foreign keys with CASCADE or SET NULL, through however many others;
    /// the log does not tell such rows.
    pub(crate) changed_by: Vec<TableName>,
}

/// A table as the server names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableName {
    /// The database.
    pub(crate) schema: String,
    pub(crate) table: String,
}

/// A column as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `COLUMN_TYPE`, for instance `int(10) unsigned`.
    pub(crate) sql_type: String,
    /// Of a text.
    pub(crate) collation: Option<String>,
}

/// A column of the primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    /// Its place in [`Table::columns`], from 0.
    pub(crate) position: usize,
    /// How the database stores it.
    pub(crate) stored: KeyStored,
    /// How an id names it.
    pub(crate) ty: KeyType,
    pub(crate) spelling: Spelling,
}

/// A column to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) name: String,
    /// What to select.
    pub(crate) select: Select,
    /// How to read what comes.
    pub(crate) scalar: Scalar,
}

/// How a column is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    Plain,
    /// As a number of double precision.
    Double,
    /// A geometry as well-known binary.
    Wkb,
}

/// Why a collection cannot be served: all that is wrong with it.
pub(crate) type Refused = Vec<Finding>;

impl Table {
    pub(crate) fn key_schema(&self) -> KeySchema {
        KeySchema::new(self.collection, self.key.iter().map(|k| k.ty).collect())
    }

    /// Whether equal keys may be spelt in several ways: then only answers under the row's own spelling may be kept.
    pub(crate) fn spelling(&self) -> Spelling {
        if self.key.iter().any(|k| k.spelling == Spelling::Many) { Spelling::Many } else { Spelling::One }
    }
}

impl TableName {
    /// `` `database`.`table` ``
    pub(crate) fn sql(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.table))
    }
}

/// Looks at the tables of all collections. Each is a table, or what keeps it from being served. `database` is that of the
/// connection string.
///
/// # Errors
/// Of the driver: nothing is known then.
pub(crate) async fn tables(
    conn: &mut Conn,
    identity: &Identity,
    database: &str,
    specs: &[CollectionSpec],
) -> Result<Vec<Result<Table, Refused>>, Error> {
    let cascades = catalog::cascades(conn).await?;
    let mut tables = Vec::with_capacity(specs.len());
    for (i, spec) in specs.iter().enumerate() {
        // The configuration allows fewer collections than that.
        tables.push(one(conn, identity, database, CollectionId(i as u16), spec, &cascades).await?);
    }
    Ok(tables)
}

/// Looks at the table of one collection.
///
/// # Errors
/// Of the driver.
pub(crate) async fn table(
    conn: &mut Conn,
    identity: &Identity,
    database: &str,
    collection: CollectionId,
    spec: &CollectionSpec,
) -> Result<Result<Table, Refused>, Error> {
    let cascades = catalog::cascades(conn).await?;
    one(conn, identity, database, collection, spec, &cascades).await
}

async fn one(
    conn: &mut Conn,
    identity: &Identity,
    database: &str,
    collection: CollectionId,
    spec: &CollectionSpec,
    cascades: &[Cascade],
) -> Result<Result<Table, Refused>, Error> {
    let wanted = catalog::table_name(spec, database, identity);
    let facts = match catalog::facts(conn, identity, spec, &wanted).await? {
        Ok(facts) => facts,
        Err(missing) => return Ok(Err(vec![missing])),
    };
    let mut findings = check(spec, &facts);
    // A view has no key; one finding says enough.
    if !findings.is_empty() {
        return Ok(Err(findings));
    }
    let mut note = |result: Result<_, Refused>| result.map_err(|more| findings.extend(more)).ok();
    let key = note(keys::columns(spec, &facts));
    let served = served(spec, &facts, key.as_deref().unwrap_or_default()).map_err(|more| findings.extend(more)).ok();
    findings.extend(catalog::check_privileges(conn, spec, &facts).await?);
    let (Some(key), Some(served), true) = (key, served, findings.is_empty()) else { return Ok(Err(findings)) };
    let column = |c: &catalog::Column| Column {
        name: c.name.clone(),
        sql_type: c.sql_type.clone(),
        collation: c.collation.clone(),
    };
    Ok(Ok(Table {
        collection,
        columns: facts.columns.iter().map(column).collect(),
        key,
        served,
        changed_by: ancestors(&facts.name, cascades),
        name: facts.name,
    }))
}

/// What is wrong with the table itself.
fn check(spec: &CollectionSpec, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut refuse = |what: &str, mend: String| {
        findings.push(Finding::new(format!("collection `{}`: `{}` {what}", spec.name, spec.table), mend));
    };
    let system = ["mysql", "information_schema", "performance_schema", "sys"];
    match facts.kind.as_str() {
        _ if system.contains(&facts.name.schema.to_lowercase().as_str()) => {
            refuse("belongs to the server: its changes are not in the log", "serve a table of your own".into());
        }
        "BASE TABLE" if facts.engine.eq_ignore_ascii_case("innodb") => {}
        "BASE TABLE" => refuse(
            &format!(
                "is kept by the engine {}, which shows changes before they are committed or has no snapshots",
                if facts.engine.is_empty() { "?" } else { &facts.engine }
            ),
            format!("ALTER TABLE {} ENGINE = InnoDB;", facts.name.sql()),
        ),
        "VIEW" => refuse("is a view: the change feed tells nothing of views", "serve the tables behind it".into()),
        "SYSTEM VERSIONED" => refuse(
            "is system-versioned: how its changes are told has not been tried",
            format!("ALTER TABLE {} DROP SYSTEM VERSIONING;", facts.name.sql()),
        ),
        other => refuse(&format!("is a {}", other.to_lowercase()), "serve an ordinary table".into()),
    }
    findings
}

fn served(spec: &CollectionSpec, facts: &Facts, key: &[KeyColumn]) -> Result<Vec<Served>, Refused> {
    let mut findings = Vec::new();
    let mut find = |setting: &str, name: &String| {
        let found = facts.column(name);
        if found.is_none() {
            findings.push(facts.no_column(spec, setting, name));
        }
        found
    };
    let mut chosen: Vec<(usize, &catalog::Column)> = match &spec.columns {
        None => facts.columns.iter().enumerate().filter(|(_, c)| !c.invisible).collect(),
        Some(names) => names.iter().filter_map(|name| find("columns", name)).collect(),
    };
    let excluded: BTreeSet<usize> = spec.exclude.iter().filter_map(|n| find("exclude", n)).map(|(i, _)| i).collect();
    let mut seen = BTreeSet::new();
    chosen.retain(|(i, _)| !excluded.contains(i) && seen.insert(*i));
    if chosen.is_empty() && findings.is_empty() {
        findings.push(Finding::new(
            format!("collection `{}`: `columns` and `exclude` leave no column of `{}` to serve", spec.name, spec.table),
            "name columns that the table has",
        ));
    }
    let mut served = Vec::with_capacity(chosen.len());
    for (i, column) in chosen {
        let Some((select, scalar)) = types::of(column, facts.json.contains(&column.name)) else {
            findings.push(Finding::new(
                format!(
                    "collection `{}`: column `{}` has the type {}, which has no JSON form here",
                    spec.name, column.name, column.sql_type
                ),
                format!("add it to `exclude`: exclude = [\"{}\"]", column.name),
            ));
            continue;
        };
        // A key of bytes is shown as an id names it.
        let scalar = match key.iter().find(|k| k.position == i).map(|k| k.ty) {
            Some(KeyType::Bytes) => Scalar::Hex,
            Some(KeyType::Uuid) if scalar == Scalar::Binary => Scalar::Uuid,
            _ => scalar,
        };
        served.push(Served { name: column.name.clone(), select, scalar });
    }
    if findings.is_empty() { Ok(served) } else { Err(findings) }
}

/// The tables above this one in chains of cascading foreign keys.
fn ancestors(name: &TableName, cascades: &[Cascade]) -> Vec<TableName> {
    let mut found = BTreeSet::new();
    let mut next = vec![name];
    while let Some(child) = next.pop() {
        for cascade in cascades.iter().filter(|c| c.child == *child) {
            if found.insert(cascade.parent.clone()) {
                next.push(&cascade.parent);
            }
        }
    }
    found.into_iter().collect()
}

/// `user@host` as a GRANT wants it.
pub(crate) fn account(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    format!("'{}'@'{}'", name.replace('\'', "''"), host.replace('\'', "''"))
}

/// An identifier in SQL.
pub(crate) fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
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
