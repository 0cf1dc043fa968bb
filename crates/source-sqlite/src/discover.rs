//! Discovery of a file's tables for a first configuration. It changes nothing: the checks are those
//! of a start with `watch = "none"`.

use std::collections::HashMap;

use hotrow_source::default_key::DefaultKeys;
use hotrow_source::discovery::{
    self, COLUMNS_MAX, Configure, Discovered, Engine, ListedColumn, ListedTable, Request,
};
use hotrow_source::preflight::Finding;
use hotrow_types::key::CollectionId;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::config::{CollectionConfig, Config, Watch};
use super::connect;
use super::error::OpenError;
use super::file::Header;
use super::inspect::{self, Refused};
use super::names::{LOG_TABLE, META_TABLE, quote};

/// Table, view or virtual table of the file.
struct Relation {
    name: String,
    kind: String,
    has_rowid: bool,
}

/// Lists the tables of a file, and checks each with the settings that `configure` chooses. The
/// collections of `config` are not used.
///
/// # Errors
/// The file cannot be opened or read, or a schema other than `main` is asked for.
// By value, as in the other engines.
#[allow(clippy::needless_pass_by_value)]
pub fn discover(
    config: Config,
    request: &Request,
    configure: &Configure<'_>,
) -> Result<Discovered, OpenError> {
    let other = |detail: String| OpenError::Other { path: config.path.clone(), detail };
    let driver = |e: rusqlite::Error| OpenError::from_driver(&config.path, &e);
    if let Some(schema) = request.schemas.iter().find(|schema| *schema != "main") {
        return Err(other(format!("it has no schema `{schema}`; leave it out")));
    }
    let at = connect::locate(&config.path)?;
    let conn = connect::open(&at, request.timeout)?;
    Header::read(&conn)
        .map_err(|detail| OpenError::NotADatabase { path: config.path.clone(), detail })?;
    let tx = Transaction::new_unchecked(&conn, TransactionBehavior::Deferred).map_err(driver)?;
    let mut relations = relations(&tx).map_err(driver)?;
    relations.retain(|relation| request.selects("", &relation.name));
    let is_cut = relations.len() > request.tables_max;
    relations.truncate(request.tables_max);
    let statistics = statistics(&tx).map_err(driver)?;
    let listed = relations.into_iter().map(|relation| list(&tx, relation, &statistics));
    let mut tables = listed.collect::<rusqlite::Result<Vec<_>>>().map_err(driver)?;
    if tables.iter().map(|table| table.columns.len()).sum::<usize>() > COLUMNS_MAX {
        return Err(other(format!("its tables have more than {COLUMNS_MAX} columns; name fewer")));
    }
    if request.is_for_setup {
        let found = foreign_keys(&tx, &tables).map_err(driver)?;
        discovery::note_children(&mut tables, found);
    }
    let configs = configure(&tables);
    let is_writable =
        connect::check_folder(&config, &at).is_ok() && !conn.is_readonly("main").map_err(driver)?;
    let watch = if request.is_for_setup && is_writable { Watch::Triggers } else { Watch::None };
    let findings = configs.iter().map(|spec| check(&tx, spec, watch));
    let findings = findings.collect::<rusqlite::Result<Vec<_>>>().map_err(driver)?;
    let mode: String =
        conn.query_row("PRAGMA main.journal_mode", [], |row| row.get(0)).map_err(driver)?;
    let of_all = (watch == Watch::Triggers && mode != "wal").then(|| {
        Finding::new(
            format!("the journal mode is `{mode}`; a change log needs WAL"),
            "PRAGMA journal_mode = WAL;",
        )
    });
    let unknown = request.unknown(&tables);
    Ok(Discovered {
        engine: Engine::Sqlite,
        database: format!("SQLite, file {}", config.path.display()),
        tables: discovery::joined(tables, configs, findings),
        is_cut,
        findings: of_all.into_iter().collect(),
        unknown,
        lacks_positions: (!is_writable).then_some("the file or its folder cannot be written to"),
    })
}

