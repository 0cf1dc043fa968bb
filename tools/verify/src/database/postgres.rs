//! PostgreSQL.

use std::error::Error as _;

use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};

use super::postgres_tls::{self, PostgresTls};
use super::sql::{Dialect, SqlTables};
use super::{
    Change, DatabaseError, Rows, STATEMENT_TIME_MAX, TableRole, Tables, TransactionEnd,
    TransactionOutcome, Writer, rolled_back, runtime,
};

/// Connection to a server, opened on demand.
pub(super) struct PostgresWriter {
    config: Config,
    tls: PostgresTls,
    /// Drives the connection during a request.
    runtime: Runtime,
    client: Option<Client>,
    tables: SqlTables,
}

/// Query for the log's end, as a position.
const POSITION: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::text";

impl PostgresWriter {
    pub(super) fn new(url: &str, tables: &Tables) -> Result<Self, DatabaseError> {
        let (mut config, tls) = postgres_tls::options(url)?;
        config.connect_timeout(STATEMENT_TIME_MAX).application_name("hotrow verify");
        Ok(Self {
            config,
            tls,
            runtime: runtime()?,
            client: None,
            tables: SqlTables::new(tables, Dialect::Postgres),
        })
    }

    /// Runs statements. After any error the connection is dropped.
    fn ask(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>, DatabaseError> {
        let Self { config, tls, runtime, client, .. } = self;
        let asked = runtime.block_on(async {
            // A timer needs the runtime around it.
            timeout(STATEMENT_TIME_MAX, async {
                if client.is_none() {
                    let (connected, connection) = config.connect(tls.clone()).await?;
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
}

impl Writer for PostgresWriter {
    fn create(&mut self) -> Result<(), DatabaseError> {
        let sql = self.tables.create().join(";");
        self.ask(&sql).map(|_| ())
    }

    fn find(&mut self, table: TableRole, key: Option<u32>) -> Result<Rows, DatabaseError> {
        let sql = self.tables.query(table, key);
        let mut rows = Rows::default();
        for message in self.ask(&sql)? {
            let SimpleQueryMessage::Row(row) = message else { continue };
            self.tables.decode(table, |at| row.get(at).map(str::to_owned), &mut rows);
        }
        Ok(rows)
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
        for statement in changes.iter().flat_map(|change| self.tables.change(change)) {
            sql.push_str(&statement);
            sql.push(';');
        }
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
        // Its text says which step failed, and its cause why.
        let why = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let text = format!("{error}{why}");
        return DatabaseError::Transient(text);
    };
    let text = format!("{} ({})", said.message(), said.code().code());
    // Permanent: wrong names and types, missing privileges, a wrong password; all others are
    // retried.
    match said.code().code().get(..2) {
        Some("42" | "22" | "28" | "3D" | "3F") => DatabaseError::Permanent(text),
        _ => DatabaseError::Transient(text),
    }
}
