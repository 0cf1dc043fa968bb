//! Inspection of a collection's table: its served columns, its key, and the tables that change it
//! by foreign keys.
//!
//! It runs at the start, with the schema poll, and in a reader whose statement no longer fits.
//!
//! Reference `databases`: Views of MySQL and MariaDB
//!
//! - accepted: columns, numbers, texts without quotes and backslashes; `=`, `<>`, `<`, `<=`, `>`,
//!   `>=`, `<=>`, `+`, `-`, `*`; `AND`, `OR`, `NOT`, `IS [NOT] NULL`, `IS TRUE`, `IN (…)`,
//!   `BETWEEN`, `CASE`; `abs`, `coalesce`, `if`, `ifnull`, `lower`, `nullif`, `upper`. TIME, YEAR,
//!   BINARY, JSON and the like only as they are, not in an expression.
//! - refused, with its place in the text: everything else: joins, subqueries, grouping, `DISTINCT`,
//!   `ORDER BY`, `LIMIT`, other functions, `/`, `LIKE`, views over views, `ALGORITHM = TEMPTABLE`
//!   ([why](adr/0027-views-by-their-text.md)).

mod catalog;
mod embedded;
mod foreign_keys;
mod keys;
mod names;
mod view;

pub(crate) use self::embedded::Embedded;
pub(crate) use self::foreign_keys::Ancestor;
pub(crate) use self::names::{TableName, account, current_user, quote, text};
pub(crate) use self::view::View;

use hotrow_source::default_key::{self, DefaultKeys};
use hotrow_source::field_schema::{FieldSchema, JsonForm};
use hotrow_source::preflight::{Finding, listed};
use hotrow_source::spec::CollectionConfig;
use hotrow_types::key::{CollectionId, KeySchema, KeyType};
use mysql_async::{Conn, Error};

use self::catalog::Facts;
use self::foreign_keys::ForeignKeys;
use super::json::Scalar;
use super::keys::{KeyColumn, Spelling};
use super::server::Identity;

/// Name of the primary key's index.
pub(crate) const PRIMARY: &str = "PRIMARY";

/// Table of a collection, as needed for reads and the feed. Equal tables are read alike. Behind a
/// view it is the table whose changes are those of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) collection: CollectionId,
    pub(crate) name: TableName,
    /// All columns in the table's order, served or not. Row images in the log have the same order.
    pub(crate) columns: Vec<Column>,
    /// Key columns in the order of the configuration.
    pub(crate) key: Vec<KeyColumn>,
    /// Served columns in order.
    pub(crate) served: Vec<Served>,
    /// Unique index of the key: `PRIMARY` or the name of another one.
    pub(crate) index: String,
    /// Tables whose changes can change rows here by foreign keys with CASCADE or SET NULL, directly
    /// or indirectly. Only on MySQL where InnoDB applies them, so that the log has no rows of it.
    pub(crate) changed_by: Vec<Ancestor>,
    /// True if the table has or may have foreign keys. They may change rows that the log does not
    /// contain.
    pub(crate) has_foreign_keys: bool,
    /// View through which its rows are read.
    pub(crate) view: Option<View>,
    /// Tables whose rows are inside its records. None for a table that is itself embedded.
    pub(crate) embedded: Vec<Embedded>,
}

/// Column of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `COLUMN_TYPE`, for instance `int(10) unsigned`.
    pub(crate) sql_type: String,
    /// Collation of a text column.
    pub(crate) collation: Option<String>,
}

/// Served column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) name: String,
    /// Expression to select.
    pub(crate) select: Select,
    /// Parser of the selected value.
    pub(crate) scalar: Scalar,
    /// True for the tenant, which stands before the record.
    pub(crate) is_tenant: bool,
    /// Declared NOT NULL.
    pub(crate) not_null: bool,
    /// Values of an ENUM; empty for other types.
    pub(crate) choices: Vec<String>,
}

impl Served {
    /// Returns what the catalogue says about the field.
    pub(crate) fn schema(&self) -> FieldSchema {
        let form = match &self.choices[..] {
            [] => self.scalar.form(),
            choices => JsonForm::Choice(choices.to_vec()),
        };
        FieldSchema::new(&self.name, form, !self.not_null)
    }
}

/// Form in which a column is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    Plain,
    /// As a number of double precision.
    Double,
    /// A geometry as well-known binary.
    Wkb,
}

/// Every reason that a collection cannot be served.
pub(crate) type Refused = Vec<Finding>;

impl Table {
    pub(crate) fn key_schema(&self) -> KeySchema {
        KeySchema::new(self.collection, self.key.iter().map(|k| k.ty).collect())
    }

