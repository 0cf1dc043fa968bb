//! Grouping of rows: a table per load if deployments are compared under several loads, and in it a
//! group per number of connections, keep-alive and rate, so that rows of a group differ in their
//! deployment only.

use super::labels::{Property, label};
use super::summary::{RowSummary, Summary};
use hotrow_results::Row;

/// Rows of one table.
#[derive(Debug)]
pub(super) struct Section<'a> {
    /// Title: the load; empty for a single table.
    pub(super) title: String,
    /// Groups of rows; each has at least one.
    pub(super) groups: Vec<Vec<&'a RowSummary<'a>>>,
}

impl<'a> Section<'a> {
    /// Returns every row, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'a RowSummary<'a>> + '_ {
        self.groups.iter().flatten().copied()
    }

    /// Returns the description of every row.
    pub(super) fn described(&self) -> Vec<&'a Row> {
        self.rows().map(|row| row.row).collect()
    }

    /// Returns the indexes of the rows that begin a group, except the first.
    pub(super) fn breaks(&self) -> Vec<usize> {
        let mut begins = 0;
        let starts = self.groups.iter().map(|group| {
            begins += group.len();
            begins
        });
        let mut starts: Vec<usize> = starts.collect();
        starts.pop();
        starts
    }

    /// Returns the base of a row's ratio: the first row of its group, or of the table if its group
    /// has one row.
    pub(super) fn base(&self, of: &RowSummary<'_>) -> Option<&'a RowSummary<'a>> {
        let own = self.groups.iter().find(|group| group.iter().any(|row| row.row.id == of.row.id));
        let own = own.filter(|group| group.len() > 1).or(self.groups.first())?;
        own.first().copied()
    }

    /// Returns a row's short name in this table.
    pub(super) fn label(&self, row: &Row) -> String {
        label(row, &self.described())
    }
}

/// Groups all rows into tables.
pub(super) fn sections<'a>(summary: &'a Summary<'a>) -> Vec<Section<'a>> {
    let by_load = grouped(summary.rows.iter(), |row| row.row.load.clone());
    let compares_deployments = |rows: &Vec<&RowSummary<'_>>| {
        rows.iter().any(|row| row.row.deployment != rows[0].row.deployment)
    };
    if by_load.len() > 1 && by_load.iter().all(compares_deployments) {
        return by_load
            .into_iter()
            .map(|rows| Section { title: title(&rows), groups: groups(rows) })
            .collect();
    }
    let all: Vec<&RowSummary<'_>> = summary.rows.iter().collect();
    if all.is_empty() {
        Vec::new()
    } else {
        vec![Section { title: String::new(), groups: groups(all) }]
    }
}

fn title(rows: &[&RowSummary<'_>]) -> String {
    let first = rows[0].row;
    let one_request = rows.iter().all(|row| row.row.request == first.request);
    if one_request { format!("{}: {}", first.load, first.request) } else { first.load.clone() }
}

fn groups<'a>(rows: Vec<&'a RowSummary<'a>>) -> Vec<Vec<&'a RowSummary<'a>>> {
    let condition = |row: &&'a RowSummary<'a>| {
        [Property::Load, Property::Connections, Property::Keepalive, Property::Rate]
            .map(|property| property.of(row.row))
    };
    let groups = grouped(rows.iter().copied(), |row| condition(&row));
    // If every row has different conditions, the conditions are compared.
    if groups.iter().all(|group| group.len() == 1) { vec![rows] } else { groups }
}

/// Groups items with equal keys, in the order of each key's first item.
fn grouped<T: Copy, K: PartialEq>(
    items: impl Iterator<Item = T>,
    key: impl Fn(T) -> K,
) -> Vec<Vec<T>> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(item);
        match groups.iter_mut().find(|(of, _)| *of == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
