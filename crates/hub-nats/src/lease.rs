//! Lease of the relays: it decides which one works. Which messages count is decided by the stream.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::kv::{self, CreateErrorKind, Store};
use async_nats::jetstream::stream::StorageType;
use tokio::time::{Instant, timeout};

use crate::config::HubConfig;
use crate::connection::{HubError, failed};

/// Time after which a lease that is not renewed ends.
const LEASE_TTL: Duration = Duration::from_millis(1_500);
/// Time without a renewal after which its owner stops working: before another may begin.
const OWNED_FOR: Duration = Duration::from_millis(1_200);
/// Interval of renewals.
pub(crate) const RENEW_EVERY: Duration = Duration::from_millis(300);
/// Interval at which a relay without the lease tries to get it.
pub(crate) const TRY_EVERY: Duration = Duration::from_millis(200);
/// Time limit of a renewal.
const RENEW_TIMEOUT: Duration = Duration::from_millis(600);
const KEY: &str = "relay";

/// A lease that this relay has.
#[derive(Debug)]
pub(crate) struct Lease {
    store: Store,
    owner: String,
    revision: u64,
    renewed_at: Instant,
}

/// Returns the store of the lease, created if it is missing.
pub(crate) async fn store(context: &Context, config: &HubConfig) -> Result<Store, HubError> {
    let bucket = config.lease();
    if let Ok(store) = context.get_key_value(&bucket).await {
        return Ok(store);
    }
    let wanted = kv::Config {
        bucket,
        description: "which hotrow relay works".to_owned(),
        history: 1,
        max_age: LEASE_TTL,
        storage: StorageType::Memory,
        num_replicas: config.limits.replicas,
        ..kv::Config::default()
    };
    let created = context.create_key_value(wanted).await;
    created.map_err(failed("creating the store of the relays' lease"))
}

impl Lease {
    /// Takes the lease; `None` if another relay has it.
    pub(crate) async fn take(store: &Store, owner: &str) -> Result<Option<Self>, HubError> {
        let renewed_at = Instant::now();
        match store.create(KEY, owner.to_owned().into()).await {
            Ok(revision) => Ok(Some(Self {
                store: store.clone(),
                owner: owner.to_owned(),
                revision,
                renewed_at,
            })),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(HubError::new("taking the relays' lease", error)),
        }
    }

    /// Renews the lease. After an error it may still be owned for a while: see
    /// [`Self::is_owned`].
    pub(crate) async fn renew(&mut self) -> Result<(), HubError> {
        const DOING: &str = "renewing the relays' lease";
        let sent_at = Instant::now();
        let renewal = self.store.update(KEY, self.owner.clone().into(), self.revision);
        let renewed = timeout(RENEW_TIMEOUT, renewal).await;
        let renewed = renewed.map_err(|_| HubError::new(DOING, "no answer"))?;
        self.revision = renewed.map_err(failed(DOING))?;
        self.renewed_at = sent_at;
        Ok(())
    }

    /// Returns whether no other relay can have the lease, by this machine's clock.
    pub(crate) fn is_owned(&self) -> bool {
        self.renewed_at.elapsed() < OWNED_FOR
    }

    /// Returns a number that grows with each renewal, whichever relay has the lease.
    pub(crate) fn number(&self) -> u64 {
        self.revision
    }
}
