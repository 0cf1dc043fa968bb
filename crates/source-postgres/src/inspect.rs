//! Shape of a collection's table in the database: columns to serve, key, and the feed's old row
//! values. Used at the start, by the schema poll, and by a reader whose statement no longer fits.
//!
//! Reference `databases`: Views of PostgreSQL
//!
//! - accepted: columns, constants, PostgreSQL's own immutable functions and operators, `CASE`,
//!   `coalesce`, `IN` with constants, arrays, `AND`, `OR`, `NOT`, `IS NULL`, `IS DISTINCT FROM`.
//! - refused, with the reason: joins, `DISTINCT`, grouping, set operations, `WITH`, `LIMIT`, `ORDER
//!   BY`, aggregates, windows, subqueries; functions that are not immutable (`now()`, casts through
//!   text) or not PostgreSQL's own; a computed key; system columns; security barriers, row-level
//!   security on the table; rules; views over views ([why](adr/0013-views-over-one-row.md)).

mod catalog;
mod embedded;
mod keys;
mod rules;
mod types;
mod view;

use std::future::poll_fn;
use std::task::Poll;

use hotrow_source::default_key::{self, DefaultKeys};
use hotrow_source::field_schema::FieldSchema;
use hotrow_source::preflight::{Finding, listed};
use hotrow_types::key::{CollectionId, KeySchema, KeyType};
use tokio_postgres::{Client, Error};

use self::catalog::Facts;
pub(crate) use self::catalog::quote;
pub(crate) use self::embedded::{Embedded, note_missing_parents};
use super::config::{CollectionConfig, Follow};
use super::json::{Scalar, Shape};

/// A collection's table as needed for reading and following it. Two equal values are read alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) collection: CollectionId,
    /// Changes with DROP and CREATE.
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) kind: TableKind,
    pub(crate) replica_identity: ReplicaIdentity,
    /// All columns in the table's order, including those not served.
    pub(crate) columns: Vec<Column>,
    /// In the order of the configuration.
    pub(crate) key: Vec<KeyColumn>,
    /// Columns to serve, in order.
    pub(crate) served: Vec<Served>,
    /// The table behind a view; `None` for a table.
    pub(crate) base: Option<Base>,
    /// See [`CollectionConfig`].
    pub(crate) is_alias: bool,
    /// Children inside its records.
    pub(crate) embedded: Vec<Embedded>,
}

/// Table that a view selects from, whose changes are those of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// Its columns, as [`Table::columns`].
    pub(crate) columns: Vec<Column>,
    /// Names that the key's columns have there.
    pub(crate) key: Vec<String>,
}

/// Storage of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKind {
    Plain,
    Partitioned,
}

/// Columns of the old row in the feed's changes and deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaIdentity {
    /// The collection's key columns, by the primary key or another unique index.
    Key,
    /// The whole old row.
    Full,
}

/// A column as described by the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// `attnum`: unchanged when the column is renamed.
    pub(crate) number: i16,
    pub(crate) name: String,
    pub(crate) type_oid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    /// `attnum`.
    pub(crate) number: i16,
    /// Type of the key in an id.
    pub(crate) ty: KeyType,
    /// Type of the column, domains resolved.
    pub(crate) stored: KeyStored,
    /// Name of the stored type in SQL, with its schema.
    pub(crate) sql_type: String,
    /// Labels of an enum; empty for the other types.
    pub(crate) labels: Vec<String>,
}

/// Types of the database that a key can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStored {
    Int2,
    Int4,
    Int8,
    /// `text` and `varchar`, which compare alike.
    Text,
    /// `char(n)`: trailing blanks are ignored.
    Bpchar,
    Uuid,
    Bytea,
    Boolean,
    Numeric,
    Date,
    Timestamp,
    TimestampTz,
    /// An enum: one of its labels.
    Enum,
    /// `citext`, or a text with a nondeterministic collation: equal values may differ in their
    /// bytes.
    Folded,
}

impl KeyStored {
    /// Returns whether different ids may name one row. The feed reports the stored spelling.
    pub(crate) fn has_aliases(self) -> bool {
        self == Self::Folded
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) name: String,
    pub(crate) type_oid: u32,
    /// Form in the SELECT list.
    pub(crate) select: Select,
    /// Layout of the answer's value.
    pub(crate) shape: Shape,
    /// True for the tenant, which stands before the record.
    pub(crate) is_tenant: bool,
    /// Declared NOT NULL.
    pub(crate) not_null: bool,
}

