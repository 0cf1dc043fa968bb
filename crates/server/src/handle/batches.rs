//! Batches on their way to an answer: their body, their limits.

use std::borrow::Borrow;
use std::rc::Rc;

use hotrow_admission::shed::Kind;
use hotrow_types::key::CollectionId;

use super::{CONFIGURATION_CHANGED, Evaluation, Handler, Pending, ReceivedIds, Step};
use crate::batch::Ids;
use crate::connection::request::RequestBody;
use crate::context::ReadRequest;
use crate::http_error::HttpError;
use crate::route::ReadTarget;

impl Handler {
    /// Answers a batch whose ids are in its body.
    pub(crate) fn posted(
        self: &Rc<Self>,
        target: ReadTarget,
        body: RequestBody,
        evaluation: Evaluation,
        context: &ReadRequest<'_>,
    ) -> Step {
        let id = target.of;
        // Before the body takes memory.
        let admitted = self
            .check_alias_grant(target, context)
            .and_then(|()| self.check_shedding_by_head(id, Kind::Batch, context));
        if let Err(problem) = admitted {
            return Step::refused(problem);
        }
        match evaluation {
            Evaluation::First => {}
            Evaluation::Again(Some(ids)) => {
                let ids = ids.check_size(&self.shared.limits).map(|()| ids);
                return self.limited_batch(id, ids, context);
            }
            Evaluation::Again(None) => return Step::refused(CONFIGURATION_CHANGED),
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
            Box::pin(async move { handler.batch_post(target, body, request, &received).await });
        Step::Later(Pending { future, ids: Some(ids), trace })
    }

    /// Answers a batch of these ids, or refuses it.
    pub(crate) fn several(
        self: &Rc<Self>,
        target: ReadTarget,
        parsed: Result<Ids, HttpError>,
        request: &ReadRequest<'_>,
    ) -> Step {
        match self.check_alias_grant(target, request) {
            Ok(()) => self.limited_batch(target.of, parsed, request),
            Err(problem) => Step::refused(problem),
        }
    }

    /// Applies the rate limits to a batch. A malformed batch costs as much as one id, a shed one
    /// nothing.
    pub(crate) fn limited_batch(
        self: &Rc<Self>,
        id: CollectionId,
        parsed: Result<impl Borrow<Ids> + 'static, HttpError>,
        request: &ReadRequest<'_>,
    ) -> Step {
        if let Err(problem) = self.check_shedding_by_head(id, Kind::Batch, request) {
            return Step::refused(problem);
        }
        let ids = parsed.as_ref().map_or(1, |ids| ids.borrow().len());
        self.limited(id, ids, request, move |handler, request| match parsed {
            Ok(ids) => handler.batch(id, ids, request),
            Err(problem) => Step::refused(problem),
        })
    }
}
