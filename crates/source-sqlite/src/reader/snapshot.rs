//! Read transaction of a snapshot batch: rows of several tables in one snapshot.
//!
//! Each statement reads the end of the change log beside its rows: in one read transaction it is
//! the same for all, and exactly what they show.

use rusqlite::{Transaction, TransactionBehavior};

use super::query::{Prepared, Query};
use crate::queue::Answer;
use crate::shared::Plan;
use hotrow_source::{ReadSet, Row};

/// Reads the keys of several collections. Once a query has ended early, the rest is not read.
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
        let unread =
            all.as_ref().and_then(|set| set.rows.iter().find(|row| is_unread(row)).cloned());
        if let (Some(set), Some(unread)) = (&mut all, unread) {
            set.rows.extend(query.keys.iter().map(|_| unread.clone()));
            continue;
        }
        match (query.rows(plan, prepared)?, &mut all) {
            (Err(problem), _) => return Ok(Err(problem)),
            (Ok(set), None) => all = Some(set),
            (Ok(set), Some(all)) => all.rows.extend(set.rows),
        }
    }
    snapshot.finish()?;
    let none = || hotrow_source::SourceError::broken("a transaction without keys");
    Ok(all.ok_or_else(none))
}

fn is_unread(row: &Row) -> bool {
    matches!(row, Row::NotRead | Row::NoRoom)
}
