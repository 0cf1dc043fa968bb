//! `GET`, `EXISTS` of one key, and `HOTROW.GET`: a request for one record.

use std::rc::Rc;

use hotrow_admission::shed::Kind;
use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::body::Body;
use hotrow_answer::context::RequestContext;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::metrics::{AccessOutcome, RedisOutcome};
use hotrow_answer::respond::HOTROW_MIN_POSITION;
use hotrow_answer::sight::Sight;
use hotrow_cache::Presence;
use hotrow_measure::clock::Nanos;
use hotrow_resp::{Version, write};
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::key::{CollectionId, Key, KeyError};

use super::answered::Answered;
use super::command_request::Asked;
use super::refusal::{self, no_collection};
use super::{Replied, Reply};
use crate::handle::{Handler, Step};

/// What a command wants of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Value,
    Presence,
    /// The time for which memory may keep it, in milliseconds.
    TtlMs,
    /// The same in seconds.
    TtlS,
}

/// A key of the protocol: the collection or alias that it names, and its id as a key or the reason
/// why it is none.
pub(super) type NamedKey = (CollectionId, Result<Key, KeyError>);

impl Handler {
    /// Splits a key at its first colon. The id is what the URL's is after percent-decoding.
    ///
    /// # Errors
    /// The text of the error.
    #[inline]
    pub(super) fn named_key(&self, key: &[u8]) -> Result<NamedKey, String> {
        let colon = key.iter().position(|byte| *byte == b':').ok_or_else(no_colon)?;
        let (name, id) = (&key[..colon], &key[colon + 1..]);
        let collections = &self.shared.collections;
        let named = std::str::from_utf8(name).ok().and_then(|name| collections.router.named(name));
        let of_alias = || Some(collections.router.alias(std::str::from_utf8(name).ok()?)?.alias);
        let collection = named.or_else(of_alias).ok_or_else(|| no_collection(name))?;
        let limit = self.shared.limits.target_bytes;
        if id.len() > limit {
            return Err(too_long(limit));
        }
        Ok((collection, collections.get(collection).schema.parse_decoded(id)))
    }

