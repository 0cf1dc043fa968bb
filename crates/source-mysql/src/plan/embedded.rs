//! Reads of records with embedded rows: one statement, and thus one snapshot, for both.
//!
//! The answer has one row per record and one per child. Each table is joined for rows of its own
//! only, so that neither the values of a record are repeated per child, nor the children of one
//! member per child of another. A window numbers the children of each parent; they are then read by
//! their primary key, so that the window contains no other columns.

use std::fmt::Write as _;

use hotrow_source::json::{Pace, into_row, label, with_rows};
use hotrow_source::{Room, Row, mark_unread};
use hotrow_types::key::Key;
use mysql_async::{Column, Row as DatabaseRow};

use super::super::inspect::{Embedded, Served, quote};
use super::super::json::{self, Field, JsonError};
use super::super::keys::KeyColumn;
use super::super::record_rows::{Set, is_too_large, number, value};
use super::sql::{condition, select};

/// Columns of a row before those of the record: the number of the key and that of the member.
const LEADING: usize = 2;

/// Embedded rows of one member.
#[derive(Debug, PartialEq, Eq)]
struct Children {
    /// `"name":` of the member.
    label: Box<[u8]>,
    fields: Vec<Field>,
    served: Vec<Served>,
    /// `` `database`.`table` ``
    table: String,
    /// Columns of the primary key, quoted.
    primary: Vec<String>,
    /// The column with the parent's key.
    on: Vec<KeyColumn>,
    order: String,
    limit: u32,
}

impl Children {
    fn new(embedded: &Embedded) -> Self {
        let table = &embedded.table;
        Self {
            label: label(&embedded.member),
            fields: table.served.iter().map(|s| Field::new(&s.name, s.scalar)).collect(),
            served: table.served.clone(),
            table: table.name.sql(),
            primary: embedded.primary.iter().map(|name| quote(name)).collect(),
            on: table.key.clone(),
            order: embedded.order_sql("c"),
            limit: embedded.limit,
        }
    }

    /// Returns the columns of member `m` in the SELECT list.
    fn columns(&self, m: usize) -> String {
        let of = format!("c{m}");
        let columns: Vec<String> = self.served.iter().map(|served| select(served, &of)).collect();
        columns.join(", ")
    }

    /// Returns the join of member `m`.
    fn join(&self, m: usize, keys: &[Key]) -> String {
        let Self { table, primary, order, limit, .. } = self;
        let on = self.on.first().map(|on| quote(&on.name)).unwrap_or_default();
        let named = primary.iter().enumerate().map(|(i, name)| format!("c.{name} AS p{i}, "));
        let is_same = |(i, name): (usize, &String)| format!("c{m}.{name} = w{m}.p{i}");
        let is_same: Vec<String> = primary.iter().enumerate().map(is_same).collect();
        format!(
            " LEFT JOIN (SELECT {}c.{on} AS k, row_number() OVER (PARTITION BY c.{on} \
             ORDER BY {order}) AS n FROM {table} AS c WHERE {}) AS w{m} \
             ON m.m = {m} AND w{m}.k = a.k0 AND w{m}.n <= {limit} \
             LEFT JOIN {table} AS c{m} ON {}",
            named.collect::<String>(),
            condition("c", &self.on, keys),
            is_same.join(" AND ")
        )
    }

    /// Returns the object of a child, whose columns begin at `first`.
    fn object(&self, row: &DatabaseRow, first: usize) -> Result<Vec<u8>, JsonError> {
        json::object(&self.fields, |i| value(row, first + i))
    }
}

/// The table of the records, as far as the statement for them and their children needs it.
pub(super) struct OwnTable<'a> {
    pub(super) table: &'a str,
    pub(super) hint: &'a str,
    pub(super) columns: &'a str,
    /// The numbered keys as a derived table; empty if no column can hold any of them.
    pub(super) keys_table: String,
    /// Condition that a row has the key of a row of it.
    pub(super) is_key_of: String,
}

/// Embedded rows of all members, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Embedding {
    /// Fields of the record itself.
    fields: Vec<Field>,
    /// Columns of its key, which follow them.
    key_columns: usize,
    members: Vec<Children>,
}

impl Embedding {
    /// Returns the embedding of a table that embeds others.
    pub(super) fn new(fields: &[Field], key_columns: usize, embedded: &[Embedded]) -> Option<Self> {
        let members: Vec<_> = embedded.iter().map(Children::new).collect();
        (!members.is_empty()).then(|| Self { fields: fields.to_vec(), key_columns, members })
    }

