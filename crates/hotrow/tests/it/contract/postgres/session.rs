//! A writer's connection to PostgreSQL. It survives crashes of the server: it reconnects, and looks
//! up a COMMIT whose answer was lost.

use std::fmt::Write as _;

use tokio::runtime::Runtime;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use crate::contract::board::Board;
use crate::contract::engine::{Commit, Row, Session, Step, until_answered};
use crate::contract::sql::SqlSession;

const LOG_END: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::text";

/// A connection, reopened on demand.
pub(crate) struct PostgresSession {
    /// Drives the connection during a query.
    runtime: Runtime,
    url: String,
    client: Option<Client>,
}

impl PostgresSession {
    pub(crate) fn new(url: String) -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, url, client: None }
    }

    /// Runs statements. `None`: the connection was lost.
    fn query(&mut self, sql: &str) -> Option<Vec<SimpleQueryMessage>> {
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
        until_answered(|| {
            self.runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
                tokio::spawn(connection);
                Ok::<_, Error>(client)
            })
        })
    }

    /// Repeats a query until it is answered.
    fn query_until_answered(&mut self, sql: &str) -> Vec<SimpleQueryMessage> {
        loop {
            if let Some(messages) = self.query(sql) {
                return messages;
            }
        }
    }

    fn log_end(&mut self) -> u64 {
        number(&self.query_until_answered(LOG_END)).expect("the log's end")
    }

    /// Returns true if a commit whose answer was lost took effect; its last step shows it.
    fn was_committed(&mut self, steps: &[Step]) -> bool {
        let (key, version) = steps.last().expect("a commit has steps").proof();
        let sql = format!("SELECT version::text FROM items WHERE id = {key}");
        number(&self.query_until_answered(&sql)) == version
    }
}

impl SqlSession for PostgresSession {
    const REPLACING: &str = "ON CONFLICT (id) \
        DO UPDATE SET version = excluded.version, payload = excluded.payload";

    fn commit_sql(&mut self, sql: &str, board: &Board) -> Commit {
        let messages = self.query(&format!("BEGIN; {sql}; {LOG_END}")).expect("a healthy server");
        let from = number(&messages).expect("the log's end") + 1;
        let begun_ns = board.now();
        self.query("COMMIT").expect("a healthy server");
        Commit { begun_ns, returned_ns: board.now(), from, at: self.log_end() }
    }
}

impl Session for PostgresSession {
    fn commit(&mut self, steps: &[Step], board: &Board) -> Option<Commit> {
        let mut sql = "BEGIN;".to_owned();
        steps.iter().for_each(|step| add(&mut sql, step));
        sql.push_str(LOG_END);
        let messages = self.query(&sql)?;
        // Every statement but BEGIN affects one row.
        let counts = messages.iter().filter_map(|m| {
            if let SimpleQueryMessage::CommandComplete(n) = m { Some(*n) } else { None }
        });
        assert!(
            counts.skip(1).all(|rows| rows == 1),
            "{steps:?}: the history and the database disagree"
        );
        // The commit record will end past this position.
        let from = number(&messages).expect("the log's end") + 1;
        let begun_ns = board.now();
        if self.query("COMMIT").is_none() && !self.was_committed(steps) {
            return None;
        }
        let returned_ns = board.now();
        Some(Commit { begun_ns, returned_ns, from, at: self.log_end() })
    }

    fn roll_back(&mut self, key: u32, version: u64) {
        _ = self.query(&format!(
            "BEGIN; INSERT INTO items VALUES ({key}, {version}, 'never committed') {}; ROLLBACK",
            Self::REPLACING
        ));
    }
}

/// Appends the statement of a step, one of several ways to the same result.
fn add(sql: &mut String, step: &Step) {
    let insert = |row: &Row| {
        format!("INSERT INTO items VALUES ({}, {}, '{}')", row.key, row.version, row.payload)
    };
    let update = |row: &Row, key: u32| {
        let Row { key: new, version, payload } = row;
        format!(
            "UPDATE items SET id = {new}, version = {version}, payload = '{payload}' \
             WHERE id = {key};"
        )
    };
    // Writing to a string cannot fail.
    _ = match step {
        Step::Insert(row) => write!(sql, "{};", insert(row)),
        Step::Update { row, way: 0 } => {
            write!(sql, "DELETE FROM items WHERE id = {}; {};", row.key, insert(row))
        }
        Step::Update { row, way: 1 } => {
            write!(sql, "{} {};", insert(row), PostgresSession::REPLACING)
        }
        Step::Update { row, .. } => write!(sql, "{}", update(row, row.key)),
        Step::Delete { key } => write!(sql, "DELETE FROM items WHERE id = {key};"),
        Step::Move { from, row } => write!(sql, "{}", update(row, *from)),
    };
}

/// Returns the only number of the answer, if there is a row.
fn number(messages: &[SimpleQueryMessage]) -> Option<u64> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}

/// Returns true if the connection or the server failed, not the statement.
fn is_loss(error: &Error) -> bool {
    error.as_db_error().is_none_or(|error| error.code().code().starts_with("57P"))
}
