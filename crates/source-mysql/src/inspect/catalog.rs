//! Facts about a table from the catalogue.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};

use super::super::catalog_row::{self, CatalogRow};
use super::super::server::{Flavor, Identity};
use super::foreign_keys;
use super::names::{TableName, account, current_user, quote, text};
use hotrow_source::preflight::{Finding, listed, suggested};
use hotrow_source::spec::CollectionConfig;

/// Error numbers of the server for a missing privilege.
const NO_TABLE_PRIVILEGE: u16 = 1142;
const NO_COLUMN_PRIVILEGE: u16 = 1143;

/// Table of the catalogue.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) name: TableName,
    /// `BASE TABLE`, `VIEW`, …
    pub(super) kind: String,
    pub(super) engine: String,
    pub(super) columns: Vec<Column>,
    /// Primary key and other unique indexes.
    pub(super) unique: Vec<UniqueIndex>,
    /// Columns with a `json_valid` check constraint (MariaDB).
    pub(super) json: Vec<String>,
    /// True if foreign keys of the table may change its rows without row events.
    pub(super) has_foreign_keys: bool,
}

/// Primary key or another unique index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UniqueIndex {
    pub(super) name: String,
    /// Columns in the order of the index. None for an expression (MySQL).
    pub(super) columns: Vec<Option<String>>,
    /// True if the index contains only a prefix of a column.
    pub(super) has_prefix: bool,
    /// True unless it is INVISIBLE (MySQL) or IGNORED (MariaDB), so that no statement may use it.
    pub(super) is_usable: bool,
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
    /// Length of a text or of bytes.
    pub(super) length: Option<u64>,
    pub(super) invisible: bool,
    pub(super) selectable: bool,
    pub(super) not_null: bool,
    /// Generated, and not stored.
    pub(super) is_virtual: bool,
}

/// Returns the catalogue's name of a collection's table.
pub(super) fn table_name(
    spec: &CollectionConfig,
    database: &str,
    identity: &Identity,
) -> TableName {
    let (schema, table) = spec.table.split_once('.').unwrap_or((database, &spec.table));
    let name =
        |text: &str| if identity.names_any_case { text.to_lowercase() } else { text.to_owned() };
    TableName { schema: name(schema), table: name(table) }
}

/// Reads the facts about a collection's table. A missing table is a finding.
pub(super) async fn facts(
    conn: &mut Conn,
    identity: &Identity,
    spec: &CollectionConfig,
    wanted: &TableName,
) -> Result<Result<Facts, Finding>, Error> {
    let at =
        format!("TABLE_SCHEMA = {} AND TABLE_NAME = {}", text(&wanted.schema), text(&wanted.table));
    let sql = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES \
         WHERE {at}"
    );
    let found = catalog_row::rows(conn, sql, table_row).await?;
    let same = |a: &str, b: &str| {
        a == b || (identity.names_any_case && a.to_lowercase() == b.to_lowercase())
    };
    let found = found.into_iter().find(|t| same(&t.0, &wanted.schema) && same(&t.1, &wanted.table));
    let Some((schema, table, kind, engine)) = found else {
        return Ok(Err(no_table(conn, spec, wanted).await?));
    };
    let mut facts = Facts {
        name: TableName { schema, table },
        kind,
        engine,
        columns: columns(conn, &at).await?,
        unique: unique_indexes(conn, identity, &at).await?,
        json: Vec::new(),
        has_foreign_keys: foreign_keys::exist(conn, &at).await?,
    };
    if identity.flavor == Flavor::MariaDb {
        let sql = format!(
            "SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS \
             WHERE CONSTRAINT_SCHEMA = {} AND TABLE_NAME = {}",
            text(&wanted.schema),
            text(&wanted.table)
        );
        let checks = catalog_row::rows(conn, sql, |row| row.text(0, "CHECK_CLAUSE")).await?;
        let is_json = |c: &&Column| {
            checks.iter().any(|check| *check == format!("json_valid({})", quote(&c.name)))
        };
        facts.json = facts.columns.iter().filter(is_json).map(|c| c.name.clone()).collect();
    }
    Ok(Ok(facts))
}

/// Parses schema, name, type and engine of a table. A view and a table that cannot be opened have
/// no engine.
fn table_row(row: &CatalogRow) -> Result<(String, String, String, String), Error> {
    Ok((
        row.required(0, "TABLE_SCHEMA")?,
        row.required(1, "TABLE_NAME")?,
        row.text(2, "TABLE_TYPE")?,
        row.text(3, "ENGINE")?,
    ))
}

async fn columns(conn: &mut Conn, at: &str) -> Result<Vec<Column>, Error> {
    let sql = format!(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, \
         CHARACTER_MAXIMUM_LENGTH, EXTRA, PRIVILEGES, IS_NULLABLE FROM information_schema.COLUMNS \
         WHERE {at} ORDER BY ORDINAL_POSITION"
    );
    catalog_row::rows(conn, sql, column_row).await
}

fn column_row(row: &CatalogRow) -> Result<Column, Error> {
    Ok(Column {
        name: row.required(0, "COLUMN_NAME")?,
        data_type: row.text(1, "DATA_TYPE")?.to_ascii_lowercase(),
        sql_type: row.text(2, "COLUMN_TYPE")?,
        charset: row.nullable(3, "CHARACTER_SET_NAME")?,
        collation: row.nullable(4, "COLLATION_NAME")?,
        length: row.nullable(5, "CHARACTER_MAXIMUM_LENGTH")?,
        invisible: row.text(6, "EXTRA")?.contains("INVISIBLE"),
        is_virtual: row.text(6, "EXTRA")?.contains("VIRTUAL GENERATED"),
        selectable: row.text(7, "PRIVILEGES")?.split(',').any(|p| p == "select"),
        not_null: row.text(8, "IS_NULLABLE")? == "NO",
    })
}

