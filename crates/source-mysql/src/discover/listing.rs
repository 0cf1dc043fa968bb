//! The list of a server's tables: names, estimated sizes, columns and unique keys. The server shows
//! an account only tables on which it has a privilege.

use std::collections::HashMap;

use hotrow_source::discovery::{self, COLUMNS_MAX, ListedColumn, ListedTable, Request};
use mysql_async::{Conn, Error};

use super::super::OpenError;
use super::super::catalog_row::{self, CatalogRow};
use super::super::connect::Session;
use super::super::inspect::text;
use super::failed;

/// Tables in their order.
pub(super) struct Listed {
    pub(super) tables: Vec<ListedTable>,
    /// There are more tables than the request allows.
    pub(super) is_cut: bool,
}

/// Place of each table in the list, by its database and its name.
type Places = HashMap<(String, String), usize>;

/// Lists the tables that the request selects, of `database` unless it names others.
///
/// # Errors
/// An error of the driver, or more than [`COLUMNS_MAX`] columns.
pub(super) async fn list(
    session: &mut Session,
    database: &str,
    request: &Request,
) -> Result<Listed, OpenError> {
    let Session { conn, identity, .. } = session;
    let schemas: Vec<String> = match request.schemas.as_slice() {
        [] => vec![text(database)],
        schemas => schemas.iter().map(|schema| text(schema)).collect(),
    };
    let at = format!("TABLE_SCHEMA IN ({})", schemas.join(", "));
    let mut tables = tables(conn, &at, database).await.map_err(|e| failed(&e))?;
    tables.retain(|table| request.selects(&table.schema, &table.name));
    // The server's own order depends on its collation.
    tables.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
    let is_cut = tables.len() > request.tables_max;
    tables.truncate(request.tables_max);
    let place = |(i, table): (usize, &ListedTable)| ((table.schema.clone(), table.name.clone()), i);
    let places: Places = tables.iter().enumerate().map(place).collect();
    let columns = columns(conn, &at).await.map_err(|e| failed(&e))?;
    if columns.len() > COLUMNS_MAX {
        let detail =
            format!("the databases have more than {COLUMNS_MAX} columns; name fewer with --schema");
        return Err(OpenError::Failed { detail });
    }
    for (table, column) in columns {
        if let Some(table) = places.get(&table).and_then(|i| tables.get_mut(*i)) {
            table.columns.push(column);
        }
    }
    let at = format!("{at} AND {}", identity.is_usable_index_sql());
    for (table, key) in keys(conn, &at).await.map_err(|e| failed(&e))? {
        if let Some(table) = places.get(&table).and_then(|i| tables.get_mut(*i)) {
            table.keys.push(key);
        }
    }
    if request.is_for_setup {
        let keys = foreign_keys(conn, &schemas.join(", ")).await.map_err(|e| failed(&e))?;
        let found = keys.into_iter().filter_map(|key| {
            Some((*places.get(&key.parent)?, *places.get(&key.child)?, key.on, key.to))
        });
        discovery::note_children(&mut tables, found);
    }
    Ok(Listed { tables, is_cut })
}

async fn tables(conn: &mut Conn, at: &str, database: &str) -> Result<Vec<ListedTable>, Error> {
    let sql = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_ROWS, DATA_LENGTH \
         FROM information_schema.TABLES WHERE {at} \
         AND TABLE_TYPE IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED')"
    );
    catalog_row::rows(conn, sql, |row| table_row(row, database)).await
}

fn table_row(row: &CatalogRow, database: &str) -> Result<ListedTable, Error> {
    let schema: String = row.required(0, "TABLE_SCHEMA")?;
    let name: String = row.required(1, "TABLE_NAME")?;
    let kind = match row.text(2, "TABLE_TYPE")?.as_str() {
        "BASE TABLE" => "table".to_owned(),
        other => other.to_lowercase(),
    };
    // A dot in the setting separates the database from the table.
    let is_plain = schema == database && !name.contains('.');
    let table = if is_plain { name.clone() } else { format!("{schema}.{name}") };
    Ok(ListedTable {
        schema,
        name,
        table,
        kind,
        rows: row.nullable(3, "TABLE_ROWS")?,
        bytes: row.nullable(4, "DATA_LENGTH")?,
        ..ListedTable::default()
    })
}

async fn columns(
    conn: &mut Conn,
    at: &str,
) -> Result<Vec<((String, String), ListedColumn)>, Error> {
    let sql = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE \
         FROM information_schema.COLUMNS WHERE {at} \
         ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION LIMIT {}",
        COLUMNS_MAX + 1
    );
    catalog_row::rows(conn, sql, column_row).await
}

fn column_row(row: &CatalogRow) -> Result<((String, String), ListedColumn), Error> {
    let table = (row.required(0, "TABLE_SCHEMA")?, row.required(1, "TABLE_NAME")?);
    let column = ListedColumn {
        name: row.required(2, "COLUMN_NAME")?,
        sql_type: row.text(3, "COLUMN_TYPE")?,
        // An account with rights to some columns only is refused as a whole.
        is_readable: true,
    };
    Ok((table, column))
}

/// Reads the unique keys over whole required columns, the primary key of each table first.
async fn keys(conn: &mut Conn, at: &str) -> Result<Vec<((String, String), Vec<String>)>, Error> {
    let sql = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, \
         SUB_PART IS NULL AND COALESCE(NULLABLE, '') <> 'YES' \
         FROM information_schema.STATISTICS \
         WHERE {at} AND NON_UNIQUE = 0 AND INDEX_TYPE = 'BTREE' \
         ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
    );
    Ok(merged(catalog_row::rows(conn, sql, key_row).await?))
}

