//! The answer of a snapshot batch, in the form of its request.

use bytes::Bytes;
use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::body::{Body, Segments};
use hotrow_answer::budgets::{self, COUNTED_BYTES_MIN};
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::render::{self, BatchParts, Item};
use hotrow_answer::respond::{HOTROW_POSITION, NO_STORE, Provenance, describe};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};

use super::part::{Found, Part};
use crate::batch::answers::{Answers, Token};
use crate::batch::rendered::render as render_batch;
use crate::reads::Reads;

/// Form of an answer over HTTP. Commands of the Redis protocol get the items of all parts, one
/// after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// That of a batch of one collection.
    Batch,
    /// The point, and each collection by its name.
    Collections,
}

/// Returns the answer with these records, or a refusal.
pub(super) fn answer(
    reads: &Reads,
    connection: &ConnectionContext,
    parts: &[Part],
    found: Found,
    form: Form,
) -> Outcome {
    let ids = parts.iter().map(|part| part.keys().len()).sum();
    let mut bytes = 0;
    let mut answers: Vec<Answers> = Vec::with_capacity(parts.len());
    let mut reserved = Some(found.size);
    for (part, records) in parts.iter().zip(found.records) {
        let size = reserved.take().unwrap_or_else(|| reads.budgets.answer());
        let mut own = Answers::new(&reads.cache, part.ids(), size, part.view.clone());
        for (place, (record, how)) in records.into_iter().enumerate() {
            _ = own.put(place, record, how);
        }
        if own.unanswered > 0 {
            return Answer::refused(HttpError::Unreadable);
        }
        // Where the time of an answer must not show what memory has, neither may its point.
        let is_hidden = part.view.sight.as_sight().hides_existence();
        own.token = if is_hidden { Token::None } else { Token::Largest(found.point) };
        bytes += own.bytes;
        answers.push(own);
    }
    if bytes >= COUNTED_BYTES_MIN
        && let Some(first) = answers.first_mut()
    {
        first.size.restart();
        if let Err(refused) = first.size.add_known(bytes, 0) {
            return Answer::refused(reads.budgets.refused(&refused, ids));
        }
    }
    match form {
        Form::Batch if parts.len() == 1 => match (parts.first(), answers.pop()) {
            (Some(part), Some(own)) => render_batch(reads, connection, part.id, part.ids(), own),
            _ => Answer::refused(HttpError::Unreadable),
        },
        Form::Batch => items(answers),
        Form::Collections => collections(reads, connection, parts, answers),
    }
}

/// Returns the items of all parts, one after the other.
fn items(answers: Vec<Answers>) -> Outcome {
    let worst = worst(&answers);
    let mut size = None;
    let mut items: Vec<Option<Item>> = Vec::new();
    for own in answers {
        items.extend(own.items);
        size.get_or_insert(own.size);
    }
    match size {
        Some(size) => (Answer::Items(Box::new(BatchParts { items, size })), worst.outcome),
        None => Answer::refused(HttpError::Unreadable),
    }
}

/// Returns the worst provenance of the parts, by which all of them are described.
fn worst(answers: &[Answers]) -> Provenance {
    let all = answers.iter().map(|own| own.worst).reduce(Provenance::with);
    all.unwrap_or(Provenance {
        outcome: hotrow_telemetry::outcome::CacheOutcome::Hit,
        age: std::time::Duration::ZERO,
    })
}

/// Renders `{"position":"…","collections":{"products":{"items":{…},"missing":[…]},…}}`.
fn collections(
    reads: &Reads,
    connection: &ConnectionContext,
    parts: &[Part],
    answers: Vec<Answers>,
) -> Outcome {
    let worst = worst(&answers);
    let is_described = answers.iter().all(|own| own.is_described);
    let is_hidden = answers.iter().any(|own| own.token == Token::None);
    let position = answers.first().and_then(|own| own.token.position()).filter(|_| !is_hidden);
    let mut text = match position {
        Some(position) => format!("{{\"position\":\"{position}\",\"collections\":{{"),
        None => "{\"collections\":{".to_owned(),
    };
    let mut segments = Segments::default();
    let mut reserved = None;
    for (place, (part, own)) in parts.iter().zip(answers).enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let name = serde_json::Value::from(reads.collections.get(part.id).name.as_str());
        text += &format!("{comma}{name}:");
        segments.push_text(Bytes::from(std::mem::take(&mut text)));
        match render::render(part.ids(), &own.items) {
            Ok(rendered) => segments.append(rendered),
            Err(_) => return Answer::refused(budgets::NO_ROOM),
        }
        reserved.get_or_insert(own.size);
    }
    segments.push_text(Bytes::from_static(b"}}"));
    let bytes = segments.len() as u64;
    let size = reserved.unwrap_or_else(|| reads.budgets.answer());
    let size = if bytes < COUNTED_BYTES_MIN { size.none() } else { size.finish(bytes) };
    let mut response = match size {
        Ok(reservation) => Response::new(Body::held(segments, reservation, &connection.activity)),
        Err(refused) => {
            let ids = parts.iter().map(|part| part.keys().len()).sum();
            return Answer::refused(reads.budgets.refused(&refused, ids));
        }
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, NO_STORE);
    let position = position.map(|position| reads.answers.position(position));
    if is_described {
        describe(headers, worst, position);
    } else if let Some(position) = position {
        headers.insert(HOTROW_POSITION, position);
    }
    (response.into(), worst.outcome)
}
