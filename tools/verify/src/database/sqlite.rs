//! SQLite.

use std::path::PathBuf;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::sql::{Dialect, SqlTables};
use super::{
    Change, DatabaseError, Rows, STATEMENT_TIME_MAX, TableRole, Tables, TransactionEnd,
    TransactionOutcome, Writer, rolled_back,
};

/// Connection to a file.
pub(super) struct SqliteWriter {
    path: PathBuf,
    tables: SqlTables,
    connection: Option<Connection>,
    /// End of the change log within the newest transaction, which is the commit's position.
    position: Option<u64>,
}

/// End of Hotrow's change log, as documented in docs/sqlite.md.
const POSITION: &str = "SELECT coalesce(max(seq), 0) FROM _hotrow_log";

impl SqliteWriter {
    pub(super) fn new(path: PathBuf, tables: &Tables) -> Self {
        let tables = SqlTables::new(tables, Dialect::Sqlite);
        Self { path, tables, connection: None, position: None }
    }

    fn connection(&mut self) -> Result<&Connection, DatabaseError> {
        if self.connection.is_none() {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let opened = Connection::open_with_flags(&self.path, flags);
            let connection = opened.and_then(|connection| {
                connection.busy_timeout(STATEMENT_TIME_MAX)?;
                Ok(connection)
            });
            self.connection = Some(connection.map_err(|error| self.fault(&error))?);
        }
        Ok(self.connection.as_ref().expect("opened just now, or before"))
    }

    fn fault(&self, error: &rusqlite::Error) -> DatabaseError {
        let text = format!("{}: {error}", self.path.display());
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::SchemaChanged
                | ErrorCode::OperationInterrupted
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure,
            ) => DatabaseError::Transient(text),
            _ => DatabaseError::Permanent(text),
        }
    }

    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&Connection, &SqlTables) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        self.connection()?;
        let connection = self.connection.as_ref().expect("opened just now");
        ask(connection, &self.tables).map_err(|error| self.fault(&error))
    }

    fn stage(&mut self, changes: &[Change]) -> Result<(), DatabaseError> {
        self.ask(|connection, tables| {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            for statement in changes.iter().flat_map(|change| tables.change(change)) {
                connection.execute(&statement, [])?;
            }
            Ok(())
        })
    }

    /// Ends a possibly open transaction; if that fails, drops the connection.
    fn undo(&mut self) {
        let open = self.connection.as_ref().is_some_and(|connection| !connection.is_autocommit());
        if open && self.ask(|connection, _| connection.execute_batch("ROLLBACK")).is_err() {
            self.connection = None;
        }
    }
}

impl Writer for SqliteWriter {
    fn create(&mut self) -> Result<(), DatabaseError> {
        self.ask(|connection, tables| connection.execute_batch(&tables.create().join(";")))
    }

    fn find(&mut self, table: TableRole, key: Option<u32>) -> Result<Rows, DatabaseError> {
        self.ask(|connection, tables| {
            let mut rows = Rows::default();
            let mut statement = connection.prepare(&tables.query(table, key))?;
            let mut found = statement.query([])?;
            while let Some(row) = found.next()? {
                tables.decode(table, |at| row.get(at).ok().flatten(), &mut rows);
            }
            Ok(rows)
        })
    }

    fn position(&mut self) -> Option<u64> {
        self.position
    }

    fn transact(
        &mut self,
        changes: &[Change],
        end: TransactionEnd,
        before_commit: &mut dyn FnMut(),
    ) -> TransactionOutcome {
        if let Err(fault) = self.stage(changes) {
            self.undo();
            return TransactionOutcome::RolledBack(fault);
        }
        if end == TransactionEnd::RollBack {
            self.undo();
            return rolled_back();
        }
        // Without triggers there is no log.
        let position = self
            .ask(|connection, _| connection.query_row(POSITION, [], |row| row.get::<_, i64>(0)));
        self.position = position.ok().map(i64::cast_unsigned);
        before_commit();
        match self.ask(|connection, _| connection.execute_batch("COMMIT")) {
            Ok(()) => TransactionOutcome::Committed,
            Err(fault) => {
                // A failed COMMIT leaves the transaction open: it can be rolled back for certain,
                // unless the file is damaged.
                let open =
                    self.connection.as_ref().is_some_and(|connection| !connection.is_autocommit());
                self.undo();
                if open {
                    TransactionOutcome::RolledBack(fault)
                } else {
                    TransactionOutcome::Unknown(fault)
                }
            }
        }
    }
}