    /// Returns the tables whose changes are changes of the records: this one, then the embedded
    /// ones, whose keys are the columns that refer to it.
    pub(crate) fn followed(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.embedded.iter().map(|child| &child.table))
    }

    /// Returns [`Spelling::Many`] if equal keys may have several spellings. Then only an answer for
    /// the row's own spelling may be cached.
    pub(crate) fn spelling(&self) -> Spelling {
        if self.key.iter().any(|k| k.spelling == Spelling::Many) {
            Spelling::Many
        } else {
            Spelling::One
        }
    }
}

/// Inspects the tables of all collections. Each result is a table or the reasons that it cannot be
/// served. `database` is that of the connection string.
///
/// # Errors
/// Errors of the driver. Nothing is known then.
pub(crate) async fn tables(
    conn: &mut Conn,
    identity: &Identity,
    database: &str,
    specs: &[CollectionConfig],
) -> Result<Vec<Result<Table, Refused>>, Error> {
    let foreign_keys = ForeignKeys::read(conn, identity).await?;
    let mut tables = Vec::with_capacity(specs.len());
    for (i, spec) in specs.iter().enumerate() {
        // The configuration allows fewer collections than 2^16.
        tables.push(
            one(conn, identity, database, CollectionId(i as u16), spec, &foreign_keys).await?,
        );
    }
    Ok(tables)
}

/// Looks up the primary keys of tables. What is no table has none; the checks say why.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn default_keys(
    conn: &mut Conn,
    identity: &Identity,
    database: &str,
    specs: &[CollectionConfig],
) -> Result<DefaultKeys, Error> {
    let mut found = DefaultKeys::default();
    for spec in specs {
        let wanted = catalog::table_name(spec, database, identity);
        let Ok(facts) = catalog::facts(conn, identity, spec, &wanted).await? else { continue };
        // Without a unique index the checks name that alone.
        if facts.kind != "VIEW" && !facts.unique.is_empty() {
            let primary = facts.unique.iter().find(|index| index.name == PRIMARY);
            let primary = primary.map(|index| index.columns.iter().flatten().cloned().collect());
            let id = facts.column(default_key::ID).map(|(_, column)| column.name.as_str());
            found.note(spec, id, primary.unwrap_or_default());
        }
    }
    Ok(found)
}

/// Inspects the table of one collection.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn table(
    conn: &mut Conn,
    identity: &Identity,
    database: &str,
    collection: CollectionId,
    spec: &CollectionConfig,
) -> Result<Result<Table, Refused>, Error> {
    let foreign_keys = ForeignKeys::read(conn, identity).await?;
    one(conn, identity, database, collection, spec, &foreign_keys).await
}

async fn one(
    conn: &mut Conn,
    identity: &Identity,
    database: &str,
    collection: CollectionId,
    spec: &CollectionConfig,
    foreign_keys: &ForeignKeys,
) -> Result<Result<Table, Refused>, Error> {
    let wanted = catalog::table_name(spec, database, identity);
    let facts = match catalog::facts(conn, identity, spec, &wanted).await? {
        Ok(facts) => facts,
        Err(missing) => return Ok(Err(vec![missing])),
    };
    let mut findings = check(spec, &facts);
    // Further findings such as a missing key would be noise.
    if !findings.is_empty() {
        return Ok(Err(findings));
    }
    if facts.kind == "VIEW" {
        return view::inspect(conn, identity, collection, spec, facts, foreign_keys).await;
    }
    let mut note = |result: Result<_, Refused>| result.map_err(|more| findings.extend(more)).ok();
    let key = note(keys::columns(spec, &facts));
    let served = served(spec, &facts, key.as_ref().map_or(&[], |(_, key)| key))
        .map_err(|more| findings.extend(more))
        .ok();
    findings.extend(catalog::check_privileges(conn, spec, &facts).await?);
    findings.extend(foreign_keys::check(conn, spec, &facts.name, foreign_keys).await?);
    let (Some((index, key)), Some(served), true) = (key, served, findings.is_empty()) else {
        return Ok(Err(findings));
    };
    let mut table = of_catalog(collection, facts, foreign_keys, index, key, served);
    let context = embedded::InspectionContext { identity, database, foreign_keys };
    match embedded::inspect(conn, context, spec, &table).await? {
        Ok(embedded) => table.embedded = embedded,
        Err(findings) => return Ok(Err(findings)),
    }
    Ok(Ok(table))
}

/// Returns a table without embedded ones.
fn of_catalog(
    collection: CollectionId,
    facts: Facts,
    foreign_keys: &ForeignKeys,
    index: String,
    key: Vec<KeyColumn>,
    served: Vec<Served>,
) -> Table {
    let column =
        |c: catalog::Column| Column { name: c.name, sql_type: c.sql_type, collation: c.collation };
    Table {
        collection,
        columns: facts.columns.into_iter().map(column).collect(),
        key,
        served,
        index,
        changed_by: foreign_keys.ancestors(&facts.name),
        has_foreign_keys: facts.has_foreign_keys,
        name: facts.name,
        view: None,
        embedded: Vec::new(),
    }
}

