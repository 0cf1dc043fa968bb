//! What the catalogue says about a table.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};

use super::super::server::{Flavor, Identity};
use super::{TableName, listed};
use crate::findings::Finding;
use crate::spec::CollectionSpec;

/// Most foreign keys that are looked at.
const FOREIGN_KEYS_MAX: usize = 10_000;

/// The server's errors for a privilege that is missing.
const NO_TABLE_PRIVILEGE: u16 = 1142;
const NO_COLUMN_PRIVILEGE: u16 = 1143;

/// A table as the catalogue has it.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) name: TableName,
    /// `BASE TABLE`, `VIEW`, …
    pub(super) kind: String,
    pub(super) engine: String,
    pub(super) columns: Vec<Column>,
    /// The primary key's columns in its order, and whether only a prefix of one is in it.
    pub(super) primary: Vec<(String, bool)>,
    /// Columns that a check holds to be JSON (MariaDB).
    pub(super) json: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// `int`
    pub(super) data_type: String,
    /// `int(10) unsigned`
    pub(super) sql_type: String,
    pub(super) charset: Option<String>,
    pub(super) collation: Option<String>,
    /// Of texts and bytes.
    pub(super) length: Option<u64>,
    pub(super) invisible: bool,
    pub(super) selectable: bool,
}

/// A foreign key that changes rows of `child` when rows of `parent` change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cascade {
    pub(super) child: TableName,
    pub(super) parent: TableName,
}

/// The name that a collection's table has in the catalogue.
pub(super) fn table_name(spec: &CollectionSpec, database: &str, identity: &Identity) -> TableName {
    let (schema, table) = spec.table.split_once('.').unwrap_or((database, &spec.table));
    let name = |text: &str| if identity.names_any_case { text.to_lowercase() } else { text.to_owned() };
    TableName { schema: name(schema), table: name(table) }
}

/// Reads all that is needed about the table of a collection; a table that is not there is a finding.
pub(super) async fn facts(
    conn: &mut Conn,
    identity: &Identity,
    spec: &CollectionSpec,
    wanted: &TableName,
) -> Result<Result<Facts, Finding>, Error> {
    let at = format!("TABLE_SCHEMA = {} AND TABLE_NAME = {}", text(&wanted.schema), text(&wanted.table));
    let sql = format!("SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE {at}");
    let found: Vec<(String, String, String, Option<String>)> = conn.query(sql).await?;
    let same = |a: &str, b: &str| a == b || (identity.names_any_case && a.to_lowercase() == b.to_lowercase());
    let found = found.into_iter().find(|t| same(&t.0, &wanted.schema) && same(&t.1, &wanted.table));
    let Some((schema, table, kind, engine)) = found else { return Ok(Err(no_table(conn, spec, wanted).await?)) };
    let mut facts = Facts {
        name: TableName { schema, table },
        kind,
        engine: engine.unwrap_or_default(),
        columns: columns(conn, &at).await?,
        primary: Vec::new(),
        json: Vec::new(),
    };
    let sql = format!(
        "SELECT COLUMN_NAME, SUB_PART IS NOT NULL FROM information_schema.STATISTICS WHERE {at} AND INDEX_NAME = 'PRIMARY' \
         ORDER BY SEQ_IN_INDEX"
    );
    facts.primary = conn.query(sql).await?;
    if identity.flavor == Flavor::MariaDb {
        let sql = format!(
            "SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = {} AND TABLE_NAME = {}",
            text(&wanted.schema),
            text(&wanted.table)
        );
        let checks: Vec<String> = conn.query(sql).await?;
        let is_json =
            |c: &&Column| checks.iter().any(|check| *check == format!("json_valid({})", super::quote(&c.name)));
        facts.json = facts.columns.iter().filter(is_json).map(|c| c.name.clone()).collect();
    }
    Ok(Ok(facts))
}

type ColumnRow = (String, String, String, Option<String>, Option<String>, Option<u64>, String, String);

