//! Snapshot batches: records of one collection, or of several of one database, as they were at one
//! point of its log (contract, point 7).
//!
//! Memory answers at once if the feed has applied the log past all that the records may show.
//! Otherwise [`assembly`] takes the records, waits for the feed, and reads again what has changed;
//! in the end one read transaction of the database answers. A snapshot batch passes the limits of a
//! batch of its ids, on each of its collections, and the grants of each.

mod answered;
mod assembly;
mod body;
pub(crate) mod part;
pub(crate) mod posted;

use std::borrow::Borrow;
use std::rc::Rc;

use hotrow_admission::shed::Kind;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::metrics::SnapshotWay;
use hotrow_answer::read_requirement::{LeastPosition, ReadRequirement, refusal};
use hotrow_answer::respond::Provenance;
use hotrow_cache::{Cache, Freshness, NotReached, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_representation::precondition;
use hotrow_source::ReadFailure;
use hotrow_telemetry::lookups::{LookupCounts, LookupKind};
use hotrow_telemetry::traces::WaitingRequest;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::Position;
use tokio::time::Instant;

pub(crate) use self::answered::Form;
use self::answered::answer;
use self::assembly::{Assembly, Demand};
use self::part::{Found, OF_ALIAS, Part, Taken};
use crate::admission::request::read_kind;
use crate::position::{self, Deadlines};
use crate::reads::Reads;
use crate::step::Step;

const SEVERAL_SOURCES: &str = "a snapshot batch reads one database, not several";
const NO_LOG: &str = "this database is served without a change log, so it has no snapshots";

fn bad(why: &str) -> HttpError {
    HttpError::BadBatch(why.into())
}

/// Applies the rate limits to each part, and answers.
pub(crate) fn limited(
    reads: &Rc<Reads>,
    parts: Vec<Part>,
    form: Form,
    request: &ReadRequest<'_>,
) -> Step {
    for part in &parts {
        let admission = &reads.admission;
        if let Err(problem) = admission.check_shedding_by_head(part.id, Kind::Batch, request) {
            return Step::refused(problem);
        }
    }
    pay(reads, parts, 0, form, request)
}

/// Pays for the parts from this one on.
fn pay(
    reads: &Rc<Reads>,
    parts: Vec<Part>,
    next: usize,
    form: Form,
    request: &ReadRequest<'_>,
) -> Step {
    let Some(part) = parts.get(next) else { return snapshot(reads, parts, form, request) };
    let (id, ids) = (part.id, part.keys().len());
    let rest = move |reads: &Rc<Reads>, request: &ReadRequest<'_>| {
        pay(reads, parts, next + 1, form, request)
    };
    reads.admission.limited(reads, id, ids, request, rest)
}

/// Answers a snapshot batch of one collection that has passed the limits.
pub(crate) fn of_one(
    reads: &Rc<Reads>,
    id: CollectionId,
    ids: impl Borrow<Ids> + 'static,
    request: &ReadRequest<'_>,
) -> Step {
    if ids.borrow().keys.first().is_some_and(|key| key.collection() != id) {
        return Step::refused(bad(OF_ALIAS));
    }
    snapshot(reads, vec![Part::new(id, ids, request)], Form::Batch, request)
}

/// Answers a snapshot batch that has passed the limits.
fn snapshot(reads: &Rc<Reads>, parts: Vec<Part>, form: Form, request: &ReadRequest<'_>) -> Step {
    let demanded = check(reads, &parts, request);
    let (source, mode, wanted) = match demanded {
        Ok(demanded) => demanded,
        Err(problem) => return Step::refused(problem),
    };
    // Others wait for the database first.
    let floor = match wanted {
        Some(LeastPosition::At(position)) => Some(position),
        _ => None,
    };
    let subject = reads.lookups.scan_subject(request);
    let lookup_mode = if mode == ReadMode::Normal { subject.mode() } else { mode };
    for part in &parts {
        let Ids { keys, hashes, .. } = part.ids();
        let sampled = (mode == ReadMode::Normal).then_some(lookup_mode);
        reads.lookups.requested(keys, hashes, sampled, request.times.now);
    }
    if mode == ReadMode::Normal
        && (wanted.is_none() || floor.is_some())
        && let Some(found) = in_memory(reads, source, &parts, (lookup_mode, floor), request)
    {
        return Step::Now(answer(reads, request.connection, &parts, found, form));
    }
    let admitted = parts
        .iter()
        .try_for_each(|part| {
            let kind = if wanted.is_some() { Kind::Bypass } else { read_kind(mode) };
            reads.admission.check_shedding(part.id, kind, request.headers)
        })
        .and_then(|()| reads.admission.shared.deadline(request))
        .and_then(|deadline| {
            let is_privileged = wanted.is_some() || mode == ReadMode::Revalidate;
            Ok((deadline, reads.admission.shared.inflight.enter(is_privileged)?))
        });
    let (deadline, place) = match admitted {
        Ok(admitted) => admitted,
        Err(problem) => return Step::refused(problem),
    };
    let keys: Vec<&Key> = parts.iter().flat_map(Part::keys).collect();
    let waiting = reads.fetcher.trace(request, &keys, lookup_mode.into());
    let reads = Rc::clone(reads);
    let request = request.to_pending();
    Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
        let _kept = (place, waiting);
        let context = request.context();
        let (mode, floor) = match floor_of(&reads, &parts, (lookup_mode, wanted), deadline).await {
            Ok(demanded) => demanded,
            Err(problem) => return hotrow_answer::answer::Answer::refused(problem),
        };
        if mode != ReadMode::Revalidate
            && floor.is_some()
            && let Some(found) = in_memory(&reads, source, &parts, (mode, floor), &context)
        {
            return answer(&reads, &request.connection, &parts, found, form);
        }
        let demand = Demand { source, mode, floor, deadline };
        match Assembly::new(&reads, &parts, demand, &context).run().await {
            Ok((found, way)) => {
                reads.metrics.snapshots.count(way);
                answer(&reads, &request.connection, &parts, found, form)
            }
            Err(problem) => hotrow_answer::answer::Answer::refused(problem),
        }
    })
}