/// Reads the unique indexes, the primary key first. Hash indexes are omitted, which MariaDB creates
/// for long texts, because a query cannot search them.
async fn unique_indexes(
    conn: &mut Conn,
    identity: &Identity,
    at: &str,
) -> Result<Vec<UniqueIndex>, Error> {
    let sql = format!(
        "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART IS NOT NULL, {} \
         FROM information_schema.STATISTICS WHERE {at} AND NON_UNIQUE = 0 AND INDEX_TYPE = 'BTREE' \
         ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX",
        identity.is_usable_index_sql()
    );
    let mut indexes: Vec<UniqueIndex> = Vec::new();
    for mut index in catalog_row::rows(conn, sql, index_row).await? {
        match indexes.last_mut().filter(|last| last.name == index.name) {
            Some(last) => {
                last.columns.append(&mut index.columns);
                last.has_prefix |= index.has_prefix;
            }
            None => indexes.push(index),
        }
    }
    Ok(indexes)
}

/// Parses one column of an index.
fn index_row(row: &CatalogRow) -> Result<UniqueIndex, Error> {
    Ok(UniqueIndex {
        name: row.required(0, "INDEX_NAME")?,
        columns: vec![row.nullable(1, "COLUMN_NAME")?],
        has_prefix: row.required(2, "SUB_PART")?,
        is_usable: row.required(3, "IS_VISIBLE")?,
    })
}

async fn no_table(
    conn: &mut Conn,
    spec: &CollectionConfig,
    wanted: &TableName,
) -> Result<Finding, Error> {
    let sql = format!(
        "SELECT TABLE_NAME FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA = {} AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME LIMIT 100",
        text(&wanted.schema)
    );
    let have = catalog_row::rows(conn, sql, |row| row.required::<String>(0, "TABLE_NAME")).await?;
    let account = account(&current_user(conn).await?);
    Ok(Finding::new(
        format!(
            "collection `{}`: there is no table `{}` in database `{}`, or {account} may not see \
             it{}",
            spec.name,
            wanted.table,
            wanted.schema,
            suggested(&wanted.table, &have)
        ),
        format!(
            "GRANT SELECT ON {} TO {account};\nor name a table with the server's spelling, and \
             with `database.` before it if it is in another database: {}",
            wanted.sql(),
            listed(&have)
        ),
    ))
}

/// Checks that the account may read the whole table. The catalogue hides columns that it may not
/// read, and the log's rows would have more columns than known.
pub(super) async fn check_privileges(
    conn: &mut Conn,
    spec: &CollectionConfig,
    facts: &Facts,
) -> Result<Option<Finding>, Error> {
    let schema = text(&facts.name.schema);
    let table = text(&facts.name.table);
    let sql = format!(
        "SELECT CURRENT_USER(), EXISTS (SELECT 1 FROM information_schema.COLUMN_PRIVILEGES \
         WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {table})"
    );
    let answer = catalog_row::first(conn, sql).await?;
    let (user, by_column) =
        answer.as_ref().map_or_else(|| Ok(Default::default()), privilege_row)?;
    let readable = match facts.columns.iter().all(|c| c.selectable) {
        false => false,
        // Only with column privileges, because this query waits for a schema change of the table.
        true if by_column => {
            match conn.query_drop(format!("SELECT * FROM {} LIMIT 0", facts.name.sql())).await {
                Ok(()) => true,
                Err(Error::Server(e))
                    if e.code == NO_TABLE_PRIVILEGE || e.code == NO_COLUMN_PRIVILEGE =>
                {
                    false
                }
                Err(e) => return Err(e),
            }
        }
        true => true,
    };
    let account = account(&user);
    Ok((!readable).then(|| {
        Finding::new(
            format!(
                "collection `{}`: {account} may not read all columns of `{}`",
                spec.name, spec.table
            ),
            format!("GRANT SELECT ON {} TO {account};", facts.name.sql()),
        )
    }))
}

/// Parses the account, and if it has privileges on single columns.
fn privilege_row(row: &CatalogRow) -> Result<(String, bool), Error> {
    Ok((row.text(0, "CURRENT_USER()")?, row.required(1, "COLUMN_PRIVILEGES")?))
}

impl Facts {
    pub(super) fn column(&self, name: &str) -> Option<(usize, &Column)> {
        // Column names compare case-insensitively.
        self.columns.iter().enumerate().find(|(_, c)| c.name.to_lowercase() == name.to_lowercase())
    }

    pub(super) fn no_column(&self, spec: &CollectionConfig, setting: &str, name: &str) -> Finding {
        let have: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        Finding::new(
            format!(
                "collection `{}`: table `{}` has no column `{name}` (setting `{setting}`)",
                spec.name, spec.table
            ),
            format!("name one that it has: {}", listed(&have)),
        )
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::Value;

    use super::super::super::catalog_row::tests::survives_hostile_rows;
    use super::*;

    #[test]
    fn unexpected_nulls_do_not_panic() {
        let text = |text: &str| Value::Bytes(text.into());
        survives_hostile_rows(&["shop", "t", "BASE TABLE", "InnoDB"].map(text), table_row);
        let column =
            ["id", "int", "int(11)", "utf8mb4", "utf8mb4_bin", "40", "", "select", "NO"].map(text);
        survives_hostile_rows(&column, column_row);
        survives_hostile_rows(&["PRIMARY", "id", "0", "1"].map(text), index_row);
        survives_hostile_rows(&[text("hotrow@%"), text("1")], privilege_row);
    }
}
