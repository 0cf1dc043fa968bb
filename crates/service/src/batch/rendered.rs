//! The answer of a batch, once all of its records are known.

use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::body::Body;
use hotrow_answer::budgets::{self, COUNTED_BYTES_MIN};
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::render::{self, BatchParts};
use hotrow_answer::respond::{HOTROW_POSITION, NO_STORE, describe};
use hotrow_telemetry::server_timing::ReadAt;
use hotrow_types::key::CollectionId;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};

use super::answers::Answers;
use crate::reads::Reads;

/// Returns the answer with these records, or a refusal.
pub(crate) fn render(
    reads: &Reads,
    connection: &ConnectionContext,
    id: CollectionId,
    ids: &Ids,
    answers: Answers,
) -> Outcome {
    let Answers { items, unanswered, worst, token, size, is_described, read_at, .. } = answers;
    if unanswered > 0 {
        // It would be reported as missing.
        return Answer::refused(HttpError::Unreadable);
    }
    if connection.is_redis {
        return (Answer::Items(Box::new(BatchParts { items, size })), worst.outcome);
    }
    let Ok(segments) = render::render(ids, &items) else {
        return Answer::refused(budgets::NO_ROOM);
    };
    // From here on the answer alone holds the records, and releases each when it is written.
    drop(items);
    let bytes = segments.len() as u64;
    let size = if bytes < COUNTED_BYTES_MIN { size.none() } else { size.finish(bytes) };
    let mut response = match size {
        Ok(reservation) => Response::new(Body::held(segments, reservation, &connection.activity)),
        Err(refused) => {
            let problem = reads.budgets.refused(&refused, ids.keys.len());
            return Answer::refused(problem);
        }
    };
    if let (Some(read_at), true) = (read_at, reads.has_server_timing) {
        response.extensions_mut().insert(ReadAt(read_at));
    }
    let headers = response.headers_mut();
    headers.reserve(8);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let collection = reads.collections.get(id);
    // No purge reaches a batch.
    let is_kept = collection.surrogate_keys.is_none();
    let directives = if is_kept { collection.cache_control.clone() } else { NO_STORE };
    headers.insert(CACHE_CONTROL, directives);
    let position = token.position().map(|position| reads.answers.position(position));
    if is_described {
        describe(headers, worst, position);
    } else if let Some(position) = position {
        headers.insert(HOTROW_POSITION, position);
    }
    (response.into(), worst.outcome)
}
