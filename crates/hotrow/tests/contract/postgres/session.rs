//! A writer's connection to PostgreSQL. It outlives crashes of the server: it connects again, and finds out what became of a
//! COMMIT whose answer was lost.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use crate::board::Board;
use crate::engine::{Commit, Row, Session, Step};

/// How long a server may be away.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts to connect.
const TRY_EVERY: Duration = Duration::from_millis(20);
const LOG_END: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::text";

/// A connection, or the will to have one.
pub(crate) struct PostgresSession {
    /// Drives the connection while something is asked.
    runtime: Runtime,
    url: String,
    client: Option<Client>,
    /// Run on each new connection.
    first: String,
}

impl PostgresSession {
    pub(crate) fn new(url: String) -> Self {
        Self::beginning_with(url, "")
    }

    /// As [`Self::new`], with statements for each new connection.
    pub(crate) fn beginning_with(url: String, first: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, url, client: None, first: first.to_owned() }
    }

    /// Runs statements. `None`: the connection was lost.
    fn ask(&mut self, sql: &str) -> Option<Vec<SimpleQueryMessage>> {
        if self.client.is_none() {
            self.client = Some(self.connect());
        }
        let client = self.client.as_ref()?;
        match self.runtime.block_on(client.simple_query(sql)) {
            Ok(messages) => Some(messages),
            Err(error) if is_loss(&error) => {
                self.client = None;
                None
            }
            Err(error) => panic!("a writer: {:.200}: {error}", sql),
        }
    }

    fn connect(&self) -> Client {
        let end = Instant::now() + PATIENCE;
        loop {
            let connected: Result<Client, Error> = self.runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
                tokio::spawn(connection);
                client.batch_execute(&self.first).await?;
                Ok(client)
            });
            match connected {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < end, "a writer cannot connect: {error}"),
            }
            std::thread::sleep(TRY_EVERY);
        }
    }

    /// Asks until there is an answer.
    fn insist(&mut self, sql: &str) -> Vec<SimpleQueryMessage> {
        loop {
            if let Some(messages) = self.ask(sql) {
                return messages;
            }
        }
    }

    fn log_end(&mut self) -> u64 {
        number(&self.insist(LOG_END)).expect("the log's end")
    }

    /// Commits one statement of any kind; the server must be well.
    pub(crate) fn commit_sql(&mut self, sql: &str, board: &Board) -> Commit {
        let messages = self.ask(&format!("BEGIN; {sql}; {LOG_END}")).expect("the server is well");
        let from = number(&messages).expect("the log's end") + 1;
        let begun_ns = board.now();
        self.ask("COMMIT").expect("the server is well");
        Commit { begun_ns, returned_ns: board.now(), from, at: self.log_end() }
    }

    /// Whether a commit whose answer was lost was made: its last step tells.
    fn was_committed(&mut self, steps: &[Step]) -> bool {
        let step = steps.last().expect("a commit has steps");
        let (Step::Insert(Row { key, .. })
        | Step::Update { row: Row { key, .. }, .. }
        | Step::Delete { key }
        | Step::Move { row: Row { key, .. }, .. }) = step;
        let found = number(&self.insist(&format!("SELECT version::text FROM items WHERE id = {key}")));
        match step {
            Step::Delete { .. } => found.is_none(),
            Step::Insert(row) | Step::Update { row, .. } | Step::Move { row, .. } => found == Some(row.version),
        }
    }
}

impl Session for PostgresSession {
    fn commit(&mut self, steps: &[Step], board: &Board) -> Option<Commit> {
        let mut sql = "BEGIN;".to_owned();
        steps.iter().for_each(|step| add(&mut sql, step));
        sql.push_str(LOG_END);
        let messages = self.ask(&sql)?;
        // Every statement but BEGIN concerns one row.
        let counts = messages
            .iter()
            .filter_map(|m| if let SimpleQueryMessage::CommandComplete(n) = m { Some(*n) } else { None });
        assert!(counts.skip(1).all(|rows| rows == 1), "{steps:?}: the history and the database disagree");
        // The commit record is still to be written: it ends past this.
        let from = number(&messages).expect("the log's end") + 1;
        let begun_ns = board.now();
        if self.ask("COMMIT").is_none() && !self.was_committed(steps) {
            return None;
        }
        let returned_ns = board.now();
        Some(Commit { begun_ns, returned_ns, from, at: self.log_end() })
    }

    fn roll_back(&mut self, key: u32, version: u64) {
        _ = self.ask(&format!(
            "BEGIN; INSERT INTO items VALUES ({key}, {version}, 'never committed')
                 ON CONFLICT (id) DO UPDATE SET version = excluded.version, payload = excluded.payload; ROLLBACK"
        ));
    }
}

/// The statement of a step, in one of several ways to the same row.
fn add(sql: &mut String, step: &Step) {
    let insert = |row: &Row| format!("INSERT INTO items VALUES ({}, {}, '{}')", row.key, row.version, row.payload);
    let update = |row: &Row, key: u32| {
        let Row { key: new, version, payload } = row;
        format!("UPDATE items SET id = {new}, version = {version}, payload = '{payload}' WHERE id = {key};")
    };
    // Writing to a string cannot fail.
    _ = match step {
        Step::Insert(row) => write!(sql, "{};", insert(row)),
        Step::Update { row, way: 0 } => write!(sql, "DELETE FROM items WHERE id = {}; {};", row.key, insert(row)),
        Step::Update { row, way: 1 } => {
            let conflict = "ON CONFLICT (id) DO UPDATE SET version = excluded.version, payload = excluded.payload";
            write!(sql, "{} {conflict};", insert(row))
        }
        Step::Update { row, .. } => write!(sql, "{}", update(row, row.key)),
        Step::Delete { key } => write!(sql, "DELETE FROM items WHERE id = {key};"),
        Step::Move { from, row } => write!(sql, "{}", update(row, *from)),
    };
}

/// The only number in the answer, if there is a row.
fn number(messages: &[SimpleQueryMessage]) -> Option<u64> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}

/// Whether the connection or the server went, and not the statement.
fn is_loss(error: &Error) -> bool {
    error.as_db_error().is_none_or(|error| error.code().code().starts_with("57P"))
}
