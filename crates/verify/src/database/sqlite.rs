//! SQLite.

use std::path::PathBuf;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};

use super::{
    Change, ChangeKind, DatabaseError, Rows, STATEMENT_TIME_MAX, Table, TransactionEnd,
    TransactionOutcome, Writer, quoted, rolled_back,
};
use crate::row::{KeyType, MARK, payload};

/// Connection to a file.
pub(super) struct SqliteWriter {
    path: PathBuf,
    key_type: KeyType,
    sql: Sql,
    connection: Option<Connection>,
    /// End of the change log within the newest transaction, which is the commit's position.
    position: Option<u64>,
}

/// Statements with names inserted.
struct Sql {
    create: String,
    rows: String,
    version: String,
    upsert: String,
    replace: String,
    delete: String,
}

/// End of Hotrow's change log, as documented in docs/sqlite.md.
const POSITION: &str = "SELECT coalesce(max(seq), 0) FROM _hotrow_log";

impl SqliteWriter {
    pub(super) fn new(path: PathBuf, table: &Table) -> Self {
        let (name, key) = (quoted(&table.name, '"'), quoted(&table.key, '"'));
        let key_type = match table.key_type {
            KeyType::Integer => "INTEGER PRIMARY KEY",
            KeyType::Text => "TEXT NOT NULL PRIMARY KEY",
        };
        let columns = format!("{name}({key}, version, payload) VALUES (?1, ?2, ?3)");
        let sql = Sql {
            create: format!(
                "CREATE TABLE IF NOT EXISTS {name}({key} {key_type}, version INTEGER NOT NULL, \
                 payload TEXT NOT NULL)"
            ),
            rows: format!("SELECT {key}, version, payload FROM {name}"),
            version: format!("SELECT version FROM {name} WHERE {key} = ?1"),
            upsert: format!(
                "INSERT INTO {columns} ON CONFLICT({key}) DO UPDATE SET version = \
                 excluded.version, payload = excluded.payload"
            ),
            replace: format!("INSERT OR REPLACE INTO {columns}"),
            delete: format!("DELETE FROM {name} WHERE {key} = ?1"),
        };
        Self { path, key_type: table.key_type, sql, connection: None, position: None }
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
        ask: impl FnOnce(&Connection, &Sql) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        self.connection()?;
        let connection = self.connection.as_ref().expect("opened just now");
        ask(connection, &self.sql).map_err(|error| self.fault(&error))
    }

    fn id(&self, key: u32) -> rusqlite::types::Value {
        match self.key_type {
            KeyType::Integer => i64::from(key).into(),
            KeyType::Text => self.key_type.text(key).into(),
        }
    }

    fn stage(&mut self, changes: &[Change]) -> Result<(), DatabaseError> {
        let rows: Vec<_> = changes.iter().map(|change| (self.id(change.key), *change)).collect();
        self.ask(|connection, sql| {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            for (id, change) in rows {
                let text = match change.kind {
                    ChangeKind::Delete => {
                        connection.prepare_cached(&sql.delete)?.execute([id])?;
                        continue;
                    }
                    ChangeKind::Upsert => &sql.upsert,
                    ChangeKind::Replace => &sql.replace,
                };
                let values =
                    (id, change.version.cast_signed(), payload(change.key, change.version));
                connection.prepare_cached(text)?.execute(values)?;
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
        self.ask(|connection, sql| connection.execute_batch(&sql.create))
    }

    fn rows(&mut self) -> Result<Rows, DatabaseError> {
        let key_type = self.key_type;
        self.ask(|connection, sql| {
            let mut rows = Rows::default();
            let mut statement = connection.prepare(&sql.rows)?;
            let mut found = statement.query([])?;
            while let Some(row) = found.next()? {
                let key = match row.get_ref(0)? {
                    rusqlite::types::ValueRef::Integer(n) if key_type == KeyType::Integer => {
                        u32::try_from(n).ok()
                    }
                    rusqlite::types::ValueRef::Text(_) => key_type.parse(&row.get::<_, String>(0)?),
                    _ => None,
                };
                let version =
                    row.get::<_, i64>(1).ok().and_then(|version| u64::try_from(version).ok());
                let ours = row.get::<_, String>(2).is_ok_and(|payload| payload.starts_with(MARK));
                match (key, version) {
                    (Some(key), Some(version)) if ours => _ = rows.versions.insert(key, version),
                    _ => rows.foreign += 1,
                }
            }
            Ok(rows)
        })
    }

    fn version(&mut self, key: u32) -> Result<Option<u64>, DatabaseError> {
        let id = self.id(key);
        self.ask(|connection, sql| {
            let mut statement = connection.prepare_cached(&sql.version)?;
            statement.query_row([id], |row| row.get::<_, i64>(0)).optional()
        })
        .map(|version| version.map(i64::cast_unsigned))
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
