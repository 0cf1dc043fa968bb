//! A writer's connection to MariaDB or MySQL. It survives crashes of the server: it reconnects, and
//! looks up a COMMIT whose answer was lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row as Answer};
use tokio::runtime::Runtime;

use hotrow_testkit::mysql::Flavor;

use crate::contract::board::Board;
use crate::contract::engine::{Commit, Row, Session, Step, until_answered};
use crate::contract::sql::SqlSession;

/// Errors after which a transaction may be repeated: server shutdown, lock wait time-out, deadlock,
/// interrupted query, XA transaction that is unknown, rolled back or left behind, killed
/// connection, semi-synchronous replication that ended.
const RETRYABLE_ERRORS: [u16; 11] =
    [1053, 1205, 1213, 1317, 1397, 1402, 1440, 1613, 1614, 1927, 3100];

/// Settings of MySQL with which transactions have another form in the log. Connections take turns.
const FORMS: [&str; 4] = [
    "SET binlog_transaction_compression = ON",
    "SET gtid_next = 'AUTOMATIC:blue'",
    "SET binlog_row_image = MINIMAL",
    "DO 0",
];

/// Returns the query of the log's end.
fn log_end_sql() -> String {
    Flavor::of_run().dialect("SHOW MASTER STATUS")
}

/// A connection, reopened on demand.
pub(crate) struct MysqlSession {
    /// Drives the connection during a query.
    runtime: Runtime,
    url: String,
    conn: Option<Conn>,
    /// Name of its XA transactions.
    xid: String,
    /// Number of transactions on several keys.
    several: u64,
}

/// Statements of a transaction, before and after its changes. Those of `prepare` and `commit` end
/// it.
struct Statements {
    begin: String,
    prepare: Vec<String>,
    commit: String,
}

impl MysqlSession {
    pub(crate) fn new(url: String) -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        static SESSIONS: AtomicUsize = AtomicUsize::new(0);
        let xid = format!("session{}", SESSIONS.fetch_add(1, Ordering::Relaxed));
        Self { runtime, url, conn: None, xid, several: 0 }
    }

    /// Returns the statements of the next transaction. Every second one on several keys is an XA
    /// transaction.
    fn transaction(&mut self, steps: usize) -> Statements {
        self.several += u64::from(steps > 1);
        if steps < 2 || self.several % 2 == 1 {
            return Statements {
                begin: "BEGIN".into(),
                prepare: Vec::new(),
                commit: "COMMIT".into(),
            };
        }
        let xa = |verb: &str| format!("XA {verb} '{}'", self.xid);
        Statements {
            begin: xa("START"),
            prepare: vec![xa("END"), xa("PREPARE")],
            commit: xa("COMMIT"),
        }
    }

    /// Runs one statement and returns its rows. `None`: the connection or the transaction was lost.
    fn query(&mut self, sql: &str) -> Option<Vec<Answer>> {
        if self.conn.is_none() {
            self.conn = Some(self.connect());
        }
        let conn = self.conn.as_mut()?;
        match self.runtime.block_on(conn.query(sql)) {
            Ok(rows) => Some(rows),
            Err(Error::Server(e)) if !RETRYABLE_ERRORS.contains(&e.code) => {
                panic!("a writer: {sql:.200}: {e}")
            }
            // Closing the connection rolls back.
            Err(_) => {
                self.conn = None;
                None
            }
        }
    }

    fn connect(&self) -> Conn {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let form = FORMS[TURN.fetch_add(1, Ordering::Relaxed) % FORMS.len()];
        let init = Flavor::of_run().choose("DO 0", form);
        let left_behind = format!("XA ROLLBACK '{}'", self.xid);
        until_answered(|| {
            self.runtime.block_on(async {
                let opts = OptsBuilder::from_opts(Opts::from_url(&self.url)?);
                let mut conn = Conn::new(opts.init(vec![init])).await?;
                match conn.query_drop(&left_behind).await {
                    Err(error @ Error::Io(_)) => Err(error),
                    // Mostly there is none.
                    _ => Ok(conn),
                }
            })
        })
    }

    /// Repeats a query until it is answered.
    fn query_until_answered(&mut self, sql: &str) -> Vec<Answer> {
        loop {
            if let Some(rows) = self.query(sql) {
                return rows;
            }
        }
    }

    /// Returns the log's end, in the form of a position.
    pub(crate) fn log_end(&mut self) -> u64 {
        let rows = self.query_until_answered(&log_end_sql());
        rows.first().and_then(position).expect("a server with a binary log")
    }

    /// Returns true if a commit whose answer was lost took effect; its last step shows it. The
    /// server may still execute it on the lost connection; a locking read waits for its end.
    fn was_committed(&mut self, steps: &[Step]) -> bool {
        let (key, version) = steps.last().expect("a commit has steps").proof();
        let sql = format!("SELECT version FROM items WHERE id = {key} FOR UPDATE");
        let found: Option<u64> = self.query_until_answered(&sql).first().and_then(|row| row.get(0));
        found == version
    }
}

