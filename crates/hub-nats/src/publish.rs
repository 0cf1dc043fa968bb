//! One term of a relay: messages are published and acknowledged, nonces received, and the lease
//! renewed.

use std::collections::VecDeque;
use std::future::{Future, IntoFuture as _};
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::Subscriber;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use futures_util::StreamExt as _;
use hotrow_hub::codec::{decode, decode_nonce, encode};
use hotrow_hub::message::{Body, Message};
use hotrow_hub::rules::Rule;
use hotrow_measure::clock::Nanos;
use hotrow_source::feed_loop::every;
use hotrow_supervisor as supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use tokio::time::sleep;

use crate::config::HubConfig;
use crate::connection::{self, HubError, failed};
use crate::lease::Lease;
use crate::relay_counts::RelayCounts;
use crate::relay_sink::Shared;

/// Pause after a beginning that could not be written.
pub(crate) const BEGIN_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// End of a term.
pub(crate) enum TermEnd {
    /// Another relay may have the lease.
    LeaseLost(HubError),
    /// A message could not be written, and the database has the changes: a new term delivers them
    /// again.
    Broken(String),
    /// The process ends.
    Shutdown,
}

type Ack = Pin<Box<dyn Future<Output = Result<PublishAck, PublishError>> + Send>>;

/// State of a term.
pub(crate) struct Term<'a> {
    pub(crate) context: &'a Context,
    pub(crate) stream: &'a Stream,
    pub(crate) config: &'a HubConfig,
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) counts: &'a RelayCounts,
    pub(crate) lease: Lease,
    /// Sequence of the chain's beginning in the stream.
    pub(crate) began_at: u64,
    /// Acknowledgements under way, with the counters of their messages.
    pub(crate) acks: VecDeque<(u64, Ack)>,
    pub(crate) last_failure: String,
    /// Reason for which the term ends, with a slot.
    pub(crate) broken: Option<String>,
}

