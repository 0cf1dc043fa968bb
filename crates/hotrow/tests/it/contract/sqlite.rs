//! SQLite engine. This process writes the file.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, ErrorCode};

use crate::contract::board::Board;
use crate::contract::engine::{Commit, Engine, Row, Session, Step};
use crate::contract::rows::{CREATE, payload};
use crate::contract::run::Plan;
use hotrow_testkit::harness::database::log_end;
use hotrow_testkit::harness::{Config, Database};

/// The SQLite engine.
pub(crate) struct Sqlite;

/// A writer's connection.
pub(crate) struct SqliteSession {
    connection: Connection,
    /// True if there is a change log.
    logged: bool,
}

impl Engine for Sqlite {
    type Database = Database;
    type Session = SqliteSession;

    /// One statement reads both the row and the log's end.
    const TOKENS_ARE_EXACT: bool = true;

    fn create(plan: &Plan) -> Database {
        let database = Database::new();
        if !plan.logged {
            database.execute("PRAGMA journal_mode = DELETE");
        }
        database.execute(CREATE);
        fill(&database.connection, plan, 0);
        if plan.through_view {
            database.execute(
                "CREATE VIEW shown AS SELECT payload, version, id FROM items \
                 WHERE version >= 0 AND payload <> ''",
            );
        }
        database
    }

    fn config(database: &Database, plan: &Plan) -> Config {
        let config = match plan.through_view {
            true => Config::new(database.path())
                .set("collections.items.table", "\"shown\"")
                .set("collections.items.columns", "[\"id\", \"version\", \"payload\"]"),
            false => Config::new(database.path()),
        };
        config
            .set("collections.items.allow_min_position", if plan.logged { "true" } else { "false" })
            .set("source.watch", if plan.logged { "\"triggers\"" } else { "\"none\"" })
    }

    fn session(database: &Database, plan: &Plan) -> SqliteSession {
        let connection = database.another();
        // Durability over a power failure would cost a sync per commit.
        connection.execute_batch("PRAGMA synchronous = OFF").expect("no sync");
        SqliteSession { connection, logged: plan.logged }
    }

    fn rows(database: &Database) -> BTreeMap<u32, u64> {
        let connection = database.another();
        let mut statement = connection.prepare("SELECT id, version FROM items").expect("the table");
        let rows = statement
            .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))
            .expect("rows");
        rows.collect::<Result<_, _>>().expect("whole rows")
    }
}

/// Inserts the table's first rows, with this version.
pub(crate) fn fill(connection: &Connection, plan: &Plan, version: u64) {
    connection.execute_batch("BEGIN").expect("begin");
    let mut insert = connection.prepare("INSERT INTO items VALUES (?1, ?2, ?3)").expect("insert");
    for key in (0..plan.keys).filter(|key| Plan::has_first_row(*key)) {
        insert
            .execute((key, version.cast_signed(), payload(key, version, plan.sizes)))
            .expect("a row");
    }
    connection.execute_batch("COMMIT").expect("commit");
}

impl Session for SqliteSession {
    fn commit(&mut self, steps: &[Step], board: &Board) -> Option<Commit> {
        match self.try_commit(steps, board) {
            Ok(commit) => Some(commit),
            Err(error) if is_busy(&error) => {
                // Nothing was committed: SQLite returns BUSY from COMMIT too.
                if !self.connection.is_autocommit() {
                    self.connection.execute_batch("ROLLBACK").expect("roll back");
                }
                None
            }
            Err(error) => panic!("a writer: {error}"),
        }
    }

    fn roll_back(&mut self, key: u32, version: u64) {
        let row = (key, version.cast_signed(), "never committed");
        let sql = "INSERT OR REPLACE INTO items(id, version, payload) VALUES (?1, ?2, ?3)";
        if self.connection.execute_batch("BEGIN IMMEDIATE").is_ok() {
            self.connection.execute(sql, row).expect("write");
            self.connection.execute_batch("ROLLBACK").expect("roll back");
        }
    }
}

impl SqliteSession {
    fn try_commit(&mut self, steps: &[Step], board: &Board) -> rusqlite::Result<Commit> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        for step in steps {
            let rows = self.step(step)?;
            assert_eq!(rows, 1, "{step:?}: the history and the database disagree");
        }
        let at = board.log_base.load(Ordering::Acquire)
            + if self.logged { log_end(&self.connection) } else { 0 };
        let begun_ns = board.now();
        self.connection.execute_batch("COMMIT")?;
        Ok(Commit { begun_ns, returned_ns: board.now(), from: at, at })
    }

    fn step(&self, step: &Step) -> rusqlite::Result<usize> {
        // Several statements with the same result, as different tools use them.
        let (sql, Row { key, version, payload }) = match step {
            Step::Insert(row) => {
                ("INSERT INTO items(id, version, payload) VALUES (?1, ?2, ?3)", row)
            }
            Step::Update { row, way: 0 } => {
                ("INSERT OR REPLACE INTO items(id, version, payload) VALUES (?1, ?2, ?3)", row)
            }
            Step::Update { row, way: 1 } => (
                "INSERT INTO items(id, version, payload) VALUES (?1, ?2, ?3)
                 ON CONFLICT(id)
                 DO UPDATE SET version = excluded.version, payload = excluded.payload",
                row,
            ),
            Step::Update { row, .. } => {
                ("UPDATE items SET version = ?2, payload = ?3 WHERE id = ?1", row)
            }
            Step::Delete { key } => {
                let mut delete =
                    self.connection.prepare_cached("DELETE FROM items WHERE id = ?1")?;
                return delete.execute([key]);
            }
            Step::Move { from, row } => {
                let sql = "UPDATE items SET id = ?1, version = ?2, payload = ?3 WHERE id = ?4";
                let values = (row.key, row.version.cast_signed(), &row.payload, from);
                return self.connection.prepare_cached(sql)?.execute(values);
            }
        };
        self.connection.prepare_cached(sql)?.execute((key, version.cast_signed(), payload))
    }
}

/// Returns true if another connection holds the lock.
fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
