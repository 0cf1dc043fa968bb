//! Lookup of several keys of one collection that waits for all of them: for requests that are
//! answered in steps, by a position or by an alias.

use std::sync::Arc;

use hotrow_admission::byte_budget::{AnswerRefused, AnswerReservation};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::read_requirement::{NO_TIME, refusal};
use hotrow_answer::respond::Provenance;
use hotrow_answer::tenant_filter::TenantFilter;
use hotrow_cache::{Cache, Lookup, ReadMode, Record};
use hotrow_gate::read::{Fetcher, PendingReads, lead};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::columns::Columns;
use hotrow_types::key::Key;
use hotrow_types::version::Position;

/// Distinct keys, and what their sender sees of the records.
pub(crate) type Sought<'a> = (&'a [Key], TenantFilter<'a>, Option<&'a Arc<Columns>>);

/// How keys are looked up.
pub(crate) struct Reading<'a> {
    pub(crate) mode: ReadMode,
    /// Position that each read must have reached.
    pub(crate) wanted: Option<Position>,
    pub(crate) deadline: Nanos,
    /// Takes note of each lookup.
    pub(crate) note: &'a dyn Fn(&Lookup<ReadFailure>),
}

/// Looks up the keys, and waits for those that are read. Answers are in the order of the keys.
/// `size` is the reservation of the answer; rows of an earlier attempt are read again.
///
/// # Errors
/// The first key without an answer.
pub(crate) async fn read_all(
    (fetcher, cache): (&Arc<Fetcher>, &Cache<ReadFailure>),
    (keys, sight, columns): Sought<'_>,
    reading: &Reading<'_>,
    size: &mut AnswerReservation,
) -> Result<Vec<(Record, Provenance)>, HttpError> {
    let now = Nanos::now();
    let Some(id) = keys.first().map(Key::collection) else { return Ok(Vec::new()) };
    let Reading { mode, wanted, deadline, note } = *reading;
    let budgets = &fetcher.budgets;
    let refused = |refused: AnswerRefused| budgets.refused(&refused, keys.len());
    let bytes = |record: &Record| match columns {
        Some(columns) if sight.sees(record) => record.view_bytes(columns) as u64,
        _ => sight.bytes(record),
    };
    let admit = |cold| {
        fetcher.of(id).breaker.admit(cold, now)?;
        // Rows of an earlier attempt are read again.
        size.restart();
        size.expect_rows(cold as u64, budgets.row_bytes(id)).map_err(refused)?;
        Ok::<Nanos, HttpError>(deadline)
    };
    let lookups = cache.lookup_batch_if(keys, mode, now, admit)?;
    lead(fetcher, id);
    let is_new = mode == ReadMode::Revalidate;
    let mut answers: Vec<Option<(Record, Provenance)>> = keys.iter().map(|_| None).collect();
    let mut reads = Vec::new();
    for (place, lookup) in lookups.into_iter().enumerate() {
        note(&lookup);
        let (waiter, outcome) = match lookup {
            Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                let provenance = Provenance::of_hit(quality, cache.age(&record, now));
                size.add_known(bytes(&record), budgets.row_bytes(id)).map_err(refused)?;
                answers[place] = Some((record, provenance));
                continue;
            }
            Lookup::Coalesced(waiter) => (waiter, CacheOutcome::Coalesced),
            Lookup::Miss(waiter) => (waiter, CacheOutcome::Miss),
            Lookup::Bypass(waiter) => (waiter, CacheOutcome::Bypass),
            Lookup::Refused(refusal) => return Err((&refusal).into()),
        };
        reads.push(((place, if is_new { CacheOutcome::Bypass } else { outcome }), waiter));
    }
    let is_late = || wanted.is_some() && Nanos::now() >= deadline;
    let mut reads = PendingReads::new(reads);
    while let Some(((place, outcome), result)) = reads.next(fetcher, id, deadline).await {
        let record = result.map_err(|problem| if is_late() { NO_TIME } else { problem })?;
        if let Some(wanted) = &wanted {
            record.check_reached(wanted).map_err(refusal)?;
        }
        size.add_row(bytes(&record), budgets.row_bytes(id)).map_err(refused)?;
        let age = cache.age(&record, Nanos::now());
        answers[place] = Some((record, Provenance { outcome, age }));
    }
    Ok(answers.into_iter().flatten().collect())
}