/// A foreign key of one column.
struct ForeignKey {
    parent: (String, String),
    child: (String, String),
    on: String,
    to: String,
}

async fn foreign_keys(conn: &mut Conn, schemas: &str) -> Result<Vec<ForeignKey>, Error> {
    let sql = format!(
        "SELECT MIN(REFERENCED_TABLE_SCHEMA), MIN(REFERENCED_TABLE_NAME), TABLE_SCHEMA, \
         TABLE_NAME, MIN(COLUMN_NAME), MIN(REFERENCED_COLUMN_NAME) \
         FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA IN ({schemas}) \
         AND REFERENCED_TABLE_SCHEMA IN ({schemas}) \
         GROUP BY TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME HAVING COUNT(*) = 1 \
         ORDER BY TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME"
    );
    catalog_row::rows(conn, sql, foreign_key_row).await
}

fn foreign_key_row(row: &CatalogRow) -> Result<ForeignKey, Error> {
    Ok(ForeignKey {
        parent: (
            row.required(0, "REFERENCED_TABLE_SCHEMA")?,
            row.required(1, "REFERENCED_TABLE_NAME")?,
        ),
        child: (row.required(2, "TABLE_SCHEMA")?, row.required(3, "TABLE_NAME")?),
        on: row.required(4, "COLUMN_NAME")?,
        to: row.required(5, "REFERENCED_COLUMN_NAME")?,
    })
}

/// A column of a unique index.
#[derive(Debug, PartialEq, Eq)]
struct KeyPart {
    table: (String, String),
    index: String,
    /// `None` for an expression (MySQL), and for a column that is optional or indexed by a prefix.
    column: Option<String>,
}

fn key_row(row: &CatalogRow) -> Result<KeyPart, Error> {
    let is_whole: bool = row.required(4, "SUB_PART")?;
    let column: Option<String> = row.nullable(3, "COLUMN_NAME")?;
    Ok(KeyPart {
        table: (row.required(0, "TABLE_SCHEMA")?, row.required(1, "TABLE_NAME")?),
        index: row.required(2, "INDEX_NAME")?,
        column: column.filter(|_| is_whole),
    })
}

/// Joins the columns of each index; omits an index with a column that cannot be part of a key.
fn merged(parts: Vec<KeyPart>) -> Vec<((String, String), Vec<String>)> {
    let mut indexes: Vec<(KeyPart, Option<Vec<String>>)> = Vec::new();
    for part in parts {
        match indexes.last_mut() {
            Some((first, columns)) if first.table == part.table && first.index == part.index => {
                match (columns.as_mut(), part.column) {
                    (Some(columns), Some(column)) => columns.push(column),
                    (_, None) => *columns = None,
                    (None, Some(_)) => {}
                }
            }
            _ => {
                let columns = part.column.clone().map(|column| vec![column]);
                indexes.push((part, columns));
            }
        }
    }
    indexes.into_iter().filter_map(|(first, columns)| Some((first.table, columns?))).collect()
}

#[cfg(test)]
mod tests {
    use mysql_async::Value;

    use super::super::super::catalog_row::tests::survives_hostile_rows;
    use super::*;

    #[test]
    fn unexpected_nulls_do_not_panic() {
        let text = |text: &str| Value::Bytes(text.into());
        let table = [text("shop"), text("t"), text("BASE TABLE"), text("5"), text("16384")];
        survives_hostile_rows(&table, |row| table_row(row, "shop"));
        survives_hostile_rows(&["shop", "t", "id", "int(11)"].map(text), column_row);
        survives_hostile_rows(&["shop", "t", "PRIMARY", "id", "1"].map(text), key_row);
    }

    #[test]
    fn a_name_with_a_dot_needs_its_database() {
        let row = |schema: &str, name: &str| {
            let text = |text: &str| Value::Bytes(text.into());
            let row = vec![text(schema), text(name), text("VIEW"), Value::NULL, Value::NULL];
            table_row(&CatalogRow::of(row), "shop").unwrap()
        };
        assert_eq!(row("shop", "a").table, "a");
        assert_eq!(row("shop", "a.b").table, "shop.a.b");
        assert_eq!(row("other", "a").table, "other.a");
        assert_eq!((row("shop", "a").kind.as_str(), row("shop", "a").rows), ("view", None));
    }

    #[test]
    fn only_keys_of_whole_required_columns_are_listed() {
        let part = |table: &str, index: &str, column: Option<&str>| KeyPart {
            table: ("shop".into(), table.into()),
            index: index.into(),
            column: column.map(Into::into),
        };
        let parts = vec![
            part("a", "PRIMARY", Some("x")),
            part("a", "PRIMARY", Some("y")),
            part("a", "u", None),
            part("a", "u", Some("z")),
            part("b", "u", Some("z")),
            part("b", "v", Some("z")),
            part("b", "v", None),
        ];
        let found = merged(parts);
        let keys: Vec<(&str, String)> =
            found.iter().map(|((_, table), key)| (table.as_str(), key.join(","))).collect();
        assert_eq!(keys, [("a", "x,y".to_owned()), ("b", "z".to_owned())]);
    }
}
