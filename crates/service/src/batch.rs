//! Several records in one request. A batch is no snapshot unless it asks for one
//! ([`snapshot`](crate::snapshot)): each record meets the contract on its own.

pub(crate) mod answers;
mod by_alias;
pub(crate) mod list;
mod number;
pub(crate) mod rendered;

use std::borrow::Borrow;
use std::rc::Rc;

use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::context::{ConnectionContext, ReadRequest};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_answer::read_requirement::{LeastPosition, ReadRequirement, mode_of};
use hotrow_answer::respond::Provenance;
use hotrow_answer::scan_detector::ScanSubject;
use hotrow_answer::tenant_filter::TenantFilter;
use hotrow_cache::{Lookup, ReadMode, Record};
use hotrow_gate::read::{PendingReads, lead};
use hotrow_measure::clock::Nanos;
use hotrow_representation::precondition;
use hotrow_source::ReadFailure;
use hotrow_telemetry::lookups::{LookupCounts, LookupKind};
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::traces::{ReadKind, WaitingRequest};
use hotrow_types::key::{CollectionId, Key};

use self::answers::{Answers, View};
use self::by_alias::batch_by_alias;
use self::rendered::render;

#[cfg(any(test, fuzzing))]
pub(crate) use self::list::parse_body;

use crate::position;
use crate::reads::Reads;
use crate::step::Step;

/// Answers a batch whose ids have passed the limits.
pub(crate) fn batch(
    reads: &Rc<Reads>,
    id: CollectionId,
    ids_kept: impl Borrow<Ids> + 'static,
    request: &ReadRequest<'_>,
) -> Step {
    let ids = ids_kept.borrow();
    let now = request.times.now;
    if precondition::excludes_untagged(request.headers) {
        return Step::refused(HttpError::PreconditionFailed(
            "a batch has no entity tag that If-Match could name",
        ));
    }
    if ids.keys.first().is_some_and(|key| key.collection() != id) {
        return batch_by_alias(reads, id, ids_kept, request);
    }
    let subject = reads.lookups.scan_subject(request);
    let sampled_mode = mode_of(request.required, subject);
    let mode = match request.required {
        Ok(ReadRequirement::None) => subject.mode(),
        Ok(ReadRequirement::New) => ReadMode::Revalidate,
        Ok(ReadRequirement::AtLeast(wanted)) => {
            return batch_at_least(reads, id, ids_kept, wanted, request);
        }
        Err(problem) => return Step::refused(problem.clone()),
    };
    let cache = &reads.cache;
    reads.lookups.requested(&ids.keys, &ids.hashes, sampled_mode, now);
    let budgets = &reads.budgets;
    let sight = request.sight;
    let mut answers = Answers::new(&reads.cache, ids, budgets.answer(), View::of(request));
    let mut unseen = Vec::new();
    // Counted and refreshed when the batch is admitted: otherwise its lookups are made again.
    let mut kinds = LookupCounts::default();
    let mut expired = Vec::new();
    let ages = cache.ages(id, now);
    let found = |place, record: Record, freshness| {
        if sight.must_read_again(&record) {
            return unseen.push(place);
        }
        kinds.add(LookupKind::of_memory(&record, freshness));
        if reads.admission.may_refresh(id, freshness, now) {
            expired.push(place);
        }
        let provenance = Provenance::of_hit(freshness, ages.of(&record));
        let _bytes = answers.put(place, record, provenance);
    };
    let mut deadline = now;
    let mut size = None;
    let mut rows = 0;
    let mut admit = |cold| {
        deadline = reads.admission.admit_reads(id, mode, cold, request)?;
        rows += cold;
        // Before anything is queued: rows without room are not read.
        size = None;
        size = Some(budgets.answer_of_rows(id, rows)?);
        Ok(deadline)
    };
    let others = cache.lookup_batch_with(&ids.keys, &ids.hashes, mode, now, found, &mut admit);
    let others = others.and_then(|others| {
        // Queued beside the cold keys, before a query is sent.
        let again = lookup_again(reads, ids, &unseen, now, &mut admit)?;
        Ok(others.into_iter().chain(again))
    });
    let others = match others {
        Ok(others) => others,
        Err(problem @ HttpError::BadHeader(_)) => return Step::refused(problem),
        Err(problem) => {
            return Step::Now(batch_refused(reads, id, ids, mode, (request, subject), problem));
        }
    };
    if let Some(size) = size {
        answers.size = size;
    }
    kinds.each(|kind, times| reads.lookups.count(subject, id, kind, times));
    let mut refresh = false;
    for place in expired {
        refresh |= cache.refresh(&ids.keys[place]);
    }
    let mut waiters = Vec::new();
    for (place, lookup) in others {
        reads.lookups.looked_up(subject, id, mode, &lookup);
        match lookup {
            // Stored between the two looks at memory.
            Lookup::Hit(record, freshness) | Lookup::Negative(record, freshness) => {
                refresh |= reads.admission.may_refresh(id, freshness, now)
                    && cache.refresh(&ids.keys[place]);
                let provenance = Provenance::of_hit(freshness, cache.age(&record, now));
                let _bytes = answers.put(place, record, provenance);
            }
            Lookup::Coalesced(waiter) => waiters.push(((place, CacheOutcome::Coalesced), waiter)),
            Lookup::Miss(waiter) => waiters.push(((place, CacheOutcome::Miss), waiter)),
            Lookup::Bypass(waiter) => waiters.push(((place, CacheOutcome::Bypass), waiter)),
            Lookup::Refused(refusal) => {
                match reads.answers.stale_if_error(&ids.keys[place], mode, sight, now) {
                    Some((record, provenance)) => _ = answers.put(place, record, provenance),
                    None => {
                        return Step::refused(HttpError::from(&refusal));
                    }
                }
            }
        }
    }
    if let Err(refused) = answers.reserve_found(budgets.row_bytes(id)) {
        return Step::refused(budgets.refused(&refused, ids.keys.len()));
    }
    if refresh || !waiters.is_empty() {
        lead(&reads.fetcher, id);
    }
    if waiters.is_empty() {
        return Step::Now(render(reads, request.connection, id, ids, answers));
    }
    let fetcher = &reads.fetcher;
    let cold: Vec<&Key> = waiters.iter().map(|((place, _), _)| &ids.keys[*place]).collect();
    let logged = cold.first().and_then(|key| fetcher.query_log.enter(key, request.headers));
    let waiting = fetcher.trace(request, &cold, mode.into());
    let pending = (PendingReads::new(waiters).traced(logged, waiting), deadline);
    batch_later(reads, request.connection, id, ids_kept, mode, answers, pending)
}

