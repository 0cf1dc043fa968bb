//! Another set of settings for a cache in use. The entries, the queues and the progress of the feed
//! are those of the same cache; a caller judges by the settings of the [`Cache`] that it has.

use std::sync::Arc;

use super::Cache;
use crate::config::{CollectionPolicy, Config, Settings};

impl<E: Clone> Cache<E> {
    /// Returns the same cache under other settings; both may be used at once. Entries keep the
    /// lifetime that they were stored with. `collections` are as many as before, and what they say
    /// of tenants is not changed.
    #[must_use]
    pub fn with_settings(
        &self,
        settings: &Settings,
        collections: &[CollectionPolicy],
    ) -> Arc<Self> {
        let Settings {
            when_stale,
            ttl_jitter,
            error_ttl,
            stale_while_revalidate,
            stale_if_error,
            waiting_keys,
        } = *settings;
        let config = Config {
            when_stale,
            ttl_jitter,
            error_ttl,
            stale_while_revalidate,
            stale_if_error,
            waiting_keys,
            ..self.config.clone()
        };
        let changed = |(at, before): (usize, &CollectionPolicy)| {
            let policy = collections.get(at).unwrap_or(before);
            CollectionPolicy { has_tenants: before.has_tenants, ..policy.clone() }
        };
        let policies = self.policies.iter().enumerate().map(changed).collect();
        Arc::new(Self { config, policies, state: Arc::clone(&self.state) })
    }

    /// Returns the settings of the collections, in the order of their numbers.
    pub fn policies(&self) -> &[CollectionPolicy] {
        &self.policies
    }

    /// Returns whether both are the same cache, under equal settings or not.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::time::Duration;

    use hotrow_measure::clock::Nanos;

    use crate::config::{CollectionPolicy, WhenStale};
    use crate::testkit::{FIRST, ONLY, START, TestCache, answers, cache, config, key, ms, waiter};
    use crate::{Freshness, Lookup, ReadMode};

    fn hit(cache: &TestCache, now: Nanos) -> Option<Freshness> {
        match cache.lookup(&key(1), ReadMode::Normal, now) {
            Lookup::Hit(_, freshness) => Some(freshness),
            _ => None,
        }
    }

    #[test]
    fn an_entry_is_judged_by_the_settings_of_the_caller() {
        let before = cache(config());
        let mut settings = config().settings();
        settings.when_stale = WhenStale::Stale;
        let after = before.with_settings(&settings, &[]);
        assert!(after.is_same(&before) && !after.is_same(&cache(config())));
        let _first = waiter(before.lookup(&key(1), ReadMode::Normal, START));
        let mut loader = before.batch_loader(FIRST).unwrap();
        assert!(loader.next_batch(START).is_some());
        loader.complete(answers(9, 1), START);
        assert_eq!([hit(&before, START), hit(&after, START)], [Some(Freshness::Fresh); 2]);
        // The feed has been silent for two seconds.
        let late = ms(1_002_000);
        assert_eq!([hit(&after, late), hit(&before, late)], [Some(Freshness::Stale), None]);
    }

    #[test]
    fn a_read_in_flight_is_stored_by_the_settings_that_its_loader_follows() {
        let before = cache(config());
        let second = Duration::from_secs(1);
        let short = CollectionPolicy { ttl: second, ..before.policies()[0].clone() };
        let after = before.with_settings(&config().settings(), &[short.clone(), short]);
        let _first = waiter(before.lookup(&key(1), ReadMode::Normal, START));
        let mut loader = before.batch_loader(FIRST).unwrap();
        assert!(loader.next_batch(START).is_some());
        loader.follow(cache(config()));
        loader.follow(after);
        loader.complete(answers(9, 1), START);
        let late = ms(1_001_000);
        before.advance(ONLY, late, None);
        assert_eq!(hit(&before, ms(1_000_900)), Some(Freshness::Fresh));
        assert_eq!(hit(&before, late), None, "the shorter lifetime");
    }
}
