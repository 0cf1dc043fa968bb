//! An SQL session with a server, and which of several servers to take.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{CancelToken, Client, Config};

use super::server::{self, Identity};
use super::stream::{self, ConnectError, Stream, within};
use super::target::{Binding, Host, Target};

/// Name of a session in `pg_stat_activity` where the connection string gives none.
pub(crate) const APPLICATION_NAME: &str = "hotrow";
/// How long a request to cancel a query may take; after that the query's own time-out must do.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// A session with a server that is no replica and that we know by its identity.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) identity: Identity,
    pub(crate) host: Host,
    cancel: CancelToken,
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

/// Opens a session with the first host that is a primary; `wanted`, where given, is the only one that will do. The
/// connection is driven by the runtime that this is called on.
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
    let deadline = Instant::now() + target.connect_timeout.unwrap_or(settings.connect_timeout);
    let mut failed = None;
    for encryption in target.attempts(host) {
        let started = async {
            let stream = stream::open(target, host, *encryption, deadline).await?;
            within(host, "starting a session", deadline, start(target, host, settings, stream)).await?
        };
        match started.await {
            Ok(client) => {
                let identity = within(host, "asking who it is", deadline, server::identify(&client, host)).await??;
                return Ok(Session { cancel: client.cancel_token(), client, identity, host: host.clone() });
            }
            // As libpq: what the first attempt said counts when the second fails too.
            Err(e) if e.may_be_for_encryption() => failed = failed.or(Some(e)),
            Err(e) => return Err(failed.unwrap_or(e)),
        }
    }
    Err(failed.unwrap_or_else(|| ConnectError::Unusable { host: host.to_string(), detail: "no way to connect".into() }))
}

async fn start(target: &Target, host: &Host, settings: Settings, stream: Stream) -> Result<Client, ConnectError> {
    let mut config = Config::new();
    config.user(&target.user).dbname(&target.dbname);
    if let Some(password) = &target.password {
        config.password(&password.0);
    }
    config.application_name(target.application_name.as_deref().unwrap_or(APPLICATION_NAME));
    config.options(options(target, settings));
    config.channel_binding(match target.channel_binding {
        Binding::Disable => tokio_postgres::config::ChannelBinding::Disable,
        Binding::Prefer => tokio_postgres::config::ChannelBinding::Prefer,
        Binding::Require => tokio_postgres::config::ChannelBinding::Require,
    });
    claim_encryption(&mut config, &stream);
    let (client, connection) = config.connect_raw(stream, Established).await.map_err(|e| refused(host, target, &e))?;
    tokio::spawn(async move {
        // Its error reaches whoever waits for an answer; without one nobody is harmed.
        if let Err(e) = connection.await {
            tracing::debug!(error = %e, "a connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

/// The library would ask for TLS itself; ours is there already or is not wanted.
fn claim_encryption(config: &mut Config, stream: &Stream) {
    match stream {
        Stream::Tls(_) => config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct),
        Stream::Tcp(_) | Stream::Unix(_) => config.ssl_mode(SslMode::Disable),
    };
}

/// What the session is set to. In the start-up message, so that nothing is left behind on a pooler's connection.
///
/// Every read is by a unique key, so its plan is always the walk down that index: it is planned once, and not by how few
/// rows the table had then. The forms of text matter only for values that the server itself turns into text.
fn options(target: &Target, settings: Settings) -> String {
    let own = format!(
        "-c statement_timeout={} -c default_transaction_read_only=on -c plan_cache_mode=force_generic_plan -c jit=off \
         -c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off \
         -c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c extra_float_digits=1 -c bytea_output=hex",
        settings.statement_timeout.as_millis().clamp(1, i32::MAX as u128),
    );
    match &target.options {
        Some(theirs) => format!("{own} {theirs}"),
        None => own,
    }
}

fn refused(host: &Host, target: &Target, e: &tokio_postgres::Error) -> ConnectError {
    let host = host.to_string();
    match e.as_db_error() {
        Some(db) => {
            let hint = match db.code().code() {
                "28P01" => format!("; the password of user `{}` in the connection string is not right", target.user),
                "28000" => {
                    "; add a line for this user, database and address to `pg_hba.conf`, and see `sslmode`".into()
                }
                "08P01" if db.message().contains("options") => {
                    "; this is a pooler that takes no `options`: set `ignore_startup_parameters = options` in PgBouncer"
                        .into()
                }
                _ => String::new(),
            };
            ConnectError::Refused { host, code: db.code().code().into(), detail: format!("{}{hint}", db.message()) }
        }
        None => ConnectError::Unusable { host, detail: full_text(e) },
    }
}

/// An error of the driver with its causes, which its own text leaves out.
pub(crate) fn full_text(e: &tokio_postgres::Error) -> String {
    match e.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => {
            let mut text = e.to_string();
            let mut source = std::error::Error::source(e);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.ends_with(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            text
        }
    }
}

impl Session {
    /// Asks the server to give up the query that runs, on a connection of its own. Nobody learns whether it did.
    pub(crate) async fn cancel(&self, target: &Target) {
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        for encryption in target.attempts(&self.host) {
            let Ok(mut stream) = stream::open(target, &self.host, *encryption, deadline).await else { continue };
            // The server closes the connection when the signal is sent: after that the session can be used again
            // without the next query being hit.
            let request = async {
                self.cancel.cancel_query_raw(&mut stream, Established).await.is_ok() && stream.read_u8().await.is_err()
            };
            if matches!(tokio::time::timeout_at(deadline, request).await, Ok(true)) {
                return;
            }
        }
    }

    /// Whether the connection is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

/// TLS that is there already.
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
        self.server_end_point().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl TlsStream for &mut Stream {
    fn channel_binding(&self) -> ChannelBinding {
        TlsStream::channel_binding(&**self)
    }
}