/// Answers a batch whose cold keys are not read: with records from memory and stale ones, or
/// with the refusal.
fn batch_refused(
    reads: &Reads,
    id: CollectionId,
    ids: &Ids,
    mode: ReadMode,
    (request, subject): (&ReadRequest<'_>, ScanSubject<'_>),
    problem: HttpError,
) -> Outcome {
    let now = request.times.now;
    let sight = request.sight;
    let mut answers = Answers::new(&reads.cache, ids, reads.budgets.answer(), View::of(request));
    let mut all = true;
    for (place, key) in ids.keys.iter().enumerate() {
        let held = match held(reads, (subject, sight), key, mode, now) {
            Some(held) => Some(held),
            None => {
                reads.lookups.refused(id);
                reads.answers.stale_if_error(key, mode, sight, now)
            }
        };
        all &= held.is_some();
        held.into_iter()
            .for_each(|(record, provenance)| _ = answers.put(place, record, provenance));
    }
    if all { render(reads, request.connection, id, ids, answers) } else { Answer::refused(problem) }
}

/// Returns the answer of memory, without a read; counted as a lookup.
fn held(
    reads: &Reads,
    (subject, sight): (ScanSubject<'_>, TenantFilter<'_>),
    key: &Key,
    mode: ReadMode,
    now: Nanos,
) -> Option<(Record, Provenance)> {
    let cache = &reads.cache;
    let (record, quality) =
        (mode != ReadMode::Revalidate).then(|| cache.peek(key, now)).flatten()?;
    if sight.must_read_again(&record) {
        return None;
    }
    let provenance = Provenance::of_hit(quality, cache.age(&record, now));
    let kind = LookupKind::of_memory(&record, quality);
    reads.lookups.count(subject, key.collection(), kind, 1);
    Some((record, provenance))
}

