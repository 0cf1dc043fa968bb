//! An SQL session with a server, and which of several servers to take.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{ClientIdentity, Conn, DriverError, Error, IoError, Opts, OptsBuilder, SslOpts};
use tokio::time::{Instant, timeout_at};

use super::server::{self, Flavor, Identity};
use super::target::{Host, SslMode, Target};

/// How long a connection may be silent before the kernel asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A session with a server that is no replica and that we know by its identity: UTC, utf8mb4, read-only, repeatable read.
pub(crate) struct Session {
    pub(crate) conn: Conn,
    pub(crate) identity: Identity,
    pub(crate) host: Host,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("host", &self.host).field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Settings of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long the server lets a query run.
    pub(crate) statement_timeout: Duration,
    /// How long reaching one host may take, where the connection string does not say.
    pub(crate) connect_timeout: Duration,
}

/// Why one host cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No connection, or it broke off.
    #[error("{host} cannot be reached: {detail}")]
    Unreachable {
        /// As the connection string names it.
        host: String,
        /// What the system or the driver said.
        detail: String,
    },
    /// It took too long.
    #[error("{host} cannot be reached: {doing} took longer than {timeout_ms} ms")]
    Timeout {
        /// As the connection string names it.
        host: String,
        /// What took so long.
        doing: &'static str,
        /// The limit.
        timeout_ms: u128,
    },
    /// The server said no.
    #[error("{host} refuses: {detail} (error {code})")]
    Refused {
        /// As the connection string names it.
        host: String,
        /// The server's error number.
        code: u16,
        /// The server's words and, where known, what to do.
        detail: String,
    },
    /// It answers, and is not what we need.
    #[error("{host} cannot be used: {detail}")]
    Unusable {
        /// As the connection string names it.
        host: String,
        /// Why, and what to do.
        detail: String,
    },
}

