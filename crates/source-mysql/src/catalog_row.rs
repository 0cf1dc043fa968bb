//! Rows of the catalogue, of variables and of status, parsed field by field without a panic.
//!
//! The driver's typed queries panic on a value of an unexpected type, including NULL. NULL in
//! columns of `information_schema` depends on the account's privileges, so a test cannot prove a
//! column to be non-NULL. Every statement of this engine with an answer goes through this module,
//! except the reads of records, which use raw values. A test enforces it.

use mysql_async::prelude::{FromValue, Queryable as _};
use mysql_async::{Conn, Error, Row, Value};

/// Row with checked access to its fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CatalogRow(Vec<Option<Value>>);

/// Error of a field with an unexpected value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer has {problem} in `{column}`")]
struct Unexpected {
    column: &'static str,
    problem: &'static str,
}

impl CatalogRow {
    /// Returns a field that must not be NULL. `name` is its name in messages.
    ///
    /// # Errors
    /// Fails on NULL, another type, or a missing field.
    pub(crate) fn required<T: FromValue>(
        &self,
        column: usize,
        name: &'static str,
    ) -> Result<T, Error> {
        self.nullable(column, name)?.ok_or_else(|| unexpected(name, "NULL"))
    }

    /// Returns a field that may be NULL.
    ///
    /// # Errors
    /// Fails on another type or a missing field.
    pub(crate) fn nullable<T: FromValue>(
        &self,
        column: usize,
        name: &'static str,
    ) -> Result<Option<T>, Error> {
        match self.0.get(column).and_then(Option::as_ref) {
            None => Err(unexpected(name, "no value")),
            Some(Value::NULL) => Ok(None),
            Some(value) => {
                let read = mysql_async::from_value_opt(value.clone());
                read.map(Some).map_err(|_| unexpected(name, "a value of another type"))
            }
        }
    }

    /// Returns a text field. NULL becomes the empty text.
    ///
    /// # Errors
    /// As [`Self::nullable`].
    pub(crate) fn text(&self, column: usize, name: &'static str) -> Result<String, Error> {
        Ok(self.nullable(column, name)?.unwrap_or_default())
    }

    #[cfg(test)]
    pub(crate) fn of(values: Vec<Value>) -> Self {
        Self(values.into_iter().map(Some).collect())
    }
}

impl From<Row> for CatalogRow {
    fn from(row: Row) -> Self {
        Self(row.unwrap_raw())
    }
}

fn unexpected(column: &'static str, problem: &'static str) -> Error {
    Error::Other(Box::new(Unexpected { column, problem }))
}

/// Returns all rows of a statement, each parsed by `read`.
///
/// # Errors
/// Errors of the server, the connection, or `read`.
pub(crate) async fn rows<T>(
    conn: &mut Conn,
    sql: impl AsRef<str>,
    read: impl Fn(&CatalogRow) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let rows: Vec<Row> = conn.query(sql.as_ref()).await?;
    rows.into_iter().map(|row| read(&row.into())).collect()
}

/// Returns the first row of a statement, if any.
///
/// # Errors
/// Errors of the server or the connection.
pub(crate) async fn first(
    conn: &mut Conn,
    sql: impl AsRef<str>,
) -> Result<Option<CatalogRow>, Error> {
    let row: Option<Row> = conn.query_first(sql.as_ref()).await?;
    Ok(row.map(CatalogRow::from))
}

/// Parses a row of two texts, of which the second may be NULL: a variable or a status with its
/// value.
///
/// # Errors
/// As [`CatalogRow::required`].
pub(crate) fn name_and_value(row: &CatalogRow) -> Result<(String, String), Error> {
    Ok((row.required(0, "the name of a variable")?, row.text(1, "the value of a variable")?))
}

#[cfg(test)]
pub(crate) mod tests;
