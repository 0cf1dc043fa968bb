//! How a new configuration is put in force.

use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::config::{CollectionPolicy, Settings};
use hotrow_config::Config;
use hotrow_measure::clock::Nanos;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_types::key::CollectionId;
use http::header::InvalidHeaderValue;

use crate::in_force::{InForce, NotEverywhere};

/// Longest wait for the workers to take over new settings. A worker whose thread restarts after a
/// panic needs up to five seconds.
pub const EVERYWHERE_WAIT_MAX: Duration = Duration::from_secs(10);

/// A configuration to put in force. Collections, workers and addresses are those of the one in
/// force.
#[derive(Clone, Debug)]
pub struct Change {
    /// Settings of the HTTP side.
    pub config: Config,
    /// Settings of the cache.
    pub cache: Settings,
    /// Settings of the cache for each collection.
    pub policies: Vec<CollectionPolicy>,
    /// Capacity of the cache in bytes.
    pub capacity_bytes: u64,
    /// Whether anything about credentials and grants differs.
    pub access_changed: bool,
}

/// What became of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Rate limits that the admin side had changed, each with whether its change goes on.
    pub rate_rules: Vec<(String, bool)>,
    /// Whether every worker answers by it.
    pub everywhere: Result<(), NotEverywhere>,
}

impl InForce {
    /// Puts `change` in force, and waits until no answer comes from earlier settings.
    ///
    /// # Errors
    /// If a `cache_control` is not a valid header value; nothing has changed then.
    pub fn apply(
        &self,
        change: Change,
        shutdown: &Shutdown,
    ) -> Result<Applied, InvalidHeaderValue> {
        let Change { config, cache: settings, policies, capacity_bytes, access_changed } = change;
        let before = self.newest();
        let cache = before.shared.cache.with_settings(&settings, &policies);
        let shared = before.shared.after(&config, Arc::clone(&cache), access_changed)?;
        let rate_rules = before.shared.admission.rate.changed_by_admin(&shared.admission.rate);
        // Nothing fails from here on.
        let fetcher = &shared.fetcher;
        fetcher.cache.set(Arc::clone(&cache));
        if before.config.breaker != config.breaker {
            let breakers = fetcher.sources.iter().map(|reads| &reads.breaker);
            breakers.for_each(|breaker| breaker.restart(config.breaker.clone()));
        }
        shared.admission.inflight.set(&config.limits);
        let ended: Vec<CollectionId> = shared
            .collections
            .ids()
            .filter(|id| shared.collections.get(*id).is_removed)
            .filter(|id| !before.shared.collections.get(*id).is_removed)
            .collect();
        let shortened = shortened(&before.shared.cache, &cache);
        let generation = self.replace(config, shared);
        let everywhere = self.everywhere(generation, EVERYWHERE_WAIT_MAX, shutdown);
        for id in ended.into_iter().chain(shortened) {
            cache.flush(id, None);
            cache.release_standbys_after(id, Nanos::now());
        }
        while cache.step_to_capacity(capacity_bytes) {
            if shutdown.is_ending() {
                break;
            }
        }
        Ok(Applied { rate_rules, everywhere })
    }
}

type Cache = hotrow_cache::Cache<hotrow_source::ReadFailure>;

/// Returns the collections whose entries would live longer than the contract of `after` says:
/// without a feed, the lifetime is the bound on an answer's age.
fn shortened(before: &Cache, after: &Cache) -> Vec<CollectionId> {
    let is_shorter = |(before, after): (&CollectionPolicy, &CollectionPolicy)| {
        after.ttl < before.ttl || after.negative_ttl < before.negative_ttl
    };
    let pairs = before.policies().iter().zip(after.policies());
    let numbered = pairs.map(is_shorter).zip((0..).map(CollectionId));
    let shorter = numbered.filter(|(is_shorter, _)| *is_shorter).map(|(_, id)| id);
    shorter.filter(|id| !after.is_followed(after.source_of(*id))).collect()
}
