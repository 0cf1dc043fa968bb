//! Keys of the records that change with rows of the log.

use std::collections::HashSet;

use hotrow_types::key::KeySchema;

use super::super::binlog::rows::{Operation, Rows};
use super::super::embedded_rules::{EmbeddedRule, EmbeddedRules};
use super::super::inspect::Table;
use super::super::keys::{self, LogKey};
use super::bind::{Bound, BoundCollection};
use super::tx_changes::TxChanges;

/// Result of collecting the keys of rows, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Collected {
    Keys,
    /// Rows of a child do not name their parents.
    NoParent,
    /// The rows do not match the table as it was inspected.
    Mismatch,
}

/// Collects the keys of rows: those of the records that change with them. A child changes the
/// record of its old image and that of its new one. Neither the order nor the limit of embedded
/// rows is considered: a child beyond the limit becomes one within it when another goes.
pub(super) fn collect(
    rows: &Rows<'_>,
    bound: &Bound,
    target: &BoundCollection,
    table: &Table,
    schema: &KeySchema,
    rules: EmbeddedRules,
    changes: &mut TxChanges,
) -> Collected {
    let (Some(columns), Some(key_columns)) = (&bound.columns, &target.key_columns) else {
        return Collected::Mismatch;
    };
    let mut found = HashSet::new();
    let mut collected = Collected::Keys;
    let skips_old = target.part > 0
        && rows.operation == Operation::Update
        && !rules.has(EmbeddedRule::OldParent);
    let mut images: usize = 0;
    let read = rows.keys(columns, key_columns, |cells| {
        images += 1;
        // The old image is the first of two.
        if skips_old && !images.is_multiple_of(2) {
            return;
        }
        let values: Option<Vec<_>> = cells.iter().map(Option::as_ref).collect();
        match values.map(|values| keys::of_log(&table.key, schema, &values)) {
            Some(LogKey::Key(key)) => drop(found.insert(key)),
            // No URL can address such a row; a child without a parent is in no record.
            Some(LogKey::Unaddressable) => {}
            // A session may choose an image without the column (`binlog_row_image=MINIMAL`).
            None if target.part > 0 && !rules.has(EmbeddedRule::MissingParent) => {}
            None if target.part > 0 => collected = collected.max(Collected::NoParent),
            Some(LogKey::Mismatch) | None => collected = Collected::Mismatch,
        }
    });
    match (read, collected) {
        (Err(_), _) => return Collected::Mismatch,
        (Ok(()), Collected::Keys) => changes.add(target.collection, found),
        (Ok(()), _) => {}
    }
    collected
}