/// Runs statements one after another.
///
/// # Errors
/// The file cannot be opened, or refuses a statement.
pub fn apply(config: &Config, statements: &[String]) -> Result<(), OpenError> {
    let conn = connect::open(&connect::locate(&config.path)?, config.read_timeout)?;
    let driver = |e: rusqlite::Error| OpenError::from_driver(&config.path, &e);
    statements.iter().try_for_each(|sql| conn.execute_batch(sql)).map_err(driver)
}

/// Looks up the keys of these collections, of which the configuration names none.
///
/// # Errors
/// The file cannot be opened or read.
pub fn default_keys(config: &Config, names: &[String]) -> Result<DefaultKeys, OpenError> {
    let at = connect::locate(&config.path)?;
    let conn = connect::open(&at, config.read_timeout)?;
    let header = Header::read(&conn)
        .map_err(|detail| OpenError::NotADatabase { path: config.path.clone(), detail })?;
    let mut found = DefaultKeys::default();
    for spec in config.collections.iter().filter(|spec| names.contains(&spec.name)) {
        inspect::default_key(&conn, spec, &mut found).map_err(|e| match e {
            Refused::Rule(e) => e,
            Refused::Driver(e) => connect::unusable(config, &at, &header, &e),
        })?;
    }
    Ok(found)
}

/// Returns tables, views and virtual tables, without what belongs to SQLite, to a virtual table or
/// to Hotrow.
fn relations(conn: &Connection) -> rusqlite::Result<Vec<Relation>> {
    let mut statement = conn.prepare(
        "SELECT name, type, NOT wr FROM pragma_table_list WHERE schema = 'main' \
         AND type IN ('table', 'view', 'virtual') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
         AND lower(name) NOT IN (?1, ?2) ORDER BY name COLLATE BINARY",
    )?;
    let read = statement.query_map([LOG_TABLE, META_TABLE], |row| {
        Ok(Relation { name: row.get(0)?, kind: row.get(1)?, has_rowid: row.get(2)? })
    })?;
    read.collect()
}

/// Reads the numbers of rows that ANALYZE has stored.
fn statistics(conn: &Connection) -> rusqlite::Result<HashMap<String, u64>> {
    let exists: Option<i64> = conn
        .query_row("SELECT 1 FROM main.sqlite_schema WHERE name = 'sqlite_stat1'", [], |row| {
            row.get(0)
        })
        .optional()?;
    if exists.is_none() {
        return Ok(HashMap::new());
    }
    let mut statement = conn.prepare("SELECT tbl, stat FROM main.sqlite_stat1")?;
    let mut rows = statement.query([])?;
    let mut found = HashMap::new();
    while let Some(row) = rows.next()? {
        // Anyone may write to that table.
        let (Ok(table), Ok(stat)) = (row.get::<_, String>(0), row.get::<_, String>(1)) else {
            continue;
        };
        if let Some(rows) = stat.split(' ').next().and_then(|number| number.parse().ok()) {
            found.insert(table, rows);
        }
    }
    Ok(found)
}

fn list(
    conn: &Connection,
    relation: Relation,
    statistics: &HashMap<String, u64>,
) -> rusqlite::Result<ListedTable> {
    let Relation { name, kind, has_rowid } = relation;
    let is_table = kind == "table";
    let rows = match statistics.get(&name) {
        Some(rows) => Some(*rows),
        None if is_table && has_rowid => largest_rowid(conn, &name)?,
        None => None,
    };
    Ok(ListedTable {
        schema: String::new(),
        table: name.clone(),
        kind: if kind == "virtual" { "virtual table".to_owned() } else { kind },
        rows,
        bytes: None,
        columns: columns(conn, &name)?,
        keys: if is_table { keys(conn, &name)? } else { Vec::new() },
        name,
        ..ListedTable::default()
    })
}

