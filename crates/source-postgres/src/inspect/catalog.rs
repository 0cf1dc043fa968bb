//! Description of a table in the catalogue.

use tokio_postgres::types::{Oid, ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use super::super::config::CollectionConfig;
use hotrow_source::preflight::{Finding, listed, suggested};

/// A table as described by the catalogue.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) oid: Oid,
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) relkind: char,
    pub(super) relpersistence: char,
    pub(super) relreplident: char,
    pub(super) is_partition: bool,
    /// There are child tables that are not partitions.
    pub(super) has_children: bool,
    /// Row-level security applies to this user.
    pub(super) row_security: bool,
    /// It applies to some user.
    pub(super) has_row_security: bool,
    /// The user has USAGE on the schema.
    pub(super) schema_usage: bool,
    pub(super) user: String,
    pub(super) columns: Vec<Column>,
    pub(super) indexes: Vec<Index>,
    /// Unique indexes on which no key or alias can rely, each with the reason.
    pub(super) faulty_indexes: Vec<String>,
    /// Partitions of a partitioned table that store rows.
    pub(super) leaves: Vec<Leaf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) number: i16,
    pub(super) name: String,
    pub(super) type_oid: Oid,
    pub(super) not_null: bool,
    pub(super) generated: bool,
    /// Texts that compare equal have the same bytes.
    pub(super) deterministic: bool,
    pub(super) selectable: bool,
    /// Its collation as SQL; `None` if its type has none.
    pub(super) collation: Option<String>,
}

/// A unique index.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) name: String,
    /// Why no key or alias can rely on it; empty: it is valid, not deferred, and over all rows and
    /// on columns only.
    fault: String,
    pub(super) primary: bool,
    pub(super) replica_identity: bool,
    pub(super) columns: Vec<i16>,
}

/// A partition that stores rows.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) name: String,
    pub(super) relreplident: char,
    /// Columns of its replica identity index; empty without one.
    pub(super) identity: Vec<String>,
}

/// Description of a relation; a condition follows.
const RELATION_SQL: &str = "SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text, \
                         c.relpersistence::text, \
    c.relreplident::text, c.relispartition, \
    c.relkind <> 'p' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid), \
    row_security_active(c.oid), has_schema_privilege(n.oid, 'USAGE'), current_user::text, \
    c.relrowsecurity \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE ";

const BY_NAME: &str = "c.relkind IN ('r', 'p', 'v', 'm', 'f') \
    AND ((c.relname = $1 AND pg_table_is_visible(c.oid)) OR n.nspname || '.' || c.relname = $1) \
    ORDER BY c.relname = $1 DESC LIMIT 1";

const COLUMNS_SQL: &str = "SELECT a.attnum, a.attname::text, a.atttypid, a.attnotnull, \
                           a.attgenerated <> '', \
    coalesce(co.collisdeterministic, true), has_column_privilege(a.attrelid, a.attnum, 'SELECT'), \
    quote_ident(cn.nspname) || '.' || quote_ident(co.collname) \
    FROM pg_attribute a LEFT JOIN pg_collation co ON co.oid = a.attcollation \
    LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace \
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Included columns of an index follow its key columns and are cut off.
const INDEXES_SQL: &str = "SELECT c.relname::text, i.indisprimary, i.indisreplident, \
    (i.indkey::int2[])[0:i.indnkeyatts - 1], \
    concat_ws(' and ', CASE WHEN NOT i.indisvalid THEN 'invalid' END, \
      CASE WHEN NOT i.indimmediate THEN 'deferrable' END, \
      CASE WHEN i.indpred IS NOT NULL THEN 'partial' END, \
      CASE WHEN i.indexprs IS NOT NULL THEN 'on an expression' END) \
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
    WHERE i.indrelid = $1 AND i.indisunique ORDER BY i.indisprimary DESC, c.relname";

/// Columns of a partition's replica identity: of the index named, or of the primary key.
const LEAVES_SQL: &str = "SELECT p.relid::regclass::text, c.relreplident::text, \
    coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index i \
      JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey::int2[]) \
      WHERE i.indrelid = c.oid AND i.indisvalid \
      AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident \
      ELSE false END), '{}') \
    FROM pg_partition_tree($1::oid::regclass) p JOIN pg_class c ON c.oid = p.relid WHERE p.isleaf \
    AND c.relkind <> 'p'";

const TABLES_SQL: &str = "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname::text \
    ELSE n.nspname || '.' || c.relname END FROM pg_class c JOIN pg_namespace n \
    ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', \
    'information_schema') \
    AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1 LIMIT 100";

/// Reads the description of a collection's table. A missing table is a finding.
pub(super) async fn facts(
    client: &Client,
    spec: &CollectionConfig,
) -> Result<Result<Facts, Finding>, Error> {
    let sql = [RELATION_SQL, BY_NAME].concat();
    let found = query(client, &sql, &[(&spec.table, Type::TEXT)]).await?;
    match found.first() {
        Some(row) => Ok(Ok(with_details(client, Facts::of(row)?).await?)),
        None => Ok(Err(no_table(client, spec).await?)),
    }
}

