//! Connection to NATS, and the stream.

use std::fmt::Display;
use std::future::{Ready, ready};
use std::time::Duration;

use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event, ServerError};
use hotrow_hub::message::MESSAGE_BYTES_MAX;
use parking_lot::Mutex;

use crate::config::{Credential, HubConfig, StreamLimits};

/// Time limit of a connection to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a request.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of pings. Two without an answer end the connection.
const PING_EVERY: Duration = Duration::from_secs(2);
/// Most messages that wait in the client. More are dropped, which the next message shows.
const WAITING_MESSAGES_MAX: usize = 1_024;
/// Longest pause between two attempts to connect again.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Failure of NATS; the text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {detail}")]
pub(crate) struct HubError {
    doing: &'static str,
    detail: String,
}

impl HubError {
    pub(crate) fn new(doing: &'static str, detail: impl Display) -> Self {
        Self { doing, detail: detail.to_string() }
    }
}

/// Makes the error of a step.
pub(crate) fn failed<E: Display>(doing: &'static str) -> impl Fn(E) -> HubError {
    move |error| HubError::new(doing, error)
}

/// Connects. `name` is shown by the tools of NATS.
pub(crate) async fn connect(config: &HubConfig, name: &str) -> Result<Client, HubError> {
    const DOING: &str = "connecting to NATS";
    let options = ConnectOptions::new()
        .name(name)
        .connection_timeout(CONNECT_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .ping_interval(PING_EVERY)
        .subscription_capacity(WAITING_MESSAGES_MAX)
        .client_capacity(WAITING_MESSAGES_MAX)
        .reconnect_delay_callback(|attempt| {
            let pause = Duration::from_millis(20).saturating_mul(attempt.min(100) as u32);
            pause.min(RECONNECT_PAUSE_MAX)
        })
        .event_callback(log_refusals());
    let options = match &config.credential {
        Credential::None => options,
        Credential::User(user, password) => {
            options.user_and_password(user.clone(), password.clone())
        }
        Credential::Token(token) => options.token(token.clone()),
        Credential::File(path) => {
            options.credentials_file(path).await.map_err(failed("reading hub.credentials"))?
        }
    };
    let options = match &config.ca {
        Some(path) => options.add_root_certificates(path.clone()),
        None => options,
    };
    let options = match &config.certificate {
        Some((cert, key)) => options.add_client_certificate(cert.clone(), key.clone()),
        None => options,
    };
    options.connect(config.servers.as_slice()).await.map_err(failed(DOING))
}

/// Returns what logs each thing that NATS refuses, once while it stays the same. A refused
/// publication has no other answer.
fn log_refusals() -> impl Fn(Event) -> Ready<()> + Send + Sync + 'static {
    let last = Mutex::new(String::new());
    move |event| {
        if let Event::ServerError(ServerError::Other(error)) = event {
            let mut last = last.lock();
            if *last != error {
                tracing::error!(%error, "NATS refuses; docs/hub.md has the permissions of each role");
                *last = error;
            }
        }
        ready(())
    }
}

/// Returns the interface to JetStream.
pub(crate) fn jetstream(client: &Client) -> Context {
    let mut context = jetstream::new(client.clone());
    context.set_timeout(REQUEST_TIMEOUT);
    context
}

/// Returns the stream, created or changed as configured. A relay without the right to change it
/// uses the stream that is there.
pub(crate) async fn stream(context: &Context, config: &HubConfig) -> Result<Stream, HubError> {
    const DOING: &str = "creating the stream of the hub";
    let StreamLimits { in_memory, replicas, max_age, max_bytes } = config.limits;
    let wanted = stream::Config {
        name: config.stream.clone(),
        subjects: vec![config.changes()],
        storage: if in_memory { StorageType::Memory } else { StorageType::File },
        num_replicas: replicas,
        max_age,
        max_bytes: i64::try_from(max_bytes).unwrap_or(i64::MAX),
        // At most 512 KiB, beside the headers.
        max_message_size: (2 * MESSAGE_BYTES_MAX) as i32,
        discard: DiscardPolicy::Old,
        retention: RetentionPolicy::Limits,
        description: Some("changes of a database, from hotrow relay".to_owned()),
        ..stream::Config::default()
    };
    let refused = context.create_or_update_stream(wanted).await.err();
    match (context.get_stream(&config.stream).await, refused) {
        (Ok(stream), None) => Ok(stream),
        (Ok(stream), Some(error)) => {
            tracing::warn!(%error, "the stream of the hub stays as it is");
            Ok(stream)
        }
        (Err(_), Some(error)) => Err(HubError::new(DOING, error)),
        (Err(error), None) => Err(HubError::new(DOING, error)),
    }
}
