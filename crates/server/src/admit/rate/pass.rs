//! The place of the rate limits on a request's way: before the cache is asked.

use std::net::IpAddr;
use std::time::Duration;

use hotrow_cache::key::CollectionId;
use hotrow_measure::clock::Nanos;
use http::HeaderMap;

use super::{Asked, Fields, Verdict};
use crate::admit::deadline::Moments;
use crate::handle::{Handler, Step};
use crate::problem::Problem;
use crate::shared::Place;

const TOO_LATE: Problem = Problem::Overloaded("the rate limit's turn of this request comes after its deadline");

impl Handler {
    /// Goes on with `then` if the rate limits allow it: at once, or after a wait that is bounded by the rule and takes a place
    /// among those who wait. `ids` is how many the request asks for.
    #[inline]
    pub(crate) fn limited(
        &self,
        collection: CollectionId,
        ids: usize,
        (peer, headers): (IpAddr, &HeaderMap),
        at: Moments,
        then: impl FnOnce(&Self, &HeaderMap, Moments) -> Step + Send + 'static,
    ) -> Step {
        if self.shared.rate.is_off() {
            return then(self, headers, at);
        }
        match self.shared.rate.ask(&Asked { collection, ids: ids as u64, peer, headers }, at.now) {
            Verdict::Pass => then(self, headers, at),
            Verdict::PassTelling(fields) => telling(then(self, headers, at), fields),
            Verdict::Wait(delay, fields) => self.held_back((delay, fields), headers, at, then),
            Verdict::Refuse(why) => Step::problem(&Problem::TooManyRequests(why)),
            Verdict::Never(why) => Step::problem(&Problem::BadBatch(why)),
        }
    }

    /// What a request gets that would be refused whatever its body says. Takes nothing: what it costs is counted when it is known.
    pub(crate) fn limited_by_head(
        &self,
        collection: CollectionId,
        (peer, headers): (IpAddr, &HeaderMap),
        now: Nanos,
    ) -> Option<Step> {
        match self.shared.rate.refusal(&Asked { collection, ids: 1, peer, headers }, now)? {
            Verdict::Refuse(why) => Some(Step::problem(&Problem::TooManyRequests(why))),
            Verdict::Never(why) => Some(Step::problem(&Problem::BadBatch(why))),
            Verdict::Pass | Verdict::PassTelling(_) | Verdict::Wait(..) => None,
        }
    }

    /// The request's deadline is that of its arrival: where the wait alone is longer, it is answered at once.
    fn held_back(
        &self,
        (delay, fields): (Duration, Option<Fields>),
        headers: &HeaderMap,
        at: Moments,
        then: impl FnOnce(&Self, &HeaderMap, Moments) -> Step + Send + 'static,
    ) -> Step {
        match self.shared.deadline(headers, at) {
            Ok(deadline) if at.now.after(delay) < deadline => {}
            Ok(_) => return Step::problem(&TOO_LATE),
            Err(problem) => return Step::problem(&problem),
        }
        let place = match Place::take(&self.shared, false) {
            Ok(place) => place,
            Err(problem) => return Step::problem(&problem),
        };
        let (handler, headers) = (self.clone(), headers.clone());
        Step::Later(Box::pin(async move {
            tokio::time::sleep(delay).await;
            // If the database is needed, that takes a place of its own.
            drop(place);
            let step = then(&handler, &headers, Moments { now: Nanos::now(), ..at });
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
