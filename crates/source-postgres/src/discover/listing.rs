//! The list of a database's tables: names, estimated sizes, columns and unique keys.

use std::collections::HashMap;
use std::time::Duration;

use hotrow_source::discovery::{self, COLUMNS_MAX, ListedColumn, ListedTable, Request};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::super::OpenError;
use super::{failed, limit_statements};

/// Tables in their order, with their OIDs.
pub(super) struct Listed {
    pub(super) oids: Vec<u32>,
    pub(super) tables: Vec<ListedTable>,
    /// There are more tables than the request allows.
    pub(super) is_cut: bool,
}

/// Time limit of the query for sizes, which waits for the lock of a table that is being altered.
const SIZES_TIMEOUT: Duration = Duration::from_secs(2);
/// The server cancelled the query, at its time limit.
const QUERY_CANCELED: &str = "57014";

/// A table whose name another one of the search path hides needs its schema, and so does one
/// outside of the search path.
const TABLES_SQL: &str = "SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text, \
    pg_catalog.pg_table_is_visible(c.oid), CASE WHEN c.relkind = 'p' THEN \
      (SELECT CASE WHEN min(l.reltuples) < 0 THEN -1 ELSE sum(l.reltuples) END::float8 \
       FROM pg_catalog.pg_partition_tree(c.oid) p JOIN pg_catalog.pg_class l ON l.oid = p.relid \
       WHERE p.isleaf) ELSE c.reltuples END::float8 \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition \
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%' \
    AND ($1::text[] = '{}' OR n.nspname::text = ANY ($1)) \
    AND ($2::text[] = '{}' OR c.relname::text = ANY ($2) \
      OR n.nspname || '.' || c.relname = ANY ($2)) \
    ORDER BY n.nspname::text COLLATE \"C\", c.relname::text COLLATE \"C\" LIMIT $3";

const SIZES_SQL: &str = "SELECT c.oid, CASE WHEN c.relkind = 'p' \
    THEN (SELECT sum(pg_catalog.pg_table_size(p.relid)) \
      FROM pg_catalog.pg_partition_tree(c.oid) p WHERE p.isleaf) \
    WHEN c.relkind IN ('r', 'm') THEN pg_catalog.pg_table_size(c.oid) END::int8 \
    FROM pg_catalog.pg_class c WHERE c.oid = ANY ($1)";

const COLUMNS_SQL: &str = "SELECT a.attrelid, a.attname::text, \
    pg_catalog.format_type(a.atttypid, a.atttypmod), \
    pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT') \
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = ANY ($1) AND a.attnum > 0 \
    AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum LIMIT $2";

/// First an index whose columns the log reports for a deleted row, then the primary key. Only
/// columns of the key itself count, not included ones.
const KEYS_SQL: &str = "SELECT i.indrelid, \
    (SELECT array_agg(a.attname::text ORDER BY k.place) \
     FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(number, place) \
     JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number) \
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid \
    JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid \
    WHERE i.indrelid = ANY ($1) AND i.indisunique AND i.indisvalid AND i.indimmediate \
    AND i.indpred IS NULL AND i.indexprs IS NULL AND (c.relkind = 'm' OR NOT EXISTS \
      (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid \
       AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) AND NOT a.attnotnull)) \
    ORDER BY i.indrelid, (c.relreplident = 'f' OR c.relreplident = 'd' AND i.indisprimary \
      OR c.relreplident = 'i' AND i.indisreplident) DESC, i.indisprimary DESC, x.relname";

const CHILDREN_SQL: &str = "SELECT c.confrelid, c.conrelid, o.attname::text, t.attname::text \
    FROM pg_catalog.pg_constraint c \
    JOIN pg_catalog.pg_attribute o ON o.attrelid = c.conrelid AND o.attnum = c.conkey[1] \
    JOIN pg_catalog.pg_attribute t ON t.attrelid = c.confrelid AND t.attnum = c.confkey[1] \
    WHERE c.contype = 'f' AND cardinality(c.conkey) = 1 AND c.confrelid = ANY ($1) \
    AND c.conrelid = ANY ($1) ORDER BY c.confrelid, c.conrelid, c.conkey";

/// Lists the tables that the request selects.
///
/// # Errors
/// An error of the driver, or more than [`COLUMNS_MAX`] columns.
pub(super) async fn list(client: &Client, request: &Request) -> Result<Listed, OpenError> {
    let limit = i64::try_from(request.tables_max).unwrap_or(i64::MAX).saturating_add(1);
    let rows = client
        .query_typed(
            TABLES_SQL,
            &[
                (&request.schemas, Type::TEXT_ARRAY),
                (&request.tables, Type::TEXT_ARRAY),
                (&limit, Type::INT8),
            ],
        )
        .await
        .map_err(|e| failed(&e))?;
    let is_cut = rows.len() > request.tables_max;
    let rows = rows.iter().take(request.tables_max);
    let listed = rows.map(table).collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
    let (oids, mut tables): (Vec<u32>, Vec<ListedTable>) = listed.into_iter().unzip();
    let place: HashMap<u32, usize> = oids.iter().enumerate().map(|(i, oid)| (*oid, i)).collect();
    columns(client, &oids, &place, &mut tables).await?;
    keys(client, &oids, &place, &mut tables).await.map_err(|e| failed(&e))?;
    sizes(client, &oids, &place, &mut tables, request.timeout).await?;
    if request.is_for_setup {
        children(client, &oids, &place, &mut tables).await.map_err(|e| failed(&e))?;
    }
    Ok(Listed { oids, tables, is_cut })
}