/// Returns the database of the parts, the mode of their lookups, and the least point of the
/// snapshot.
fn check(
    reads: &Reads,
    parts: &[Part],
    request: &ReadRequest<'_>,
) -> Result<(SourceId, ReadMode, Option<LeastPosition>), HttpError> {
    if precondition::excludes_untagged(request.headers) {
        return Err(HttpError::PreconditionFailed(
            "a batch has no entity tag that If-Match could name",
        ));
    }
    let cache = &reads.cache;
    let Some(source) = parts.first().map(|part| cache.source_of(part.id)) else {
        return Err(bad(hotrow_answer::ids::NO_IDS));
    };
    if parts.iter().any(|part| cache.source_of(part.id) != source) {
        return Err(bad(SEVERAL_SOURCES));
    }
    let engine = &reads.fetcher.sources[source.index()].source;
    if !cache.is_followed(source) || engine.watch() == "none" {
        return Err(bad(NO_LOG));
    }
    if let Some(refusal) = engine.snapshot_refusal() {
        return Err(bad(refusal));
    }
    let mut mode = ReadMode::Normal;
    let mut least = None;
    for part in parts {
        match part.required.map_err(HttpError::clone)? {
            ReadRequirement::None => {}
            ReadRequirement::New => mode = ReadMode::Revalidate,
            ReadRequirement::AtLeast(wanted) => least = Some(wanted),
        }
    }
    if let Some(LeastPosition::At(wanted)) = &least
        && let Err(other @ NotReached::OtherLog) = cache.has_passed(parts[0].id, wanted)
    {
        return Err(refusal(other));
    }
    Ok((source, mode, least))
}

/// Returns the mode of the lookups and the point that the snapshot must reach at least, once the
/// feed has passed the look of a strict request. Where it does not in time, everything is read.
///
/// # Errors
/// See [`position::read_at_least`].
async fn floor_of(
    reads: &Reads,
    parts: &[Part],
    (mode, wanted): (ReadMode, Option<LeastPosition>),
    deadline: Nanos,
) -> Result<(ReadMode, Option<Position>), HttpError> {
    let (Some(wanted), Some(part)) = (wanted, parts.first()) else { return Ok((mode, None)) };
    let Reads { fetcher, cache, limits, .. } = reads;
    let until = Instant::now() + deadline.since(Nanos::now());
    let deadlines = Deadlines { until, wait_max: limits.position_wait };
    let position = match wanted {
        LeastPosition::At(position) => Some(position),
        LeastPosition::Token(token) => {
            position::position_of((fetcher, cache), part.id, token, deadlines).await?
        }
        LeastPosition::Now => None,
    };
    if position.is_some() {
        return Ok((mode, position));
    }
    match position::strict_mode(fetcher, part.id, deadlines).await? {
        // Everything before it is applied, and so is the look's end.
        strict @ ReadMode::Strict(_) => Ok((strict, cache.applied(cache.source_of(part.id)))),
        _ => Ok((ReadMode::Revalidate, None)),
    }
}

/// Returns the snapshot at the point that the feed has applied, if memory has all records and none
/// may show more.
fn in_memory(
    reads: &Reads,
    source: SourceId,
    parts: &[Part],
    (mode, floor): (ReadMode, Option<Position>),
    request: &ReadRequest<'_>,
) -> Option<Found> {
    let cache = &reads.cache;
    let subject = reads.lookups.scan_subject(request);
    let now = request.times.now;
    // Before the entries are looked up: a change after it removes what it concerns.
    let point = cache.applied(source)?;
    if floor.is_some_and(|floor| !point.reaches(&floor)) {
        return None;
    }
    let mut records = Vec::with_capacity(parts.len());
    let mut all_kinds = Vec::with_capacity(parts.len());
    for part in parts {
        let (taken, kinds) = part_in_memory(cache, part, mode, &point, now)?;
        records.push(taken);
        all_kinds.push(kinds);
    }
    for (part, kinds) in parts.iter().zip(all_kinds) {
        kinds.each(|kind, times| reads.lookups.count(subject, part.id, kind, times));
    }
    reads.metrics.snapshots.count(SnapshotWay::Memory);
    Some(Found { records, point, size: reads.budgets.answer() })
}

fn part_in_memory(
    cache: &Cache<ReadFailure>,
    part: &Part,
    mode: ReadMode,
    point: &Position,
    now: Nanos,
) -> Option<(Vec<Taken>, LookupCounts)> {
    let Ids { keys, hashes, .. } = part.ids();
    let sight = part.view.sight.as_sight();
    let ages = cache.ages(part.id, now);
    let mut kinds = LookupCounts::default();
    let mut taken: Vec<Taken> = Vec::with_capacity(keys.len());
    let mut is_whole = true;
    let found = |_, record: Record, freshness| {
        is_whole &= freshness == Freshness::Fresh
            && record.position().is_some_and(|shown| point.reaches(&shown))
            && !sight.must_read_again(&record);
        kinds.add(LookupKind::of_memory(&record, freshness));
        let provenance = Provenance::of_hit(freshness, ages.of(&record));
        taken.push((record, provenance));
    };
    let others = cache.lookup_batch_with(keys, hashes, mode, now, found, |_| Err::<Nanos, ()>(()));
    let is_whole = is_whole && others.is_ok_and(|others| others.is_empty());
    is_whole.then_some((taken, kinds))
}
