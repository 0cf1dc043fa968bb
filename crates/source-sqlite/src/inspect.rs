//! Inspection of a collection's table: columns to serve, key columns, unique constraints.
//!
//! Reference `databases`: Views of SQLite
//!
//! - accepted: columns, `*`, numbers, texts; `=`, `==`, `<>`, `!=`, `<`, `<=`, `>`, `>=`, `+`, `-`,
//!   `*`, `/`, `%`, `||`; `AND`, `OR`, `NOT`, `IS [NOT] NULL`, `IN (…)`, `BETWEEN`, `CASE`; `abs`,
//!   `coalesce`, `ifnull`, `iif`, `length`, `lower`, `nullif`, `trim`, `upper`. An alias of a
//!   column needs `AS`.
//! - refused, with its place in the text: everything else: joins, subqueries, grouping, `DISTINCT`,
//!   `ORDER BY`, `LIMIT`, other functions, `CURRENT_TIMESTAMP`, `LIKE`, `COLLATE`, the rowid under
//!   a name that is no column, views over views ([why](adr/0027-views-by-their-text.md)).

mod embedded;
mod forms;
mod keys;
mod sql;
mod view;

use hotrow_source::field_schema::FieldSchema;
use hotrow_source::preflight::{listed, suggested};
use hotrow_types::key::{CollectionId, KeySchema, KeyType};
use rusqlite::{Connection, OptionalExtension};

pub(crate) use self::embedded::Embedded;
pub(crate) use self::keys::note_default as default_key;
pub(crate) use self::view::View;
#[cfg(test)]
pub(crate) use self::view::witness;
use super::config::{CollectionConfig, Watch};
use super::error::OpenError;
use super::names;

/// Table of a collection, as far as reads and triggers need it. Behind a view it is the table whose
/// changes are those of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) collection: CollectionId,
    /// Name as the database spells it.
    pub(crate) name: String,
    /// Columns to serve, in order.
    pub(crate) served: Vec<Served>,
    pub(crate) key: Vec<KeyColumn>,
    /// Unique constraints other than the key, by which a REPLACE can evict other rows.
    pub(crate) uniques: Vec<Unique>,
    /// Children inside its records.
    pub(crate) embedded: Vec<Embedded>,
    /// View through which its rows are read.
    pub(crate) view: Option<View>,
}

/// Column to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) name: String,
    /// Type by which an id names it; key columns only.
    pub(crate) key: Option<KeyType>,
    /// `true` for the tenant, which stands before the record.
    pub(crate) is_tenant: bool,
    /// Form of its values, and whether one may be null.
    pub(crate) schema: FieldSchema,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    pub(crate) ty: KeyType,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unique {
    pub(crate) columns: Vec<UniqueColumn>,
    /// WHERE of a partial index, as SQL.
    pub(crate) filter: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UniqueColumn {
    pub(crate) name: String,
    /// `None` for the rowid, which has no text.
    pub(crate) collation: Option<String>,
    /// Value that a REPLACE stores instead of NULL, as SQL: the default of a NOT NULL column.
    pub(crate) instead_of_null: Option<String>,
}

impl Table {
    /// Returns the table's name in the change log.
    pub(crate) fn watch_name(&self) -> String {
        let key: Vec<&str> = self.key.iter().map(|k| k.name.as_str()).collect();
        names::watch_name(&self.name, &key)
    }

    /// Returns the name of the table or view that is read.
    pub(crate) fn read_name(&self) -> &str {
        self.view.as_ref().map_or(&self.name, |view| &view.name)
    }

    /// Returns the names that the key's columns have there.
    pub(crate) fn read_key(&self) -> Vec<&str> {
        match &self.view {
            Some(view) => view.key.iter().map(String::as_str).collect(),
            None => self.key.iter().map(|key| key.name.as_str()).collect(),
        }
    }

    /// Returns the tables whose changes are changes of the records: this one, and those of its
    /// children by their column with the parent's key.
    pub(crate) fn watched(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.embedded.iter().map(|embedded| &embedded.table))
    }

    pub(crate) fn schema(&self) -> KeySchema {
        KeySchema::new(self.collection, self.key.iter().map(|k| k.ty).collect())
    }
}

