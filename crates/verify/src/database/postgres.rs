//! PostgreSQL.

use std::fmt::Write as _;

use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

use super::{
    Change, ChangeKind, DatabaseError, Rows, STATEMENT_TIME_MAX, Table, TransactionEnd,
    TransactionOutcome, Writer, quoted, rolled_back, runtime,
};
use crate::row::{KeyType, MARK, payload};

/// Connection to a server, opened on demand.
pub(super) struct PostgresWriter {
    config: Config,
    /// Drives the connection during a request.
    runtime: Runtime,
    client: Option<Client>,
    table: String,
    key: String,
    key_type: KeyType,
}

/// Query for the log's end, as a position.
const POSITION: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::text";

impl PostgresWriter {
    pub(super) fn new(url: &str, table: &Table) -> Result<Self, DatabaseError> {
        // The error names the wrong part and no password.
        let mut config: Config =
            url.parse().map_err(|error: Error| DatabaseError::Permanent(error.to_string()))?;
        config.connect_timeout(STATEMENT_TIME_MAX).application_name("hotrow verify");
        let (name, key) = (quoted(&table.name, '"'), quoted(&table.key, '"'));
        Ok(Self {
            config,
            runtime: runtime()?,
            client: None,
            table: name,
            key,
            key_type: table.key_type,
        })
    }

    /// Runs statements. After any error the connection is dropped.
    fn ask(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>, DatabaseError> {
        let Self { config, runtime, client, .. } = self;
        let asked = runtime.block_on(async {
            // A timer needs the runtime around it.
            timeout(STATEMENT_TIME_MAX, async {
                if client.is_none() {
                    let (connected, connection) = config.connect(NoTls).await?;
                    tokio::spawn(connection);
                    *client = Some(connected);
                }
                match client {
                    Some(client) => client.simple_query(sql).await,
                    None => Ok(Vec::new()),
                }
            })
            .await
        });
        match asked {
            Ok(Ok(messages)) => Ok(messages),
            Ok(Err(error)) => {
                *client = None;
                Err(fault(&error))
            }
            Err(_) => {
                *client = None;
                Err(DatabaseError::Transient(format!("no response within {STATEMENT_TIME_MAX:?}")))
            }
        }
    }

    fn id(&self, key: u32) -> String {
        match self.key_type {
            KeyType::Integer => key.to_string(),
            KeyType::Text => format!("'{}'", self.key_type.text(key)),
        }
    }

    fn add(&self, sql: &mut String, change: &Change) {
        let (table, key, id) = (&self.table, &self.key, self.id(change.key));
        let insert = || {
            let values =
                format!("{id}, {}, '{}'", change.version, payload(change.key, change.version));
            format!("INSERT INTO {table} ({key}, version, payload) VALUES ({values})")
        };
        let delete = format!("DELETE FROM {table} WHERE {key} = {id};");
        // Writing to a string cannot fail.
        _ = match change.kind {
            ChangeKind::Delete => write!(sql, "{delete}"),
            ChangeKind::Replace => write!(sql, "{delete} {};", insert()),
            ChangeKind::Upsert => write!(
                sql,
                "{} ON CONFLICT ({key}) DO UPDATE SET version = excluded.version, payload = \
                 excluded.payload;",
                insert()
            ),
        };
    }
}

impl Writer for PostgresWriter {
    fn create(&mut self) -> Result<(), DatabaseError> {
        let key_type = match self.key_type {
            KeyType::Integer => "bigint",
            KeyType::Text => "text",
        };
        let (table, key) = (&self.table, &self.key);
        self.ask(&format!(
            "CREATE TABLE IF NOT EXISTS {table}({key} {key_type} PRIMARY KEY, version bigint NOT \
             NULL, payload text NOT NULL)"
        ))
        .map(|_| ())
    }

    fn rows(&mut self) -> Result<Rows, DatabaseError> {
        let (table, key) = (&self.table, &self.key);
        let sql = format!(
            "SELECT {key}::text, version::text, left(payload, {}) FROM {table}",
            MARK.len()
        );
        let mut rows = Rows::default();
        for message in self.ask(&sql)? {
            let SimpleQueryMessage::Row(row) = message else { continue };
            let key = row.get(0).and_then(|text| self.key_type.parse(text));
            let version = row.get(1).and_then(|text| text.parse().ok());
            match (key, version) {
                (Some(key), Some(version)) if row.get(2) == Some(MARK) => {
                    _ = rows.versions.insert(key, version)
                }
                _ => rows.foreign += 1,
            }
        }
        Ok(rows)
    }

    fn version(&mut self, key: u32) -> Result<Option<u64>, DatabaseError> {
        let (table, column, id) = (&self.table, &self.key, self.id(key));
        let found =
            self.ask(&format!("SELECT version::text FROM {table} WHERE {column} = {id}"))?;
        Ok(number(&found))
    }

    fn position(&mut self) -> Option<u64> {
        self.ask(POSITION).ok().as_deref().and_then(number)
    }

    fn transact(
        &mut self,
        changes: &[Change],
        end: TransactionEnd,
        before_commit: &mut dyn FnMut(),
    ) -> TransactionOutcome {
        let mut sql = "BEGIN;".to_owned();
        changes.iter().for_each(|change| self.add(&mut sql, change));
        if let Err(fault) = self.ask(&sql) {
            // The transaction ends with its connection.
            self.client = None;
            return TransactionOutcome::RolledBack(fault);
        }
        if end == TransactionEnd::RollBack {
            // It is rolled back either way.
            _ = self.ask("ROLLBACK");
            return rolled_back();
        }
        before_commit();
        match self.ask("COMMIT") {
            // Every statement succeeded, so the COMMIT cannot have become a ROLLBACK.
            Ok(_) => TransactionOutcome::Committed,
            Err(fault) => TransactionOutcome::Unknown(fault),
        }
    }
}

/// Returns the only number of the result, if there is a row.
fn number(messages: &[SimpleQueryMessage]) -> Option<u64> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}

fn fault(error: &Error) -> DatabaseError {
    let Some(said) = error.as_db_error() else {
        return DatabaseError::Transient(error.to_string());
    };
    let text = format!("{} ({})", said.message(), said.code().code());
    // Permanent: wrong names and types, missing privileges, a wrong password; all others are
    // retried.
    match said.code().code().get(..2) {
        Some("42" | "22" | "28" | "3D" | "3F") => DatabaseError::Permanent(text),
        _ => DatabaseError::Transient(text),
    }
}
