//! Lookup by an alias: by another unique value than the key (`hotrow_cache::alias`).
//!
//! The record that is answered always comes from the lookup of its key, so that its contract, the
//! sight of its sender and its columns are those of any answer. A hit takes two lookups in memory;
//! everything else is a loop that ends after some attempts. A value without a record is answered
//! with the alias's own negative record, by the code that answers a missing key.

use std::rc::Rc;
use std::slice;
use std::time::Duration;

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_answer::answer::Answer;
use hotrow_answer::collections::Alias;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::read_requirement::{LeastPosition, NO_TIME, ReadRequirement};
use hotrow_answer::respond::Provenance;
use hotrow_answer::scan_detector::ScanSubject;
use hotrow_answer::tenant_filter::TenantFilter;
use hotrow_cache::alias::{AliasAttempts, AliasTarget};
use hotrow_cache::{Freshness, Lookup, ReadMode, Record};
use hotrow_gate::admission::InflightGuard;
use hotrow_gate::read::lead;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::lookups::LookupKind;
use hotrow_telemetry::traces::{ReadKind, WaitingRequest};
use hotrow_types::key::{CollectionId, Key};
use tokio::time::Instant;

use crate::position::{self, Deadlines, read_at_least};
use crate::read_all::{Reading, Sought, read_all};
use crate::reads::Reads;
use crate::step::Step;

const MOVING: HttpError = HttpError::Unavailable(
    "the value moves between records faster than they can be read; send the request again",
);

/// What a request wants of its lookups by alias.
#[derive(Clone, Copy)]
pub(crate) struct AliasDemand<'a> {
    /// Mode of the first attempt.
    pub(crate) mode: ReadMode,
    /// Commits that the answer must reflect.
    pub(crate) wanted: Option<LeastPosition>,
    pub(crate) deadline: Nanos,
    /// The trace of the request, if it is traced.
    pub(crate) traced: Option<&'a WaitingRequest>,
}

/// Records, or their absence, in the order of the aliases.
type Found = Vec<(Record, Provenance)>;

/// Returns the mode of the first attempt, and the commits that the answer must reflect.
///
/// # Errors
/// The request asks for what the collection does not permit.
pub(crate) fn alias_requirement(
    subject: ScanSubject<'_>,
    request: &ReadRequest<'_>,
) -> Result<(ReadMode, Option<LeastPosition>), HttpError> {
    Ok(match request.required.map_err(HttpError::clone)? {
        ReadRequirement::None => (subject.mode(), None),
        ReadRequirement::New => (ReadMode::Revalidate, None),
        ReadRequirement::AtLeast(wanted) => (ReadMode::Normal, Some(wanted)),
    })
}

/// Answers a request for the record with a value.
pub(crate) fn by_alias(reads: &Rc<Reads>, alias: Key, request: &ReadRequest<'_>) -> Step {
    let Some(of) = alias_of(reads, &alias).map(|alias| alias.settings.of) else {
        return Step::refused(HttpError::NoSuchPath);
    };
    let now = request.times.now;
    let subject = reads.lookups.scan_subject(request);
    let (mode, wanted) = match alias_requirement(subject, request) {
        Ok(requirement) => requirement,
        Err(problem) => return Step::refused(problem),
    };
    let from_memory = wanted.is_none() && mode != ReadMode::Revalidate;
    if from_memory {
        reads.lookups.requested_by_alias(slice::from_ref(&alias), mode, now);
    }
    if from_memory && let Some((record, how)) = held_by_alias(reads, &alias, subject, now) {
        return Step::Now(reads.answers.answer(record, how, request, None));
    }
    let admitted = admit_by_alias(reads, of, (mode, wanted), 1, request);
    let (deadline, place) = match admitted {
        Ok(admitted) => admitted,
        Err(problem) => {
            let stale = from_memory.then(|| stale_by_alias(reads, &alias, request.sight, now));
            return match stale.flatten() {
                Some((record, how)) => Step::Now(reads.answers.answer(record, how, request, None)),
                None => Step::refused(problem),
            };
        }
    };
    let fetcher = &reads.fetcher;
    let logged = fetcher.query_log.enter(&alias, request.headers);
    let kind = wanted.map_or(mode.into(), |_| ReadKind::MinPosition);
    let waiting = fetcher.trace(request, &[&alias], kind);
    let reads = Rc::clone(reads);
    let arrived = Nanos::now();
    let request = request.to_pending();
    Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
        let _kept = (place, logged);
        let request = request.context();
        let demand = AliasDemand { mode, wanted, deadline, traced: waiting.as_ref() };
        let mut size = reads.budgets.answer();
        let found =
            read_by_alias(&reads, slice::from_ref(&alias), demand, &request, &mut size).await;
        let problem = match found.map(|mut found| found.pop()) {
            Ok(Some((record, how))) => {
                reads.admission.waited(arrived, &Ok(record.clone()));
                return reads.answers.answer(record, how, &request, Some(size));
            }
            Ok(None) => HttpError::Unreadable,
            Err(problem) => problem,
        };
        let stale = || stale_by_alias(&reads, &alias, request.sight, Nanos::now());
        match from_memory.then(stale).flatten() {
            Some((record, how)) => reads.answers.answer(record, how, &request, None),
            None => Answer::refused(problem),
        }
    })
}