/// Inspects the table of one collection in the caller's transaction. The first statement makes
/// SQLite check that its copy of the schema is current, which the pragmas alone do not.
pub(crate) fn inspect(
    conn: &Connection,
    id: CollectionId,
    spec: &CollectionConfig,
    watch: Watch,
) -> Inspected<Table> {
    let name = match find_relation(conn, spec)? {
        Relation::Table(name) => name,
        Relation::View(name) => return view::inspect(conn, id, spec, name, watch),
    };
    let facts = Facts::read(conn, name)?;
    let key_columns = keys::columns(spec, &facts)?;
    let index = keys::unique_index(spec, &facts, &key_columns)?;
    let key = keys::typed(spec, &facts, &key_columns, index)?;
    let served = served(spec, &facts, &key)?;
    let uniques = match watch {
        // Without an index of its own the key is the rowid itself.
        Watch::Triggers => uniques(spec, &facts, index, index.is_none())?,
        Watch::None => Vec::new(),
    };
    let name = facts.name;
    let mut table =
        Table { collection: id, name, served, key, uniques, embedded: Vec::new(), view: None };
    table.embedded = embedded::inspect(conn, id, spec, &table, watch)?;
    Ok(table)
}

/// Problem of the configuration or the schema, or error of the driver.
#[derive(Debug)]
pub(crate) enum Refused {
    Rule(OpenError),
    Driver(rusqlite::Error),
}
pub(crate) type Inspected<T> = Result<T, Refused>;

impl From<OpenError> for Refused {
    fn from(e: OpenError) -> Self {
        Self::Rule(e)
    }
}
impl From<rusqlite::Error> for Refused {
    fn from(e: rusqlite::Error) -> Self {
        Self::Driver(e)
    }
}

/// Facts about a table, as SQLite reports them.
pub(crate) struct Facts {
    name: String,
    columns: Vec<Column>,
    indexes: Vec<Index>,
    rowid: Rowid,
    strict: bool,
}

struct Column {
    name: String,
    declared: String,
    not_null: bool,
    default: Option<String>,
}

struct Index {
    name: String,
    primary_key: bool,
    columns: Vec<IndexColumn>,
    /// WHERE of a partial index, if it could be parsed.
    filter: Filter,
}

enum Filter {
    None,
    Where(String),
    Unreadable,
}

enum IndexColumn {
    Column { name: String, collation: String },
    Rowid,
    Expression,
}