/// Reads the description of the table with this OID.
pub(super) async fn facts_of(client: &Client, oid: Oid) -> Result<Option<Facts>, Error> {
    let sql = format!("{RELATION_SQL} c.oid = $1");
    match query(client, &sql, &[(&oid, Type::OID)]).await?.first() {
        Some(row) => with_details(client, Facts::of(row)?).await.map(Some),
        None => Ok(None),
    }
}

/// Adds columns, indexes and partitions.
async fn with_details(client: &Client, mut facts: Facts) -> Result<Facts, Error> {
    let oid = facts.oid;
    let about = [(&oid as &(dyn ToSql + Sync), Type::OID)];
    let (columns, indexes) =
        tokio::try_join!(query(client, COLUMNS_SQL, &about), query(client, INDEXES_SQL, &about))?;
    facts.columns = columns.iter().map(Column::of).collect::<Result<_, _>>()?;
    let indexes = indexes.iter().map(Index::of).collect::<Result<Vec<_>, _>>()?;
    let (usable, faulty): (Vec<Index>, Vec<Index>) =
        indexes.into_iter().partition(|index| index.fault.is_empty());
    facts.indexes = usable;
    let named = |index: Index| format!("`{}` is {}", index.name, index.fault);
    facts.faulty_indexes = faulty.into_iter().map(named).collect();
    if facts.relkind == 'p' {
        facts.leaves = query(client, LEAVES_SQL, &about)
            .await?
            .iter()
            .map(Leaf::of)
            .collect::<Result<_, _>>()?;
    }
    Ok(facts)
}

/// Runs a query in one round trip; nothing remains prepared on the server.
pub(super) async fn query(
    client: &Client,
    sql: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Error> {
    client.query_typed(sql, parameters).await
}

/// Schemas that contain a table of this name and on which this user lacks USAGE; and the user.
const HIDDEN_SQL: &str = "SELECT DISTINCT n.nspname::text, current_user::text \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relname = $1 AND c.relkind IN ('r', 'p') AND NOT has_schema_privilege(n.oid, 'USAGE') \
    ORDER BY 1 LIMIT 10";

async fn no_table(client: &Client, spec: &CollectionConfig) -> Result<Finding, Error> {
    let hidden = query(client, HIDDEN_SQL, &[(&spec.table, Type::TEXT)]).await?;
    if let Some(row) = hidden.first() {
        let schema: &str = row.try_get(0)?;
        let user: &str = row.try_get(1)?;
        let what = format!(
            "collection `{}`: user `{user}` may not use schema `{schema}`, which has a table `{}`",
            spec.name, spec.table
        );
        return Ok(Finding::new(
            what,
            format!("GRANT USAGE ON SCHEMA {} TO {};", quote(schema), quote(user)),
        ));
    }
    let rows = query(client, TABLES_SQL, &[]).await?;
    let have: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    Ok(Finding::new(
        format!(
            "collection `{}`: there is no table `{}`{}",
            spec.name,
            spec.table,
            suggested(&spec.table, &have)
        ),
        format!(
            "name one as the database spells it, with its schema where that is not in \
             the search path: {}",
            listed(&have)
        ),
    ))
}

fn letter(row: &Row, i: usize) -> Result<char, Error> {
    row.try_get::<_, &str>(i).map(|text| text.chars().next().unwrap_or(' '))
}

impl Facts {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            oid: row.try_get(0)?,
            schema: row.try_get(1)?,
            name: row.try_get(2)?,
            relkind: letter(row, 3)?,
            relpersistence: letter(row, 4)?,
            relreplident: letter(row, 5)?,
            is_partition: row.try_get(6)?,
            has_children: row.try_get(7)?,
            row_security: row.try_get(8)?,
            schema_usage: row.try_get(9)?,
            user: row.try_get(10)?,
            has_row_security: row.try_get(11)?,
            columns: Vec::new(),
            indexes: Vec::new(),
            faulty_indexes: Vec::new(),
            leaves: Vec::new(),
        })
    }

    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name == name)
    }

    pub(super) fn no_column(&self, spec: &CollectionConfig, setting: &str, name: &str) -> Finding {
        let have: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        Finding::new(
            format!(
                "collection `{}`: table `{}` has no column `{name}` (setting `{setting}`)",
                spec.name, spec.table
            ),
            format!("name one as the database spells it: {}", listed(&have)),
        )
    }
}

impl Column {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            number: row.try_get(0)?,
            name: row.try_get(1)?,
            type_oid: row.try_get(2)?,
            not_null: row.try_get(3)?,
            generated: row.try_get(4)?,
            deterministic: row.try_get(5)?,
            selectable: row.try_get(6)?,
            collation: row.try_get(7)?,
        })
    }
}

impl Index {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            name: row.try_get(0)?,
            primary: row.try_get(1)?,
            replica_identity: row.try_get(2)?,
            columns: row.try_get(3)?,
            fault: row.try_get(4)?,
        })
    }
}

impl Leaf {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self { name: row.try_get(0)?, relreplident: letter(row, 1)?, identity: row.try_get(2)? })
    }
}

/// Returns a quoted identifier.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
