//! Statement of a collection's reads. Its answer contains the rows and, even without any, the
//! snapshot and the end of the log.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use hotrow_types::key::{KEY_PARTS_MAX, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::Snapshot;
use tokio_postgres::Row as DatabaseRow;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::inspect::{Embedded, KeyColumn, KeyStored, Select, Served, Table, quote};
use super::json::{self, Field, JsonError, Wire};
use super::key_text::from_server;
use hotrow_source::Row;
use hotrow_source::field_schema::FieldSchema;
use hotrow_source::json::into_row;

/// Columns of an answer before those of the row: snapshot and log position.
const LEADING: usize = 2;
/// Qualifies function names, so that no function of the same name in the search path is called.
const CATALOG: &str = "pg_catalog";

/// The statement of one collection and the layout of its answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadPlan {
    pub(crate) sql: String,
    /// The same for a standby: without snapshot and end of the log, which mean nothing there.
    pub(crate) standby_sql: String,
    pub(crate) parameters: Vec<Type>,
    fields: Vec<Field>,
    /// Schemas of the fields.
    pub(crate) schemas: Arc<[FieldSchema]>,
    key: Vec<KeyColumn>,
    /// Positions of the key columns in the answer.
    key_at: Vec<usize>,
    /// Positions of the stored key, for keys with aliases (several ids name one row).
    /// [`Self::key_of`] returns the requested spelling.
    stored_at: Vec<usize>,
}

impl ReadPlan {
    pub(crate) fn new(table: &Table) -> Self {
        let mut columns: Vec<String> = table.served.iter().map(|served| served.sql("t")).collect();
        columns.extend(table.embedded.iter().map(|child| child.sql(&table.key)));
        let mut key_at = Vec::new();
        let mut stored_at = Vec::new();
        for key in &table.key {
            // The served form of some types, such as dates, differs from that of the key.
            let is_plain = |s: &&Served| s.select == Select::Plain && !reads_as_text(key.stored);
            let served = table.served.iter().position(|s| s.name == key.name && is_plain(&s));
            key_at.push(LEADING + served.unwrap_or(columns.len()));
            if served.is_none() {
                let cast = if reads_as_text(key.stored) { "::text" } else { "" };
                columns.push(format!("t.{}{cast}", quote(&key.name)));
            }
        }
        if table.has_aliases() {
            stored_at = std::mem::take(&mut key_at);
            for (i, key) in table.key.iter().enumerate() {
                key_at.push(LEADING + columns.len());
                columns.push(if reads_as_text(key.stored) {
                    format!("k.k{i}::text")
                } else {
                    format!("k.k{i}")
                });
            }
        }
        let statement = |snapshot: &str, log_end: &str| {
            format!(
                "SELECT f.s, f.l, {} FROM (SELECT {snapshot} AS s, {log_end} AS l) AS f \
                 LEFT JOIN {}",
                columns.join(", "),
                join(table)
            )
        };
        let snapshot = format!("{CATALOG}.pg_current_snapshot()");
        let sql = statement(&snapshot, &format!("{CATALOG}.pg_current_wal_insert_lsn()"));
        let standby_sql = statement("NULL", "NULL");
        let field = |s: &Served| match s.is_tenant {
            false => Field::new(&s.name, s.type_oid, s.shape.clone()),
            true => Field::before_object(s.type_oid, s.shape.clone()),
        };
        let record = table.served.iter().filter(|served| !served.is_tenant).map(Served::schema);
        Self {
            sql,
            standby_sql,
            parameters: table.key.iter().map(|k| array_type(k.stored, &k.sql_type).1).collect(),
            fields: table
                .served
                .iter()
                .map(field)
                .chain(table.embedded.iter().map(Embedded::field))
                .collect(),
            schemas: record.chain(table.embedded.iter().map(Embedded::schema)).collect(),
            key: table.key.clone(),
            key_at,
            stored_at,
        }
    }

