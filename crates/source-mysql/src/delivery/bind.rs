//! Binding of the log's tables to collections and key columns.

use super::super::binlog::rows::Operation;
use super::super::binlog::table::{Layout, TableMap};
use super::super::embedded_rules::{EmbeddedRule, EmbeddedRules};
use super::super::inspect::{Ancestor, Table, TableName};

/// Tables of a collection that the feed follows.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    /// Table as of the last catalogue check, with those that it embeds.
    pub(super) table: Table,
    /// True if one of the tables may differ from `table`. Until the next catalogue check their rows
    /// yield no keys.
    pub(super) is_unverified: bool,
    /// Last layouts of the tables in the log, by [`Self::part`].
    shapes: Vec<Option<Vec<u8>>>,
}

/// Table of the current statement.
#[derive(Debug)]
pub(super) struct Bound {
    /// Layouts of the columns. None if its rows cannot or need not be decoded.
    pub(super) columns: Option<Vec<Layout>>,
    /// Collections that its rows belong to.
    pub(super) targets: Vec<BoundCollection>,
    /// Collections that change with its rows by foreign keys, and the changes of it that do so
    /// (MySQL).
    pub(super) cascades_to: Vec<(usize, Ancestor)>,
    /// Collections of this table that foreign keys may change.
    pub(super) by_foreign_key: Vec<usize>,
    /// True if the statement has logged rows of it.
    pub(super) has_rows: bool,
    /// True if the statement described it more than once: for its own rows, and for rows that a
    /// foreign key changes.
    pub(super) is_repeated: bool,
}

/// Collection of a bound table.
#[derive(Debug)]
pub(super) struct BoundCollection {
    pub(super) collection: usize,
    /// Number of the table in the collection: 0 for that of the records, then the embedded ones.
    pub(super) part: usize,
    /// Indices of the key columns. None if unknown.
    pub(super) key_columns: Option<Vec<usize>>,
}

impl Followed {
    pub(super) fn new(table: Table) -> Self {
        let shapes = table.followed().map(|_| None).collect();
        Self { table, is_unverified: false, shapes }
    }

    /// Returns a table by its number.
    pub(super) fn part(&self, part: usize) -> Option<&Table> {
        self.table.followed().nth(part)
    }
}

impl Bound {
    /// Binds a table. Also returns the collections whose table layout changed.
    pub(super) fn new(
        map: &TableMap<'_>,
        followed: &mut [Option<Followed>],
        names_any_case: bool,
        rules: EmbeddedRules,
    ) -> (Self, Vec<usize>) {
        let is_named = |name: &TableName| {
            let same = |a: &str, b: &[u8]| match names_any_case {
                true => a.to_lowercase() == String::from_utf8_lossy(b).to_lowercase(),
                false => a.as_bytes() == b,
            };
            same(&name.schema, map.database) && same(&name.table, map.name)
        };
        let mut bound = Self {
            columns: None,
            targets: Vec::new(),
            cascades_to: Vec::new(),
            by_foreign_key: Vec::new(),
            has_rows: false,
            is_repeated: false,
        };
        let mut reshaped = Vec::new();
        for (collection, slot) in followed.iter_mut().enumerate() {
            let Some(followed) = slot else { continue };
            let Followed { table, is_unverified, shapes } = followed;
            for ((part, table), last_shape) in table.followed().enumerate().zip(shapes) {
                let is_changed_unseen = part == 0 || rules.has(EmbeddedRule::Cascade);
                let above = table.changed_by.iter().filter(|above| is_named(&above.name));
                if is_changed_unseen {
                    bound.cascades_to.extend(above.map(|above| (collection, above.clone())));
                }
                if !is_named(&table.name) {
                    continue;
                }
                // An unverified table may have its first foreign key.
                if is_changed_unseen && (table.has_foreign_keys || *is_unverified) {
                    bound.by_foreign_key.push(collection);
                }
                let shape = map.shape();
                if last_shape.as_ref().is_some_and(|before| *before != shape) {
                    *is_unverified = true;
                    reshaped.push(collection);
                }
                *last_shape = Some(shape);
                let key_columns = key_columns(map, table);
                bound.targets.push(BoundCollection { collection, part, key_columns });
            }
        }
        if !bound.targets.is_empty() {
            // If this fails, the rows yield no keys and the collections are flushed.
            bound.columns = map.columns().ok();
        }
        (bound, reshaped)
    }

    /// Returns true if the statement may have changed rows of it without logging them. A table that
    /// is only locked for writing looks the same.
    pub(super) fn may_have_hidden_changes(&self) -> bool {
        !self.has_rows || self.is_repeated
    }

    /// Makes the rows unreadable, because the table may have changed.
    pub(super) fn mark_unverified(&mut self) {
        self.columns = None;
    }
}

/// Returns true if rows that are changed like this can change others by foreign keys.
pub(super) fn may_cascade(ancestor: &Ancestor, operation: Operation) -> bool {
    match operation {
        Operation::Insert => false,
        Operation::Update => ancestor.by_update,
        Operation::Delete => ancestor.by_delete,
    }
}

/// Returns the indices of the key columns in the log's rows: by name, or by the catalogue's order
/// if the log has no names.
fn key_columns(map: &TableMap<'_>, table: &Table) -> Option<Vec<usize>> {
    match map.names().ok()? {
        Some(names) => {
            let index_of = |name: &str| names.iter().position(|n| *n == name.as_bytes());
            table.key.iter().map(|key| index_of(&key.name)).collect()
        }
        None => {
            let is_same = map.columns().is_ok_and(|columns| columns.len() == table.columns.len());
            is_same.then(|| table.key.iter().map(|key| key.position).collect())
        }
    }
}
