//! SQL sessions, and the choice of one server among several.

use std::fmt;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{
    ChangeUserOpts, ClientIdentity, Conn, DriverError, Error, IoError, Opts, OptsBuilder, SslOpts,
};
use tokio::time::{Instant, timeout_at};

use super::catalog_row;
use super::error::{ConnectError, full_text};
use super::server::{self, Flavor, Identity};
use super::target::{Host, SslMode, Target};
use hotrow_source::LossCause;
use hotrow_source::feed_loop::Ended;
pub(crate) use hotrow_source::spec::SessionSettings as Settings;

/// Idle time of a connection after which the kernel probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Session with an identified primary. It uses UTC, utf8mb4, and read-only transactions of
/// isolation level repeatable read.
pub(crate) struct Session {
    pub(crate) conn: Conn,
    pub(crate) identity: Identity,
    pub(crate) host: Host,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("host", &self.host)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Opens a session with the first host that is a primary. If `wanted` is given, only that server is
/// accepted. The connection lives on the runtime of the caller.
///
/// # Errors
/// One error per host, in the order of the connection string.
pub(crate) async fn primary(
    target: &Target,
    settings: Settings,
    wanted: Option<&Identity>,
) -> Result<Session, Vec<ConnectError>> {
    let mut errors = Vec::new();
    for host in &target.hosts {
        match session(target, host, settings).await {
            Ok(session)
                if wanted.is_none_or(|identity| identity.is_same_process(&session.identity)) =>
            {
                return Ok(session);
            }
            Ok(session) => errors.push(ConnectError::Unusable {
                host: host.to_string(),
                detail: format!(
                    "it is {}, and not the server that the changes come from",
                    session.identity
                ),
            }),
            Err(e) => errors.push(e),
        }
    }
    Err(errors)
}

/// Opens a session with one host.
///
/// # Errors
/// See [`ConnectError`]; a replica is [`ConnectError::Unusable`].
pub(crate) async fn session(
    target: &Target,
    host: &Host,
    settings: Settings,
) -> Result<Session, ConnectError> {
    let timeout = target.connect_timeout.unwrap_or(settings.connect_timeout);
    let limit = Limit { host, timeout, deadline: Instant::now() + timeout };
    let mut conn = limit.within("connecting", raw(target, host)).await??;
    let set = conn.query_drop(set_session(settings.statement_timeout));
    let set = limit.within("setting up the session", set).await?;
    set.map_err(|e| refused(target, host, &e))?;
    let identity =
        limit.within("reading the server's identity", server::identify(&mut conn, host)).await??;
    Ok(Session { conn, identity, host: host.clone() })
}

/// Sets the time limit of statements in a session.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn limit_statements(
    conn: &mut Conn,
    flavor: Flavor,
    limit: Duration,
) -> Result<(), Error> {
    conn.query_drop(format!("SET SESSION {}", statement_limit(flavor, limit))).await
}

/// Logs in again on an open connection to apply the account's current privileges: the server keeps
/// global and database privileges as they were at the login. Source: MariaDB documentation,
/// "GRANT"; MySQL 8.0 reference manual, "When Privilege Changes Take Effect".
///
/// # Errors
/// Errors of the server, for instance when the account lost access to the database. The connection
/// is unusable then.
pub(crate) async fn log_in_again(conn: &mut Conn, settings: Settings) -> Result<(), Error> {
    conn.change_user(ChangeUserOpts::default()).await?;
    conn.query_drop(set_session(settings.statement_timeout)).await
}

/// Returns a hash of the account's current privileges. A hash, because the text contains a hash of
/// the password.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn privileges(conn: &mut Conn) -> Result<u64, Error> {
    let grants = catalog_row::rows(conn, "SHOW GRANTS", |row| row.text(0, "Grants")).await?;
    let mut hasher = DefaultHasher::new();
    grants.hash(&mut hasher);
    Ok(hasher.finish())
}

/// Opens a connection to one host without session settings; the feed's stream uses it. The caller
/// limits its time.
///
/// # Errors
/// See [`ConnectError`].
pub(crate) async fn raw(target: &Target, host: &Host) -> Result<Conn, ConnectError> {
    let connect = async |encrypted| match opts(target, host, encrypted) {
        Ok(opts) => Conn::new(opts).await.map_err(|e| (no_tls(&e), refused(target, host, &e))),
        Err(e) => Err((false, e)),
    };
    match (host, target.encryption.mode) {
        // A Unix socket cannot be eavesdropped.
        (Host::Unix { .. }, _) | (_, SslMode::Disabled) => connect(false).await.map_err(|(_, e)| e),
        (_, SslMode::Preferred) => match connect(true).await {
            Err((true, _)) => connect(false).await.map_err(|(_, e)| e),
            other => other.map_err(|(_, e)| e),
        },
        (_, SslMode::Required | SslMode::VerifyIdentity) => connect(true).await.map_err(|(_, e)| e),
    }
}

/// Time limit of the steps of connecting.
struct Limit<'a> {
    host: &'a Host,
    timeout: Duration,
    deadline: Instant,
}

impl Limit<'_> {
    async fn within<T>(
        &self,
        doing: &'static str,
        work: impl Future<Output = T>,
    ) -> Result<T, ConnectError> {
        timeout_at(self.deadline, work).await.map_err(|_| ConnectError::Timeout {
            host: self.host.to_string(),
            doing,
            timeout_ms: self.timeout.as_millis(),
        })
    }
}