impl Served {
    /// Returns what the catalogue says about the field.
    pub(crate) fn schema(&self) -> FieldSchema {
        FieldSchema::new(&self.name, self.shape.form(), !self.not_null)
    }
}

/// Form of a column in the SELECT list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    /// The column itself, in binary form.
    Plain,
    /// The server's text: the binary form is not known here.
    Text,
    /// An array of such texts.
    TextArray,
    /// The server's JSON: the type contains one whose binary form is not known here.
    ToJson,
}

/// All reasons that a collection cannot be served.
pub(crate) type Refused = Vec<Finding>;

impl Table {
    /// Returns whether different ids may name one row.
    pub(crate) fn has_aliases(&self) -> bool {
        self.key.iter().any(|k| k.stored.has_aliases())
    }

    pub(crate) fn key_schema(&self) -> KeySchema {
        KeySchema::new(self.collection, self.key.iter().map(|k| k.ty).collect())
    }

    /// Returns OID, schema and name of the table whose changes are followed.
    pub(crate) fn followed(&self) -> (u32, &str, &str) {
        match &self.base {
            Some(base) => (base.oid, &base.schema, &base.name),
            None => (self.oid, &self.schema, &self.name),
        }
    }

    /// Returns the names of the key's columns in the followed table.
    pub(crate) fn followed_key(&self) -> Vec<String> {
        match &self.base {
            Some(base) => base.key.clone(),
            None => self.key.iter().map(|k| k.name.clone()).collect(),
        }
    }

    /// Returns `"schema"."table"`.
    pub(crate) fn sql_name(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }
}

/// Whether a table without the account's privileges is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privileges {
    Checked,
    /// They will be granted.
    Assumed,
}

/// Inspects the tables of all collections. Each result is a table, or the reasons that it cannot be
/// served.
///
/// # Errors
/// An error of the driver. Nothing is known then.
pub(crate) async fn tables(
    client: &Client,
    specs: &[CollectionConfig],
    privileges: Privileges,
    follow: Follow,
) -> Result<Vec<Result<Table, Refused>>, Error> {
    // The configuration allows fewer collections than a number of 16 bits has values.
    let numbered = specs.iter().enumerate();
    let inspections =
        numbered.map(|(i, spec)| table(client, CollectionId(i as u16), spec, privileges, follow));
    concurrently(inspections).await.into_iter().collect()
}

/// Looks up the primary keys of tables. What is no table has none; the checks say why.
///
/// # Errors
/// An error of the driver.
pub(crate) async fn default_keys(
    client: &Client,
    specs: &[CollectionConfig],
) -> Result<DefaultKeys, Error> {
    let mut found = DefaultKeys::default();
    let all = concurrently(specs.iter().map(|spec| catalog::facts(client, spec))).await;
    for (spec, facts) in specs.iter().zip(all) {
        let Ok(facts) = facts? else { continue };
        // Without a unique index the checks name that alone.
        if matches!(facts.relkind, 'r' | 'p') && !facts.indexes.is_empty() {
            let primary = facts.indexes.iter().find(|index| index.primary);
            let primary = primary.map(|index| facts.columns_of(index).map(str::to_owned).collect());
            let id = facts.column(default_key::ID).map(|column| column.name.as_str());
            found.note(spec, id, primary.unwrap_or_default());
        }
    }
    Ok(found)
}

