//! `MGET`, and `EXISTS` of several keys: one batch for each collection that the keys name, so that
//! the cold keys of each are one query.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::body::{Body, Segments};
use hotrow_answer::budgets::COUNTED_BYTES_MIN;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::render::{BatchParts, Item};
use hotrow_answer::route::ReadTarget;
use hotrow_resp::{Version, write};
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::key::{CollectionId, KeyError};

use super::answered::Answered;
use super::command_request::AuthenticatedCommand;
use super::refusal;
use super::{Commands, Replied, Reply};
use crate::snapshot::part::{OF_ALIAS, Part as SnapshotPart};
use crate::snapshot::{Form, limited};
use crate::step::Step;
use crate::targets::several;

/// What a command wants of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    Values,
    /// Values of one point of the log.
    Snapshot,
    Count,
}

/// Keys of a command: a batch for each collection, and the place of each argument.
#[derive(Default)]
struct Plan {
    batches: Vec<(ReadTarget, Ids)>,
    /// By argument, the number of its batch and its place there.
    places: Vec<(usize, usize)>,
}

/// Largest reply whose records are copied into one text.
const COPIED_BYTES_MAX: u64 = COUNTED_BYTES_MIN;

/// A batch, answered or not.
enum Part {
    Ready(Outcome),
    Pending(Pin<Box<dyn Future<Output = Outcome>>>),
}

/// Reason for which keys are no plan.
enum BadKeys {
    /// With the text.
    Refused(String),
    /// It costs as much as one id.
    BadId(ReadTarget, KeyError),
}

impl Commands {
    /// Replies with the records of all arguments.
    pub(super) fn reply_many(
        self: &Rc<Self>,
        gathered: Gathered,
        asked: &AuthenticatedCommand<'_>,
        out: &mut Vec<u8>,
    ) -> Replied {
        let arguments = asked.request.arguments;
        let option = arguments.get(arguments.len() - 1).unwrap_or_default();
        if gathered == Gathered::Snapshot && !option.eq_ignore_ascii_case(b"snapshot") {
            let text = "ERR syntax error; use HOTROW.MGET key [key ...] SNAPSHOT";
            return self.recorder.refuse_command(asked, text, out);
        }
        let Plan { batches, places } = match self.plan(asked) {
            Ok(plan) => plan,
            Err(BadKeys::Refused(text)) => return self.recorder.refuse_command(asked, &text, out),
            Err(BadKeys::BadId(ReadTarget { of, .. }, error)) => {
                let step = self.on_collection(of, None, asked, |read| {
                    self.reads.admission.limited(self, of, 1, read, move |_, _| {
                        Step::refused(HttpError::BadId(error))
                    })
                });
                return self.gather((vec![step], Some(of)), gathered, Vec::new(), (asked, out));
            }
        };
        // A line of the access log names one collection.
        let only = match &batches[..] {
            [(target, _)] => Some(target.of),
            _ => None,
        };
        if gathered == Gathered::Snapshot {
            let (step, places) = self.snapshot(batches, &places, asked);
            return self.gather((vec![step], only), gathered, places, (asked, out));
        }
        let mut steps = Vec::with_capacity(batches.len());
        for (target, ids) in batches {
            let batch = |read: &ReadRequest<'_>| several(&self.reads, target, Ok(ids), read);
            let step = self.on_collection(target.of, None, asked, batch);
            let is_refused = matches!(&step, Step::Now(outcome) if is_refusal(outcome));
            steps.push(step);
            if is_refused {
                // One refused batch refuses the command: the others need not begin.
                break;
            }
        }
        self.gather((steps, only), gathered, places, (asked, out))
    }

    /// Begins a snapshot of the batches. Returns the places of the arguments in its items too.
    fn snapshot(
        &self,
        batches: Vec<(ReadTarget, Ids)>,
        places: &[(usize, usize)],
        asked: &AuthenticatedCommand<'_>,
    ) -> (Step, Vec<(usize, usize)>) {
        let mut parts = Vec::with_capacity(batches.len());
        let mut firsts = Vec::with_capacity(batches.len());
        let mut items = 0;
        for (target, ids) in batches {
            firsts.push(items);
            items += ids.keys.len();
            let mut part = None;
            let step = self.on_collection(target.of, None, asked, |read| {
                part = (!target.is_alias()).then(|| SnapshotPart::new(target.of, ids, read));
                Step::refused(HttpError::BadBatch(OF_ALIAS.into()))
            });
            match part {
                Some(part) => parts.push(part),
                None => return (step, Vec::new()),
            }
        }
        let places = places.iter().map(|(batch, place)| (0, firsts[*batch] + place)).collect();
        let read = ReadRequest { caller: asked.sender.caller, ..asked.read };
        (limited(&self.reads, parts, Form::Batch, &read), places)
    }

    fn plan(&self, asked: &AuthenticatedCommand<'_>) -> Result<Plan, BadKeys> {
        let keys = asked.spec.keys_of(asked.request.arguments).into_iter().flatten();
        let max = self.reads.limits.max_batch;
        let count = asked.spec.key_count(asked.request.arguments);
        if count > max {
            let name = asked.spec.name.to_ascii_uppercase();
            return Err(BadKeys::Refused(format!(
                "ERR {name} has {count} keys; the limit is {max} (limits.max_batch)"
            )));
        }
        let mut plan = Plan::default();
        plan.places.reserve(count);
        let mut batch_of = vec![None; self.reads.collections.count()];
        for key in keys {
            let (target, key) = self.named_key(key).map_err(BadKeys::Refused)?;
            let key = key.map_err(|error| BadKeys::BadId(target, error))?;
            let batch = *batch_of[usize::from(target.keys.0)].get_or_insert_with(|| {
                plan.batches.push((target, Ids::without_names(self.reads.cache.hasher())));
                plan.batches.len() - 1
            });
            let place = plan.batches[batch].1.place_of(key);
            plan.places.push((batch, place));
        }
        Ok(plan)
    }

