//! MySQL and MariaDB.

use std::fmt::Write as _;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{Act, Change, End, Ended, Fault, Rows, STATEMENT_TIME_MAX, Table, Writer, quoted, rolled_back, runtime};
use crate::row::{KeyType, MARK, payload};

/// A connection to a server, or the will to have one.
pub(super) struct MysqlWriter {
    opts: Opts,
    /// Drives the connection while something is asked.
    runtime: Runtime,
    connection: Option<Conn>,
    table: String,
    key: String,
    key_type: KeyType,
}

/// The log's end, by the names of MariaDB and MySQL up to 8.3, and of MySQL from 8.2 on.
const POSITIONS: [&str; 2] = ["SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"];
/// A point of the log is the number of its file above so many bits of offset.
const OFFSET_BITS: u32 = 40;

impl MysqlWriter {
    pub(super) fn new(url: &str, table: &Table) -> Result<Self, Fault> {
        // The error names the part that is wrong, and no password.
        let opts = Opts::from_url(url).map_err(|error| Fault::Lasting(error.to_string()))?;
        // A socket on the same machine would be another way than the one that was named.
        let opts = OptsBuilder::from_opts(opts).prefer_socket(false).into();
        let (name, key) = (quoted(&table.name, '`'), quoted(&table.key, '`'));
        Ok(Self { opts, runtime: runtime()?, connection: None, table: name, key, key_type: table.key_type })
    }

    /// Runs statements, one after the other, and gives the rows of the last. A connection on which anything went wrong is not
    /// used again, so that an open transaction is over.
    fn ask(&mut self, statements: &[String]) -> Result<Vec<Row>, Fault> {
        let Self { opts, runtime, connection, .. } = self;
        let taken = connection.take();
        let asked = runtime.block_on(async {
            // A timer needs the runtime around it.
            timeout(STATEMENT_TIME_MAX, async {
                let mut open = match taken {
                    Some(open) => open,
                    None => Conn::new(opts.clone()).await?,
                };
                let mut rows = Vec::new();
                for statement in statements {
                    rows = open.query(statement.as_str()).await?;
                }
                Ok::<_, Error>((open, rows))
            })
            .await
        });
        match asked {
            Ok(Ok((open, rows))) => {
                *connection = Some(open);
                Ok(rows)
            }
            Ok(Err(error)) => Err(fault(&error)),
            Err(_) => Err(Fault::Passing(format!("no answer within {STATEMENT_TIME_MAX:?}"))),
        }
    }

    fn id(&self, key: u32) -> String {
        match self.key_type {
            KeyType::Integer => key.to_string(),
            KeyType::Text => format!("'{}'", self.key_type.text(key)),
        }
    }

    fn statements(&self, change: &Change) -> Vec<String> {
        let (table, key, id) = (&self.table, &self.key, self.id(change.key));
        let values = || format!("({id}, {}, '{}')", change.version, payload(change.key, change.version));
        let insert = |verb: &str| format!("{verb} INTO {table} ({key}, version, payload) VALUES {}", values());
        match change.act {
            Act::Delete => vec![format!("DELETE FROM {table} WHERE {key} = {id}")],
            Act::Replace => vec![insert("REPLACE")],
            Act::Upsert => {
                let mut sql = insert("INSERT");
                // Writing to a string cannot fail.
                _ = write!(sql, " ON DUPLICATE KEY UPDATE version = VALUES(version), payload = VALUES(payload)");
                vec![sql]
            }
        }
    }
}

impl Writer for MysqlWriter {
    fn create(&mut self) -> Result<(), Fault> {
        let key_type = match self.key_type {
            KeyType::Integer => "BIGINT",
            // Case and accents count: k1 is no other key's K1.
            KeyType::Text => "VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin",
        };
        let (table, key) = (&self.table, &self.key);
        let columns = format!("{key} {key_type} NOT NULL PRIMARY KEY, version BIGINT NOT NULL, payload TEXT NOT NULL");
        // Another engine than InnoDB would have no transactions.
        self.ask(&[format!("CREATE TABLE IF NOT EXISTS {table}({columns}) ENGINE=InnoDB")]).map(|_| ())
    }

    fn rows(&mut self) -> Result<Rows, Fault> {
        let (table, key, mark) = (&self.table, &self.key, MARK.len());
        let columns = format!("CAST({key} AS CHAR), CAST(version AS CHAR), CAST(LEFT(payload, {mark}) AS CHAR)");
        let found = self.ask(&[format!("SELECT {columns} FROM {table}")])?;
        let mut rows = Rows::default();
        for row in found {
            let key = text(&row, 0).and_then(|text| self.key_type.parse(&text));
            let version = text(&row, 1).and_then(|text| text.parse().ok());
            match (key, version) {
                (Some(key), Some(version)) if text(&row, 2).as_deref() == Some(MARK) => {
                    rows.versions.insert(key, version);
                }
                _ => rows.foreign += 1,
            }
        }
        Ok(rows)
    }

    fn version(&mut self, key: u32) -> Result<Option<u64>, Fault> {
        let (table, column, id) = (&self.table, &self.key, self.id(key));
        let found = self.ask(&[format!("SELECT CAST(version AS CHAR) FROM {table} WHERE {column} = {id}")])?;
        Ok(found.first().and_then(|row| text(row, 0)?.parse().ok()))
    }

    fn transact(&mut self, changes: &[Change], end: End, before_commit: &mut dyn FnMut()) -> Ended {
        let mut statements = vec!["START TRANSACTION".to_owned()];
        statements.extend(changes.iter().flat_map(|change| self.statements(change)));
        if let Err(fault) = self.ask(&statements) {
            return Ended::Undone(fault);
        }
        if end == End::RollBack {
            // Lost or not, it is undone.
            _ = self.ask(&["ROLLBACK".to_owned()]);
            return rolled_back();
        }
        before_commit();
        match self.ask(&["COMMIT".to_owned()]) {
            Ok(_) => Ended::Committed,
            Err(fault) => Ended::Unknown(fault),
        }
    }

    fn position(&mut self) -> Option<u64> {
        // A role without the privilege cannot ask, and the connection is lost by it: it costs one more, and no check.
        let found = POSITIONS.iter().find_map(|sql| self.ask(&[(*sql).to_owned()]).ok())?;
        let row = found.first()?;
        let file: u64 = text(row, 0)?.rsplit_once('.')?.1.parse().ok()?;
        let offset: u64 = text(row, 1)?.parse().ok()?;
        Some(file << OFFSET_BITS | offset)
    }
}

/// A column as text; none for NULL.
fn text(row: &Row, at: usize) -> Option<String> {
    match row.as_ref(at)? {
        mysql_async::Value::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
        mysql_async::Value::Int(n) => Some(n.to_string()),
        mysql_async::Value::UInt(n) => Some(n.to_string()),
        _ => None,
    }
}

fn fault(error: &Error) -> Fault {
    match error {
        Error::Server(said) => {
            let text = format!("{} ({} {})", said.message, said.code, said.state);
            // Wrong names and types, missing privileges, a wrong password; the rest passes or is retried.
            match said.state.get(..2) {
                Some("42" | "22" | "28" | "21") if said.code != 1317 => Fault::Lasting(text),
                _ => Fault::Passing(text),
            }
        }
        Error::Url(_) => Fault::Lasting(error.to_string()),
        Error::Driver(_) | Error::Io(_) | Error::Other(_) => Fault::Passing(error.to_string()),
    }
}