async fn columns(conn: &mut Conn, at: &str) -> Result<Vec<Column>, Error> {
    let sql = format!(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, CHARACTER_MAXIMUM_LENGTH, EXTRA, \
         PRIVILEGES FROM information_schema.COLUMNS WHERE {at} ORDER BY ORDINAL_POSITION"
    );
    let rows: Vec<ColumnRow> = conn.query(sql).await?;
    let column = |(name, data_type, sql_type, charset, collation, length, extra, privileges): ColumnRow| Column {
        name,
        data_type: data_type.to_ascii_lowercase(),
        sql_type,
        charset,
        collation,
        length,
        invisible: extra.contains("INVISIBLE"),
        selectable: privileges.split(',').any(|p| p == "select"),
    };
    Ok(rows.into_iter().map(column).collect())
}

/// All foreign keys that change rows, as far as this account may see them.
pub(super) async fn cascades(conn: &mut Conn) -> Result<Vec<Cascade>, Error> {
    let sql = format!(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME \
         FROM information_schema.REFERENTIAL_CONSTRAINTS \
         WHERE UPDATE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT') \
         LIMIT {FOREIGN_KEYS_MAX}"
    );
    let rows: Vec<(String, String, String, String)> = conn.query(sql).await?;
    let cascade = |(schema, table, parent_schema, parent)| Cascade {
        child: TableName { schema, table },
        parent: TableName { schema: parent_schema, table: parent },
    };
    Ok(rows.into_iter().map(cascade).collect())
}

async fn no_table(conn: &mut Conn, spec: &CollectionSpec, wanted: &TableName) -> Result<Finding, Error> {
    let sql = format!(
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_TYPE = 'BASE TABLE' \
         ORDER BY TABLE_NAME LIMIT 100",
        text(&wanted.schema)
    );
    let have: Vec<String> = conn.query(sql).await?;
    let user: Option<String> = conn.query_first("SELECT CURRENT_USER()").await?;
    let account = super::account(&user.unwrap_or_default());
    Ok(Finding::new(
        format!(
            "collection `{}`: there is no table `{}` in database `{}`, or {account} may not see it",
            spec.name, wanted.table, wanted.schema
        ),
        format!(
            "GRANT SELECT ON {} TO {account};\nor name a table as the server spells it, with its database and a dot before \
             it where that is another one: {}",
            wanted.sql(),
            listed(&have)
        ),
    ))
}

/// Whether this account may read the whole table. Columns that it may not read are not in its catalogue at all, and then
/// the log's rows would have more columns than we know of.
pub(super) async fn check_privileges(
    conn: &mut Conn,
    spec: &CollectionSpec,
    facts: &Facts,
) -> Result<Option<Finding>, Error> {
    let (schema, table) = (text(&facts.name.schema), text(&facts.name.table));
    let sql = format!(
        "SELECT CURRENT_USER(), EXISTS (SELECT 1 FROM information_schema.COLUMN_PRIVILEGES \
         WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {table})"
    );
    let asked: Option<(String, bool)> = conn.query_first(sql).await?;
    let (user, by_column) = asked.unwrap_or_default();
    let readable = match facts.columns.iter().all(|c| c.selectable) {
        false => false,
        // Tried only where there is a doubt: it waits for whoever changes the table.
        true if by_column => match conn.query_drop(format!("SELECT * FROM {} LIMIT 0", facts.name.sql())).await {
            Ok(()) => true,
            Err(Error::Server(e)) if e.code == NO_TABLE_PRIVILEGE || e.code == NO_COLUMN_PRIVILEGE => false,
            Err(e) => return Err(e),
        },
        true => true,
    };
    let account = super::account(&user);
    Ok((!readable).then(|| {
        Finding::new(
            format!("collection `{}`: {account} may not read all columns of `{}`", spec.name, spec.table),
            format!("GRANT SELECT ON {} TO {account};", facts.name.sql()),
        )
    }))
}

impl Facts {
    pub(super) fn column(&self, name: &str) -> Option<(usize, &Column)> {
        // Names of columns compare without regard to case.
        self.columns.iter().enumerate().find(|(_, c)| c.name.to_lowercase() == name.to_lowercase())
    }

    pub(super) fn no_column(&self, spec: &CollectionSpec, setting: &str, name: &str) -> Finding {
        let have: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        Finding::new(
            format!("collection `{}`: table `{}` has no column `{name}` (setting `{setting}`)", spec.name, spec.table),
            format!("name one that it has: {}", listed(&have)),
        )
    }
}

/// A text in SQL, where backslashes escape (`sql_mode` is empty).
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''").replace('\0', "\\0"))
}
