//! Lease of the relays: it decides which one works. Which messages count is decided by the stream.
//!
//! The owner renews the lease. A relay without it watches the renewals, and takes the lease when it
//! has seen none for the lease's duration, by its own clock: no clocks are compared.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::kv::{self, CreateErrorKind, Operation, Store, UpdateErrorKind};
use async_nats::jetstream::stream::StorageType;
use tokio::time::{Instant, timeout};

use crate::config::HubConfig;
use crate::connection::{HubError, failed};

/// Time after which a lease that no relay renews is removed.
const KEPT_FOR: Duration = Duration::from_secs(600);
const KEY: &str = "relay";

/// Times of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTimes {
    lease: Duration,
}

impl LeaseTimes {
    pub(crate) fn new(config: &HubConfig) -> Self {
        Self { lease: config.lease }
    }

    /// Returns the time without a renewal after which its owner stops working: before another may
    /// begin.
    fn owned_for(self) -> Duration {
        self.lease * 4 / 5
    }

    /// Returns the interval of renewals.
    pub(crate) fn renew_every(self) -> Duration {
        self.lease / 5
    }

    /// Returns the interval at which a relay without the lease looks at it.
    pub(crate) fn look_every(self) -> Duration {
        self.lease / 10
    }

    /// Returns the time limit of a renewal.
    fn renewal(self) -> Duration {
        self.lease * 2 / 5
    }
}

/// A lease that this relay has.
#[derive(Debug)]
pub(crate) struct Lease {
    store: Store,
    owner: String,
    times: LeaseTimes,
    revision: u64,
    renewed_at: Instant,
    /// A renewal was refused.
    is_lost: bool,
}

/// Returns the store of the lease, created if it is missing.
pub(crate) async fn store(context: &Context, config: &HubConfig) -> Result<Store, HubError> {
    let bucket = config.lease_store();
    if let Ok(store) = context.get_key_value(&bucket).await {
        return Ok(store);
    }
    let wanted = kv::Config {
        bucket,
        description: "which hotrow relay works".to_owned(),
        history: 1,
        max_age: KEPT_FOR,
        // As the stream: a lease that a restart of NATS forgot would have two owners for a while.
        storage: if config.limits.in_memory { StorageType::Memory } else { StorageType::File },
        num_replicas: config.limits.replicas,
        ..kv::Config::default()
    };
    let created = context.create_key_value(wanted).await;
    created.map_err(failed("creating the store of the relays' lease"))
}

/// What a relay without the lease has seen of it.
pub(crate) struct Candidate {
    store: Store,
    owner: String,
    times: LeaseTimes,
    /// Newest renewal, and when it was seen first.
    seen: Option<(u64, Instant)>,
}

impl Candidate {
    pub(crate) fn new(store: &Store, owner: &str, times: LeaseTimes) -> Self {
        Self { store: store.clone(), owner: owner.to_owned(), times, seen: None }
    }

    /// Takes the lease; `None` if another relay may have it.
    pub(crate) async fn take(&mut self) -> Result<Option<Lease>, HubError> {
        const DOING: &str = "taking the relays' lease";
        let looked_at = Instant::now();
        let entry = self.store.entry(KEY).await.map_err(failed(DOING))?;
        let held = entry.filter(|entry| entry.operation == Operation::Put);
        let Some(held) = held else {
            self.seen = None;
            return match self.store.create(KEY, self.owner.clone().into()).await {
                Ok(revision) => Ok(Some(self.lease(revision, looked_at))),
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
                Err(error) => Err(HubError::new(DOING, error)),
            };
        };
        // A renewal that was seen later than it was made only lengthens the wait.
        let seen_at = match self.seen {
            Some((revision, seen_at)) if revision == held.revision => seen_at,
            _ => {
                self.seen = Some((held.revision, Instant::now()));
                return Ok(None);
            }
        };
        if looked_at.duration_since(seen_at) < self.times.lease {
            return Ok(None);
        }
        match self.store.update(KEY, self.owner.clone().into(), held.revision).await {
            Ok(revision) => Ok(Some(self.lease(revision, looked_at))),
            Err(error) if error.kind() == UpdateErrorKind::TimedOut => {
                Err(HubError::new(DOING, error))
            }
            // Another was faster; servers of a cluster say so in several ways.
            Err(_) => Ok(None),
        }
    }

    fn lease(&self, revision: u64, renewed_at: Instant) -> Lease {
        let (store, owner) = (self.store.clone(), self.owner.clone());
        Lease { store, owner, times: self.times, revision, renewed_at, is_lost: false }
    }
}

impl Lease {
    /// Renews the lease. After an error it may still be owned for a while: see
    /// [`Self::is_owned`].
    pub(crate) async fn renew(&mut self) -> Result<(), HubError> {
        const DOING: &str = "renewing the relays' lease";
        let sent_at = Instant::now();
        let renewal = self.store.update(KEY, self.owner.clone().into(), self.revision);
        let renewed = timeout(self.times.renewal(), renewal).await;
        let renewed = renewed.map_err(|_| HubError::new(DOING, "no answer"))?;
        match renewed {
            Ok(revision) => {
                self.revision = revision;
                self.renewed_at = sent_at;
                Ok(())
            }
            Err(error) if error.kind() == UpdateErrorKind::TimedOut => {
                Err(HubError::new(DOING, error))
            }
            Err(error) => {
                self.adopt().await?;
                Err(HubError::new(DOING, error))
            }
        }
    }

    /// Looks at a lease whose renewal was refused: an earlier one may have arrived without an
    /// answer. Otherwise the lease is lost.
    async fn adopt(&mut self) -> Result<(), HubError> {
        const DOING: &str = "looking at the relays' lease";
        let found = timeout(self.times.renewal(), self.store.entry(KEY)).await;
        let found = found.map_err(|_| HubError::new(DOING, "no answer"))?;
        let own = found.map_err(failed(DOING))?.filter(|entry| {
            entry.operation == Operation::Put && *entry.value == *self.owner.as_bytes()
        });
        match own {
            Some(entry) => self.revision = entry.revision,
            None => self.is_lost = true,
        }
        Ok(())
    }

    /// Returns whether no other relay can have the lease, by this machine's clock.
    pub(crate) fn is_owned(&self) -> bool {
        !self.is_lost && Instant::now() < self.owned_until()
    }

    /// Returns the time at which the lease is owned no more unless it is renewed.
    pub(crate) fn owned_until(&self) -> Instant {
        if self.is_lost {
            return Instant::now();
        }
        self.renewed_at + self.times.owned_for()
    }

    /// Returns the interval of renewals.
    pub(crate) fn renew_every(&self) -> Duration {
        self.times.renew_every()
    }

    /// Gives the lease to the first relay that asks for it.
    pub(crate) async fn release(self) {
        // Without an answer another relay takes it later.
        let removal = self.store.delete_expect_revision(KEY, Some(self.revision));
        _ = timeout(self.times.renewal(), removal).await;
    }

    /// Returns a number that grows with each renewal, whichever relay has the lease.
    pub(crate) fn number(&self) -> u64 {
        self.revision
    }
}