    /// Returns the values to bind: one array for each key column. Keys that a column cannot hold
    /// are omitted: no such row exists.
    pub(crate) fn arguments<'a>(&self, keys: &'a [Key]) -> Vec<KeyArray<'a>> {
        let possible =
            |key: &&Key| key.parts().zip(&self.key).all(|(part, column)| holds(column, part));
        let keys: Arc<[&Key]> = keys.iter().filter(possible).collect();
        self.key
            .iter()
            .enumerate()
            .map(|(part, column)| KeyArray { keys: Arc::clone(&keys), part, stored: column.stored })
            .collect()
    }

    /// Returns the key of a row; `None` if the answer has no row of the table.
    pub(crate) fn key_of(
        &self,
        schema: &KeySchema,
        row: &DatabaseRow,
    ) -> Result<Option<Key>, JsonError> {
        self.key_in(&self.key_at, schema, row)
    }

    /// Returns whether several ids can name one row.
    pub(crate) fn has_aliases(&self) -> bool {
        !self.stored_at.is_empty()
    }

    /// Returns whether a row was requested by another spelling of its key than the stored one.
    pub(crate) fn is_alias(
        &self,
        schema: &KeySchema,
        row: &DatabaseRow,
    ) -> Result<bool, JsonError> {
        Ok(self.has_aliases()
            && self.key_of(schema, row)? != self.key_in(&self.stored_at, schema, row)?)
    }

    fn key_in(
        &self,
        places: &[usize],
        schema: &KeySchema,
        row: &DatabaseRow,
    ) -> Result<Option<Key>, JsonError> {
        let mut texts: [Cow<'_, str>; KEY_PARTS_MAX] = Default::default();
        for ((text, at), column) in texts.iter_mut().zip(places).zip(&self.key) {
            if !matches!(column.ty, KeyType::Text(_) | KeyType::Canonical(_)) {
                continue;
            }
            let Some(value) = raw(row, *at)? else { return Ok(None) };
            *text =
                from_server(column.ty, std::str::from_utf8(value).map_err(|_| JsonError::Shape)?);
        }
        let mut parts = Vec::with_capacity(self.key.len());
        for ((text, at), column) in texts.iter().zip(places).zip(&self.key) {
            let Some(value) = raw(row, *at)? else { return Ok(None) };
            let mut wire = Wire(value);
            parts.push(match column.stored {
                KeyStored::Int2 => KeyPart::Integer(i64::from(wire.i16()?)),
                KeyStored::Int4 => KeyPart::Integer(i64::from(wire.i32()?)),
                KeyStored::Int8 => KeyPart::Integer(wire.i64()?),
                KeyStored::Uuid | KeyStored::Bytea => KeyPart::Bytes(value),
                _ => KeyPart::Text(text),
            });
        }
        schema.key(&parts).map(Some).map_err(|_| JsonError::Shape)
    }

    /// Returns whether the answer has a row of the table.
    pub(crate) fn found(&self, row: &DatabaseRow) -> Result<bool, JsonError> {
        raw(row, self.key_at.first().copied().unwrap_or(LEADING)).map(|value| value.is_some())
    }

    /// Returns the record.
    ///
    /// # Errors
    /// [`JsonError::Shape`] if the table has changed. A record that is too large is an answer.
    pub(crate) fn record(&self, row: &DatabaseRow) -> Result<Row, JsonError> {
        into_row(json::object(&self.fields, |i| raw(row, LEADING + i)))
    }
}

/// Returns the snapshot of the query and the log's end when it ran.
pub(crate) fn fence(row: &DatabaseRow) -> Result<(Snapshot, u64), JsonError> {
    let mut wire = Wire(raw(row, 0)?.ok_or(JsonError::Shape)?);
    let count = wire.i32()?;
    let xmin = wire.i64()?.cast_unsigned();
    let xmax = wire.i64()?.cast_unsigned();
    let mut running = Vec::new();
    for _ in 0..count {
        running.push(wire.i64()?.cast_unsigned());
    }
    let at = Wire(raw(row, 1)?.ok_or(JsonError::Shape)?).i64()?.cast_unsigned();
    Ok((Snapshot { xmin, xmax, running }, at))
}

fn join(table: &Table) -> String {
    let name = table.sql_name();
    if let ([key], false) = (&table.key[..], table.has_aliases()) {
        let array = array_type(key.stored, &key.sql_type).0;
        return format!("{name} AS t ON {} {} ANY ($1::{array})", column(key), equals(key));
    }
    let array = |(i, k): (usize, &KeyColumn)| {
        format!("{CATALOG}.unnest(${}::{})", i + 1, array_type(k.stored, &k.sql_type).0)
    };
    let arrays: Vec<String> = table.key.iter().enumerate().map(array).collect();
    let names: Vec<String> = (0..table.key.len()).map(|i| format!("k{i}")).collect();
    let on: Vec<String> = table
        .key
        .iter()
        .enumerate()
        .map(|(i, k)| format!("{} {} k.k{i}", column(k), equals(k)))
        .collect();
    let arrays = arrays.join(", ");
    let names = names.join(", ");
    let on = on.join(" AND ");
    format!("(ROWS FROM ({arrays}) AS k ({names}) JOIN {name} AS t ON {on}) ON true")
}

