//! A writer's connection to MariaDB or MySQL. It outlives crashes of the server: it connects again, and finds out what became
//! of a COMMIT whose answer was lost.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, Row as Answer};
use tokio::runtime::Runtime;

use crate::board::Board;
use crate::engine::{Commit, Row, Session, Step};

/// How long a server may be away.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts to connect.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Errors after which a transaction may be tried again: the server goes, a lock was waited for too long, a deadlock.
const PASSING: [u16; 5] = [1053, 1205, 1213, 1317, 1927];

/// A connection, or the will to have one.
pub(crate) struct MysqlSession {
    /// Drives the connection while something is asked.
    runtime: Runtime,
    url: String,
    conn: Option<Conn>,
}

impl MysqlSession {
    pub(crate) fn new(url: String) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, url, conn: None }
    }

    /// Runs one statement and gives its rows. `None`: the connection was lost, or the transaction.
    fn ask(&mut self, sql: &str) -> Option<Vec<Answer>> {
        if self.conn.is_none() {
            self.conn = Some(self.connect());
        }
        let conn = self.conn.as_mut()?;
        match self.runtime.block_on(conn.query(sql)) {
            Ok(rows) => Some(rows),
            Err(Error::Server(e)) if !PASSING.contains(&e.code) => panic!("a writer: {sql:.200}: {e}"),
            // Closing it rolls back.
            Err(_) => {
                self.conn = None;
                None
            }
        }
    }

    fn connect(&self) -> Conn {
        let end = Instant::now() + PATIENCE;
        loop {
            let connected = self.runtime.block_on(async { Conn::new(Opts::from_url(&self.url)?).await });
            match connected {
                Ok(conn) => return conn,
                Err(error) => assert!(Instant::now() < end, "a writer cannot connect: {error}"),
            }
            std::thread::sleep(TRY_EVERY);
        }
    }

    /// Asks until there is an answer.
    fn insist(&mut self, sql: &str) -> Vec<Answer> {
        loop {
            if let Some(rows) = self.ask(sql) {
                return rows;
            }
        }
    }

    /// The log's end, as a position tells it.
    pub(crate) fn log_end(&mut self) -> u64 {
        let rows = self.insist("SHOW MASTER STATUS");
        let row = rows.first().expect("a server with a binary log");
        let (file, offset): (String, u64) = (row.get(0).expect("a file"), row.get(1).expect("an offset"));
        let number: u64 = file.rsplit('.').next().and_then(|digits| digits.parse().ok()).expect("a number");
        number << 40 | offset
    }

    /// Commits one statement; the server must be well.
    pub(crate) fn commit_sql(&mut self, sql: &str, board: &Board) -> Commit {
        let from = self.log_end() + 1;
        let begun_ns = board.now();
        self.ask(sql).expect("the server is well");
        Commit { begun_ns, returned_ns: board.now(), from, at: self.log_end() }
    }

    /// Whether a commit whose answer was lost was made: its last step tells. The server may still be about it, on the lost
    /// connection; a locking read waits until that has ended.
    fn was_committed(&mut self, steps: &[Step]) -> bool {
        let step = steps.last().expect("a commit has steps");
        let (Step::Insert(Row { key, .. })
        | Step::Update { row: Row { key, .. }, .. }
        | Step::Delete { key }
        | Step::Move { row: Row { key, .. }, .. }) = step;
        let rows = self.insist(&format!("SELECT version FROM items WHERE id = {key} FOR UPDATE"));
        let found: Option<u64> = rows.first().and_then(|row| row.get(0));
        match step {
            Step::Delete { .. } => found.is_none(),
            Step::Insert(row) | Step::Update { row, .. } | Step::Move { row, .. } => found == Some(row.version),
        }
    }
}

impl Session for MysqlSession {
    fn commit(&mut self, steps: &[Step], board: &Board) -> Option<Commit> {
        self.ask("BEGIN")?;
        for step in steps {
            for sql in statements(step) {
                self.ask(&sql)?;
                let conn = self.conn.as_ref()?;
                assert!(conn.affected_rows() >= 1, "{steps:?}: the history and the database disagree");
            }
        }
        // What is committed is still to be written: it ends past this. Asking ends no transaction.
        let from = self.log_end_within()? + 1;
        let begun_ns = board.now();
        if self.ask("COMMIT").is_none() && !self.was_committed(steps) {
            return None;
        }
        let returned_ns = board.now();
        Some(Commit { begun_ns, returned_ns, from, at: self.log_end() })
    }

    fn roll_back(&mut self, key: u32, version: u64) {
        let row = Row { key, version, payload: "never committed".to_owned() };
        for sql in ["BEGIN".to_owned(), upsert(&row), "ROLLBACK".to_owned()] {
            if self.ask(&sql).is_none() {
                return;
            }
        }
    }
}

impl MysqlSession {
    /// The log's end, asked within a transaction: with the connection, the transaction is lost.
    fn log_end_within(&mut self) -> Option<u64> {
        let rows = self.ask("SHOW MASTER STATUS")?;
        let (file, offset): (String, u64) = (rows.first()?.get(0)?, rows.first()?.get(1)?);
        let number: u64 = file.rsplit('.').next()?.parse().ok()?;
        Some(number << 40 | offset)
    }
}

fn insert(row: &Row) -> String {
    format!("INSERT INTO items VALUES ({}, {}, '{}')", row.key, row.version, row.payload)
}

fn upsert(row: &Row) -> String {
    let mut sql = insert(row);
    // Writing to a string cannot fail.
    _ = write!(sql, " ON DUPLICATE KEY UPDATE version = VALUES(version), payload = VALUES(payload)");
    sql
}

fn update(row: &Row, key: u32) -> String {
    let Row { key: new, version, payload } = row;
    format!("UPDATE items SET id = {new}, version = {version}, payload = '{payload}' WHERE id = {key}")
}

/// The statements of a step, in one of several ways to the same row.
fn statements(step: &Step) -> Vec<String> {
    match step {
        Step::Insert(row) => vec![insert(row)],
        Step::Update { row, way: 0 } => vec![format!("DELETE FROM items WHERE id = {}", row.key), insert(row)],
        Step::Update { row, way: 1 } => vec![upsert(row)],
        Step::Update { row, way: 2 } => {
            vec![format!("REPLACE INTO items VALUES ({}, {}, '{}')", row.key, row.version, row.payload)]
        }
        Step::Update { row, .. } => vec![update(row, row.key)],
        Step::Delete { key } => vec![format!("DELETE FROM items WHERE id = {key}")],
        Step::Move { from, row } => vec![update(row, *from)],
    }
}