    /// Replies when all batches are answered.
    fn gather(
        self: &Rc<Self>,
        (steps, collection): (Vec<Step>, Option<CollectionId>),
        gathered: Gathered,
        places: Vec<(usize, usize)>,
        (asked, out): (&AuthenticatedCommand<'_>, &mut Vec<u8>),
    ) -> Replied {
        let session = Rc::clone(asked.request.session);
        let version = session.version.get();
        let mut parts: Vec<Part> = steps.into_iter().map(Part::from).collect();
        if let Some(outcomes) = take_ready(&mut parts) {
            let is_last = outcomes.iter().any(refusal::closes);
            let (body, answered) =
                self.write_many(outcomes, &places, gathered, (&session, version), out);
            self.recorder.answered_at_once(asked, collection, answered);
            return Replied::of(body, is_last);
        }
        let commands = Rc::clone(self);
        let command = self.recorder.pending_command(asked, collection);
        Replied::Later(Box::pin(async move {
            let outcomes = poll_fn(|cx| {
                for part in &mut parts {
                    if let Part::Pending(future) = part
                        && let Poll::Ready(outcome) = future.as_mut().poll(cx)
                    {
                        *part = Part::Ready(outcome);
                    }
                }
                take_ready(&mut parts).map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            Reply::of(command, |out| {
                commands.write_many(outcomes, &places, gathered, (&session, version), out)
            })
        }))
    }

    /// Writes the answers as the reply to a command. Returns what follows, and what it says.
    fn write_many(
        &self,
        outcomes: Vec<Outcome>,
        places: &[(usize, usize)],
        gathered: Gathered,
        (session, version): (&super::Session, Version),
        out: &mut Vec<u8>,
    ) -> (Option<Body>, Answered) {
        let mut worst = CacheOutcome::Hit;
        let mut batches = Vec::with_capacity(outcomes.len());
        for (answer, outcome) in outcomes {
            let Answer::Items(parts) = answer else {
                return (None, refusal::write(&answer, out));
            };
            if outcome == CacheOutcome::Stale && !self.allows_stale {
                return (None, refusal::write_text(503, refusal::STALE, out));
            }
            if outcome.badness() > worst.badness() {
                worst = outcome;
            }
            batches.push(*parts);
        }
        let answered = |bytes| Answered { outcome: worst.into(), status: 200, bytes };
        let item =
            |(batch, place): &(usize, usize)| batches.get(*batch)?.items.get(*place)?.as_ref();
        if gathered == Gathered::Count {
            // A key that is named twice counts twice, as in Redis.
            let count = places.iter().filter(|place| item(place).is_some()).count();
            write::integer(out, i64::try_from(count).unwrap_or(i64::MAX));
            return (None, answered(0));
        }
        let items: Vec<Option<&Item>> = places.iter().map(item).collect();
        let bytes = items.iter().flatten().map(|item| item.body().len() as u64).sum::<u64>();
        if bytes < COPIED_BYTES_MAX {
            write::array(out, items.len());
            for item in items {
                match item {
                    Some(item) => write::bulk(out, item.body()),
                    None => write::null(out, version),
                }
            }
            return (None, answered(bytes));
        }
        let segments = segments(&items, version);
        let mut sizes = batches.into_iter().map(|parts: BatchParts| parts.size);
        let size = sizes.next().unwrap_or_else(|| self.reads.budgets.answer());
        match size.finish(segments.len() as u64) {
            Ok(reservation) => (
                Some(Body::held(segments, reservation, &session.connection().activity)),
                answered(bytes),
            ),
            Err(refused) => {
                let (answer, _) =
                    Answer::refused(self.reads.budgets.refused(&refused, places.len()));
                (None, refusal::write(&answer, out))
            }
        }
    }
}

/// Returns the reply without a copy of the records.
fn segments(items: &[Option<&Item>], version: Version) -> Segments {
    let mut segments = Segments::default();
    let mut text = Vec::new();
    write::array(&mut text, items.len());
    for item in items {
        let Some(item) = item else {
            write::null(&mut text, version);
            continue;
        };
        write::bulk_head(&mut text, item.body().len());
        segments.push_text(Bytes::from(std::mem::take(&mut text)));
        match item {
            Item::Whole(record) => segments.push_record(record.clone()),
            Item::View(view) => segments.push_text(view.clone()),
        }
        text.extend_from_slice(write::BULK_END);
    }
    segments.push_text(Bytes::from(text));
    segments
}

impl From<Step> for Part {
    fn from(step: Step) -> Self {
        match step {
            Step::Now(outcome) => Self::Ready(outcome),
            Step::Later(pending) => Self::Pending(pending.future),
        }
    }
}

/// Returns the answers if all are there, or the first one that is a refusal.
fn take_ready(parts: &mut Vec<Part>) -> Option<Vec<Outcome>> {
    let is_refused = |part: &Part| matches!(part, Part::Ready(outcome) if is_refusal(outcome));
    if let Some(refused) = parts.iter().position(is_refused) {
        let Part::Ready(outcome) = parts.swap_remove(refused) else { return None };
        return Some(vec![outcome]);
    }
    if parts.iter().any(|part| matches!(part, Part::Pending(_))) {
        return None;
    }
    let ready = |part| match part {
        Part::Ready(outcome) => Some(outcome),
        Part::Pending(_) => None,
    };
    std::mem::take(parts).into_iter().map(ready).collect()
}

fn is_refusal((answer, _): &Outcome) -> bool {
    matches!(answer, Answer::Refused(_))
}
