//! One request's way past shedding and the breaker, in the order of what a look costs.
//!
//! The order is the same for every request: what its head tells is weighed first ([`Handler::let_in_by_head`]), then the rate limits
//! are asked, so that who is shed pays no tokens; then comes memory, and only then what a read costs is weighed.

use hotrow_admit::shed::{Kind, Load};
use hotrow_cache::key::CollectionId;
use hotrow_cache::{Quality, Record, Wish};
use hotrow_measure::clock::Nanos;
use http::HeaderMap;

use super::deadline::Moments;
use super::priority;
use crate::handle::{Handler, Special};
use crate::problem::Problem;

impl Handler {
    /// Whether a request of this kind is let in at all. While all is calm, this is one load of a byte.
    ///
    /// # Errors
    /// [`Problem::Shed`]
    #[inline]
    pub(crate) fn let_in(&self, id: CollectionId, kind: Kind, asked: &HeaderMap) -> Result<(), Problem> {
        match self.shared.shedding.load() {
            None => Ok(()),
            Some(load) => self.weigh(load, id, kind, asked),
        }
    }

    /// [`Handler::let_in`] by what the head of a request tells: `memory` is what it costs when memory answers it.
    ///
    /// # Errors
    /// [`Problem::Shed`]
    #[inline]
    pub(crate) fn let_in_by_head(&self, id: CollectionId, memory: Kind, asked: &HeaderMap) -> Result<(), Problem> {
        match self.shared.shedding.load() {
            None => Ok(()),
            Some(load) => self.weigh(load, id, self.kind_by_head(id, memory, asked), asked),
        }
    }

    #[cold]
    fn kind_by_head(&self, id: CollectionId, memory: Kind, asked: &HeaderMap) -> Kind {
        match self.wish(id, asked) {
            Ok(Special::New) => Kind::Bypass,
            // Memory may hold a single record that proves to be new enough.
            Ok(Special::AtLeast(_)) if memory == Kind::Batch => Kind::Bypass,
            Ok(Special::AtLeast(_) | Special::None) | Err(_) => memory,
        }
    }

    /// Whether a hit of this quality is worth a read that nobody waits for: not while the process or the database is pressed.
    pub(crate) fn may_refresh(&self, quality: Quality, now: Nanos) -> bool {
        quality == Quality::Expired && self.shared.shedding.load().is_none() && !self.shared.breaker.refuses(now)
    }

    /// Whether reads of so many keys may be queued for a request: memory did not answer them. Then the request's deadline.
    ///
    /// # Errors
    /// [`Problem::BadHeader`], [`Problem::Shed`], [`Problem::LeftAlone`]
    pub(crate) fn admit_reads(
        &self,
        id: CollectionId,
        wish: Wish,
        keys: usize,
        asked: &HeaderMap,
        at: Moments,
    ) -> Result<Nanos, Problem> {
        let deadline = self.shared.deadline(asked, at)?;
        self.let_in(id, read_kind(wish), asked)?;
        self.shared.breaker.admit(keys, at.now)?;
        Ok(deadline)
    }

    /// Tells how long a read waited before its query was sent. One that joined a query under way did not wait for it, and one that
    /// its client gave up says what the client's patience is, not how long the queue is.
    pub(crate) fn waited(&self, arrived: Nanos, result: &Result<Record, Problem>) {
        if let Ok(record) = result
            && record.read_at() >= arrived
        {
            self.shared.shedding.waited(record.read_at().since(arrived));
        }
    }

    #[cold]
    fn weigh(&self, load: Load, id: CollectionId, kind: Kind, asked: &HeaderMap) -> Result<(), Problem> {
        let priority = priority::of(&self.shared, self.shared.collection(id), asked);
        match self.shared.shedding.refuses(load, kind, priority, &self.metrics.shed) {
            None => Ok(()),
            Some(parting) => Err(Problem::Shed(parting)),
        }
    }
}

/// What reading for such a wish counts as.
pub(crate) fn read_kind(wish: Wish) -> Kind {
    match wish {
        Wish::Any | Wish::Passing => Kind::Miss,
        Wish::New => Kind::Bypass,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hotrow_admit::shed::Level;
    use http::HeaderValue;
    use http::header::CACHE_CONTROL;

    use super::*;
    use crate::admit::shed::Parting;
    use crate::fuzzing::new_shared;
    use crate::lookups::WorkerLookups;
    use crate::metrics::WorkerMetrics;

    const NOW: Nanos = Nanos(1_000_000_000);

    fn handler() -> Handler {
        Handler {
            shared: new_shared(None),
            metrics: Arc::new(WorkerMetrics::default()),
            lookups: Arc::new(WorkerLookups::new(1)),
        }
    }

    #[test]
    fn an_expired_hit_is_read_again_only_while_nothing_presses() {
        let handler = handler();
        assert!(handler.may_refresh(Quality::Expired, NOW) && !handler.may_refresh(Quality::Fresh, NOW));
        handler.shared.shedding.set(Load { delay: Level::Busy, room: Level::Calm }, Default::default());
        assert!(!handler.may_refresh(Quality::Expired, NOW));
    }

    #[test]
    fn the_head_tells_what_a_request_costs_at_least() {
        let (handler, plain, id) = (handler(), HeaderMap::new(), CollectionId(0));
        let no_cache = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("no-cache"))]);
        assert_eq!(handler.let_in_by_head(id, Kind::Batch, &no_cache), Ok(()));
        handler.shared.shedding.set(Load { delay: Level::Calm, room: Level::Busy }, Default::default());
        assert_eq!(handler.let_in_by_head(id, Kind::Batch, &plain), Ok(()));
        assert_eq!(handler.let_in_by_head(id, Kind::Hit, &no_cache), Err(Problem::Shed(Parting::Stay)));
    }
}
