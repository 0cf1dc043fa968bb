//! Read transaction of a snapshot batch: past the queues of keys, within the limiter, the breaker
//! and the budget of rows of its database.

use std::time::Duration;

use hotrow_answer::http_error::HttpError;
use hotrow_cache::{Fetched, LookupError, Record};
use hotrow_measure::clock::Nanos;
use hotrow_source::{ReadFailure, ReadSet, RowBudget};
use hotrow_telemetry::query_log::EndedQuery;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{Position, Version};
use tokio::time::timeout;

use crate::read::{Fetcher, convert_result, record};

const TIMED_OUT: HttpError = HttpError::Timeout("the database did not answer in time");

/// Records of one read transaction.
pub struct TransactionRead {
    /// What the transaction saw.
    pub version: Version,
    /// End of the log after the transaction opened its snapshot: it saw nothing past it.
    pub end: Position,
    /// Per collection, in the order of the keys.
    pub records: Vec<Vec<Record>>,
}

/// Reads keys of collections of one source, at least one, in one read transaction.
///
/// # Errors
/// 400 without a change log; the failure of the query, or of the first row that has no record.
pub async fn read_transaction(
    fetcher: &Fetcher,
    parts: &[(CollectionId, &[Key])],
    deadline: Nanos,
) -> Result<TransactionRead, HttpError> {
    let failed = |failure| HttpError::from(&LookupError::Source(failure));
    let (first, first_keys) = parts.first().copied().unwrap_or((CollectionId(0), &[]));
    let reads = fetcher.of(first);
    let count = parts.iter().map(|(_, keys)| keys.len()).sum();
    let left = || deadline.since(Nanos::now());
    let permit = timeout(left(), reads.limiter.enter()).await.map_err(|_| TIMED_OUT)?;
    let sent_at = Nanos::now();
    let breaker_permit = reads.breaker.ask(sent_at).map_err(failed)?;
    let query = permit.send(first, count, Duration::ZERO, sent_at);
    let budgets = &fetcher.budgets;
    let rows = RowBudget::new(&budgets.rows, budgets.answer_bytes_max, || true);
    let wanted = parts.iter().map(|(collection, keys)| (*collection, keys.to_vec())).collect();
    // A client's deadline says nothing about the database.
    let read = timeout(left(), reads.source.read_snapshot(wanted, rows));
    let result = read.await.map_err(|_| TIMED_OUT)?;
    let now = Nanos::now();
    breaker_permit.record(&result, now);
    record(query, &result, now);
    let traces = fetcher.query_log.traces_of(first_keys);
    fetcher.query_log.ended(&EndedQuery {
        collection: first,
        keys: count,
        waited: Duration::ZERO,
        took: now.since(sent_at),
        has_failed: result.is_err(),
        traces: &traces,
    });
    let set = match result {
        Ok(set) => set,
        Err(error) => {
            let collection = fetcher.collections.get(first);
            let failure = convert_result(Err(error), count, collection, &traces).err();
            return Err(failed(failure.unwrap_or(ReadFailure::Unreadable)));
        }
    };
    let Some(end) = set.position else {
        return Err(HttpError::Unavailable("the database has no change log now"));
    };
    let cache = fetcher.cache.get();
    let mut rows = set.rows.into_iter();
    let mut records = Vec::with_capacity(parts.len());
    for (collection, keys) in parts {
        let of_part = rows.by_ref().take(keys.len()).collect();
        let read = ReadSet { version: Version::Unknown, position: Some(end), rows: of_part };
        let own = fetcher.collections.get(*collection);
        let answers = convert_result(Ok(read), keys.len(), own, &traces).map_err(failed)?;
        let record = |(key, row): (&Key, Fetched<ReadFailure>)| {
            let body = match row {
                Fetched::Found(body) | Fetched::Uncacheable(Some(body)) => Some(body),
                Fetched::Missing | Fetched::Uncacheable(None) => None,
                Fetched::NotRead => return Err(failed(ReadFailure::NoRoom)),
                Fetched::Failed(failure) => return Err(failed(failure)),
            };
            Ok(cache.snapshot_record(key, body.as_deref(), (&set.version, end), sent_at))
        };
        records.push(keys.iter().zip(answers.rows).map(record).collect::<Result<Vec<_>, _>>()?);
    }
    if records.iter().zip(parts).any(|(records, (_, keys))| records.len() < keys.len()) {
        return Err(failed(ReadFailure::NoRoom));
    }
    Ok(TransactionRead { version: set.version, end, records })
}