/// Opens a session with the first host that is a primary; `wanted`, where given, is the only one that will do. The
/// connection lives on the runtime that this is called on.
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
            Ok(session) if wanted.is_none_or(|identity| *identity == session.identity) => return Ok(session),
            Ok(session) => errors.push(ConnectError::Unusable {
                host: host.to_string(),
                detail: format!("it is {}, and not the server that the changes come from", session.identity),
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
pub(crate) async fn session(target: &Target, host: &Host, settings: Settings) -> Result<Session, ConnectError> {
    let timeout = target.connect_timeout.unwrap_or(settings.connect_timeout);
    let limit = Limit { host, timeout, deadline: Instant::now() + timeout };
    let mut conn = limit.within("connecting", raw(target, host)).await??;
    let identity = limit.within("asking who it is", server::identify(&mut conn, host)).await??;
    let set = set_session(identity.flavor, settings.statement_timeout);
    let set = limit.within("setting up the session", conn.query_drop(set)).await?;
    set.map_err(|e| refused(target, host, &e))?;
    Ok(Session { conn, identity, host: host.clone() })
}

/// A connection to one host with nothing set on it; the caller bounds its time. The feed's stream starts from this.
///
/// # Errors
/// See [`ConnectError`].
pub(crate) async fn raw(target: &Target, host: &Host) -> Result<Conn, ConnectError> {
    let connect = async |encrypted| match opts(target, host, encrypted) {
        Ok(opts) => Conn::new(opts).await.map_err(|e| (no_tls(&e), refused(target, host, &e))),
        Err(e) => Err((false, e)),
    };
    match (host, target.encryption.mode) {
        // Nobody listens in on a Unix socket.
        (Host::Unix { .. }, _) | (_, SslMode::Disabled) => connect(false).await.map_err(|(_, e)| e),
        (_, SslMode::Preferred) => match connect(true).await {
            Err((true, _)) => connect(false).await.map_err(|(_, e)| e),
            other => other.map_err(|(_, e)| e),
        },
        (_, SslMode::Required | SslMode::VerifyIdentity) => connect(true).await.map_err(|(_, e)| e),
    }
}

/// What a step of connecting may take.
struct Limit<'a> {
    host: &'a Host,
    timeout: Duration,
    deadline: Instant,
}

impl Limit<'_> {
    async fn within<T>(&self, doing: &'static str, work: impl Future<Output = T>) -> Result<T, ConnectError> {
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
        // A socket that the server names would lead around what the connection string says.
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
    let wish = &target.encryption;
    let identity = wish.identity.clone().map(|(cert, key)| ClientIdentity::new(cert.into(), key.into()));
    let opts = SslOpts::default().with_client_identity(identity);
    if wish.mode < SslMode::VerifyIdentity {
        return Ok(opts.with_danger_accept_invalid_certs(true));
    }
    let opts = opts.with_disable_built_in_roots(true);
    if let Some(path) = &wish.ca {
        return Ok(opts.with_root_certs(vec![path.clone().into()]));
    }
    let roots = rustls_native_certs::load_native_certs().certs;
    if roots.is_empty() {
        let detail = "`ssl-mode=verify-identity`: the system has no trusted certificates; install its package of them \
                      (often `ca-certificates`) or name a file with `ssl-ca`";
        return Err(ConnectError::Unusable { host: host.to_string(), detail: detail.into() });
    }
    Ok(opts.with_root_certs(roots.iter().map(|c| c.to_vec().into()).collect()))
}

/// One statement, so that it costs one round trip. Reads are by primary key; nothing here changes what they find but the
/// forms in which values come.
fn set_session(flavor: Flavor, statement_timeout: Duration) -> String {
    let limit = match flavor {
        Flavor::MariaDb => format!("max_statement_time = {:.3}", statement_timeout.as_secs_f64().max(0.001)),
        Flavor::MySql => format!("max_execution_time = {}", statement_timeout.as_millis().clamp(1, u32::MAX.into())),
    };
    format!(
        "SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = '', autocommit = 1, {limit}; \
         SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    )
}

fn no_tls(e: &Error) -> bool {
    matches!(e, Error::Driver(DriverError::NoClientSslFlagFromServer))
}

/// What an error of connecting means, and what to do where that is known.
fn refused(target: &Target, host: &Host, e: &Error) -> ConnectError {
    let host = host.to_string();
    match e {
        Error::Server(server) => {
            let hint = match server.code {
                1045 | 1698 => {
                    format!("; the password of user `{}` in the connection string is not right", target.user)
                }
                1130 => format!("; create the user `{}` for this machine's address", target.user),
                1044 | 1049 => format!("; correct the name of the database, `{}`", target.database),
                1129 => "; run `FLUSH HOSTS` there".into(),
                1040 => "; raise `max_connections` there or lower `source.reads_in_flight`".into(),
                _ => String::new(),
            };
            ConnectError::Refused { host, code: server.code, detail: format!("{}{hint}", server.message) }
        }
        Error::Driver(_) if no_tls(e) => {
            let detail =
                "it has no TLS, which `ssl-mode` asks for; set it up there, or use `ssl-mode=preferred`".into();
            ConnectError::Unusable { host, detail }
        }
        Error::Driver(DriverError::UnknownAuthPlugin { name }) => {
            let detail = format!("user `{}` authenticates by `{name}`, which is not supported here", target.user);
            ConnectError::Unusable { host, detail }
        }
        Error::Io(IoError::Tls(_)) => ConnectError::Unusable { host, detail: full_text(e) },
        _ => ConnectError::Unreachable { host, detail: full_text(e) },
    }
}

/// An error of the driver in words.
pub(crate) fn full_text(e: &Error) -> String {
    match e {
        Error::Server(server) => format!("{} (error {})", server.message, server.code),
        // These print whole values or packets.
        Error::Driver(DriverError::FromValue { .. } | DriverError::FromRow { .. }) => {
            "the server's answer has another form than expected".into()
        }
        Error::Driver(DriverError::UnexpectedPacket { .. }) => "the server sent a packet out of place".into(),
        Error::Driver(driver) => driver.to_string(),
        Error::Io(IoError::Io(io)) => io.to_string(),
        Error::Io(IoError::Tls(tls)) => format!("TLS: {tls}"),
        other => other.to_string(),
    }
}