/// Returns the largest rowid, which is about the number of rows if few were deleted. A count would
/// read the whole table. `None` for an empty table, and if a column hides the rowid.
fn largest_rowid(conn: &Connection, table: &str) -> rusqlite::Result<Option<u64>> {
    let hidden: i64 = conn.query_row(
        "SELECT count(*) FROM pragma_table_xinfo(?1, 'main') WHERE lower(name) = 'rowid'",
        [table],
        |row| row.get(0),
    )?;
    if hidden > 0 {
        return Ok(None);
    }
    let sql = format!("SELECT max(rowid) FROM main.{}", quote(table));
    let largest: Option<i64> = conn.query_row(&sql, [], |row| row.get(0))?;
    Ok(largest.and_then(|rowid| u64::try_from(rowid).ok()))
}

fn columns(conn: &Connection, table: &str) -> rusqlite::Result<Vec<ListedColumn>> {
    let mut statement = conn.prepare(
        "SELECT name, type FROM pragma_table_xinfo(?1, 'main') WHERE hidden <> 1 ORDER BY cid",
    )?;
    let columns = statement.query_map([table], |row| {
        Ok(ListedColumn { name: row.get(0)?, sql_type: row.get(1)?, is_readable: true })
    })?;
    columns.collect()
}

/// Returns the primary key, then the unique indexes on required columns.
fn keys(conn: &Connection, table: &str) -> rusqlite::Result<Vec<Vec<String>>> {
    let names = |sql: &str, of: &str| -> rusqlite::Result<Vec<Option<String>>> {
        conn.prepare(sql)?.query_map([of], |row| row.get(0))?.collect()
    };
    let mut keys = Vec::new();
    let primary =
        names("SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE pk > 0 ORDER BY pk", table)?;
    keys.extend(primary.into_iter().collect::<Option<Vec<String>>>().filter(|key| !key.is_empty()));
    let indexes = names(
        "SELECT name FROM pragma_index_list(?1, 'main') \
         WHERE \"unique\" AND origin <> 'pk' AND NOT partial ORDER BY name COLLATE BINARY",
        table,
    )?;
    let required =
        names("SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE \"notnull\"", table)?;
    for index in indexes.into_iter().flatten() {
        // The name of an expression is NULL.
        let key = names(
            "SELECT name FROM pragma_index_xinfo(?1, 'main') WHERE \"key\" ORDER BY seqno",
            &index,
        )?;
        let is_required = key.iter().all(|column| column.is_some() && required.contains(column));
        keys.extend(key.into_iter().collect::<Option<Vec<String>>>().filter(|_| is_required));
    }
    Ok(keys)
}

/// Returns the foreign keys of one column, each with the places of the tables.
fn foreign_keys(
    conn: &Connection,
    tables: &[ListedTable],
) -> rusqlite::Result<Vec<(usize, usize, String, String)>> {
    let place = |name: &str| tables.iter().position(|table| table.name.eq_ignore_ascii_case(name));
    let mut statement = conn.prepare(
        "SELECT min(\"table\"), min(\"from\"), min(\"to\") \
         FROM pragma_foreign_key_list(?1, 'main') GROUP BY id HAVING count(*) = 1 ORDER BY id",
    )?;
    let mut found = Vec::new();
    for (child, table) in tables.iter().enumerate() {
        let mut rows = statement.query([&table.name])?;
        while let Some(row) = rows.next()? {
            let Some(parent) = place(&row.get::<_, String>(0)?) else { continue };
            // Without a column it is the primary key, the first of the keys.
            let primary = || tables[parent].keys.first()?.first().cloned();
            let Some(to) = row.get::<_, Option<String>>(2)?.or_else(primary) else { continue };
            found.push((parent, child, row.get(1)?, to));
        }
    }
    Ok(found)
}

/// Runs the checks of a start on one table.
fn check(
    conn: &Connection,
    spec: &CollectionConfig,
    watch: Watch,
) -> rusqlite::Result<Vec<Finding>> {
    // The collection's number matters only to answers.
    match inspect::inspect(conn, CollectionId(0), spec, watch) {
        Ok(_) => Ok(Vec::new()),
        Err(Refused::Rule(e)) => Ok(vec![Finding::new(e.to_string(), "")]),
        Err(Refused::Driver(e)) => Err(e),
    }
}