/// Admits the reads of a request by alias. Returns its deadline, and its place among the
/// requests in flight.
pub(crate) fn admit_by_alias(
    reads: &Reads,
    of: CollectionId,
    (mode, wanted): (ReadMode, Option<LeastPosition>),
    values: usize,
    request: &ReadRequest<'_>,
) -> Result<(Nanos, InflightGuard), HttpError> {
    if let Some(wanted) = wanted {
        return position::admit(&reads.admission, of, wanted, request);
    }
    let deadline = reads.admission.admit_reads(of, mode, values, request)?;
    let place = reads.admission.shared.inflight.enter(mode == ReadMode::Revalidate)?;
    Ok((deadline, place))
}

fn alias_of<'a>(reads: &'a Reads, alias: &Key) -> Option<&'a Alias> {
    reads.collections.get(alias.collection()).alias.as_ref()
}

/// Returns the answer of memory, if it has one: a row that confirms its alias, or the knowledge
/// that no row has the value.
pub(crate) fn held_by_alias(
    reads: &Reads,
    alias: &Key,
    subject: ScanSubject<'_>,
    now: Nanos,
) -> Option<(Record, Provenance)> {
    let mode = subject.mode();
    let cache = &reads.cache;
    let (record, freshness) = held_entry(reads, alias, mode, now)?;
    let Some(target) = AliasTarget::of(&record) else {
        answered_from_memory(reads, alias, (&record, freshness), subject, now);
        let how = Provenance::of_hit(freshness, cache.age(&record, now));
        return Some((record, how));
    };
    let key = alias_of(reads, alias)?.keys.restore(target.key)?;
    let (row, own_freshness) = held_entry(reads, &key, mode, now)?;
    if !target.is_confirmed_by(&row) {
        return None;
    }
    answered_from_memory(reads, alias, (&record, freshness), subject, now);
    reads.lookups.requested_one(&key, Some(mode), now);
    answered_from_memory(reads, &key, (&row, own_freshness), subject, now);
    if own_freshness == Freshness::Fresh {
        reads.consistency_check.offer(&key, &row);
    }
    // The row has the value, so that its age is that of the answer.
    let own = Provenance::of_hit(own_freshness, cache.age(&row, now));
    Some((row, own.with(Provenance::of_hit(freshness, Duration::ZERO))))
}

fn held_entry(reads: &Reads, key: &Key, mode: ReadMode, now: Nanos) -> Option<(Record, Freshness)> {
    match reads.cache.lookup_if(key, mode, now, || Err(())) {
        Ok(Lookup::Hit(record, freshness) | Lookup::Negative(record, freshness)) => {
            Some((record, freshness))
        }
        // Another lookup finds the same, and refuses or waits.
        Ok(_) | Err(()) => None,
    }
}

/// Counts a lookup that memory answered, and refreshes the entry if it has expired.
fn answered_from_memory(
    reads: &Reads,
    key: &Key,
    (record, freshness): (&Record, Freshness),
    subject: ScanSubject<'_>,
    now: Nanos,
) {
    let id = key.collection();
    reads.lookups.count(subject, id, LookupKind::of_memory(record, freshness), 1);
    if reads.admission.may_refresh(id, freshness, now) && reads.cache.refresh(key) {
        lead(&reads.fetcher, id);
    }
}

/// Returns a stale answer that the sender sees (`stale_if_error`).
pub(crate) fn stale_by_alias(
    reads: &Reads,
    alias: &Key,
    sight: TenantFilter<'_>,
    now: Nanos,
) -> Option<(Record, Provenance)> {
    let stale = |key: &Key, sight| reads.answers.stale_if_error(key, ReadMode::Normal, sight, now);
    let (record, how) = stale(alias, TenantFilter::All)?;
    let Some(target) = AliasTarget::of(&record) else { return Some((record, how)) };
    let key = alias_of(reads, alias)?.keys.restore(target.key)?;
    stale(&key, sight).filter(|(row, _)| target.is_confirmed_by(row))
}