    /// Returns the statement for records with children.
    pub(super) fn select(&self, no_cache: &str, own: OwnTable<'_>, keys: &[Key]) -> String {
        let OwnTable { table, hint, columns, mut keys_table, is_key_of } = own;
        let mut members = String::from("SELECT 0 AS m");
        let mut columns = columns.to_owned();
        let mut joins = String::new();
        for (children, m) in self.members.iter().zip(1..) {
            // Writing to a String cannot fail.
            let _ = write!(members, " UNION ALL SELECT {m}");
            let _ = write!(columns, ", {}, w{m}.n", children.columns(m));
            joins.push_str(&children.join(m, keys));
        }
        if keys_table.is_empty() {
            // No column can hold any of the keys.
            keys_table.push_str("SELECT 0 AS i, NULL AS k0");
        }
        format!(
            "SELECT {no_cache}a.i, m.m, {columns} FROM ({keys_table}) AS a JOIN ({members}) AS m \
             LEFT JOIN {table} AS t{hint} ON m.m = 0 AND {is_key_of}{joins} ORDER BY a.i, m.m"
        )
    }

    /// Returns true if the columns of an answer are those of the inspected tables.
    fn fits(&self, columns: &[Column]) -> bool {
        let mut first = LEADING;
        let mut fit = |fields: &[Field], others: usize| {
            let mut own = fields.iter().zip(columns.iter().skip(first));
            first += fields.len() + others;
            own.all(|(field, column)| field.fits(column))
        };
        let is_fit = fit(&self.fields, self.key_columns)
            && self.members.iter().all(|children| fit(&children.fields, 1));
        is_fit && columns.len() == first
    }

    /// Parses the answer to [`Self::select`].
    pub(super) async fn rows(
        &self,
        columns: Option<&[Column]>,
        found: &[DatabaseRow],
        keys: &[Key],
        room: Room,
    ) -> Result<Vec<Row>, JsonError> {
        if !columns.is_some_and(|columns| self.fits(columns)) {
            return Err(JsonError::Shape);
        }
        let mut rows = vec![Row::Missing; keys.len()];
        let mut pace = Pace::default();
        for record in found.chunk_by(|one, next| one.as_ref(0) == next.as_ref(0)) {
            // The row of the record is the first.
            let Some(own) = record.first() else { continue };
            if number(own, 1)? != 0 {
                return Err(JsonError::Shape);
            }
            if value(own, LEADING + self.fields.len())?.is_none() {
                continue;
            }
            let slot = rows.get_mut(number(own, 0)?).ok_or(JsonError::Shape)?;
            *slot = into_row(self.whole(own, record))?;
            pace.wrote(slot.bytes()).await;
        }
        mark_unread(&mut rows, &Row::Missing, room);
        Ok(rows)
    }

    /// Returns a record with its children. `rows` are its own and theirs.
    fn whole(&self, own: &DatabaseRow, rows: &[DatabaseRow]) -> Result<Vec<u8>, JsonError> {
        if is_too_large(rows) {
            return Err(JsonError::TooLarge);
        }
        let mut record = json::object(&self.fields, |i| value(own, LEADING + i))?;
        let mut first = LEADING + self.fields.len() + self.key_columns;
        let mut rest = rows.get(1..).unwrap_or_default();
        for (member, m) in self.members.iter().zip(1..) {
            let place = first + member.fields.len();
            let mut numbered = Vec::new();
            while let Some((row, after)) = rest.split_first()
                && number(row, 1)? == m
            {
                // Without children the member has one row of NULLs.
                if value(row, place)?.is_some() {
                    numbered.push((number(row, place)?, row));
                }
                rest = after;
            }
            numbered.sort_unstable_by_key(|(n, _)| *n);
            let mut rows = numbered.iter();
            with_rows(&mut record, &member.label, || {
                rows.next().map(|(_, row)| member.object(row, first)).transpose()
            })?;
            first = place + 1;
        }
        Ok(record)
    }
}

/// Returns statements of which the first reads the records and the last the children, for tests
/// that must find this fault.
pub(super) fn split(select: &str) -> String {
    format!("{select}; SELECT SLEEP(0.005); {select}")
}

/// Combines the answers to [`split`], of which the first is at `at`.
pub(super) fn unsplit(sets: &mut Vec<Set>, at: usize) -> Result<(), JsonError> {
    if sets.len() < at + 3 {
        return Err(JsonError::Shape);
    }
    let (_, first) = &mut sets[at];
    let mut records = std::mem::take(first);
    let later: Vec<Set> = sets.drain(at + 1..at + 3).collect();
    let is_record = |row: &DatabaseRow| number(row, 1) == Ok(0);
    records.retain(is_record);
    let children: Vec<&DatabaseRow> =
        later.iter().skip(1).flat_map(|(_, rows)| rows).filter(|row| !is_record(row)).collect();
    for record in records {
        let own = children.iter().filter(|row| row.as_ref(0) == record.as_ref(0));
        let own: Vec<DatabaseRow> = own.map(|row| (*row).clone()).collect();
        sets[at].1.push(record);
        sets[at].1.extend(own);
    }
    Ok(())
}