fn batch_later(
    reads: &Rc<Reads>,
    connection: &Rc<ConnectionContext>,
    id: CollectionId,
    ids: impl Borrow<Ids> + 'static,
    mode: ReadMode,
    mut answers: Answers,
    (mut pending, deadline): (PendingReads<(usize, CacheOutcome)>, Nanos),
) -> Step {
    let place = match reads.admission.shared.inflight.enter(mode == ReadMode::Revalidate) {
        Ok(place) => place,
        Err(problem) => return Step::refused(problem),
    };
    let reads = Rc::clone(reads);
    let connection = Rc::clone(connection);
    let arrived = Nanos::now();
    Step::later(pending.trace_slot(), async move {
        let _place = place;
        let ids = ids.borrow();
        let budgets = &reads.budgets;
        while let Some(((place, outcome), waited)) =
            pending.next(&reads.fetcher, id, deadline).await
        {
            let now = Nanos::now();
            let outcome = if mode == ReadMode::Revalidate { CacheOutcome::Bypass } else { outcome };
            reads.admission.waited(arrived, &waited);
            match waited {
                Ok(record) => {
                    let age = reads.cache.age(&record, now);
                    let bytes = answers.put(place, record, Provenance { outcome, age });
                    if let Err(refused) = answers.size.add_row(bytes, budgets.row_bytes(id)) {
                        // Keys queued for this batch alone are not read, and its query in
                        // flight is cancelled.
                        return Answer::refused(budgets.refused(&refused, ids.keys.len()));
                    }
                }
                Err(problem) => {
                    match reads.answers.stale_if_error(
                        &ids.keys[place],
                        mode,
                        answers.view.sight.as_sight(),
                        now,
                    ) {
                        Some((record, provenance)) => _ = answers.put(place, record, provenance),
                        None => return Answer::refused(problem),
                    }
                }
            }
        }
        render(&reads, &connection, id, ids, answers)
    })
}

fn batch_at_least(
    reads: &Rc<Reads>,
    id: CollectionId,
    ids: impl Borrow<Ids> + 'static,
    wanted: LeastPosition,
    request: &ReadRequest<'_>,
) -> Step {
    let (deadline, place) = match position::admit(&reads.admission, id, wanted, request) {
        Ok(admitted) => admitted,
        Err(problem) => return Step::refused(problem),
    };
    let reads = Rc::clone(reads);
    let connection = Rc::clone(request.connection);
    let view = View::of(request);
    let keys: Vec<&Key> = ids.borrow().keys.iter().collect();
    let fetcher = &reads.fetcher;
    let waiting = fetcher.trace(request, &keys, ReadKind::MinPosition);
    Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
        let _place = place;
        let ids = ids.borrow();
        let Reads { fetcher, cache, limits, .. } = &*reads;
        let wait = (limits.position_wait, waiting.as_ref());
        let sought = (&ids.keys[..], view.sight.as_sight(), view.columns.as_ref());
        match position::read_at_least((fetcher, cache), wait, sought, wanted, deadline).await {
            Err(problem) => Answer::refused(problem),
            Ok((found, size)) => {
                let mut answers = Answers::new(&reads.cache, ids, size, view);
                found
                    .into_iter()
                    .enumerate()
                    .for_each(|(i, (record, how))| _ = answers.put(i, record, how));
                render(&reads, &connection, id, ids, answers)
            }
        }
    })
}

/// Looks up the keys at these places past memory: see [`TenantFilter::must_read_again`].
fn lookup_again(
    reads: &Reads,
    ids: &Ids,
    places: &[usize],
    now: Nanos,
    admit: impl FnOnce(usize) -> Result<Nanos, HttpError>,
) -> Result<Vec<(usize, Lookup<ReadFailure>)>, HttpError> {
    let keys: Vec<Key> = places.iter().map(|place| ids.keys[*place].clone()).collect();
    let lookups = reads.cache.lookup_batch_if(&keys, ReadMode::Revalidate, now, admit)?;
    Ok(places.iter().copied().zip(lookups).collect())
}
