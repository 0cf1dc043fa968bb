//! Statement of a collection: it reads rows, the log's end and the log's id in one snapshot.

use std::sync::Arc;

use hotrow_source::field_schema::{FieldSchema, JsonForm};
use hotrow_source::json::label;
use hotrow_types::key::{Collation, KeyType};

use super::config::Watch;
use super::inspect::{Embedded, Table};
use super::json::Field;
use super::names::{LOG_TABLE, META_TABLE, quote};

/// Numbers of keys per statement. A query is padded to the next size with NULLs, which match
/// nothing. Each size is prepared once per reader.
pub(crate) const SIZES: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];
/// Most keys in one statement; with four key columns it stays below SQLite's 32,766 parameters.
pub(crate) const SIZE_MAX: usize = SIZES[SIZES.len() - 1];
/// Columns of the answer before the row's own: log id, log's end, index of the key, row found.
pub(crate) const LEADING: usize = 4;

/// Statement of one collection, for any size.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    /// Columns of an answer as JSON, in order.
    pub(crate) fields: Vec<Field>,
    /// Schemas of these and of the children.
    pub(crate) schemas: Arc<[FieldSchema]>,
    /// Children of each record, in the order of their members.
    pub(crate) children: Vec<Children>,
    /// Number of key columns.
    pub(crate) parts: usize,
    log: String,
    columns: String,
    table: String,
    key: Vec<(String, &'static str)>,
}

/// Statement that reads the children of one record, by its key.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    pub(crate) sql: String,
    /// `"name":` of the record's member.
    pub(crate) label: Box<[u8]>,
    /// Columns of a child as JSON, in order.
    pub(crate) fields: Vec<Field>,
}

impl Children {
    fn new(embedded: &Embedded) -> Self {
        Self {
            sql: embedded.sql(),
            label: label(&embedded.member),
            fields: embedded.table.served.iter().map(Field::new).collect(),
        }
    }
}

/// Returns the schema of the member with the children.
fn member_schema(embedded: &Embedded) -> FieldSchema {
    let fields = embedded.table.served.iter().map(|served| served.schema.clone()).collect();
    let limit = embedded.limit;
    FieldSchema::new(&embedded.member, JsonForm::Rows { fields, limit }, false)
}

impl Statements {
    pub(crate) fn new(table: &Table, watch: Watch) -> Self {
        let columns: String =
            table.served.iter().map(|c| format!(", t.{}", quote(&c.name))).collect();
        let names = table.read_key().into_iter().zip(&table.key);
        let key =
            names.map(|(name, key)| (format!("t.{}", quote(name)), collate(key.ty))).collect();
        let record = table.served.iter().filter(|served| !served.is_tenant);
        let log = match watch {
            Watch::Triggers => format!("{}, {}", log_id_sql(), log_end_sql()),
            Watch::None => "NULL, NULL".into(),
        };
        Self {
            fields: table.served.iter().map(Field::new).collect(),
            schemas: record
                .map(|served| served.schema.clone())
                .chain(table.embedded.iter().map(member_schema))
                .collect(),
            children: table.embedded.iter().map(Children::new).collect(),
            parts: table.key.len(),
            log,
            columns,
            table: format!("main.{}", quote(table.read_name())),
            key,
        }
    }

    /// Returns the statement for exactly `size` keys; key `i` has the parameters from `i × parts +
    /// 1` on.
    pub(crate) fn sql(&self, size: usize) -> String {
        let found = format!("{} IS NOT NULL", self.key[0].0);
        let Self { log, columns, table, .. } = self;
        if size == 1 {
            let on = self.on(|part| format!("?{}", part + 1));
            return format!(
                "SELECT {log}, 0, {found}{columns} FROM (SELECT 1) LEFT JOIN {table} AS t ON {on}"
            );
        }
        let names: String = (0..self.parts).map(|p| format!(", k{p}")).collect();
        let values: Vec<String> = (0..size)
            .map(|i| {
                let parameters: String =
                    (0..self.parts).map(|p| format!(",?{}", i * self.parts + p + 1)).collect();
                format!("({i}{parameters})")
            })
            .collect();
        let on = self.on(|part| format!("k.k{part}"));
        format!(
            "WITH k(i{names}) AS (VALUES {}) SELECT {log}, k.i, {found}{columns} FROM k \
             LEFT JOIN {table} AS t ON {on}",
            values.join(",")
        )
    }

    fn on(&self, value: impl Fn(usize) -> String) -> String {
        let terms = self
            .key
            .iter()
            .enumerate()
            .map(|(i, (column, collate))| format!("{column} = {}{collate}", value(i)));
        terms.collect::<Vec<_>>().join(" AND ")
    }
}

/// Returns the index in [`SIZES`] for a query of `keys` keys.
pub(crate) fn size_class(keys: usize) -> usize {
    SIZES.iter().position(|size| *size >= keys).unwrap_or(SIZES.len() - 1)
}

/// Returns the explicit collation, because a column may be declared with another collation than its
/// unique index.
fn collate(ty: KeyType) -> &'static str {
    match ty {
        KeyType::Text(Collation::Binary) => " COLLATE BINARY",
        KeyType::Text(Collation::NoCaseAscii) => " COLLATE NOCASE",
        KeyType::Text(Collation::RightTrim) => " COLLATE RTRIM",
        // No column of this engine is unsigned or of the last two types.
        KeyType::Integer
        | KeyType::Unsigned
        | KeyType::Uuid
        | KeyType::ObjectId
        | KeyType::Bytes
        | KeyType::Text(Collation::Database)
        | KeyType::Canonical(_) => "",
    }
}

/// Returns the expression for the log's id.
pub(crate) fn log_id_sql() -> String {
    format!("(SELECT log_id FROM main.{} WHERE id = 1)", quote(META_TABLE))
}

/// Returns the expression for the newest sequence number of the log.
///
/// It reads the last row, which pruning never deletes, and `sqlite_sequence` only if the log was
/// emptied. `sqlite_sequence` is not read first, because it lags behind when `INSERT OR FAIL` ends
/// a statement half-way, and because it has to be scanned.
pub(crate) fn log_end_sql() -> String {
    let log = quote(LOG_TABLE);
    format!(
        "coalesce((SELECT seq FROM main.{log} ORDER BY seq DESC LIMIT 1), \
         (SELECT seq FROM main.sqlite_sequence WHERE name = '{LOG_TABLE}'), 0)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_takes_the_next_size() {
        let taken: Vec<usize> =
            [0, 1, 2, 4, 5, 64, 65, 4096, 9999].iter().map(|n| SIZES[size_class(*n)]).collect();
        assert_eq!(taken, [1, 1, 4, 4, 16, 64, 256, 4096, 4096]);
        const { assert!(SIZE_MAX * hotrow_types::key::KEY_PARTS_MAX <= 32_766) };
    }
}
