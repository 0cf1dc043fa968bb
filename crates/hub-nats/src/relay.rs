//! Relay: gets the lease, follows the database while it has it, and publishes.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::Subscriber;
use async_nats::jetstream::kv::Store;
use futures_util::StreamExt as _;
use hotrow_hub::codec::decode_nonce;
use hotrow_hub::nonces::Nonces;
use hotrow_hub::publisher::Publisher;
use hotrow_hub::tag::Tag;
use hotrow_measure::clock::Nanos;
use hotrow_source::Sink;
use hotrow_source::feed_loop::{self, Pauses};
use hotrow_source::origin::Origins;
use hotrow_source::place::Place;
use hotrow_supervisor as supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::HubConfig;
use crate::connection::{self, HubError, failed};
use crate::lease::{self, Candidate, Lease, LeaseTimes};
use crate::publish::{BEGIN_AGAIN_AFTER, Term, TermEnd, stream_end};
use crate::relay_counts::TermInProgress;
pub use crate::relay_counts::{RelayCounts, RelayState};
use crate::relay_sink::{RelaySink, Shared};

/// Time limit for the lease to be given back at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(700);

/// Feed of an engine.
pub trait EngineFeed {
    /// Runs without end, and reports to the sink. `place` is used if the database keeps the feed's
    /// place.
    fn follow<'a>(
        &'a self,
        sink: &'a dyn Sink,
        place: Option<&'a dyn Place>,
    ) -> Pin<Box<dyn Future<Output = Infallible> + 'a>>;
}

/// A relay.
pub struct Relay {
    config: HubConfig,
    tags: Arc<[Tag]>,
    origins: Arc<Origins>,
    counts: Arc<RelayCounts>,
    /// Distinguishes it from others in the lease.
    owner: String,
}

impl Relay {
    /// Creates a relay of these collections.
    #[must_use]
    pub fn new(config: HubConfig, tags: Vec<Tag>, origins: Arc<Origins>) -> Self {
        let owner = format!("{:016x}", RandomState::new().hash_one("relay"));
        let slot = config.slot.as_ref().map(|slot| slot.name.clone());
        let counts = Arc::new(RelayCounts { slot, ..RelayCounts::default() });
        Self { config, tags: tags.into(), origins, counts, owner }
    }

    /// Returns its counters.
    pub fn counts(&self) -> Arc<RelayCounts> {
        Arc::clone(&self.counts)
    }

    /// Runs until everything must end. Blocks.
    ///
    /// # Errors
    /// The system has no event loop left.
    pub fn run(&mut self, engine: &dyn EngineFeed, shutdown: &Shutdown) -> io::Result<()> {
        let ended = Shutdown::new();
        let done = feed_loop::run(&ended, async {
            tokio::select! {
                never = Box::pin(self.work(engine, shutdown, &ended)) => never,
                () = self.last_moment(shutdown) => {
                    ended.now();
                    std::future::pending().await
                }
            }
        });
        self.end_term();
        self.counts.is_connected.store(false, Ordering::Relaxed);
        done
    }

    /// Waits until everything must end, and then for the lease to be given back.
    async fn last_moment(&self, shutdown: &Shutdown) {
        shutdown.ending().await;
        if self.counts.is_leading.load(Ordering::Relaxed) {
            sleep(RELEASE_TIMEOUT).await;
        }
    }

    async fn work(
        &self,
        engine: &dyn EngineFeed,
        shutdown: &Shutdown,
        ended: &Shutdown,
    ) -> Infallible {
        let mut pauses = Pauses::new();
        let mut last_failure = String::new();
        loop {
            supervisor::turn();
            let began_at = Instant::now();
            let failure = match Box::pin(self.session(engine, shutdown, ended)).await {
                Ok(never) => match never {},
                Err(failure) => failure.to_string(),
            };
            // Wherever it failed: nothing is published without NATS.
            self.end_term();
            self.counts.is_connected.store(false, Ordering::Relaxed);
            if last_failure != failure {
                tracing::error!(error = %failure, "the relay cannot work; trying again");
                last_failure = failure;
            }
            pauses.worked(began_at.elapsed());
            pauses.wait().await;
        }
    }