/// Returns the findings about the table itself.
fn check(spec: &CollectionConfig, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut refuse = |what: &str, fix: String| {
        findings.push(Finding::new(
            format!("collection `{}`: `{}` {what}", spec.name, spec.table),
            fix,
        ));
    };
    let system = ["mysql", "information_schema", "performance_schema", "sys"];
    match facts.kind.as_str() {
        _ if system.contains(&facts.name.schema.to_lowercase().as_str()) => {
            refuse(
                "belongs to the server: its changes are not in the log",
                "serve a table of your own".into(),
            );
        }
        "BASE TABLE" if facts.engine.eq_ignore_ascii_case("innodb") => {}
        "BASE TABLE" => refuse(
            &format!(
                "is kept by the engine {}, which shows uncommitted changes or has no snapshots",
                if facts.engine.is_empty() { "?" } else { &facts.engine }
            ),
            format!("ALTER TABLE {} ENGINE = InnoDB;", facts.name.sql()),
        ),
        // Its table is checked.
        "VIEW" => {}
        "SYSTEM VERSIONED" => refuse(
            "is system-versioned, which the change feed does not support",
            format!("ALTER TABLE {} DROP SYSTEM VERSIONING;", facts.name.sql()),
        ),
        other => {
            refuse(&format!("is a {}", other.to_lowercase()), "serve an ordinary table".into())
        }
    }
    findings
}

fn served(
    spec: &CollectionConfig,
    facts: &Facts,
    key: &[KeyColumn],
) -> Result<Vec<Served>, Refused> {
    let (chosen, mut findings) = spec.chosen_columns(
        facts.columns.iter().filter(|column| !column.invisible),
        |name| facts.column(name).map(|(_, column)| column),
        |setting, name| facts.no_column(spec, setting, name),
    );
    let mut served = Vec::with_capacity(chosen.len());
    for (i, column) in chosen.into_iter().enumerate() {
        let Some((select, scalar)) = scalar_of(column, facts.json.contains(&column.name)) else {
            findings.push(Finding::new(
                format!(
                    "collection `{}`: column `{}` has the type {}, which has no JSON form here",
                    spec.name, column.name, column.sql_type
                ),
                format!("add it to `exclude`: exclude = [\"{}\"]", column.name),
            ));
            continue;
        };
        // A key of bytes has the same form as in ids.
        let scalar = match key.iter().find(|k| k.name == column.name).map(|k| k.ty) {
            Some(KeyType::Bytes) => Scalar::Hex,
            Some(KeyType::Uuid) if scalar == Scalar::Binary => Scalar::Uuid,
            _ => scalar,
        };
        let is_tenant = spec.tenant.is_some() && i == 0;
        let not_null = column.not_null;
        let name = column.name.clone();
        let choices = choices(&column.sql_type).unwrap_or_default();
        served.push(Served { name, select, scalar, is_tenant, not_null, choices });
    }
    if findings.is_empty() { Ok(served) } else { Err(findings) }
}

/// Returns the values of an ENUM, with the empty text that the server keeps in place of a refused
/// one. None of other types, or if the catalogue escapes or replaces a character of a label.
fn choices(sql_type: &str) -> Option<Vec<String>> {
    let labels = sql_type.strip_prefix("enum('")?.strip_suffix("')")?;
    if labels.contains(['\\', '?']) {
        return None;
    }
    // A quote within a label is doubled, and so no end.
    let labels = labels.replace("''", "\0");
    let labels = labels.split("','").map(|label| label.replace('\0', "'"));
    let labels = labels.filter(|label| !label.is_empty());
    Some(labels.chain(std::iter::once(String::new())).collect())
}

/// Returns select expression and parser of a column by its type; none for an unknown type.
fn scalar_of(column: &catalog::Column, is_json: bool) -> Option<(Select, Scalar)> {
    let plain = |scalar| Some((Select::Plain, scalar));
    match column.data_type.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" => plain(Scalar::Integer),
        "decimal" => plain(Scalar::Decimal),
        // As text, a FLOAT has only six digits and a DOUBLE has all.
        "float" => Some((Select::Double, Scalar::Float)),
        "double" => plain(Scalar::Double),
        "bit" => plain(Scalar::Bit),
        "json" => plain(Scalar::Json),
        "longtext" if is_json => plain(Scalar::CheckedJson),
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" => {
            plain(Scalar::Text)
        }
        "uuid" | "inet6" | "inet4" => plain(Scalar::Name),
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector" => {
            plain(Scalar::Binary)
        }
        "date" => plain(Scalar::Date),
        "datetime" => plain(Scalar::DateTime),
        "timestamp" => plain(Scalar::Timestamp),
        "time" => plain(Scalar::Time),
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geometrycollection" | "geomcollection" => {
            Some((Select::Wkb, Scalar::Binary))
        }
        _ => None,
    }
}
