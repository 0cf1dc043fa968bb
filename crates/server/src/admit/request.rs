//! One request's way past shedding and the breaker, in the order of what a look costs.

use hotrow_admit::shed::{Kind, Load};
use hotrow_cache::key::CollectionId;
use hotrow_cache::{Record, Wish};
use hotrow_measure::clock::Nanos;
use http::HeaderMap;

use super::priority;
use crate::handle::Handler;
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

    /// Whether reads of so many keys may be queued for a request: memory did not answer them.
    ///
    /// # Errors
    /// [`Problem::Shed`], [`Problem::LeftAlone`]
    pub(crate) fn admit_reads(
        &self,
        id: CollectionId,
        wish: Wish,
        keys: usize,
        asked: &HeaderMap,
        now: Nanos,
    ) -> Result<(), Problem> {
        self.let_in(id, read_kind(wish), asked)?;
        self.shared.breaker.admit(keys, now)
    }

    /// Tells how long a read waited before its query was sent. One that joined a query under way did not wait for it.
    pub(crate) fn waited(&self, arrived: Nanos, result: &Result<Record, Problem>) {
        match result {
            Ok(record) if record.read_at() >= arrived => {
                self.shared.shedding.waited(record.read_at().since(arrived));
            }
            Err(Problem::Timeout(_)) => self.shared.shedding.waited(Nanos::now().since(arrived)),
            Ok(_) | Err(_) => {}
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

/// What a request of such a wish counts as before memory is asked; `memory` where memory may answer it.
pub(crate) fn first_kind(wish: Wish, memory: Kind) -> Kind {
    match wish {
        Wish::Any | Wish::Passing => memory,
        Wish::New => Kind::Bypass,
    }
}