    /// Works while NATS answers.
    async fn session(
        &self,
        engine: &dyn EngineFeed,
        shutdown: &Shutdown,
        ended: &Shutdown,
    ) -> Result<Infallible, HubError> {
        let client = connection::connect(&self.config, "hotrow relay").await?;
        let context = connection::jetstream(&client);
        let stream = connection::stream(&context, &self.config).await?;
        let store = lease::store(&context, &self.config).await?;
        self.counts.is_connected.store(true, Ordering::Relaxed);
        // Also while it stands by: what was asked then is answered by the first look.
        let nonces = client.subscribe(self.config.nonces()).await;
        let mut nonces = nonces.map_err(failed("receiving nonces"))?;
        let mut asked = Nonces::new(self.config.rules);
        let mut lease = self.await_lease(&store, &mut nonces, &mut asked).await?;
        loop {
            let mut publisher = Publisher::new(self.tags.to_vec(), self.config.rules);
            if self.config.resumes_from_stream {
                // Another relay may write behind it until this one begins: that is delivered twice.
                let (_, last) = stream_end(&context, &stream, &self.config).await?;
                publisher.resume_from(last.and_then(|last| last.landmark));
            }
            let now = Nanos::now();
            for nonce in asked.answered_by(now) {
                publisher.ask(nonce, now);
            }
            let shared = Arc::new(Shared {
                publisher: Mutex::new(publisher),
                changed: Notify::new(),
                delivered_at: AtomicU64::new(0),
                owned_until: Mutex::new(lease.owned_until()),
                waits_for: Mutex::default(),
            });
            let mut term = Term {
                context: &context,
                stream: &stream,
                config: &self.config,
                shared: &shared,
                counts: &self.counts,
                lease,
                began_at: 0,
                acks: std::collections::VecDeque::new(),
                last_failure: String::new(),
                broken: None,
            };
            self.begin_term(&shared);
            let sink = RelaySink {
                shared: Arc::clone(&shared),
                tags: Arc::clone(&self.tags),
                origins: Arc::clone(&self.origins),
            };
            let end = tokio::select! {
                never = engine.follow(&sink, Some(&sink)) => match never {},
                end = Box::pin(term.run(&mut nonces, shutdown)) => end,
            };
            match end {
                TermEnd::Broken(_) if term.lease.is_owned() => {
                    lease = term.lease;
                    sleep(BEGIN_AGAIN_AFTER).await;
                    continue;
                }
                TermEnd::Shutdown => {
                    // The feed has ended: another relay may begin.
                    term.lease.release().await;
                    ended.now();
                    std::future::pending::<()>().await;
                }
                TermEnd::Broken(why) => tracing::warn!(%why, "this relay stands by"),
                TermEnd::LeaseLost(why) => tracing::warn!(%why, "this relay stands by"),
            }
            self.end_term();
            // The session with NATS may be the reason.
            stream.get_info().await.map_err(failed("reaching the hub's stream"))?;
            lease = self.await_lease(&store, &mut nonces, &mut asked).await?;
        }
    }

    /// Waits for the lease. `asked` gets the questions that come.
    async fn await_lease(
        &self,
        store: &Store,
        nonces: &mut Subscriber,
        asked: &mut Nonces,
    ) -> Result<Lease, HubError> {
        let times = LeaseTimes::new(&self.config);
        let mut candidate = Candidate::new(store, &self.owner, times);
        loop {
            supervisor::turn();
            if let Some(lease) = candidate.take().await? {
                tracing::info!(owner = %self.owner, "this relay follows the database");
                self.counts.terms.fetch_add(1, Ordering::Relaxed);
                return Ok(lease);
            }
            let next_look = Instant::now() + times.look_every();
            while Instant::now() < next_look {
                let Ok(nonce) = timeout_at(next_look, nonces.next()).await else { break };
                let Some(nonce) = nonce else {
                    return Err(HubError::new("receiving nonces", "the subscription ended"));
                };
                if let Some(nonce) = decode_nonce(&nonce.payload) {
                    asked.ask(nonce, Nanos::now());
                }
            }
        }
    }

    fn begin_term(&self, shared: &Arc<Shared>) {
        *self.counts.term.lock() = Some(TermInProgress(Arc::clone(shared)));
        self.counts.is_leading.store(true, Ordering::Relaxed);
    }

    fn end_term(&self) {
        *self.counts.term.lock() = None;
        self.counts.is_leading.store(false, Ordering::Relaxed);
    }
}
