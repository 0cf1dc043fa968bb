//! MySQL and MariaDB.

use std::path::PathBuf;

use mysql_async::prelude::Queryable as _;
use mysql_async::{ClientIdentity, Conn, DriverError, Error, Opts, OptsBuilder, Row, SslOpts};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::parameters::{parameters, refused};
use super::sql::{Dialect, SqlTables};
use super::{
    Change, DatabaseError, Rows, STATEMENT_TIME_MAX, TableRole, Tables, TransactionEnd,
    TransactionOutcome, Writer, rolled_back, runtime,
};

/// Connection to a server, opened on demand.
pub(super) struct MysqlWriter {
    opts: Opts,
    /// Without TLS, if it may be left out for a server that has none.
    plain: Option<Opts>,
    /// Drives the connection during a request.
    runtime: Runtime,
    connection: Option<Conn>,
    tables: SqlTables,
}

/// Statements for the log's end: MariaDB and MySQL up to 8.3, and MySQL from 8.2 on.
const POSITIONS: [&str; 2] = ["SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"];
/// Bits of the offset in a log position; the file number is above them.
const OFFSET_BITS: u32 = 40;

impl MysqlWriter {
    pub(super) fn new(url: &str, tables: &Tables) -> Result<Self, DatabaseError> {
        let (opts, plain) = options(url)?;
        Ok(Self {
            opts,
            plain,
            runtime: runtime()?,
            connection: None,
            tables: SqlTables::new(tables, Dialect::Mysql),
        })
    }

    /// Runs statements in order and returns the rows of the last. After any error the connection is
    /// dropped, which ends an open transaction.
    fn ask(&mut self, statements: &[String]) -> Result<Vec<Row>, DatabaseError> {
        let Self { opts, plain, runtime, connection, .. } = self;
        let taken = connection.take();
        let asked = runtime.block_on(async {
            // A timer needs the runtime around it.
            timeout(STATEMENT_TIME_MAX, async {
                let mut open = match taken {
                    Some(open) => open,
                    None => match (Conn::new(opts.clone()).await, plain.as_ref()) {
                        (
                            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)),
                            Some(plain),
                        ) => Conn::new(plain.clone()).await?,
                        (opened, _) => opened?,
                    },
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
            Err(_) => {
                Err(DatabaseError::Transient(format!("no response within {STATEMENT_TIME_MAX:?}")))
            }
        }
    }
}

impl Writer for MysqlWriter {
    fn create(&mut self) -> Result<(), DatabaseError> {
        self.ask(&self.tables.create()).map(|_| ())
    }

    fn find(&mut self, table: TableRole, key: Option<u32>) -> Result<Rows, DatabaseError> {
        let mut rows = Rows::default();
        for row in self.ask(&[self.tables.query(table, key)])? {
            self.tables.decode(table, |at| text(&row, at), &mut rows);
        }
        Ok(rows)
    }

    fn transact(
        &mut self,
        changes: &[Change],
        end: TransactionEnd,
        before_commit: &mut dyn FnMut(),
    ) -> TransactionOutcome {
        let mut statements = vec!["START TRANSACTION".to_owned()];
        statements.extend(changes.iter().flat_map(|change| self.tables.change(change)));
        if let Err(fault) = self.ask(&statements) {
            return TransactionOutcome::RolledBack(fault);
        }
        if end == TransactionEnd::RollBack {
            // It is rolled back either way.
            _ = self.ask(&["ROLLBACK".to_owned()]);
            return rolled_back();
        }
        before_commit();
        match self.ask(&["COMMIT".to_owned()]) {
            Ok(_) => TransactionOutcome::Committed,
            Err(fault) => TransactionOutcome::Unknown(fault),
        }
    }

    fn position(&mut self) -> Option<u64> {
        // A role without the privilege gets an error and loses the connection, which costs a
        // reconnect and no check.
        let found = POSITIONS.iter().find_map(|sql| self.ask(&[(*sql).to_owned()]).ok())?;
        let row = found.first()?;
        let file: u64 = text(row, 0)?.rsplit_once('.')?.1.parse().ok()?;
        let offset: u64 = text(row, 1)?.parse().ok()?;
        Some(file << OFFSET_BITS | offset)
    }
}

/// Returns the driver's options, and those without TLS if the server may have none. The parameters
/// are those of `source.url`.
fn options(url: &str) -> Result<(Opts, Option<Opts>), DatabaseError> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    // The driver takes no empty host, which a socket has.
    let address = address.replacen("@/", "@localhost/", 1);
    // The error names the wrong part and no password.
    let opts =
        Opts::from_url(&address).map_err(|error| DatabaseError::Permanent(error.to_string()))?;
    // A local socket would bypass the named address.
    let mut plain = OptsBuilder::from_opts(opts).prefer_socket(false);
    let (mut socket, mut mode) = (None, "preferred".to_owned());
    let (mut ca, mut certificate, mut key) = (None, None, None);
    for (name, value) in parameters(query) {
        match name.as_str() {
            "socket" => socket = Some(value),
            "ssl-mode" => mode = value.to_ascii_lowercase().replace('_', "-"),
            "ssl-ca" => ca = Some(value),
            "ssl-cert" => certificate = Some(value),
            "ssl-key" => key = Some(value),
            // A connection has the time limit of a statement.
            "connect-timeout" => {}
            _ => return Err(refused(&name, &value)),
        }
    }
    if socket.is_some() {
        // A socket cannot be tapped.
        mode = "disabled".to_owned();
        plain = plain.socket(socket);
    }
    let own = |path: String| PathBuf::from(path);
    let identity = certificate.zip(key);
    let identity =
        identity.map(|(cert, key)| ClientIdentity::new(own(cert).into(), own(key).into()));
    let tls = SslOpts::default().with_client_identity(identity);
    let tls = match mode.as_str() {
        "disabled" => return Ok((plain.into(), None)),
        "preferred" | "required" => tls.with_danger_accept_invalid_certs(true),
        "verify-identity" => {
            let trusted = match ca {
                Some(path) => vec![own(path).into()],
                None => {
                    let found = rustls_native_certs::load_native_certs().certs;
                    found.iter().map(|certificate| certificate.to_vec().into()).collect()
                }
            };
            tls.with_disable_built_in_roots(true).with_root_certs(trusted)
        }
        _ => return Err(refused("ssl-mode", &mode)),
    };
    let may_be_plain = (mode == "preferred").then(|| plain.clone().into());
    Ok((plain.ssl_opts(tls).into(), may_be_plain))
}

/// Returns a column as text; `None` for NULL.
fn text(row: &Row, at: usize) -> Option<String> {
    match row.as_ref(at)? {
        mysql_async::Value::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
        mysql_async::Value::Int(n) => Some(n.to_string()),
        mysql_async::Value::UInt(n) => Some(n.to_string()),
        _ => None,
    }
}

fn fault(error: &Error) -> DatabaseError {
    match error {
        Error::Server(said) => {
            let text = format!("{} ({} {})", said.message, said.code, said.state);
            // Permanent: wrong names and types, missing privileges, a wrong password; all others
            // are retried.
            match said.state.get(..2) {
                Some("42" | "22" | "28" | "21") if said.code != 1317 => {
                    DatabaseError::Permanent(text)
                }
                _ => DatabaseError::Transient(text),
            }
        }
        Error::Url(_) => DatabaseError::Permanent(error.to_string()),
        Error::Driver(_) | Error::Io(_) | Error::Other(_) => {
            DatabaseError::Transient(error.to_string())
        }
    }
}
