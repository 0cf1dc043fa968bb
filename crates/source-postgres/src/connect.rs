//! An SQL session with a server, and the choice among several servers.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{CancelToken, Client, Config};

use super::error::full_text;
use super::server::{self, Identity};
use super::stream::{self, ConnectError, Stream, within};
use super::target::{Binding, Host, Target};
use super::wire::replication::quote_identifier;
pub(crate) use hotrow_source::spec::SessionSettings as Settings;

/// Name of a session in `pg_stat_activity` if the connection string sets none.
pub(crate) const APPLICATION_NAME: &str = "hotrow";
/// Time limit of a request to cancel a query; after that the query's own time-out applies.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// A session with a server of known identity.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) identity: Identity,
    /// Incarnation of the positions read in this session.
    pub(crate) incarnation: u64,
    pub(crate) host: Host,
    cancel: CancelToken,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("host", &self.host)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Opens a session with the first host that is a primary and, if given, has the identity `wanted`.
/// The current runtime drives the connection.
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
            Ok(session) if wanted.is_none_or(|identity| *identity == session.identity) => {
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

/// Role of the server that a session must lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Primary,
    Standby,
}

/// Opens a session with the first host that has the system, the database and the version of
/// `wanted`, of which it may be a standby. Its own identity has no timeline, and there are no
/// positions of its own.
///
/// # Errors
/// Same as [`primary`].
pub(crate) async fn standby(
    target: &Target,
    settings: Settings,
    wanted: &Identity,
) -> Result<Session, Vec<ConnectError>> {
    let mut errors = Vec::new();
    for host in &target.hosts {
        match session_as(target, host, settings, Role::Standby).await {
            Ok(session)
                if Identity { timeline: wanted.timeline, ..session.identity } == *wanted =>
            {
                return Ok(session);
            }
            Ok(session) => errors.push(ConnectError::Unusable {
                host: host.to_string(),
                detail: format!(
                    "it is system {}, database {}, PostgreSQL {}, and not a standby of {wanted}, \
                     PostgreSQL {}",
                    session.identity.system,
                    session.identity.database,
                    session.identity.major,
                    wanted.major
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
    session_as(target, host, settings, Role::Primary).await
}

async fn session_as(
    target: &Target,
    host: &Host,
    settings: Settings,
    role: Role,
) -> Result<Session, ConnectError> {
    let deadline = Instant::now() + target.connect_timeout.unwrap_or(settings.connect_timeout);
    let mut failed = None;
    for encryption in target.attempts(host) {
        let started = async {
            let stream = stream::open(target, host, *encryption, deadline).await?;
            let start = start(target, host, settings, role, stream);
            within(host, "starting a session", deadline, start).await?
        };
        match started.await {
            Ok(client) => {
                let identified = async {
                    match role {
                        Role::Primary => server::identify(&client, host).await,
                        Role::Standby => server::identify_standby(&client, host).await,
                    }
                };
                let server =
                    within(host, "requesting its identity", deadline, identified).await??;
                let cancel = client.cancel_token();
                let incarnation = server.incarnation();
                return Ok(Session {
                    cancel,
                    client,
                    identity: server.identity,
                    incarnation,
                    host: host.clone(),
                });
            }
            // As in libpq, the first attempt's error is reported if the second fails too.
            Err(e) if e.may_be_encryption() => failed = failed.or(Some(e)),
            Err(e) => return Err(failed.unwrap_or(e)),
        }
    }
    Err(failed.unwrap_or_else(|| ConnectError::Unusable {
        host: host.to_string(),
        detail: "no way to connect".into(),
    }))
}

async fn start(
    target: &Target,
    host: &Host,
    settings: Settings,
    role: Role,
    stream: Stream,
) -> Result<Client, ConnectError> {
    let mut config = Config::new();
    config.user(&target.user).dbname(&target.dbname);
    if let Some(password) = &target.password {
        config.password(&password.0);
    }
    config.application_name(target.application_name.as_deref().unwrap_or(APPLICATION_NAME));
    config.options(options(target, settings, role));
    config.channel_binding(match target.channel_binding {
        Binding::Disable => tokio_postgres::config::ChannelBinding::Disable,
        Binding::Prefer => tokio_postgres::config::ChannelBinding::Prefer,
        Binding::Require => tokio_postgres::config::ChannelBinding::Require,
    });
    claim_encryption(&mut config, &stream);
    let (client, connection) =
        config.connect_raw(stream, Established).await.map_err(|e| refused(host, target, &e))?;
    tokio::spawn(async move {
        // Callers that wait for an answer receive the error.
        if let Err(e) = connection.await {
            tracing::debug!(error = %e, "a connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

/// Sets the encryption mode: without it the library would negotiate TLS itself, which is done or
/// not wanted.
fn claim_encryption(config: &mut Config, stream: &Stream) {
    match stream {
        Stream::Tls(_) => config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct),
        Stream::Tcp(_) | Stream::Unix(_) => config.ssl_mode(SslMode::Disable),
    };
}

/// Returns the settings of the session. They are part of the start-up message, so that none remains
/// on a pooler's connection.
///
/// Every read is by a unique key, so its plan is always an index scan: it is planned once,
/// independent of the table's size at that time. The text formats matter only for values that the
/// server converts to text.
fn options(target: &Target, settings: Settings, role: Role) -> String {
    let own = format!(
        "-c statement_timeout={} -c default_transaction_read_only=on \
         -c plan_cache_mode=force_generic_plan -c jit=off \
         -c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off \
         -c enable_mergejoin=off -c enable_indexscan=on -c enable_nestloop=on \
         -c default_transaction_isolation=read\\ committed \
         -c default_transaction_deferrable=off -c row_security=on -c transform_null_equals=off \
         -c standard_conforming_strings=on \
         -c xmlbinary=base64 -c lc_monetary=C \
         -c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c extra_float_digits=1 \
         -c bytea_output=hex",
        settings.statement_timeout.as_millis().clamp(1, i32::MAX as u128),
    );
    let all = match &target.options {
        Some(configured) => format!("{own} {configured}"),
        None => own,
    };
    match role {
        Role::Primary => all,
        // Last, so that it holds whatever the role or the connection string sets: in one snapshot
        // with the row, the replay position would say more than the row shows.
        Role::Standby => format!("{all} -c default_transaction_isolation=read\\ committed"),
    }
}

fn refused(host: &Host, target: &Target, e: &tokio_postgres::Error) -> ConnectError {
    let host = host.to_string();
    match e.as_db_error() {
        Some(db) => {
            let hint = match db.code().code() {
                "28P01" => format!(
                    "; the password of user `{}` in the connection string is wrong",
                    target.user
                ),
                "28000" => refused_login(target, db.message()),
                "3D000" => {
                    let database = quote_identifier(&target.dbname);
                    format!(
                        "; correct the database in the connection string, \
                         or run `CREATE DATABASE {database};`"
                    )
                }
                "42501" => {
                    let database = quote_identifier(&target.dbname);
                    let user = quote_identifier(&target.user);
                    format!("; run `GRANT CONNECT ON DATABASE {database} TO {user};`")
                }
                "08P01" if db.message().contains("options") => {
                    "; this is a pooler that rejects `options`: set `ignore_startup_parameters = \
                     options` in PgBouncer"
                        .into()
                }
                _ => String::new(),
            };
            ConnectError::Refused {
                host,
                code: db.code().code().into(),
                detail: format!("{}{hint}", db.message()),
            }
        }
        None => ConnectError::Unusable { host, detail: full_text(e) },
    }
}

/// Returns the remedy for a login refused for a reason other than the password. The server's
/// messages distinguish the reasons, its code does not.
fn refused_login(target: &Target, message: &str) -> String {
    let user = quote_identifier(&target.user);
    if message.contains("does not exist") {
        return format!(
            "; correct the user in the connection string, \
             or run `CREATE ROLE {user} LOGIN REPLICATION PASSWORD '…';`"
        );
    }
    if message.contains("not permitted to log in") {
        return format!("; run `ALTER ROLE {user} LOGIN;`");
    }
    "; add a line for this user, database and address to `pg_hba.conf`, and see `sslmode`".into()
}

impl Session {
    /// Asks the server, on a connection of its own, to cancel the running query. The outcome is
    /// unknown.
    pub(crate) async fn cancel(&self, target: &Target) {
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        for encryption in target.attempts(&self.host) {
            let Ok(mut stream) = stream::open(target, &self.host, *encryption, deadline).await
            else {
                continue;
            };
            // The server closes the connection once the signal is sent: after that the session can
            // be used again without a risk for the next query.
            let request = async {
                self.cancel.cancel_query_raw(&mut stream, Established).await.is_ok()
                    && stream.read_u8().await.is_err()
            };
            if matches!(tokio::time::timeout_at(deadline, request).await, Ok(true)) {
                return;
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

/// TLS that is established already.
struct Established;

impl<S: TlsStream + Unpin> TlsConnect<S> for Established {
    type Stream = S;
    type Error = Infallible;
    type Future = Ready<Result<S, Infallible>>;

    fn connect(self, stream: S) -> Self::Future {
        ready(Ok(stream))
    }
}

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        self.server_end_point()
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl TlsStream for &mut Stream {
    fn channel_binding(&self) -> ChannelBinding {
        TlsStream::channel_binding(&**self)
    }
}