/// Looks up distinct values, all of one alias, and waits for what is read. `size` is the
/// reservation of the answer.
///
/// # Errors
/// The first value without an answer.
pub(crate) async fn read_by_alias(
    reads: &Reads,
    aliases: &[Key],
    demand: AliasDemand<'_>,
    request: &ReadRequest<'_>,
    size: &mut AnswerReservation,
) -> Result<Found, HttpError> {
    let alias = aliases.first().and_then(|key| alias_of(reads, key));
    let alias = alias.ok_or(HttpError::NoSuchPath)?;
    let budgets = &reads.budgets;
    let row_bytes = budgets.row_bytes(alias.settings.of);
    let demand = after_look(reads, alias.settings.of, demand).await?;
    let mut attempts = AliasAttempts::new(demand.mode);
    let mut answers: Vec<Option<(Record, Provenance)>> = vec![None; aliases.len()];
    let mut open: Vec<usize> = (0..aliases.len()).collect();
    let mut is_first = true;
    loop {
        let keys: Vec<Key> = open.iter().map(|place| aliases[*place].clone()).collect();
        if !is_first && let Some(traced) = demand.traced {
            traced.continue_with(&keys);
        }
        let of_aliases = (&keys[..], TenantFilter::All, None);
        let (found, _) = read_attempt(reads, of_aliases, demand, attempts, request).await?;
        let mut rows = Ids::without_names(reads.cache.hasher());
        let mut named = Vec::with_capacity(open.len());
        for (place, (record, how)) in open.drain(..).zip(found) {
            match AliasTarget::of(&record) {
                None => answers[place] = Some((record, how)),
                Some(target) => {
                    let key = alias.keys.restore(target.key).ok_or(HttpError::Unreadable)?;
                    named.push((place, rows.place_of(key), record, how));
                }
            }
        }
        if is_first {
            let mode = (demand.wanted.is_none()).then_some(demand.mode);
            let mode = mode.filter(|mode| *mode != ReadMode::Revalidate);
            reads.lookups.requested(&rows.keys, &rows.hashes, mode, Nanos::now());
            is_first = false;
        }
        if let Some(traced) = demand.traced.filter(|_| !rows.keys.is_empty()) {
            traced.continue_with(&rows.keys);
        }
        let of_rows = (&rows.keys[..], request.sight, request.columns);
        let (records, _size) = read_attempt(reads, of_rows, demand, attempts, request).await?;
        for (place, row, record, how) in named {
            let (row, own) = records.get(row).ok_or(HttpError::Unreadable)?;
            if AliasTarget::of(&record).is_some_and(|target| target.is_confirmed_by(row)) {
                let bytes = request.sight.bytes(row);
                let kept = size.add_known(bytes, row_bytes);
                kept.map_err(|refused| budgets.refused(&refused, aliases.len()))?;
                answers[place] = Some((row.clone(), how.with(*own)));
            } else {
                reads.cache.drop_alias(&aliases[place]);
                open.push(place);
            }
        }
        if open.is_empty() {
            return Ok(answers.into_iter().flatten().collect());
        }
        if !attempts.retry() {
            return Err(MOVING);
        }
    }
}

/// Waits for the look of a strict request, once for all its attempts: both the value and the row
/// are then looked up in the mode that it allows.
async fn after_look<'a>(
    reads: &Reads,
    of: CollectionId,
    demand: AliasDemand<'a>,
) -> Result<AliasDemand<'a>, HttpError> {
    if demand.wanted != Some(LeastPosition::Now) {
        return Ok(demand);
    }
    let until = Instant::now() + demand.deadline.since(Nanos::now());
    let deadlines = Deadlines { until, wait_max: reads.limits.position_wait };
    let mode = position::strict_mode(&reads.fetcher, of, deadlines).await?;
    Ok(AliasDemand { mode, wanted: None, ..demand })
}

/// Looks up keys of one collection for one attempt.
async fn read_attempt(
    reads: &Reads,
    sought: Sought<'_>,
    AliasDemand { wanted, deadline, traced, .. }: AliasDemand<'_>,
    attempts: AliasAttempts,
    request: &ReadRequest<'_>,
) -> Result<(Found, AnswerReservation), HttpError> {
    let Reads { fetcher, cache, limits, budgets, .. } = reads;
    let mut size = budgets.answer();
    let Some(id) = sought.0.first().map(Key::collection) else {
        return Ok((Vec::new(), size));
    };
    let mode = attempts.mode();
    if let Some(wanted) = wanted
        && mode != ReadMode::Revalidate
    {
        let wait = (limits.position_wait, traced);
        return read_at_least((fetcher, cache), wait, sought, wanted, deadline).await;
    }
    let subject = reads.lookups.scan_subject(request);
    let note = |lookup: &_| reads.lookups.looked_up(subject, id, mode, lookup);
    let position = match wanted {
        Some(LeastPosition::At(position)) => Some(position),
        _ => None,
    };
    let reading = Reading { mode, wanted: position, deadline, note: &note };
    let found = read_all((fetcher, cache), sought, &reading, &mut size).await?;
    // Such an answer proves no position (Race B).
    if position.is_some() && found.iter().any(|(record, _)| record.is_behind()) {
        return Err(NO_TIME);
    }
    Ok((found, size))
}