fn opts(target: &Target, host: &Host, encrypted: bool) -> Result<Opts, ConnectError> {
    let builder = OptsBuilder::default()
        .user(Some(target.user.clone()))
        .pass(target.password.as_ref().map(|p| p.0.clone()))
        .db_name(Some(target.database.clone()))
        .tcp_keepalive(Some(KEEPALIVE))
        // A socket named by the server would bypass the connection string.
        .prefer_socket(false)
        .stmt_cache_size(0)
        .ssl_opts(if encrypted { Some(tls(target, host)?) } else { None });
    Ok(match host {
        Host::Tcp { name, port } => builder.ip_or_hostname(name.clone()).tcp_port(*port),
        Host::Unix { path } => builder.socket(Some(path.to_string_lossy().into_owned())),
    }
    .into())
}

fn tls(target: &Target, host: &Host) -> Result<SslOpts, ConnectError> {
    let encryption = &target.encryption;
    let identity =
        encryption.identity.clone().map(|(cert, key)| ClientIdentity::new(cert.into(), key.into()));
    let opts = SslOpts::default().with_client_identity(identity);
    if encryption.mode < SslMode::VerifyIdentity {
        return Ok(opts.with_danger_accept_invalid_certs(true));
    }
    let opts = opts.with_disable_built_in_roots(true);
    if let Some(path) = &encryption.ca {
        return Ok(opts.with_root_certs(vec![path.clone().into()]));
    }
    let roots = rustls_native_certs::load_native_certs().certs;
    if roots.is_empty() {
        let detail = "`ssl-mode=verify-identity`: the system has no trusted certificates; install \
                      them (often the package `ca-certificates`) or name a file with `ssl-ca`";
        return Err(ConnectError::Unusable { host: host.to_string(), detail: detail.into() });
    }
    Ok(opts.with_root_certs(roots.iter().map(|c| c.to_vec().into()).collect()))
}

/// Ends a transaction whatever `completion_type` says.
pub(crate) const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// Settings of every session. A session inherits the server's, and `init_connect` may change them
/// or begin a transaction, so each that answers depend on is set: the number of rows, their order,
/// the form of values, what the catalogue shows and how, and the results of expressions in views.
///
/// They are set before the server is known: a comment that begins with `/*M!` is executed by
/// MariaDB alone, one with `/*!80000` by MySQL from that version on. A secondary engine of MySQL
/// may be behind.
const SETTINGS: &str = "NAMES utf8mb4, time_zone = '+00:00', sql_mode = '', autocommit = 1, \
    sql_select_limit = 18446744073709551615, sql_big_selects = 1, max_sort_length = 1024, \
    sql_quote_show_create = 1, sql_auto_is_null = 0 \
    /*M!100500 , old_mode = '' */ /*!80013 , use_secondary_engine = OFF */ \
    /*!80030 , show_gipk_in_create_table_and_information_schema = ON */";

/// Returns the statements that begin a session, which cost one round trip.
fn set_session(statement_timeout: Duration) -> String {
    let limit = |flavor| statement_limit(flavor, statement_timeout);
    format!(
        "{ROLLBACK}; SET {SETTINGS} /*M!100500 , {} */ /*!80000 , {} */; \
         SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        limit(Flavor::MariaDb),
        limit(Flavor::MySql),
    )
}

fn statement_limit(flavor: Flavor, limit: Duration) -> String {
    match flavor {
        Flavor::MariaDb => format!("max_statement_time = {:.3}", limit.as_secs_f64().max(0.001)),
        Flavor::MySql => {
            format!("max_execution_time = {}", limit.as_millis().clamp(1, u32::MAX.into()))
        }
    }
}

fn no_tls(e: &Error) -> bool {
    matches!(e, Error::Driver(DriverError::NoClientSslFlagFromServer))
}

/// Explains an error of connecting, with the fix where known.
fn refused(target: &Target, host: &Host, e: &Error) -> ConnectError {
    let host = host.to_string();
    match e {
        Error::Server(server) => {
            let hint = match server.code {
                1045 | 1698 => {
                    format!(
                        "; the password of user `{}` in the connection string is wrong",
                        target.user
                    )
                }
                1130 => format!("; create the user `{}` for this machine's address", target.user),
                1044 => format!(
                    "; correct the name of the database, `{}`, or grant a privilege on its tables",
                    target.database
                ),
                1049 => format!("; correct the name of the database, `{}`", target.database),
                1129 => "; run `FLUSH HOSTS` there".into(),
                1040 => "; raise `max_connections` there or lower `source.reads_in_flight`".into(),
                _ => String::new(),
            };
            ConnectError::Refused {
                host,
                code: server.code,
                detail: format!("{}{hint}", server.message),
            }
        }
        Error::Driver(_) if no_tls(e) => {
            let detail = "it has no TLS, which `ssl-mode` requires; set it up there, or use \
                          `ssl-mode=preferred`"
                .into();
            ConnectError::Unusable { host, detail }
        }
        Error::Driver(DriverError::UnknownAuthPlugin { name }) => {
            let detail = format!(
                "user `{}` authenticates by `{name}`, which is not supported here",
                target.user
            );
            ConnectError::Unusable { host, detail }
        }
        Error::Io(IoError::Tls(_)) => ConnectError::Unusable { host, detail: full_text(e) },
        _ => ConnectError::Unreachable { host, detail: full_text(e) },
    }
}

/// Returns the end of a session by an error of the driver.
// By value, for `map_err`.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn driver_error(e: Error) -> Ended {
    Ended::new(LossCause::Unavailable, full_text(&e))
}
