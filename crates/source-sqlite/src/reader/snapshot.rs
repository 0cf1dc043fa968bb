//! Read transaction of a snapshot batch: rows of several tables in one snapshot.
//!
//! Each statement reads the end of the change log beside its rows: in one read transaction it is
//! the same for all, and exactly what they show.

use rusqlite::{Transaction, TransactionBehavior};

use super::query::{Prepared, Query};
use crate::queue::Answer;
use crate::shared::Plan;
use hotrow_source::{ReadSet, SourceError};

/// Reads the keys of several collections.
///
/// # Errors
/// As of [`Query::run`].
pub(super) fn run(
    queries: &[Query<'_>],
    plan: &Plan,
    prepared: &mut Prepared<'_>,
) -> rusqlite::Result<Answer> {
    let snapshot =
        Transaction::new_unchecked(prepared.connection(), TransactionBehavior::Deferred)?;
    let mut all: Option<ReadSet> = None;
    for query in queries {
        match (query.rows(plan, prepared)?, &mut all) {
            (Err(problem), _) => return Ok(Err(problem)),
            (Ok(set), None) => all = Some(set),
            (Ok(set), Some(all)) => all.rows.extend(set.rows),
        }
    }
    snapshot.finish()?;
    let none = || SourceError::broken("a transaction without keys");
    Ok(all.ok_or_else(none))
}