enum Rowid {
    /// The table has no rowid.
    None,
    /// The rowid is this column, an INTEGER PRIMARY KEY.
    Column(String),
    /// The rowid has this name.
    Named(&'static str),
    /// Columns hide all names of the rowid, so no statement can set it.
    Hidden,
}

#[cfg(test)]
pub(crate) fn facts_of(conn: &Connection, table: &str) -> Facts {
    match Facts::read(conn, table.to_owned()) {
        Ok(facts) => facts,
        Err(why) => panic!("{why:?}"),
    }
}

/// Table or view with its name as the database spells it.
enum Relation {
    Table(String),
    View(String),
}

/// Finds a table that cannot be a view.
fn find_table(conn: &Connection, spec: &CollectionConfig) -> Inspected<String> {
    match find_relation(conn, spec)? {
        Relation::Table(name) => Ok(name),
        Relation::View(_) => Err(not_a_table(spec, "view", "its changes fire no triggers")),
    }
}

fn not_a_table(spec: &CollectionConfig, kind: &str, why: &'static str) -> Refused {
    let collection = spec.name.clone();
    let table = spec.table.clone();
    OpenError::NotATable { collection, table, kind: kind.into(), why }.into()
}

fn find_relation(conn: &Connection, spec: &CollectionConfig) -> Inspected<Relation> {
    let found: Option<(String, String)> = conn
        .query_row(
            "SELECT name, type FROM main.sqlite_schema WHERE type IN ('table', 'view') \
             AND name = ?1 COLLATE NOCASE",
            [&spec.table],
            |r| Ok((r.get(0)?, r.get(1)?)),
        )
        .optional()?;
    let Some((name, _)) = found else {
        let have = tables(conn)?;
        return Err(OpenError::NoTable {
            collection: spec.name.clone(),
            table: spec.table.clone(),
            have: format!("{}{}", listed(&have), suggested(&spec.table, &have)),
        }
        .into());
    };
    let kind: String = conn.query_row(
        "SELECT type FROM pragma_table_list WHERE schema = 'main' AND name = ?1",
        [&name],
        |r| r.get(0),
    )?;
    let lower = name.to_ascii_lowercase();
    match kind.as_str() {
        _ if lower.starts_with("sqlite_")
            || lower == names::LOG_TABLE
            || lower == names::META_TABLE =>
        {
            Err(not_a_table(spec, "table of the system", "its rows are no records"))
        }
        "table" => Ok(Relation::Table(name)),
        "view" => Ok(Relation::View(name)),
        other => Err(not_a_table(
            spec,
            &format!("{other} table"),
            "it has no unique key and its changes fire no triggers",
        )),
    }
}

fn tables(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut stmt =
        conn.prepare("SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY name")?;
    let all = stmt.query_map([], |r| r.get::<_, String>(0))?;
    all.filter(|n| {
        n.as_ref()
            .map_or(true, |n| !n.starts_with("sqlite_") && !n.starts_with(names::TRIGGER_PREFIX))
    })
    .collect()
}

impl Facts {
    fn read(conn: &Connection, name: String) -> Inspected<Self> {
        let (without_rowid, strict) = conn.query_row(
            "SELECT wr, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?1",
            [&name],
            |r| Ok((r.get::<_, bool>(0)?, r.get::<_, bool>(1)?)),
        )?;
        // Hidden is 0 for ordinary, 2 and 3 for generated columns; 1 exists in virtual tables only.
        let mut stmt = conn.prepare(
            "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_xinfo(?1, 'main') \
             WHERE hidden <> 1 ORDER BY cid",
        )?;
        let read = stmt.query_map([&name], |r| {
            let column = Column {
                name: r.get(0)?,
                declared: r.get(1)?,
                not_null: r.get(2)?,
                default: r.get(3)?,
            };
            Ok((column, r.get::<_, i64>(4)?))
        })?;
        let (columns, pk): (Vec<_>, Vec<_>) =
            read.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().unzip();
        let indexes = Index::read_all(conn, &name)?;
        let rowid = if without_rowid { Rowid::None } else { Rowid::find(&columns, &pk, &indexes) };
        Ok(Self { name, columns, indexes, rowid, strict })
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name))
    }

    fn column_or_refuse(
        &self,
        spec: &CollectionConfig,
        setting: &'static str,
        name: &str,
    ) -> Inspected<&Column> {
        self.column(name).ok_or_else(|| {
            let have: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
            Refused::Rule(OpenError::NoColumn {
                collection: spec.name.clone(),
                table: spec.table.clone(),
                column: name.into(),
                setting,
                have: format!("{}{}", listed(&have), suggested(&spec.table, &have)),
            })
        })
    }
}

impl Rowid {
    /// Finds the rowid. Source: SQLite documentation, "CREATE TABLE", ROWIDs and the INTEGER
    /// PRIMARY KEY. A single PRIMARY KEY column of declared type INTEGER is the rowid unless it has
    /// an index of its own (the `DESC` exception).
    fn find(columns: &[Column], pk: &[i64], indexes: &[Index]) -> Self {
        let mut keys = columns.iter().zip(pk).filter(|(_, pk)| **pk > 0);
        if let (Some((column, _)), None) = (keys.next(), keys.next())
            && column.declared.eq_ignore_ascii_case("INTEGER")
            && !indexes.iter().any(|i| i.primary_key)
        {
            return Self::Column(column.name.clone());
        }
        let free = |name: &&&str| !columns.iter().any(|c| c.name.eq_ignore_ascii_case(name));
        ["rowid", "_rowid_", "oid"].iter().find(free).map_or(Self::Hidden, |name| Self::Named(name))
    }
}

impl Index {
    /// Reads all unique indexes of a table.
    fn read_all(conn: &Connection, table: &str) -> rusqlite::Result<Vec<Self>> {
        let mut stmt = conn.prepare(
            "SELECT l.name, l.origin = 'pk', l.partial, s.sql FROM pragma_index_list(?1, 'main') l \
             LEFT JOIN main.sqlite_schema s ON s.type = 'index' AND s.name = l.name \
             WHERE l.\"unique\" ORDER BY l.seq",
        )?;
        let mut rows = stmt.query([table])?;
        let mut indexes = Vec::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let filter = match (row.get::<_, bool>(2)?, row.get::<_, Option<String>>(3)?) {
                (false, _) => Filter::None,
                (true, text) => text
                    .and_then(|t| sql::index_filter(&t))
                    .map_or(Filter::Unreadable, Filter::Where),
            };
            let columns = Self::columns(conn, &name)?;
            indexes.push(Self { name, primary_key: row.get(1)?, columns, filter });
        }
        Ok(indexes)
    }

    fn columns(conn: &Connection, index: &str) -> rusqlite::Result<Vec<IndexColumn>> {
        let mut stmt = conn.prepare(
            "SELECT cid, name, coll FROM pragma_index_xinfo(?1, 'main') \
             WHERE \"key\" ORDER BY seqno",
        )?;
        let columns = stmt.query_map([index], |r| {
            Ok(match r.get::<_, i64>(0)? {
                -1 => IndexColumn::Rowid,
                -2 => IndexColumn::Expression,
                _ => IndexColumn::Column { name: r.get(1)?, collation: r.get(2)? },
            })
        })?;
        columns.collect()
    }
}

