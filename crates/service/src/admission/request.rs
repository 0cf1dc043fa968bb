//! Admission of one request: shedding, rate limits and breaker, in the order of their cost.
//!
//! The order is the same for every request. First the head decides
//! ([`RequestAdmission::check_shedding_by_head`]), then the rate limits, so that a shed request
//! pays no tokens; then memory answers, and only then the cost of a read is weighed.

use std::sync::Arc;

use hotrow_admission::shed::{Kind, Load};
use hotrow_answer::collections::Collections;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::metrics::WorkerMetrics;
use hotrow_answer::read_requirement::{LeastPosition, ReadRequirement};
use hotrow_cache::{Freshness, ReadMode, Record};
use hotrow_gate::admission::{Admission, priority};
use hotrow_gate::read::Fetcher;
use hotrow_http1::fields::Fields;
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;

use crate::shared::Shared;

/// Admission of the requests of one worker, under the settings in force.
pub(crate) struct RequestAdmission {
    pub(crate) shared: Arc<Admission>,
    pub(crate) fetcher: Arc<Fetcher>,
    collections: Arc<Collections>,
    metrics: Arc<WorkerMetrics>,
}

impl RequestAdmission {
    pub(crate) fn new(shared: &Shared, metrics: &Arc<WorkerMetrics>) -> Self {
        Self {
            shared: Arc::clone(&shared.admission),
            fetcher: Arc::clone(&shared.fetcher),
            collections: Arc::clone(&shared.collections),
            metrics: Arc::clone(metrics),
        }
    }

    /// Checks whether a request of this kind is admitted. Without load this reads one byte.
    ///
    /// # Errors
    /// [`HttpError::Shed`]
    #[inline]
    pub(crate) fn check_shedding(
        &self,
        id: CollectionId,
        kind: Kind,
        request_headers: Fields<'_>,
    ) -> Result<(), HttpError> {
        match self.shared.load_shedder(id).load() {
            None => Ok(()),
            Some(load) => self.check_load(load, id, kind, request_headers),
        }
    }

    /// Applies [`RequestAdmission::check_shedding`] by the head of a request: `memory` is its cost
    /// when memory answers it.
    ///
    /// # Errors
    /// [`HttpError::Shed`]
    #[inline]
    pub(crate) fn check_shedding_by_head(
        &self,
        id: CollectionId,
        memory: Kind,
        request: &ReadRequest<'_>,
    ) -> Result<(), HttpError> {
        match self.shared.load_shedder(id).load() {
            None => Ok(()),
            Some(load) => self.check_load(load, id, kind_by_head(memory, request), request.headers),
        }
    }

    /// Returns whether a hit of this freshness justifies a background read: not under load or
    /// database pressure.
    pub(crate) fn may_refresh(&self, id: CollectionId, quality: Freshness, now: Nanos) -> bool {
        quality == Freshness::Expired
            && self.shared.load_shedder(id).load().is_none()
            && !self.fetcher.of(id).breaker.refuses(now)
    }

    /// Returns the deadline of a request whose missing keys may be read: `keys` keys that memory
    /// did not answer.
    ///
    /// # Errors
    /// [`HttpError::BadHeader`], [`HttpError::Shed`], [`HttpError::CircuitOpen`]
    pub(crate) fn admit_reads(
        &self,
        id: CollectionId,
        mode: ReadMode,
        keys: usize,
        request: &ReadRequest<'_>,
    ) -> Result<Nanos, HttpError> {
        let deadline = self.shared.deadline(request)?;
        self.check_shedding(id, read_kind(mode), request.headers)?;
        self.fetcher.of(id).breaker.admit(keys, request.times.now)?;
        Ok(deadline)
    }

    /// Records how long a read waited before its query was sent. A request that joined a query in
    /// flight did not wait for it, and a cancelled one shows its client's patience, not the queue's
    /// length.
    pub(crate) fn waited(&self, arrived: Nanos, result: &Result<Record, HttpError>) {
        if let Ok(record) = result
            && record.read_at() >= arrived
        {
            let load_shedder = self.shared.load_shedder(record.collection());
            load_shedder.waited(record.read_at().since(arrived));
        }
    }

    #[cold]
    fn check_load(
        &self,
        load: Load,
        id: CollectionId,
        kind: Kind,
        request_headers: Fields<'_>,
    ) -> Result<(), HttpError> {
        let load_shedder = self.shared.load_shedder(id);
        let collection = self.collections.get(id);
        let priority = priority::of(self.shared.priority_header, collection, request_headers);
        match load_shedder.refuses(load, kind, priority, &self.metrics.shed) {
            None => Ok(()),
            Some(disposition) => Err(HttpError::Shed(disposition)),
        }
    }
}

#[cold]
fn kind_by_head(memory: Kind, request: &ReadRequest<'_>) -> Kind {
    match request.required {
        Ok(ReadRequirement::New) => Kind::Bypass,
        // Memory may hold a single record that proves to be new enough.
        Ok(ReadRequirement::AtLeast(LeastPosition::At(_))) if memory == Kind::Batch => Kind::Bypass,
        Ok(ReadRequirement::AtLeast(_) | ReadRequirement::None) | Err(_) => memory,
    }
}

/// Returns the cost class of a read in this mode.
pub(crate) fn read_kind(mode: ReadMode) -> Kind {
    match mode {
        ReadMode::Normal | ReadMode::NoAdmit | ReadMode::Strict(_) => Kind::Miss,
        ReadMode::Revalidate => Kind::Bypass,
    }
}

#[cfg(test)]
mod tests {
    use hotrow_admission::shed::Level;

    use super::*;
    use crate::fuzzing::new_shared;
    use hotrow_answer::context::RequestTimes;
    use hotrow_answer::shed::ConnectionDisposition;

    const NOW: Nanos = Nanos(1_000_000_000);

    fn admission() -> RequestAdmission {
        RequestAdmission::new(&new_shared(None), &Arc::default())
    }

    #[test]
    fn expired_hits_are_refreshed_only_without_load() {
        let admission = admission();
        assert!(
            admission.may_refresh(CollectionId(0), Freshness::Expired, NOW)
                && !admission.may_refresh(CollectionId(0), Freshness::Fresh, NOW)
        );
        admission
            .shared
            .load_shedder(CollectionId(0))
            .set(Load { delay: Level::Elevated, room: Level::Normal }, Default::default());
        assert!(!admission.may_refresh(CollectionId(0), Freshness::Expired, NOW));
    }

    #[test]
    fn the_head_gives_the_least_cost_of_a_request() {
        let admission = admission();
        let id = CollectionId(0);
        let connection = crate::fuzzing::connection();
        let times = RequestTimes::of_arrival(NOW);
        let plain = ReadRequest::new(&connection, Fields::default(), times);
        let no_cache = ReadRequest { required: Ok(ReadRequirement::New), ..plain };
        assert_eq!(admission.check_shedding_by_head(id, Kind::Batch, &no_cache), Ok(()));
        admission
            .shared
            .load_shedder(CollectionId(0))
            .set(Load { delay: Level::Normal, room: Level::Elevated }, Default::default());
        assert_eq!(admission.check_shedding_by_head(id, Kind::Batch, &plain), Ok(()));
        assert_eq!(
            admission.check_shedding_by_head(id, Kind::Hit, &no_cache),
            Err(HttpError::Shed(ConnectionDisposition::KeepAlive))
        );
    }
}