    /// Answers a request on a collection if the sender may read it.
    #[inline]
    pub(super) fn on_collection(
        &self,
        id: CollectionId,
        asked: &Asked<'_>,
        then: impl FnOnce(&RequestContext<'_>) -> Step,
    ) -> Step {
        let mut context = asked.context;
        let columns;
        if let Some(authenticator) = &self.authenticator {
            context.caller = asked.sender.caller;
            match authenticator.rights(id, asked.sender.caller.roles) {
                Ok((rights, own)) => {
                    context.rights = rights;
                    columns = own;
                    context.columns = columns.as_ref();
                }
                Err(problem) => {
                    self.metrics.access.count(AccessOutcome::Forbidden);
                    return Step::problem(&problem);
                }
            }
            let tenancy = self.shared.collections.get(id).tenancy;
            context.sight = Sight::new(tenancy, &asked.sender.tenants);
        }
        then(&context)
    }

    /// Replies with the record of the first argument.
    pub(crate) fn one(
        self: &Rc<Self>,
        wanted: Wanted,
        asked: &Asked<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let (id, parsed) = match self.named_key(asked.request.arguments.get(1).unwrap_or_default())
        {
            Ok(named) => named,
            Err(text) => return self.refuse_command(asked, &text, out),
        };
        let of = self.shared.collections.base_of(id);
        let step = self.on_collection(of, asked, |context| {
            if let Err(problem) = self.check_shedding_by_head(of, Kind::Hit, context) {
                return Step::problem(&problem);
            }
            if let Err(problem) = self.check_alias_grant(id, context) {
                return Step::problem(&problem);
            }
            self.limited(of, 1, context, move |handler, context| match parsed {
                Ok(alias) if id != of => handler.by_alias(alias, context),
                Ok(key) => handler.item(key, context),
                Err(error) => Step::problem(&HttpError::BadId(error)),
            })
        });
        let version = asked.request.session.version.get();
        match step {
            Step::Now(outcome) => {
                let is_last = refusal::closes(&outcome);
                let (body, answered) = self.write_one(outcome, wanted, version, out);
                self.answered_at_once(asked, Some(of), answered);
                Replied::of(body, is_last)
            }
            Step::Later(pending) => {
                let handler = Rc::clone(self);
                let command = self.pending_command(asked, Some(of));
                Replied::Later(Box::pin(async move {
                    let outcome = pending.future.await;
                    Reply::of(command, |out| handler.write_one(outcome, wanted, version, out))
                }))
            }
        }
    }

    /// Replies with a record that is at least as new as a position.
    pub(super) fn one_at_least(self: &Rc<Self>, asked: &Asked<'_>, out: &mut Vec<u8>) -> Replied {
        let arguments = asked.request.arguments;
        let [option, position] = [2, 3].map(|at| arguments.get(at).unwrap_or_default());
        if !option.eq_ignore_ascii_case(b"minpos") {
            let text = "ERR syntax error; use HOTROW.GET key MINPOS position";
            return self.refuse_command(asked, text, out);
        }
        let mut headers = asked.context.headers.to_buf();
        headers.push(HOTROW_MIN_POSITION.as_bytes(), position);
        let context = RequestContext { headers: headers.as_fields(), ..asked.context };
        let Asked { request, spec, sender, .. } = *asked;
        self.one(Wanted::Value, &Asked { request, spec, context, sender }, out)
    }

    /// Writes an answer as the reply to a command. Returns what follows, and what it says.
    fn write_one(
        &self,
        (answer, outcome): Outcome,
        wanted: Wanted,
        version: Version,
        out: &mut Vec<u8>,
    ) -> (Option<Body>, Answered) {
        // What the sender does not see is answered alike, whatever is in memory: see `sight`.
        let is_seen = !matches!(answer, Answer::Absent(_));
        if is_seen && outcome == CacheOutcome::Stale && !self.shared.redis_allows_stale {
            write::error(out, refusal::STALE);
            return (None, Answered::error(503, refusal::STALE));
        }
        let outcome = RedisOutcome::from(outcome);
        let is_found = match &answer {
            Answer::Record(answer) => answer.form.record().presence() == Presence::Found,
            Answer::Absent(_) => false,
            Answer::Http(response) if !response.status().is_success() => {
                let text = refusal::text_of(response);
                write::error(out, &text);
                return (None, Answered::error(response.status().as_u16(), &text));
            }
            Answer::Http(_) | Answer::Items(_) => true,
        };
        let mut bytes = 0;
        match (wanted, answer) {
            (Wanted::Presence, _) => write::integer(out, is_found.into()),
            (Wanted::TtlMs | Wanted::TtlS, answer) => {
                write::integer(out, if is_found { ttl(&answer, wanted) } else { NO_RECORD });
            }
            (Wanted::Value, Answer::Record(answer)) if is_found => {
                bytes = answer.form.bytes().len() as u64;
                write::bulk(out, answer.form.bytes());
            }
            (Wanted::Value, Answer::Http(response)) => {
                let body = response.into_body();
                write::bulk_head(out, body.len());
                let answered = Answered { outcome, status: 200, bytes: body.len() as u64 };
                return (write_body(body, out), answered);
            }
            (Wanted::Value, _) => write::null(out, version),
        }
        let status = if is_found { 200 } else { 404 };
        (None, Answered { outcome, status, bytes })
    }
}

/// `TTL` of a key without a record.
const NO_RECORD: i64 = -2;
/// `TTL` of a record that has none, or whose answer does not contain it.
const NO_TTL: i64 = -1;

/// Returns the time for which memory may keep the record of an answer.
fn ttl(answer: &Answer, wanted: Wanted) -> i64 {
    let Answer::Record(answer) = answer else { return NO_TTL };
    let ends_at = answer.form.record().expires_at();
    if ends_at == Nanos::MAX {
        return NO_TTL;
    }
    let left = ends_at.since(Nanos::now());
    let left = match wanted {
        Wanted::TtlS => u128::from(left.as_secs()),
        _ => left.as_millis(),
    };
    i64::try_from(left).unwrap_or(i64::MAX)
}

/// Writes the bytes of a string and its end. Returns those of a large answer, which are sent from
/// where they lie.
fn write_body(body: Body, out: &mut Vec<u8>) -> Option<Body> {
    match body {
        Body::Held(_) => return Some(body.followed_by(write::BULK_END)),
        Body::Empty | Body::Endless(_) => {}
        Body::Record(form) => out.extend_from_slice(form.bytes()),
        Body::Bytes(bytes) => out.extend_from_slice(&bytes),
    }
    out.extend_from_slice(write::BULK_END);
    None
}

#[cold]
fn no_colon() -> String {
    "ERR a key is a collection and an id with a colon between, such as products:7".to_owned()
}

#[cold]
fn too_long(limit: usize) -> String {
    format!("ERR bad id: it has more than {limit} bytes (limits.target_bytes)")
}