fn served(spec: &CollectionConfig, facts: &Facts, key: &[KeyColumn]) -> Inspected<Vec<Served>> {
    let mut chosen = match &spec.columns {
        None => facts.columns.iter().collect(),
        Some(names) => names
            .iter()
            .map(|n| facts.column_or_refuse(spec, "columns", n))
            .collect::<Inspected<Vec<_>>>()?,
    };
    for name in &spec.exclude {
        let excluded = &facts.column_or_refuse(spec, "exclude", name)?.name;
        chosen.retain(|c| c.name != *excluded);
    }
    let mut seen = std::collections::HashSet::new();
    chosen.retain(|c| seen.insert(c.name.as_str()));
    if chosen.is_empty() {
        return Err(OpenError::NothingServed {
            collection: spec.name.clone(),
            table: spec.table.clone(),
        }
        .into());
    }
    let served = |column: &Column, is_tenant| {
        let key = key.iter().find(|k| k.name == column.name).map(|k| k.ty);
        let schema = forms::schema(column, key, facts.strict, &facts.rowid);
        Served { name: column.name.clone(), key, is_tenant, schema }
    };
    let tenant = spec.tenant.iter().map(|name| {
        facts.column_or_refuse(spec, "tenant", name).map(|column| served(column, true))
    });
    tenant.chain(chosen.into_iter().map(|column| Ok(served(column, false)))).collect()
}

/// Returns the unique constraints other than the key's own: the index of that number, or the rowid.
fn uniques(
    spec: &CollectionConfig,
    facts: &Facts,
    key_index: Option<usize>,
    key_is_rowid: bool,
) -> Inspected<Vec<Unique>> {
    let mut uniques = Vec::new();
    let rowid = |name: &str| {
        let column = UniqueColumn { name: name.into(), collation: None, instead_of_null: None };
        Unique { columns: vec![column], filter: None }
    };
    match &facts.rowid {
        Rowid::Column(name) if !key_is_rowid => uniques.push(rowid(name)),
        Rowid::Named(name) => uniques.push(rowid(name)),
        Rowid::Column(_) | Rowid::None | Rowid::Hidden => {}
    }
    for (_, index) in facts.indexes.iter().enumerate().filter(|(i, _)| Some(*i) != key_index) {
        uniques.extend(unique(spec, facts, index)?);
    }
    Ok(uniques)
}

fn unique(spec: &CollectionConfig, facts: &Facts, index: &Index) -> Inspected<Option<Unique>> {
    let refuse = |why| {
        let collection = spec.name.clone();
        let table = spec.table.clone();
        Err(OpenError::UnwatchableIndex { collection, table, index: index.name.clone(), why }
            .into())
    };
    let filter = match &index.filter {
        Filter::None => None,
        Filter::Where(sql) => Some(sql.clone()),
        Filter::Unreadable => return refuse("has a WHERE that cannot be read"),
    };
    let mut columns = Vec::new();
    for column in &index.columns {
        match column {
            IndexColumn::Expression => return refuse("is on an expression"),
            // Rows that are equal here are equal in the rowid, which has its own constraint.
            IndexColumn::Rowid => return Ok(None),
            IndexColumn::Column { name, collation } => {
                let found = facts.column(name).filter(|c| c.not_null);
                let instead_of_null =
                    found.and_then(|c| c.default.as_deref()).map(sql::default_expression);
                columns.push(UniqueColumn {
                    name: name.clone(),
                    collation: Some(collation.clone()),
                    instead_of_null,
                });
            }
        }
    }
    Ok(Some(Unique { columns, filter }))
}
