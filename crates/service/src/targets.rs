//! Reads of a target: grants and limits first, then the record of a key or of an alias, or a batch.

use std::borrow::Borrow;
use std::rc::Rc;

use hotrow_admission::shed::Kind;
use hotrow_answer::answer::Outcome;
use hotrow_answer::context::{PendingRequest, ReadRequest, RequestTimes};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::receive;
use hotrow_answer::request::RequestBody;
use hotrow_answer::route::ReadTarget;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::traces::TraceSlot;
use hotrow_types::key::{CollectionId, Key, KeyError};

use crate::alias::by_alias;
use crate::batch::batch;
use crate::batch::list::parse_body_in_turns;
use crate::reads::Reads;
use crate::snapshot;
use crate::step::{CONFIGURATION_CHANGED, Evaluation, Pending, ReceivedIds, Step};

/// Answers a request for one record.
#[inline]
pub(crate) fn read_one(
    reads: &Rc<Reads>,
    target: ReadTarget,
    parsed: Result<Key, KeyError>,
    request: &ReadRequest<'_>,
) -> Step {
    let admitted = reads
        .authorisation
        .check_alias_grant(target, request)
        .and_then(|()| reads.admission.check_shedding_by_head(target.of, Kind::Hit, request));
    if let Err(problem) = admitted {
        return Step::refused(problem);
    }
    reads.admission.limited(reads, target.of, 1, request, move |reads, request| match parsed {
        Ok(alias) if target.is_alias() => by_alias(reads, alias, request),
        Ok(key) => reads.item(key, request),
        Err(error) => Step::refused(HttpError::BadId(error)),
    })
}

/// Answers a batch whose ids are in its body.
pub(crate) fn posted(
    reads: &Rc<Reads>,
    target: ReadTarget,
    body: RequestBody,
    evaluation: Evaluation,
    context: &ReadRequest<'_>,
) -> Step {
    let id = target.of;
    // Before the body takes memory.
    let admitted = reads
        .authorisation
        .check_alias_grant(target, context)
        .and_then(|()| reads.admission.check_shedding_by_head(id, Kind::Batch, context));
    if let Err(problem) = admitted {
        return Step::refused(problem);
    }
    match evaluation {
        Evaluation::First => {}
        Evaluation::Again(Some(ids)) => {
            let ids = ids.check_size(&reads.limits).map(|()| ids);
            return limited_batch(reads, id, ids, context);
        }
        Evaluation::Again(None) => return Step::refused(CONFIGURATION_CHANGED),
    }
    if let Some(refusal) = reads.admission.limited_by_head(id, context) {
        return refusal;
    }
    let request = context.to_pending();
    let ids = ReceivedIds::default();
    let trace = reads.fetcher.trace_slot();
    let received = (Rc::clone(&ids), trace.clone());
    let reads = Rc::clone(reads);
    let future =
        Box::pin(async move { batch_post(&reads, target, body, request, &received).await });
    Step::Later(Pending { future, ids: Some(ids), trace })
}

/// Answers a batch of these ids, or refuses it.
pub(crate) fn several(
    reads: &Rc<Reads>,
    target: ReadTarget,
    parsed: Result<Ids, HttpError>,
    request: &ReadRequest<'_>,
) -> Step {
    match reads.authorisation.check_alias_grant(target, request) {
        Ok(()) => limited_batch(reads, target.of, parsed, request),
        Err(problem) => Step::refused(problem),
    }
}

/// Applies the rate limits to a batch. A malformed batch costs as much as one id, a shed one
/// nothing.
fn limited_batch(
    reads: &Rc<Reads>,
    id: CollectionId,
    parsed: Result<impl Borrow<Ids> + 'static, HttpError>,
    request: &ReadRequest<'_>,
) -> Step {
    if let Err(problem) = reads.admission.check_shedding_by_head(id, Kind::Batch, request) {
        return Step::refused(problem);
    }
    let ids = parsed.as_ref().map_or(1, |ids| ids.borrow().keys.len());
    reads.admission.limited(reads, id, ids, request, move |reads, request| match parsed {
        Ok(ids) if ids.borrow().is_snapshot => snapshot::of_one(reads, id, ids, request),
        Ok(ids) => batch(reads, id, ids, request),
        Err(problem) => Step::refused(problem),
    })
}

async fn batch_post(
    reads: &Rc<Reads>,
    target: ReadTarget,
    body: RequestBody,
    request: PendingRequest,
    (ids, trace): &(ReceivedIds, Option<TraceSlot>),
) -> Outcome {
    let arrived = request.times.arrived;
    let received = receive::body(body, reads.limits.body_bytes, &reads.budgets.bodies).await;
    let schema = &reads.collections.get(target.keys).schema;
    let parsed = match received {
        Ok(body) => {
            let (limits, hasher) = (&reads.limits, reads.cache.hasher());
            parse_body_in_turns(schema, limits, hasher, body.bytes()).await
        }
        Err(problem) => Err(problem),
    };
    let parsed = parsed.map(|parsed| Rc::clone(ids.get_or_init(|| Rc::new(parsed))));
    // The body's time is the client's: only its own deadline header counts from the arrival.
    let complete = Nanos::now();
    let times = RequestTimes { arrived, complete, now: complete };
    let request = PendingRequest { times, ..request };
    limited_batch(reads, target.of, parsed, &request.context()).rest(trace.as_ref()).await
}