/// Returns the binding of keys: the array's type in the statement and the parameter's. Most types
/// are bound as text, which the server converts to the column's type once per query.
fn array_type(stored: KeyStored, sql_type: &str) -> (String, Type) {
    let (name, parameter) = match stored {
        KeyStored::Int2 => ("int2[]", Type::INT2_ARRAY),
        KeyStored::Int4 => ("int4[]", Type::INT4_ARRAY),
        KeyStored::Int8 => ("int8[]", Type::INT8_ARRAY),
        KeyStored::Text => ("text[]", Type::TEXT_ARRAY),
        KeyStored::Uuid => ("uuid[]", Type::UUID_ARRAY),
        KeyStored::Bytea => ("bytea[]", Type::BYTEA_ARRAY),
        _ => return (format!("text[]::{sql_type}[]"), Type::TEXT_ARRAY),
    };
    (name.to_owned(), parameter)
}

/// Returns the key's column in a comparison. The operators of enums do not accept a domain over
/// one.
fn column(key: &KeyColumn) -> String {
    let cast =
        if key.stored == KeyStored::Enum { format!("::{}", key.sql_type) } else { String::new() };
    format!("t.{}{cast}", quote(&key.name))
}

/// Returns the equality operator. An extension's type has its operator in the extension's schema,
/// which need not be in the search path.
fn equals(key: &KeyColumn) -> String {
    let extension =
        key.sql_type.strip_suffix(".\"citext\"").filter(|_| key.stored == KeyStored::Folded);
    extension.map_or_else(|| "=".to_owned(), |schema| format!("OPERATOR({schema}.=)"))
}

/// Returns whether the key's column is read as the server's text: its binary form is not that of an
/// id.
fn reads_as_text(stored: KeyStored) -> bool {
    matches!(
        stored,
        KeyStored::Boolean
            | KeyStored::Numeric
            | KeyStored::Date
            | KeyStored::Timestamp
            | KeyStored::TimestampTz
            | KeyStored::Enum
            | KeyStored::Folded
    )
}

/// Returns whether the column can hold this value. The server rejects a whole query for one value
/// that it cannot.
fn holds(column: &KeyColumn, part: KeyPart<'_>) -> bool {
    match (column.stored, part) {
        (KeyStored::Int2, KeyPart::Integer(v)) => i16::try_from(v).is_ok(),
        (KeyStored::Int4, KeyPart::Integer(v)) => i32::try_from(v).is_ok(),
        (KeyStored::Enum, KeyPart::Text(text)) => column.labels.iter().any(|label| label == text),
        _ => true,
    }
}

/// Returns a value's bytes; `None` is NULL.
fn raw(row: &DatabaseRow, at: usize) -> Result<Option<&[u8]>, JsonError> {
    row.try_get::<_, Option<Raw<'_>>>(at)
        .map(|value| value.map(|Raw(bytes)| bytes))
        .map_err(|_| JsonError::Shape)
}

struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// One column of the keys as an array of the database.
#[derive(Debug)]
pub(crate) struct KeyArray<'a> {
    keys: Arc<[&'a Key]>,
    part: usize,
    stored: KeyStored,
}

impl ToSql for KeyArray<'_> {
    /// Source: `array_recv` of PostgreSQL: dimensions, flags, element type, then length and lower
    /// bound, then elements.
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let element = match self.stored {
            KeyStored::Int2 => Type::INT2,
            KeyStored::Int4 => Type::INT4,
            KeyStored::Int8 => Type::INT8,
            KeyStored::Uuid => Type::UUID,
            KeyStored::Bytea => Type::BYTEA,
            _ => Type::TEXT,
        };
        out.put_i32(1);
        out.put_i32(0);
        out.put_u32(element.oid());
        out.put_i32(i32::try_from(self.keys.len())?);
        out.put_i32(1);
        for key in self.keys.iter() {
            match (
                self.stored,
                key.parts().nth(self.part).ok_or("a key has fewer parts than its collection")?,
            ) {
                (KeyStored::Int2, KeyPart::Integer(v)) => {
                    out.put_i32(2);
                    out.put_i16(i16::try_from(v)?);
                }
                (KeyStored::Int4, KeyPart::Integer(v)) => {
                    out.put_i32(4);
                    out.put_i32(i32::try_from(v)?);
                }
                (_, KeyPart::Integer(v)) => {
                    out.put_i32(8);
                    out.put_i64(v);
                }
                (_, KeyPart::Text(text)) => put_bytes(out, text.as_bytes())?,
                (_, KeyPart::Bytes(bytes)) => put_bytes(out, bytes)?,
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) -> Result<(), std::num::TryFromIntError> {
    out.put_i32(i32::try_from(bytes.len())?);
    out.put_slice(bytes);
    Ok(())
}