impl Term<'_> {
    /// Publishes until the lease is lost, or everything must end.
    pub(crate) async fn run(&mut self, nonces: &mut Subscriber, shutdown: &Shutdown) -> TermEnd {
        let mut renew_tick = every(self.lease.renew_every());
        loop {
            supervisor::turn();
            let mut pause = None;
            if self.shared.publisher.lock().wants_beginning() {
                self.acks.clear();
                match self.begin().await {
                    Ok(()) => self.last_failure.clear(),
                    Err(error) => {
                        self.report(&error);
                        pause = Some(sleep(BEGIN_AGAIN_AFTER));
                    }
                }
            }
            if pause.is_none() {
                self.send().await;
            }
            if !self.lease.is_owned() {
                let what = "it could not be renewed";
                return TermEnd::LeaseLost(HubError::new("renewing the relays' lease", what));
            }
            if let Some(why) = self.broken.take() {
                return TermEnd::Broken(why);
            }
            tokio::select! {
                () = self.shared.changed.notified(), if pause.is_none() => {}
                () = wait(pause) => {}
                () = shutdown.ending() => return TermEnd::Shutdown,
                acknowledged = next_ack(&mut self.acks) => self.acknowledge(acknowledged),
                nonce = nonces.next() => {
                    let Some(nonce) = nonce else {
                        let what = "the subscription ended";
                        return TermEnd::LeaseLost(HubError::new("receiving nonces", what));
                    };
                    // A later time than that of its arrival, never an earlier one.
                    if let Some(nonce) = decode_nonce(&nonce.payload) {
                        self.shared.publisher.lock().ask(nonce, Nanos::now());
                    }
                }
                _ = renew_tick.tick() => {
                    if let Err(error) = self.renew().await {
                        self.report(&error);
                    }
                }
            }
        }
    }

    async fn renew(&mut self) -> Result<(), HubError> {
        let renewed = self.lease.renew().await;
        *self.shared.owned_until.lock() = self.lease.owned_until();
        renewed
    }

    fn report(&mut self, error: &HubError) {
        let text = error.to_string();
        if self.last_failure != text {
            tracing::warn!(error = %text, "the hub cannot publish now; trying again");
            self.last_failure = text;
        }
    }

    /// Begins a chain behind the stream's end, unless no feed runs.
    async fn begin(&mut self) -> Result<(), HubError> {
        let (end, last) = stream_end(self.context, self.stream, self.config).await?;
        // After the end was read: a relay that took over before that is noticed here, and one that
        // takes over later finds this beginning or makes it fail.
        self.renew().await?;
        let identity = RandomState::new().hash_one("chain");
        let number_min = self.lease.number();
        let beginning = self.shared.publisher.lock().begin(last.as_ref(), number_min, identity);
        let Some(beginning) = beginning else { return Ok(()) };
        let ack = self.write(&beginning, end).await?.await;
        let ack = ack.map_err(failed("writing the beginning of a chain"))?;
        self.began_at = ack.sequence;
        self.shared.publisher.lock().began();
        self.counts.beginnings.fetch_add(1, Ordering::Relaxed);
        self.counts.generation.store(beginning.generation.number, Ordering::Relaxed);
        let chain = beginning.generation.number;
        let continues = matches!(&beginning.body, Body::Beginning(b) if b.resumed_at.is_some());
        if continues {
            self.counts.continued.fetch_add(1, Ordering::Relaxed);
        }
        let before = last.as_ref().map(|last| last.complete);
        tracing::info!(chain, continues, sequence = ack.sequence, "a chain of the hub begins");
        if self.config.keeps_place() && !continues {
            tracing::warn!(
                chain,
                complete_before = before,
                "the chain does not continue the one before it: servers read everything anew"
            );
        }
        Ok(())
    }

    /// Sends a message that is stored only if the stream ends at `expected`.
    async fn write(&self, message: &Message, expected: u64) -> Result<Ack, HubError> {
        let bytes = encode(message);
        self.counts.published_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.counts.published.fetch_add(1, Ordering::Relaxed);
        let message =
            PublishMessage::build().payload(bytes.into()).expected_stream(&self.config.stream);
        let message = if self.config.rules.has(Rule::CompareAndSet) {
            message.expected_last_sequence(expected)
        } else {
            message
        };
        let message = message.outbound_message(self.config.changes());
        use async_nats::jetstream::context::traits::Publisher as _;
        let ack = self.context.publish_message(message).await;
        let ack = ack.map_err(failed("publishing"))?;
        Ok(Box::pin(ack.into_future()))
    }

    /// Sends what waits.
    async fn send(&mut self) {
        loop {
            let message = self.shared.publisher.lock().take();
            let Some(message) = message else { return };
            let expected = self.began_at + message.counter - 1;
            match self.write(&message, expected).await {
                Ok(ack) => self.acks.push_back((message.counter, ack)),
                Err(error) => return self.fail(&error.to_string()),
            }
        }
    }

    fn acknowledge(&mut self, (counter, ack): (u64, Result<PublishAck, PublishError>)) {
        match ack {
            Ok(ack)
                if ack.sequence == self.began_at + counter
                    || !self.config.rules.has(Rule::CompareAndSet) =>
            {
                self.shared.publisher.lock().acknowledged(counter);
            }
            Ok(ack) => {
                self.fail(&format!("message {counter} was stored at {}", ack.sequence));
            }
            Err(error) => self.fail(&format!("message {counter} was not stored: {error}")),
        }
    }

    /// Ends the chain. Without a place the next one begins with a loss.
    fn fail(&mut self, why: &str) {
        self.acks.clear();
        if self.config.keeps_place() {
            tracing::warn!(why, "the chain of the hub is broken: it goes on from its place");
            self.broken = Some(why.to_owned());
            return;
        }
        tracing::warn!(why, "the chain of the hub is broken: servers lose their changes");
        self.shared.publisher.lock().failed(why);
    }
}

/// Returns the last sequence of the stream, and its message if it is one of a chain.
pub(crate) async fn stream_end(
    context: &Context,
    stream: &Stream,
    config: &HubConfig,
) -> Result<(u64, Option<Message>), HubError> {
    const DOING: &str = "reading the end of the hub's stream";
    let info = match stream.get_info().await {
        Ok(info) => info,
        // It may have been deleted.
        Err(_) => {
            let stream = connection::stream(context, config).await?;
            stream.get_info().await.map_err(failed(DOING))?
        }
    };
    let end = info.state.last_sequence;
    if end == 0 {
        return Ok((end, None));
    }
    match stream.get_raw_message(end).await {
        Ok(message) => Ok((end, decode(&message.payload).ok())),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok((end, None)),
        Err(error) => Err(HubError::new(DOING, error)),
    }
}

/// Waits for the first acknowledgement; pending for ever without one. Dropping the future loses
/// nothing.
async fn next_ack(acks: &mut VecDeque<(u64, Ack)>) -> (u64, Result<PublishAck, PublishError>) {
    let Some((counter, ack)) = acks.front_mut() else { return std::future::pending().await };
    let result = ack.as_mut().await;
    let counter = *counter;
    acks.pop_front();
    (counter, result)
}

async fn wait(pause: Option<tokio::time::Sleep>) {
    match pause {
        Some(pause) => pause.await,
        None => std::future::pending().await,
    }
}
