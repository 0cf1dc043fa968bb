//! Batches on their way to an answer: their body, their limits.

use std::borrow::Borrow;
use std::rc::Rc;

use hotrow_admission::shed::Kind;
use hotrow_answer::context::RequestContext;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::request::RequestBody;
use hotrow_types::key::CollectionId;

use super::{CONFIGURATION_CHANGED, Evaluation, Handler, Pending, ReceivedIds, Step};

impl Handler {
    /// Answers a batch whose ids are in its body. `ids_of`: the collection or alias whose they are.
    pub(crate) fn posted(
        self: &Rc<Self>,
        (id, ids_of): (CollectionId, CollectionId),
        body: RequestBody,
        evaluation: Evaluation,
        context: &RequestContext<'_>,
    ) -> Step {
        // Before the body takes memory.
        if let Err(problem) = self.check_shedding_by_head(id, Kind::Batch, context) {
            return Step::problem(&problem);
        }
        match evaluation {
            Evaluation::First => {}
            Evaluation::Again(Some(ids)) => {
                let ids = ids.check_size(&self.shared.limits).map(|()| ids);
                return self.limited_batch(id, ids, context);
            }
            Evaluation::Again(None) => return Step::problem(&CONFIGURATION_CHANGED),
        }
        if let Some(refusal) = self.limited_by_head(id, context) {
            return refusal;
        }
        let handler = Rc::clone(self);
        let request = context.to_pending();
        let ids = ReceivedIds::default();
        let trace = self.shared.fetcher.trace_slot();
        let received = (Rc::clone(&ids), trace.clone());
        let future =
            Box::pin(
                async move { handler.batch_post((id, ids_of), body, request, &received).await },
            );
        Step::Later(Pending { future, ids: Some(ids), trace })
    }

    /// Applies the rate limits to a batch. A malformed batch costs as much as one id, a shed one
    /// nothing.
    pub(crate) fn limited_batch(
        self: &Rc<Self>,
        id: CollectionId,
        parsed: Result<impl Borrow<Ids> + 'static, HttpError>,
        request: &RequestContext<'_>,
    ) -> Step {
        if let Err(problem) = self.check_shedding_by_head(id, Kind::Batch, request) {
            return Step::problem(&problem);
        }
        let ids = parsed.as_ref().map_or(1, |ids| ids.borrow().keys.len());
        self.limited(id, ids, request, move |handler, request| match parsed {
            Ok(ids) => handler.batch(id, ids, request),
            Err(problem) => Step::problem(&problem),
        })
    }
}
