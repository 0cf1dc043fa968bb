//! A SQLite file, written as any other program writes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

/// A database in a folder that is removed with it.
pub struct Database {
    /// Connection of the writer, independent of Hotrow.
    pub connection: Connection,
    path: PathBuf,
    folder: TempDir,
}

impl Database {
    /// Creates an empty database in WAL mode.
    pub fn new() -> Self {
        let folder =
            tempfile::Builder::new().prefix("hotrow-test-").tempdir().expect("a temporary folder");
        let path = folder.path().join("shop.db");
        let connection = open(&path);
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
            .expect("WAL");
        Self { connection, path, folder }
    }

    /// Creates a database with `products(id, name, price)`, ids 1 to `rows`:
    /// `{"id":1,"name":"p1","price":100}`.
    pub fn with_products(rows: u32) -> Self {
        let database = Self::new();
        database.execute(&format!(
            "CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO products SELECT i, 'p' || i, 100 * i FROM n"
        ));
        database
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder, for further files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn another(&self) -> Connection {
        open(&self.path)
    }

    #[track_caller]
    pub fn execute(&self, sql: &str) {
        self.connection.execute_batch(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    /// Returns the end of the change log, which a writer reads after COMMIT to wait for its own
    /// writes.
    pub fn log_end(&self) -> u64 {
        log_end(&self.connection)
    }

    /// Adds a table of ids alone, 1 to `rows`. A failpoint can make its reads slow.
    pub fn add_table(&self, name: &str, rows: u32) {
        self.execute(&format!(
            "CREATE TABLE {name}(id INTEGER PRIMARY KEY);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO {name} SELECT i FROM n"
        ));
    }
}

/// Returns the end of the change log, on any connection.
pub fn log_end(connection: &Connection) -> u64 {
    // There is no row before the first change.
    let seq: i64 = connection
        .query_row(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '_hotrow_log'",
            [],
            |row| row.get(0),
        )
        .expect("the change log's sequence");
    u64::try_from(seq).expect("sequences are positive")
}

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("open the database");
    connection.busy_timeout(Duration::from_secs(10)).expect("a busy time-out");
    connection
}
