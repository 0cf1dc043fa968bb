//! Rate limits on the path of a request: before the cache is consulted.

use std::net::IpAddr;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;
use http::HeaderMap;

use super::{Fields, RateDecision, RateRequest};
use crate::admission::deadline::RequestTimes;
use crate::handle::{Handler, Step};
use crate::http_error::HttpError;
use crate::shared::InflightGuard;

const TOO_LATE: HttpError =
    HttpError::Overloaded("the rate limit would delay this request beyond its deadline");

impl Handler {
    /// Continues with `then` if the rate limits allow it: at once, or after a delay that the rule
    /// bounds and that takes a permit of the waiting requests. `ids`: number of requested ids.
    #[inline]
    pub(crate) fn limited(
        &self,
        collection: CollectionId,
        ids: usize,
        (peer, headers): (IpAddr, &HeaderMap),
        at: RequestTimes,
        then: impl FnOnce(&Self, &HeaderMap, RequestTimes) -> Step + Send + 'static,
    ) -> Step {
        if self.shared.rate.is_off() {
            return then(self, headers, at);
        }
        match self
            .shared
            .rate
            .ask(&RateRequest { collection, ids: ids as u64, peer, headers }, at.now)
        {
            RateDecision::Permit => then(self, headers, at),
            RateDecision::PermitWithFields(fields) => with_fields(then(self, headers, at), fields),
            RateDecision::Wait(delay, fields) => {
                self.after_delay((delay, fields), headers, at, then)
            }
            RateDecision::Refuse(why) => Step::problem(&HttpError::TooManyRequests(why)),
            RateDecision::Never(why) => Step::problem(&HttpError::BadBatch(why)),
        }
    }

    /// Refuses a request that would be refused with any body. Takes nothing: its cost is counted
    /// when it is known.
    pub(crate) fn limited_by_head(
        &self,
        collection: CollectionId,
        (peer, headers): (IpAddr, &HeaderMap),
        now: Nanos,
    ) -> Option<Step> {
        match self.shared.rate.refusal(&RateRequest { collection, ids: 1, peer, headers }, now)? {
            RateDecision::Refuse(why) => Some(Step::problem(&HttpError::TooManyRequests(why))),
            RateDecision::Never(why) => Some(Step::problem(&HttpError::BadBatch(why))),
            RateDecision::Permit | RateDecision::PermitWithFields(_) | RateDecision::Wait(..) => {
                None
            }
        }
    }

    /// The deadline counts from the arrival: where the delay alone is longer, the request is
    /// answered at once.
    fn after_delay(
        &self,
        (delay, fields): (Duration, Option<Fields>),
        headers: &HeaderMap,
        at: RequestTimes,
        then: impl FnOnce(&Self, &HeaderMap, RequestTimes) -> Step + Send + 'static,
    ) -> Step {
        match self.shared.deadline(headers, at) {
            Ok(deadline) if at.now.after(delay) < deadline => {}
            Ok(_) => return Step::problem(&TOO_LATE),
            Err(problem) => return Step::problem(&problem),
        }
        let place = match InflightGuard::take(&self.shared, false) {
            Ok(place) => place,
            Err(problem) => return Step::problem(&problem),
        };
        let handler = self.clone();
        let headers = headers.clone();
        Step::Later(Box::pin(async move {
            tokio::time::sleep(delay).await;
            // If the database is needed, that takes a permit of its own.
            drop(place);
            let step = then(&handler, &headers, RequestTimes { now: Nanos::now(), ..at });
            let step = match fields {
                Some(fields) => with_fields(step, fields),
                None => step,
            };
            match step {
                Step::Now(outcome) => outcome,
                Step::Later(future) => future.await,
            }
        }))
    }
}

fn with_fields(step: Step, fields: Fields) -> Step {
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
