//! A SQLite file of our own, written as any other program writes it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;

/// A comparison that has to look at all of its text.
const BURN: &str = "LIKE '%0%0%0%0%0%1'";

/// A database in a folder that goes with it.
pub struct Database {
    /// The writer's connection. It knows nothing of Hotrow.
    pub connection: Connection,
    path: PathBuf,
    folder: TempDir,
}

impl Database {
    /// An empty database in WAL mode.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("hotrow-test-").tempdir().expect("a temporary folder");
        let path = folder.path().join("shop.db");
        let connection = open(&path);
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL").expect("WAL");
        Self { connection, path, folder }
    }

    /// With `products(id, name, price)`, ids 1 to `rows`: `{"id":1,"name":"p1","price":100}`.
    pub fn with_products(rows: u32) -> Self {
        let database = Self::new();
        database.execute(&format!(
            "CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO products SELECT i, 'p' || i, 100 * i FROM n"
        ));
        database
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder, for further files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Another connection to the same file.
    pub fn another(&self) -> Connection {
        open(&self.path)
    }

    /// Runs statements.
    #[track_caller]
    pub fn execute(&self, sql: &str) {
        self.connection.execute_batch(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    /// The change log's end: what a writer reads after COMMIT to wait for its own writes.
    pub fn log_end(&self) -> u64 {
        log_end(&self.connection)
    }

    /// Adds `slow(id, work, burn)`: reading row 1 takes the reader at least `least` of CPU, row 2 and up nothing. `burn` is
    /// computed when it is read, by a comparison whose cost grows with `work`; how much is needed is measured here.
    pub fn add_slow_table(&self, least: Duration) {
        let (mut work, mut took) = (1_u64 << 16, Duration::ZERO);
        while took < least {
            // Far from it in large steps, for every attempt takes its time.
            work += if took < least / 4 { work } else { work / 3 };
            let measured = || {
                let started = Instant::now();
                let sql = format!("SELECT hex(zeroblob({work})) {BURN}");
                let burn: i64 = self.connection.query_row(&sql, [], |row| row.get(0)).expect("burn");
                assert_eq!(burn, 0);
                started.elapsed()
            };
            // Other work on this machine makes none of them shorter. Long ones need no second look.
            took = measured();
            for _ in 0..2 {
                took = if took < Duration::from_millis(300) || took >= least { took.min(measured()) } else { took };
            }
        }
        self.execute(&format!(
            "CREATE TABLE slow(id INTEGER PRIMARY KEY, work INTEGER NOT NULL,
                 burn INTEGER AS (hex(zeroblob(work)) {BURN}) VIRTUAL);
             INSERT INTO slow(id, work) VALUES (1, {work});
             WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO slow(id, work) SELECT i, 0 FROM n",
        ));
    }
}

/// The change log's end, on any connection.
pub fn log_end(connection: &Connection) -> u64 {
    // There is no row before the first change.
    let seq: i64 = connection
        .query_row("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '_hotrow_log'", [], |row| row.get(0))
        .expect("the change log's sequence");
    u64::try_from(seq).expect("sequences are positive")
}

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("open the database");
    connection.busy_timeout(Duration::from_secs(10)).expect("a busy time-out");
    connection
}