impl SqlSession for MysqlSession {
    const REPLACING: &str =
        "ON DUPLICATE KEY UPDATE version = VALUES(version), payload = VALUES(payload)";

    fn commit_sql(&mut self, sql: &str, board: &Board) -> Commit {
        let from = self.log_end() + 1;
        let begun_ns = board.now();
        self.query(sql).expect("a healthy server");
        Commit { begun_ns, returned_ns: board.now(), from, at: self.log_end() }
    }
}

impl Session for MysqlSession {
    fn commit(&mut self, steps: &[Step], board: &Board) -> Option<Commit> {
        let Statements { begin, prepare, commit } = self.transaction(steps.len());
        self.query(&begin)?;
        for step in steps {
            for sql in statements(step) {
                self.query(&sql)?;
                let conn = self.conn.as_ref()?;
                assert!(
                    conn.affected_rows() >= 1,
                    "{steps:?}: the history and the database disagree"
                );
            }
        }
        // The commit's log entry will end past this position. This query does not end the
        // transaction.
        let from = self.query(&log_end_sql())?.first().and_then(position)? + 1;
        if prepare.iter().any(|sql| self.query(sql).is_none()) {
            // A new connection rolls back what is prepared, so that nothing is locked.
            self.query_until_answered("DO 0");
            return None;
        }
        let begun_ns = board.now();
        if self.query(&commit).is_none() && !self.was_committed(steps) {
            return None;
        }
        let returned_ns = board.now();
        Some(Commit { begun_ns, returned_ns, from, at: self.log_end() })
    }

    fn roll_back(&mut self, key: u32, version: u64) {
        let row = Row { key, version, payload: "never committed".to_owned() };
        for sql in ["BEGIN".to_owned(), upsert(&row), "ROLLBACK".to_owned()] {
            if self.query(&sql).is_none() {
                return;
            }
        }
    }
}

/// Parses the answer to [`log_end_sql`] into the form of a position.
fn position(row: &Answer) -> Option<u64> {
    let file: String = row.get(0)?;
    let offset: u64 = row.get(1)?;
    let number: u64 = file.rsplit('.').next()?.parse().ok()?;
    Some(number << 40 | offset)
}

fn insert(row: &Row) -> String {
    format!("INSERT INTO items VALUES ({}, {}, '{}')", row.key, row.version, row.payload)
}

fn upsert(row: &Row) -> String {
    format!("{} {}", insert(row), MysqlSession::REPLACING)
}

fn update(row: &Row, key: u32) -> String {
    let Row { key: new, version, payload } = row;
    format!(
        "UPDATE items SET id = {new}, version = {version}, payload = '{payload}' WHERE id = {key}"
    )
}

/// Returns the statements of a step, one of several ways to the same result.
fn statements(step: &Step) -> Vec<String> {
    match step {
        Step::Insert(row) => vec![insert(row)],
        Step::Update { row, way: 0 } => {
            vec![format!("DELETE FROM items WHERE id = {}", row.key), insert(row)]
        }
        Step::Update { row, way: 1 } => vec![upsert(row)],
        Step::Update { row, way: 2 } => {
            vec![format!(
                "REPLACE INTO items VALUES ({}, {}, '{}')",
                row.key, row.version, row.payload
            )]
        }
        Step::Update { row, .. } => vec![update(row, row.key)],
        Step::Delete { key } => vec![format!("DELETE FROM items WHERE id = {key}")],
        Step::Move { from, row } => vec![update(row, *from)],
    }
}
