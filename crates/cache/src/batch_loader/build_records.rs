//! Records made of the rows of a query, and what they saw.

use std::sync::Arc;

use hotrow_measure::clock::Nanos;

use super::fills::jittered;
use super::{Answers, BatchLoader};
use crate::flight::Flight;
use crate::record::{Record, RecordParts, Visibility, owned_row};
use crate::safeguards::Safeguard;
use hotrow_types::key::Key;
use hotrow_types::version::Version;

impl<E: Clone> BatchLoader<E> {
    /// Returns for each flight whether its answer contains all that the feed delivered. Changes
    /// delivered from now on end leases.
    pub(super) fn visibilities(
        &self,
        query: &[Arc<Flight<E>>],
        version: &Version,
    ) -> Vec<Visibility> {
        let collection = self.cache.collection(self.collection).0;
        let mut fetches = collection.fetch_queue.lock();
        let lost = self.lease.epoch.feed != collection.epoch().feed;
        let fenced = !fetches.fence.is_open() && self.cache.safeguards.has(Safeguard::Fence);
        let visibility = |flight: &Arc<Flight<E>>| match lost
            || fenced && fetches.fence.hides(&flight.key, version)
        {
            true => Visibility::Behind,
            false => Visibility::Complete,
        };
        let visibilities = query.iter().map(visibility).collect();
        // What a standby sees may not be visible on the primary yet.
        if !fetches.fence.is_open() && !matches!(version, Version::Replayed { .. }) {
            fetches.fence.seen(version);
        }
        visibilities
    }

    pub(super) fn record(
        &self,
        key: &Key,
        body: Option<&[u8]>,
        visibility: Visibility,
        answers: &Answers<E>,
        now: Nanos,
    ) -> Record {
        let policy = self.cache.policy(self.collection);
        let ttl = if body.is_some() { policy.ttl } else { policy.negative_ttl };
        let config = &self.cache.config;
        let life = jittered(ttl, config.ttl_jitter, config.seed ^ self.cache.hash(key) ^ now.0);
        let is_followed = self.cache.is_followed(self.cache.source_of(self.collection));
        let (owner, body) = owned_row(policy, body);
        Record::new(&RecordParts {
            key,
            body,
            owner,
            has_views: policy.has_views,
            read_at: self.lease.started_at,
            expires_at: self.lease.started_at.after(life),
            version: &answers.version,
            position: answers.position.filter(|_| is_followed),
            visibility,
            epoch: self.lease.epoch,
        })
    }
}