/// Runs queries of one connection concurrently: they are sent without waiting for each other's
/// answers. The results are in the order of the queries.
pub(crate) async fn concurrently<T>(
    queries: impl Iterator<Item = impl Future<Output = T>>,
) -> Vec<T> {
    let mut running: Vec<_> = queries.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (query, slot) in running.iter_mut().zip(&mut done).filter(|(_, slot)| slot.is_none()) {
            if let Poll::Ready(answer) = query.as_mut().poll(context) {
                *slot = Some(answer);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Inspects the table of one collection.
///
/// # Errors
/// An error of the driver.
pub(crate) async fn table(
    client: &Client,
    collection: CollectionId,
    spec: &CollectionConfig,
    privileges: Privileges,
    follow: Follow,
) -> Result<Result<Table, Refused>, Error> {
    let facts = match catalog::facts(client, spec).await? {
        Ok(facts) => facts,
        Err(missing) => return Ok(Err(vec![missing])),
    };
    let base = match facts.relkind {
        'v' => match view::base(client, spec, &facts).await? {
            Ok(base) => Some(base),
            Err(findings) => return Ok(Err(findings)),
        },
        _ => None,
    };
    let stored_spec = match &base {
        Some(base) => match base.spec(spec, &facts) {
            Ok(spec) => spec,
            Err(findings) => return Ok(Err(findings)),
        },
        None => spec.clone(),
    };
    // What is said of storage, uniqueness and the feed is said of the table behind a view.
    let stored = base.as_ref().map_or(&facts, |base| &base.facts);
    let columns = facts.columns.iter().chain(&stored.columns);
    let types = types::load(client, columns.map(|c| c.type_oid)).await?;
    let mut findings = rules::check(&stored_spec, stored);
    let mut note = |result: Result<_, Refused>| result.map_err(|more| findings.extend(more)).ok();
    let key = note(keys::columns(&stored_spec, stored, &types));
    let chosen = served(spec, &facts).map_err(|more| findings.extend(more)).ok();
    let key = key.map(|key| {
        findings.extend(keys::check_generated(&stored_spec, stored, &key));
        findings.extend(match spec.is_alias {
            false => keys::check_identity(&stored_spec, stored, &key),
            true => keys::check_alias(&stored_spec, stored, &key),
        });
        match &base {
            Some(_) => named_in_view(key, spec, &facts),
            None => key,
        }
    });
    let of_record = chosen.as_deref().unwrap_or_default();
    findings.extend(rules::check_names(spec, &types, of_record));
    if let (Some(key), Privileges::Checked) = (&key, privileges) {
        findings.extend(rules::check_privileges(spec, &facts, key, of_record));
    }
    // Not those of embedded tables, whose rows would be left out.
    findings.retain(|finding| follow.is_kept_by(finding));
    let parent = key.as_deref().unwrap_or_default();
    let embedded = match embedded::inspect(client, spec, parent, of_record).await? {
        Ok(embedded) => embedded,
        Err(more) => {
            findings.extend(more);
            Vec::new()
        }
    };
    let (Some(key), Some(chosen), true) = (key, chosen, findings.is_empty()) else {
        return Ok(Err(findings));
    };
    let served = chosen.into_iter().enumerate().map(|(i, column)| {
        let mut served = types.served(column);
        if key.iter().any(|k| k.number == column.number && k.stored == KeyStored::Bytea) {
            served.shape = Shape::Scalar(Scalar::Hex);
        }
        served.is_tenant = spec.tenant.is_some() && i == 0;
        served
    });
    Ok(Ok(Table {
        collection,
        oid: facts.oid,
        schema: facts.schema.clone(),
        name: facts.name.clone(),
        kind: if stored.relkind == 'p' { TableKind::Partitioned } else { TableKind::Plain },
        replica_identity: if stored.relreplident == 'f' {
            ReplicaIdentity::Full
        } else {
            ReplicaIdentity::Key
        },
        columns: of_catalog(&facts),
        served: served.collect(),
        key,
        is_alias: spec.is_alias,
        embedded,
        base: base.as_ref().map(|base| Base {
            oid: base.facts.oid,
            schema: base.facts.schema.clone(),
            name: base.facts.name.clone(),
            columns: of_catalog(&base.facts),
            key: stored_spec.key,
        }),
    }))
}

fn of_catalog(facts: &Facts) -> Vec<Column> {
    let column = |c: &catalog::Column| Column {
        number: c.number,
        name: c.name.clone(),
        type_oid: c.type_oid,
    };
    facts.columns.iter().map(column).collect()
}

/// Returns the key of a table as a view names it. The names have been looked up before.
fn named_in_view(mut key: Vec<KeyColumn>, spec: &CollectionConfig, view: &Facts) -> Vec<KeyColumn> {
    for (column, name) in key.iter_mut().zip(&spec.key) {
        if let Some(of_view) = view.column(name) {
            column.name.clone_from(&of_view.name);
            column.number = of_view.number;
        }
    }
    key
}

fn served<'a>(
    spec: &CollectionConfig,
    facts: &'a Facts,
) -> Result<Vec<&'a catalog::Column>, Refused> {
    let (chosen, findings) = spec.chosen_columns(
        facts.columns.iter(),
        |name| facts.column(name),
        |setting, name| facts.no_column(spec, setting, name),
    );
    if findings.is_empty() { Ok(chosen) } else { Err(findings) }
}
