//! `GET`, `EXISTS` of one key, and `HOTROW.GET`: a request for one record.

use std::rc::Rc;

use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::body::Body;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::read_requirement::ReadRequirement;
use hotrow_answer::record_answer::RecordAnswer;
use hotrow_answer::route::ReadTarget;
use hotrow_cache::Presence;
use hotrow_measure::clock::Nanos;
use hotrow_resp::{Version, write};
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::key::{CollectionId, Key, KeyError};

use super::answered::Answered;
use super::command_request::AuthenticatedCommand;
use super::refusal::{self, no_collection};
use super::{Commands, Replied, Reply};
use crate::step::Step;
use crate::targets::read_one;

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

/// A key of the protocol: what it names records by, and its id as a key, or the reason why it is
/// none.
pub(super) type NamedKey = (ReadTarget, Result<Key, KeyError>);

impl Commands {
    /// Splits a key at its first colon. The id is what the URL's is after percent-decoding.
    ///
    /// # Errors
    /// The text of the error.
    #[inline]
    pub(super) fn named_key(&self, key: &[u8]) -> Result<NamedKey, String> {
        let colon = key.iter().position(|byte| *byte == b':').ok_or_else(no_colon)?;
        let (name, id) = (&key[..colon], &key[colon + 1..]);
        let collections = &self.reads.collections;
        let named = std::str::from_utf8(name).ok().and_then(|name| collections.router.named(name));
        let target = named.ok_or_else(|| no_collection(name))?;
        let limit = self.reads.limits.target_bytes;
        if id.len() > limit {
            return Err(too_long(limit));
        }
        Ok((target, collections.get(target.keys).schema.parse_decoded(id)))
    }

    /// Answers a request for records of a collection if the sender may read them. `position`: the
    /// least one that the answer must reflect.
    #[inline]
    pub(super) fn on_collection(
        &self,
        of: CollectionId,
        position: Option<&[u8]>,
        asked: &AuthenticatedCommand<'_>,
        then: impl FnOnce(&ReadRequest<'_>) -> Step,
    ) -> Step {
        let mut columns = None;
        let mut read = asked.read;
        if let Err(problem) =
            self.reads.authorisation.authorise(of, asked.sender, &mut columns, &mut read)
        {
            return Step::refused(problem);
        }
        if let Some(position) = position {
            let collection = self.reads.collections.get(of);
            read.required = ReadRequirement::at_least(position, read.rights, collection);
        }
        then(&read)
    }

    /// Replies with the record of the first argument. `position`: the least one that it must
    /// reflect.
    pub(super) fn reply_one(
        self: &Rc<Self>,
        wanted: Wanted,
        position: Option<&[u8]>,
        asked: &AuthenticatedCommand<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let (target, parsed) =
            match self.named_key(asked.request.arguments.get(1).unwrap_or_default()) {
                Ok(named) => named,
                Err(text) => return self.recorder.refuse_command(asked, &text, out),
            };
        let of = target.of;
        let step = self
            .on_collection(of, position, asked, |read| read_one(&self.reads, target, parsed, read));
        let version = asked.request.session.version.get();
        match step {
            Step::Now(outcome) => {
                let is_last = refusal::closes(&outcome);
                let (body, answered) = self.write_one(outcome, wanted, version, out);
                self.recorder.answered_at_once(asked, Some(of), answered);
                Replied::of(body, is_last)
            }
            Step::Later(pending) => {
                let commands = Rc::clone(self);
                let command = self.recorder.pending_command(asked, Some(of));
                Replied::Later(Box::pin(async move {
                    let outcome = pending.future.await;
                    Reply::of(command, |out| commands.write_one(outcome, wanted, version, out))
                }))
            }
        }
    }

    /// Replies with a record that is at least as new as a position.
    pub(super) fn one_at_least(
        self: &Rc<Self>,
        asked: &AuthenticatedCommand<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let arguments = asked.request.arguments;
        let [option, position] = [2, 3].map(|at| arguments.get(at).unwrap_or_default());
        if !option.eq_ignore_ascii_case(b"minpos") {
            let text = "ERR syntax error; use HOTROW.GET key MINPOS position";
            return self.recorder.refuse_command(asked, text, out);
        }
        self.reply_one(Wanted::Value, Some(position), asked, out)
    }

    /// Writes an answer as the reply to a command. Returns what follows, and what it says.
    fn write_one(
        &self,
        (answer, outcome): Outcome,
        wanted: Wanted,
        version: Version,
        out: &mut Vec<u8>,
    ) -> (Option<Body>, Answered) {
        let answer = match answer {
            Answer::Record(answer) => Some(answer),
            Answer::Absent(_) => None,
            other => return (None, refusal::write(&other, out)),
        };
        // What the sender does not see is answered alike, whatever is in memory: see `sight`.
        if answer.is_some() && outcome == CacheOutcome::Stale && !self.allows_stale {
            return (None, refusal::write_text(503, refusal::STALE, out));
        }
        let found = answer.filter(|answer| answer.form.record().presence() == Presence::Found);
        let status = if found.is_some() { 200 } else { 404 };
        let mut answered = Answered { outcome: outcome.into(), status, bytes: 0 };
        let mut rest = None;
        match (wanted, found) {
            (Wanted::Presence, found) => write::integer(out, found.is_some().into()),
            (Wanted::TtlMs | Wanted::TtlS, found) => {
                let ttl = |answer: RecordAnswer| ttl(answer.form.record().expires_at(), wanted);
                write::integer(out, found.map_or(NO_RECORD, ttl));
            }
            (Wanted::Value, None) => write::null(out, version),
            (Wanted::Value, Some(answer)) => {
                answered.bytes = answer.body_bytes();
                match answer.instead {
                    None => write::bulk(out, answer.form.bytes()),
                    Some(instead) => rest = write_body(instead.body, out),
                }
            }
        }
        (rest, answered)
    }
}

/// `TTL` of a key without a record.
const NO_RECORD: i64 = -2;
/// `TTL` of a record that has none.
const NO_TTL: i64 = -1;

/// Returns the time for which memory may keep a record.
fn ttl(ends_at: Nanos, wanted: Wanted) -> i64 {
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

/// Writes bytes that are not those of a record as they lie. Returns those of a large answer, which
/// are sent from where they lie.
fn write_body(body: Body, out: &mut Vec<u8>) -> Option<Body> {
    match body.whole() {
        Some(bytes) => {
            write::bulk(out, bytes);
            None
        }
        None => {
            write::bulk_head(out, body.len());
            Some(body.followed_by(write::BULK_END))
        }
    }
}

#[cold]
fn no_colon() -> String {
    "ERR a key is a collection and an id with a colon between, such as products:7".to_owned()
}

#[cold]
fn too_long(limit: usize) -> String {
    format!("ERR bad id: it has more than {limit} bytes (limits.target_bytes)")
}
