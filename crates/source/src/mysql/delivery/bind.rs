//! Which collections the rows of a table belong to, and where their keys are.

use super::super::binlog::table::{Layout, TableMap};
use super::super::inspect::{Table, TableName};

/// A collection as the feed follows it.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    /// As the catalogue had it.
    pub(super) table: Table,
    /// The table may look otherwise than it did then: until the catalogue was looked at again, its rows tell no keys.
    pub(super) is_doubtful: bool,
    /// How the log described it last.
    shape: Option<Vec<u8>>,
}

/// A table of the running statement.
#[derive(Debug)]
pub(super) struct Bound {
    /// None where rows of it cannot be read, or need not be.
    pub(super) columns: Option<Vec<Layout>>,
    /// The collections that its rows belong to.
    pub(super) targets: Vec<Target>,
    /// Collections that change with its rows by foreign keys.
    pub(super) cascades_to: Vec<usize>,
    /// Collections of its own that foreign keys change.
    pub(super) by_foreign_key: Vec<usize>,
    /// Whether the statement showed rows of it.
    pub(super) has_rows: bool,
}

/// A collection of the table.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) collection: usize,
    /// Places of the key columns; none when they are not known.
    pub(super) places: Option<Vec<usize>>,
}

impl Followed {
    pub(super) fn new(table: Table) -> Self {
        Self { table, is_doubtful: false, shape: None }
    }
}

impl Bound {
    /// The table, and the collections whose table is laid out otherwise than before.
    pub(super) fn new(
        map: &TableMap<'_>,
        followed: &mut [Option<Followed>],
        names_any_case: bool,
    ) -> (Self, Vec<usize>) {
        let is_it = |name: &TableName| {
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
        };
        let mut reshaped = Vec::new();
        for (collection, slot) in followed.iter_mut().enumerate() {
            let Some(followed) = slot else { continue };
            if followed.table.changed_by.iter().any(is_it) {
                bound.cascades_to.push(collection);
            }
            if !is_it(&followed.table.name) {
                continue;
            }
            if !followed.table.changed_by.is_empty() {
                bound.by_foreign_key.push(collection);
            }
            let shape = map.shape();
            if followed.shape.as_ref().is_some_and(|before| *before != shape) {
                followed.is_doubtful = true;
                reshaped.push(collection);
            }
            followed.shape = Some(shape);
            bound.targets.push(Target { collection, places: places(map, &followed.table) });
        }
        if !bound.targets.is_empty() {
            // Where that fails, the rows tell no keys, and the collections are flushed.
            bound.columns = map.columns().ok();
        }
        (bound, reshaped)
    }

    /// What its rows mean is not known any more.
    pub(super) fn doubt(&mut self) {
        self.columns = None;
    }
}

/// Where the key columns are in rows of the table: by their names, or where the log does not tell names as in the catalogue.
fn places(map: &TableMap<'_>, table: &Table) -> Option<Vec<usize>> {
    match map.names().ok()? {
        Some(names) => {
            let place = |name: &str| names.iter().position(|n| *n == name.as_bytes());
            table.key.iter().map(|key| place(&key.name)).collect()
        }
        None => {
            let is_same = map.columns().is_ok_and(|columns| columns.len() == table.columns.len());
            is_same.then(|| table.key.iter().map(|key| key.position).collect())
        }
    }
}
