//! The place of the rate limits on a request's way: before the cache is asked.

use std::net::IpAddr;
use std::time::Duration;

use hotrow_cache::key::CollectionId;
use hotrow_measure::clock::Nanos;
use http::HeaderMap;

use super::{Asked, Fields, Verdict};
use crate::handle::{Handler, Step};
use crate::problem::Problem;
use crate::shared::Place;

impl Handler {
    /// Goes on with `then` if the rate limits allow it: at once, or after a wait that is bounded by the rule and takes a place
    /// among those who wait. `ids` is how many the request asks for.
    #[inline]
    pub(crate) fn limited(
        &self,
        collection: CollectionId,
        ids: usize,
        (peer, headers): (IpAddr, &HeaderMap),
        now: Nanos,
        then: impl FnOnce(&Self, &HeaderMap, Nanos) -> Step + Send + 'static,
    ) -> Step {
        if self.shared.rate.is_off() {
            return then(self, headers, now);
        }
        match self.shared.rate.ask(&Asked { collection, ids: ids as u64, peer, headers }, now) {
            Verdict::Pass => then(self, headers, now),
            Verdict::PassTelling(fields) => telling(then(self, headers, now), fields),
            Verdict::Wait(delay, fields) => self.held_back(delay, fields, headers, then),
            Verdict::Refuse(why) => Step::problem(&Problem::TooManyRequests(why)),
        }
    }

    fn held_back(
        &self,
        delay: Duration,
        fields: Option<Fields>,
        headers: &HeaderMap,
        then: impl FnOnce(&Self, &HeaderMap, Nanos) -> Step + Send + 'static,
    ) -> Step {
        let place = match Place::take(&self.shared, false) {
            Ok(place) => place,
            Err(problem) => return Step::problem(&problem),
        };
        let (handler, headers) = (self.clone(), headers.clone());
        Step::Later(Box::pin(async move {
            tokio::time::sleep(delay).await;
            // If the database is needed, that takes a place of its own.
            drop(place);
            let step = then(&handler, &headers, Nanos::now());
            let step = match fields {
                Some(fields) => telling(step, fields),
                None => step,
            };
            match step {
                Step::Now(outcome) => outcome,
                Step::Later(future) => future.await,
            }
        }))
    }
}

fn telling(step: Step, fields: Fields) -> Step {
    match step {
        Step::Now((mut response, outcome)) => {
            fields.add(response.headers_mut());
            Step::Now((response, outcome))
        }
        Step::Later(future) => Step::Later(Box::pin(async move {
            let (mut response, outcome) = future.await;
            fields.add(response.headers_mut());
            (response, outcome)
        })),
    }
}
