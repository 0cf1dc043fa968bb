//! `POST /_snapshot`: its body names collections and their ids.

use std::rc::Rc;

use hotrow_access::caller::Sender;
use hotrow_answer::answer::Outcome;
use hotrow_answer::context::{PendingRequest, ReadRequest, RequestTimes};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::read_requirement::ReadRequirement;
use hotrow_answer::receive;
use hotrow_answer::request::RequestBody;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::traces::TraceSlot;
use hotrow_types::key::CollectionId;

use super::body::{IdsOfCollections, parse_in_turns};
use super::part::Part;
use super::{Form, limited};
use crate::reads::Reads;
use crate::step::{CONFIGURATION_CHANGED, Evaluation, Step};

/// Answers a snapshot batch of several collections, whose ids are in its body.
pub(crate) fn posted(
    reads: &Rc<Reads>,
    sender: Sender,
    body: RequestBody,
    evaluation: &Evaluation,
    context: &ReadRequest<'_>,
) -> Step {
    if matches!(evaluation, Evaluation::Again(_)) {
        return Step::refused(CONFIGURATION_CHANGED);
    }
    let request = context.to_pending();
    let trace = reads.fetcher.trace_slot();
    let reads = Rc::clone(reads);
    Step::later(trace.clone(), async move {
        answer(&reads, &sender, body, request, trace.as_ref()).await
    })
}

async fn answer(
    reads: &Rc<Reads>,
    sender: &Sender,
    body: RequestBody,
    request: PendingRequest,
    trace: Option<&TraceSlot>,
) -> Outcome {
    let arrived = request.times.arrived;
    let received = receive::body(body, reads.limits.body_bytes, &reads.budgets.bodies).await;
    let (limits, hasher) = (&reads.limits, reads.cache.hasher());
    let parsed = match received {
        Ok(body) => parse_in_turns(&reads.collections, limits, hasher, body.bytes()).await,
        Err(problem) => Err((CollectionId(0), problem)),
    };
    // The body's time is the client's, as in a batch.
    let complete = Nanos::now();
    let times = RequestTimes { arrived, complete, now: complete };
    let request = PendingRequest { times, ..request };
    let context = request.context();
    let step = match parsed {
        Ok(parsed) => match parts(reads, sender, parsed, &context) {
            Ok((parts, required)) => {
                let context = ReadRequest { required, ..context };
                limited(reads, parts, Form::Collections, &context)
            }
            Err(problem) => Step::refused(problem),
        },
        // It costs as much as one id, as a malformed batch does.
        Err((id, problem)) => {
            reads.admission.limited(reads, id, 1, &context, |_, _| Step::refused(problem))
        }
    };
    step.rest(trace).await
}

/// Applies the grants of the sender to each collection.
fn parts(
    reads: &Reads,
    sender: &Sender,
    parsed: IdsOfCollections,
    context: &ReadRequest<'_>,
) -> Result<(Vec<Part>, Result<ReadRequirement, &'static HttpError>), HttpError> {
    let mut required = Ok(ReadRequirement::None);
    let part = |(id, ids): (CollectionId, Ids)| {
        let mut columns = None;
        let mut own = *context;
        reads.authorisation.authorise(id, sender, &mut columns, &mut own)?;
        let collection = reads.collections.get(id);
        own.required = ReadRequirement::of_fields(own.headers, own.rights, collection);
        if own.required != Ok(ReadRequirement::None) {
            required = own.required;
        }
        Ok(Part::new(id, ids, &own))
    };
    let parts = parsed.into_iter().map(part).collect::<Result<Vec<_>, HttpError>>()?;
    Ok((parts, required))
}
