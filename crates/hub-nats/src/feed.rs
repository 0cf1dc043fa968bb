//! Feed of a server that follows the hub: its subscription and its nonces.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt as _;
use hotrow_hub::codec::encode_nonce;
use hotrow_measure::clock::Nanos;
use hotrow_source::feed_loop::{self, Pauses, every};
use hotrow_source::looks::Looks;
use hotrow_source::origin::Origins;
use hotrow_source::{Change, FlushCause, LossCause, Sink};
use hotrow_supervisor as supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_types::key::CollectionId;
use hotrow_types::version::{ChangeId, Position, Version};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::config::HubConfig;
use crate::connection::{self, HubError, failed};
use crate::relay::EngineFeed;
use crate::server_state::ServerState;

pub use crate::server_state::{Bounds, HubCollections};

/// Time after which NATS removes a consumer whose server is gone.
const CONSUMER_KEPT_FOR: Duration = Duration::from_secs(5);
/// Shortest time without a message after which the server subscribes again.
const SILENCE_MIN: Duration = Duration::from_millis(1_000);
/// Silent subscriptions that continue the one before, until the next one begins at the end. While a
/// take-over lasts, all of them are silent.
const CONTINUED_MAX: u32 = 30;

/// Feed from the hub.
pub struct HubFeed {
    config: HubConfig,
    collections: HubCollections,
    origins: Arc<Origins>,
    bounds: Bounds,
}

impl HubFeed {
    /// Creates the feed of these collections.
    #[must_use]
    pub fn new(
        config: HubConfig,
        collections: HubCollections,
        origins: Arc<Origins>,
        bounds: Bounds,
    ) -> Self {
        Self { config, collections, origins, bounds }
    }

    /// Runs until everything must end. Blocks. `watch` is the engine's feed without changes: it
    /// reports the database of the readers, and changed shapes of tables.
    ///
    /// # Errors
    /// The system has no event loop left; nothing was delivered then.
    pub fn run(
        &mut self,
        sink: Arc<dyn Sink>,
        watch: &dyn EngineFeed,
        shutdown: &Shutdown,
    ) -> io::Result<()> {
        let collections = self.collections.clone();
        let instance = RandomState::new().hash_one("instance");
        let origins = Arc::clone(&self.origins);
        let HubConfig { rules, .. } = self.config;
        let state =
            ServerState::new(Arc::clone(&sink), collections, origins, self.bounds, rules, instance);
        let state = Arc::new(Mutex::new(state));
        let readers = ReadersSink { state: Arc::clone(&state), sink };
        feed_loop::run(shutdown, async {
            tokio::select! {
                never = watch.follow(&readers, None) => never,
                never = Box::pin(self.follow(&state)) => never,
            }
        })
    }

    async fn follow(&self, state: &Mutex<ServerState>) -> Infallible {
        let mut pauses = Pauses::new();
        loop {
            let began_at = Instant::now();
            let error = match Box::pin(self.session(state)).await {
                Ok(never) => match never {},
                Err(error) => error.to_string(),
            };
            {
                let mut state = state.lock();
                state.explain(&error);
                state.reset(&error);
            }
            pauses.worked(began_at.elapsed());
            pauses.wait().await;
        }
    }

    /// Follows while NATS answers. A lost connection alone does not end it.
    async fn session(&self, state: &Mutex<ServerState>) -> Result<Infallible, HubError> {
        let client = connection::connect(&self.config, "hotrow serve").await?;
        let context = connection::jetstream(&client);
        let mut place = None;
        let mut silent = 0;
        loop {
            supervisor::turn();
            let before = place;
            let subscribed = self.subscribed(&client, &context, state, &mut place).await;
            silent = if place == before { silent + 1 } else { 0 };
            if let Err(error) = subscribed {
                state.lock().explain(&error.to_string());
                tokio::time::sleep(SILENCE_MIN / 4).await;
            }
            if silent > CONTINUED_MAX {
                place = None;
                state.lock().reset("no message of the change hub came");
            }
        }
    }

    /// Subscribes and follows until no message comes. `place` is the sequence of the next message
    /// in the stream; `None`: the last one. It decides only where to read; which messages count is
    /// decided by their numbers.
    async fn subscribed(
        &self,
        client: &Client,
        context: &Context,
        state: &Mutex<ServerState>,
        place: &mut Option<u64>,
    ) -> Result<(), HubError> {
        const DOING: &str = "subscribing to the change hub";
        let stream = context.get_stream(&self.config.stream).await.map_err(failed(DOING))?;
        let end = stream.cached_info().state.last_sequence;
        if place.is_some_and(|place| place > end + 1) {
            *place = None;
            state.lock().reset("the stream of the change hub ends before what was read of it");
        }
        let inbox = client.new_inbox();
        let mut messages = client.subscribe(inbox.clone()).await.map_err(failed(DOING))?;
        let consumer = push::Config {
            deliver_subject: inbox,
            deliver_policy: place.map_or(DeliverPolicy::Last, |start_sequence| {
                DeliverPolicy::ByStartSequence { start_sequence }
            }),
            ack_policy: AckPolicy::None,
            filter_subject: self.config.changes(),
            inactive_threshold: CONSUMER_KEPT_FOR,
            memory_storage: true,
            num_replicas: 1,
            ..push::Config::default()
        };
        stream.create_consumer(consumer).await.map_err(failed(DOING))?;
        let probe_every = feed_loop::probe_every(self.bounds.max_staleness);
        let silence_max = SILENCE_MIN.max(probe_every * 6);
        let mut probe_tick = every(probe_every);
        probe_tick.reset_immediately();
        let mut heard_at = Instant::now();
        loop {
            supervisor::turn();
            tokio::select! {
                message = messages.next() => {
                    let Some(message) = message else { return Ok(()) };
                    if message.status.is_some() {
                        continue;
                    }
                    heard_at = Instant::now();
                    let message = jetstream::Message { message, context: context.clone() };
                    if let Ok(info) = message.info() {
                        *place = Some(info.stream_sequence + 1);
                    }
                    state.lock().receive(&message.payload);
                }
                _ = probe_tick.tick() => {
                    let nonce = encode_nonce(state.lock().ask()?);
                    let sent = client.publish(self.config.nonces(), nonce.to_vec().into()).await;
                    sent.map_err(failed("asking the relay"))?;
                }
                () = sleep_until(heard_at + silence_max) => return Ok(()),
            }
        }
    }
}

/// Receiver of what the engine reports without its feed.
struct ReadersSink {
    state: Arc<Mutex<ServerState>>,
    /// The cache's own sink, for its looks.
    sink: Arc<dyn Sink>,
}

impl Sink for ReadersSink {
    fn changes(&self, _: &[Change]) {}

    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>) {
        self.state.lock().flush(collection, cause, mark);
    }

    fn open_gap(&self, _: CollectionId, _: &str) {}

    fn close_gap(&self, _: CollectionId) {}

    fn loss(&self, cause: LossCause, detail: &str) {
        self.state.lock().readers_lost(cause, detail);
    }

    fn started(&self, _: Option<Position>) {
        self.state.lock().readers_found();
    }

    fn advance(&self, _: Nanos, _: Option<Position>, _: Option<&Version>) {}

    fn looks(&self) -> Option<&Looks> {
        self.sink.looks()
    }

    fn looked(&self, sent_at: Nanos, end: Position) {
        self.state.lock().looked(sent_at, end);
    }
}
