//! Rows of records in an answer, kept within the budget of a query. The unit is the record with its
//! children: a part of one must not be served.

use std::sync::Arc;

use hotrow_source::json::BODY_BYTES_MAX;
use hotrow_source::{Room, RowBudget};
use mysql_async::{Column, Row as DatabaseRow, Value};

use super::json::JsonError;

/// Rows of one record in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordForm {
    /// One row.
    Row,
    /// A row of the record, and one per child, one after the other. The first column numbers the
    /// record and the second one the member, 0 for the record itself. Without a record the values
    /// of its row after these are NULL.
    Rows,
}

/// Columns and rows of one statement. The columns are none for a statement without rows.
pub(crate) type Set = (Option<Arc<[Column]>>, Vec<DatabaseRow>);

/// Collector of the rows of one answer.
pub(crate) struct RecordRows<'a> {
    budget: &'a RowBudget,
    form: RecordForm,
    kept: Vec<DatabaseRow>,
    /// Rows of the record that is being received. At most [`BODY_BYTES_MAX`] and one row: with
    /// these, the record is too large to be served anyway.
    open: Vec<DatabaseRow>,
    open_bytes: usize,
    room: Room,
}

impl<'a> RecordRows<'a> {
    pub(crate) fn new(budget: &'a RowBudget, form: RecordForm) -> Self {
        Self { budget, form, kept: Vec::new(), open: Vec::new(), open_bytes: 0, room: Room::Taken }
    }

    /// Adds the next row of the answer.
    pub(crate) fn push(&mut self, row: DatabaseRow) {
        if self.form == RecordForm::Row {
            if self.room == Room::Taken {
                self.room = self.budget.take(bytes_of(&row));
            }
            if self.room == Room::Taken {
                self.kept.push(row);
            }
            return;
        }
        if self.open.first().is_some_and(|first| first.as_ref(0) != row.as_ref(0)) {
            self.close();
        }
        if self.room == Room::Taken && self.open_bytes <= BODY_BYTES_MAX {
            self.open_bytes += bytes_of(&row);
            self.open.push(row);
        }
    }

    /// Returns the rows of the records that have room, and whether all of them had.
    pub(crate) fn end(mut self) -> (Vec<DatabaseRow>, Room) {
        self.close();
        (self.kept, self.room)
    }

    /// Ends the record that is being received.
    fn close(&mut self) {
        let mut rows = std::mem::take(&mut self.open);
        let bytes = std::mem::take(&mut self.open_bytes);
        let Some(first) = rows.first().filter(|_| self.room == Room::Taken) else { return };
        // Children without a parent are no record, and must not take the place of the first one.
        if (2..first.len()).any(|at| first.as_ref(at) != Some(&Value::NULL)) {
            self.room = self.budget.take(bytes);
            if self.room == Room::Taken {
                self.kept.append(&mut rows);
            }
        }
    }
}

/// Returns true if rows of a record are too many bytes, so that some of them were dropped.
pub(crate) fn is_too_large(rows: &[DatabaseRow]) -> bool {
    rows.iter().map(bytes_of).sum::<usize>() > BODY_BYTES_MAX
}

/// Returns the bytes of a row's values, which arrive as text.
fn bytes_of(row: &DatabaseRow) -> usize {
    let value = |at: usize| match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    (0..row.len()).map(value).sum()
}

/// Returns the value of an answer's column.
pub(crate) fn value(row: &DatabaseRow, at: usize) -> Result<Option<&[u8]>, JsonError> {
    match row.as_ref(at) {
        Some(Value::NULL) => Ok(None),
        Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
        _ => Err(JsonError::Shape),
    }
}

/// Returns the number in an answer's column.
pub(crate) fn number(row: &DatabaseRow, at: usize) -> Result<usize, JsonError> {
    let digits = value(row, at)?
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .and_then(|t| t.parse().ok());
    digits.ok_or(JsonError::Shape)
}