fn table(row: &Row) -> Result<(u32, ListedTable), tokio_postgres::Error> {
    let schema: String = row.try_get(1)?;
    let name: String = row.try_get(2)?;
    let is_visible: bool = row.try_get(4)?;
    let rows: Option<f64> = row.try_get(5)?;
    let table = if is_visible { name.clone() } else { format!("{schema}.{name}") };
    let kind = match row.try_get::<_, &str>(3)? {
        "p" => "partitioned table",
        "v" => "view",
        "m" => "materialized view",
        "f" => "foreign table",
        _ => "table",
    };
    let listed = ListedTable {
        schema,
        name,
        table,
        kind: kind.to_owned(),
        // Negative: never analyzed. A view has no rows of its own.
        rows: rows.filter(|rows| *rows >= 0.0 && kind != "view").map(|rows| rows as u64),
        ..ListedTable::default()
    };
    Ok((row.try_get(0)?, listed))
}

async fn columns(
    client: &Client,
    oids: &[u32],
    place: &HashMap<u32, usize>,
    tables: &mut [ListedTable],
) -> Result<(), OpenError> {
    let limit = COLUMNS_MAX as i64 + 1;
    let parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
        &[(&oids, Type::OID_ARRAY), (&limit, Type::INT8)];
    let rows = client.query_typed(COLUMNS_SQL, parameters).await.map_err(|e| failed(&e))?;
    if rows.len() > COLUMNS_MAX {
        return Err(OpenError::Failed {
            detail: format!(
                "the tables have more than {COLUMNS_MAX} columns; name fewer tables or schemas"
            ),
        });
    }
    let read = |row: &Row| {
        let column = ListedColumn {
            name: row.try_get(1)?,
            sql_type: row.try_get(2)?,
            is_readable: row.try_get(3)?,
        };
        Ok::<(u32, ListedColumn), tokio_postgres::Error>((row.try_get(0)?, column))
    };
    for row in &rows {
        let (oid, column) = read(row).map_err(|e| failed(&e))?;
        if let Some(table) = place.get(&oid).and_then(|i| tables.get_mut(*i)) {
            table.columns.push(column);
        }
    }
    Ok(())
}

async fn keys(
    client: &Client,
    oids: &[u32],
    place: &HashMap<u32, usize>,
    tables: &mut [ListedTable],
) -> Result<(), tokio_postgres::Error> {
    for row in &client.query_typed(KEYS_SQL, &[(&oids, Type::OID_ARRAY)]).await? {
        let oid: u32 = row.try_get(0)?;
        let key: Option<Vec<String>> = row.try_get(1)?;
        if let (Some(table), Some(key)) = (place.get(&oid).and_then(|i| tables.get_mut(*i)), key) {
            table.keys.push(key);
        }
    }
    Ok(())
}

async fn children(
    client: &Client,
    oids: &[u32],
    place: &HashMap<u32, usize>,
    tables: &mut [ListedTable],
) -> Result<(), tokio_postgres::Error> {
    let mut found = Vec::new();
    for row in &client.query_typed(CHILDREN_SQL, &[(&oids, Type::OID_ARRAY)]).await? {
        let parent = place.get(&row.try_get::<_, u32>(0)?).copied();
        let child = place.get(&row.try_get::<_, u32>(1)?).copied();
        if let (Some(parent), Some(child)) = (parent, child) {
            found.push((parent, child, row.try_get(2)?, row.try_get(3)?));
        }
    }
    discovery::note_children(tables, found);
    Ok(())
}

/// Reads the sizes, or none if a table is locked for longer than [`SIZES_TIMEOUT`].
async fn sizes(
    client: &Client,
    oids: &[u32],
    place: &HashMap<u32, usize>,
    tables: &mut [ListedTable],
    timeout: Duration,
) -> Result<(), OpenError> {
    limit_statements(client, SIZES_TIMEOUT).await?;
    let rows = client.query_typed(SIZES_SQL, &[(&oids, Type::OID_ARRAY)]).await;
    limit_statements(client, timeout).await?;
    let rows = match rows {
        Ok(rows) => rows,
        Err(e) if e.code().is_some_and(|code| code.code() == QUERY_CANCELED) => return Ok(()),
        Err(e) => return Err(failed(&e)),
    };
    for row in &rows {
        let oid: u32 = row.try_get(0).map_err(|e| failed(&e))?;
        let bytes: Option<i64> = row.try_get(1).map_err(|e| failed(&e))?;
        if let Some(table) = place.get(&oid).and_then(|i| tables.get_mut(*i)) {
            table.bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
        }
    }
    Ok(())
}
