//! Counters and state of a relay, which its terms write and its admin side reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use parking_lot::Mutex;

use crate::relay_sink::Shared;

/// Counters and state of a relay, for its admin side.
#[derive(Debug, Default)]
pub struct RelayCounts {
    pub(crate) is_connected: AtomicBool,
    pub(crate) is_leading: AtomicBool,
    pub(crate) terms: AtomicU64,
    pub(crate) beginnings: AtomicU64,
    pub(crate) continued: AtomicU64,
    pub(crate) slot: Option<String>,
    pub(crate) generation: AtomicU64,
    pub(crate) published: AtomicU64,
    pub(crate) published_bytes: AtomicU64,
    pub(crate) term: Mutex<Option<TermInProgress>>,
}

/// State of the term in progress.
#[derive(Clone)]
pub(crate) struct TermInProgress(pub(crate) Arc<Shared>);

impl std::fmt::Debug for TermInProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TermInProgress")
    }
}

/// State of a relay at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayState {
    /// NATS answered last.
    pub is_connected: bool,
    /// It has the lease.
    pub is_leading: bool,
    /// A chain is open: what the feed delivers is published.
    pub is_publishing: bool,
    /// Number of the newest chain that it began.
    pub generation: u64,
    /// Times that it got the lease.
    pub terms_total: u64,
    /// Chains that it began.
    pub beginnings_total: u64,
    /// Those of them that continued the one before without a loss.
    pub continued_total: u64,
    /// Slot that keeps the relays' place.
    pub slot: Option<String>,
    /// What the feed waits for before it can start.
    pub waits_for: Option<String>,
    /// Messages.
    pub published_total: u64,
    /// Their bytes.
    pub published_bytes_total: u64,
    /// Bytes of changes that wait.
    pub queued_bytes: usize,
    /// Servers that asked within the last minute.
    pub instances: usize,
    /// Time since the newest look at the database that the feed has passed; `None` without one.
    pub staleness: Option<Duration>,
}

impl RelayCounts {
    /// Returns the state now.
    pub fn state(&self, now: Nanos) -> RelayState {
        let term = self.term.lock().clone();
        let publisher = term.as_ref().map(|term| term.0.publisher.lock());
        let delivered_at =
            term.as_ref().map_or(0, |term| term.0.delivered_at.load(Ordering::Acquire));
        RelayState {
            is_connected: self.is_connected.load(Ordering::Relaxed),
            is_leading: self.is_leading.load(Ordering::Relaxed),
            is_publishing: publisher.as_ref().is_some_and(|p| p.generation().is_some()),
            generation: self.generation.load(Ordering::Relaxed),
            terms_total: self.terms.load(Ordering::Relaxed),
            beginnings_total: self.beginnings.load(Ordering::Relaxed),
            continued_total: self.continued.load(Ordering::Relaxed),
            slot: self.slot.clone(),
            waits_for: term.as_ref().and_then(|term| term.0.waits_for.lock().clone()),
            published_total: self.published.load(Ordering::Relaxed),
            published_bytes_total: self.published_bytes.load(Ordering::Relaxed),
            queued_bytes: publisher.as_ref().map_or(0, |p| p.queued_bytes()),
            instances: publisher.as_ref().map_or(0, |p| p.instances(now)),
            staleness: (delivered_at > 0).then(|| now.since(Nanos(delivered_at))),
        }
    }
}
