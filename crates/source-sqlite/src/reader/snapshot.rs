//! One snapshot of several statements: of a batch that one cannot name, or of several tables.
//!
//! Each statement reads the end of the change log beside its rows: in one read transaction it is
//! the same for all, and exactly what they show.

use rusqlite::{Transaction, TransactionBehavior};

use super::query::{Prepared, Query};
use crate::queue::Answer;
use crate::shared::Plan;
use hotrow_source::{ReadSet, SourceError};

/// Reads the keys of all queries in one snapshot.
///
/// # Errors
/// As of [`Query::rows`].
pub(super) fn run(
    queries: &[Query<'_>],
    plan: &Plan,
    prepared: &mut Prepared<'_>,
) -> rusqlite::Result<Answer> {
    if let [only] = queries
        && only.is_one_statement()
    {
        return only.rows(plan, prepared);
    }
    let connection = prepared.connection();
    let snapshot = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
    let mut all: Option<ReadSet> = None;
    for query in queries {
        match (query.rows(plan, prepared)?, &mut all) {
            (Err(problem), _) => return Ok(Err(problem)),
            (Ok(set), None) => all = Some(set),
            (Ok(set), Some(all)) => all.rows.extend(set.rows),
        }
    }
    snapshot.finish()?;
    Ok(all.ok_or_else(|| SourceError::broken("a transaction without keys")))
}
