//! Rate limits on the path of a request: before the cache is consulted.

use std::rc::Rc;
use std::time::Duration;

use hotrow_answer::context::{ReadRequest, RequestTimes};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::rate_fields::Fields;
use hotrow_gate::admission::rate::{RateDecision, RateRequest};
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;

use crate::admission::request::RequestAdmission;
use crate::step::{Pending, Step};

const TOO_LATE: HttpError =
    HttpError::Overloaded("the rate limit would delay this request beyond its deadline");

impl RequestAdmission {
    /// Continues with `then`, which needs `own`, if the rate limits allow it: at once, or after a
    /// delay that the rule bounds and that takes a permit of the waiting requests. `ids`: number of
    /// requested ids.
    #[inline]
    pub(crate) fn limited<T: 'static>(
        &self,
        own: &Rc<T>,
        collection: CollectionId,
        ids: usize,
        request: &ReadRequest<'_>,
        then: impl FnOnce(&Rc<T>, &ReadRequest<'_>) -> Step + 'static,
    ) -> Step {
        if self.shared.rate.is_off() || request.is_paid {
            return then(own, request);
        }
        match self.shared.rate.ask(&RateRequest::new(collection, ids, request), request.times.now) {
            RateDecision::Permit => then(own, request),
            RateDecision::PermitWithFields(fields) => with_fields(then(own, request), fields),
            RateDecision::Wait(delay, fields) => {
                self.after_delay(own, (delay, fields), request, then)
            }
            RateDecision::Refuse(why) => Step::refused(HttpError::TooManyRequests(why)),
            RateDecision::Never(why) => Step::refused(HttpError::BadBatch(why)),
        }
    }

    /// Refuses a request that would be refused with any body. Takes nothing: its cost is counted
    /// when it is known.
    pub(crate) fn limited_by_head(
        &self,
        collection: CollectionId,
        request: &ReadRequest<'_>,
    ) -> Option<Step> {
        let asked = RateRequest::new(collection, 1, request);
        match self.shared.rate.refusal(&asked, request.times.now)? {
            RateDecision::Refuse(why) => Some(Step::refused(HttpError::TooManyRequests(why))),
            RateDecision::Never(why) => Some(Step::refused(HttpError::BadBatch(why))),
            RateDecision::Permit | RateDecision::PermitWithFields(_) | RateDecision::Wait(..) => {
                None
            }
        }
    }

    /// The deadline counts from the arrival: where the delay alone is longer, the request is
    /// answered at once.
    fn after_delay<T: 'static>(
        &self,
        own: &Rc<T>,
        (delay, fields): (Duration, Option<Fields>),
        request: &ReadRequest<'_>,
        then: impl FnOnce(&Rc<T>, &ReadRequest<'_>) -> Step + 'static,
    ) -> Step {
        match self.shared.deadline(request) {
            Ok(deadline) if request.times.now.after(delay) < deadline => {}
            Ok(_) => return Step::refused(TOO_LATE),
            Err(problem) => return Step::refused(problem),
        }
        let place = match self.shared.inflight.enter(false) {
            Ok(place) => place,
            Err(problem) => return Step::refused(problem),
        };
        let own = Rc::clone(own);
        let mut request = request.to_pending();
        let trace = self.fetcher.trace_slot();
        Step::later(trace.clone(), async move {
            tokio::time::sleep(delay).await;
            // If the database is needed, that takes a permit of its own.
            drop(place);
            request.times = RequestTimes { now: Nanos::now(), ..request.times };
            let step = then(&own, &request.context());
            let step = match fields {
                Some(fields) => with_fields(step, fields),
                None => step,
            };
            step.rest(trace.as_ref()).await
        })
    }
}

fn with_fields(step: Step, fields: Fields) -> Step {
    match step {
        Step::Now((mut answer, outcome)) => {
            answer.add_rate_limit(fields);
            Step::Now((answer, outcome))
        }
        Step::Later(Pending { future, ids, trace }) => {
            let future = Box::pin(async move {
                let (mut answer, outcome) = future.await;
                answer.add_rate_limit(fields);
                (answer, outcome)
            });
            Step::Later(Pending { future, ids, trace })
        }
    }
}
