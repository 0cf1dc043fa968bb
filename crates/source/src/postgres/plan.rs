//! How a collection is read: one statement that brings the rows and, even without any, what it saw.

use std::error::Error;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use hotrow_cache::key::{Key, KeyPart, KeySchema};
use hotrow_cache::version::Snapshot;
use tokio_postgres::Row as DatabaseRow;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::inspect::{KeyColumn, KeyStored, Select, Served, Table, quote};
use super::json::{self, BODY_BYTES_MAX, Field, JsonError, Wire};
use crate::Row;

/// Columns of an answer before the row's own: snapshot and log position.
const LEADING: usize = 2;
/// Named, so that no function of the same name in the search path comes before.
const CATALOG: &str = "pg_catalog";

/// The statement of one collection and how to read its answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadPlan {
    pub(crate) sql: String,
    pub(crate) parameters: Vec<Type>,
    fields: Vec<Field>,
    key: Vec<KeyStored>,
    /// Where the key's columns are in the answer.
    key_at: Vec<usize>,
}

impl ReadPlan {
    pub(crate) fn new(table: &Table) -> Self {
        let mut columns: Vec<String> = table.served.iter().map(select).collect();
        let mut key_at = Vec::new();
        for key in &table.key {
            let served = table.served.iter().position(|s| s.name == key.name && s.select == Select::Plain);
            key_at.push(LEADING + served.unwrap_or(columns.len()));
            if served.is_none() {
                columns.push(format!("t.{}", quote(&key.name)));
            }
        }
        let sql = format!(
            "SELECT f.s, f.l, {} FROM (SELECT {CATALOG}.pg_current_snapshot() AS s, {CATALOG}.pg_current_wal_insert_lsn() AS l) AS f LEFT JOIN {}",
            columns.join(", "),
            join(table)
        );
        let field = |s: &Served| Field::new(&s.name, s.type_oid, s.shape.clone());
        Self {
            sql,
            parameters: table.key.iter().map(|k| array_type(k.stored).1).collect(),
            fields: table.served.iter().map(field).collect(),
            key: table.key.iter().map(|k| k.stored).collect(),
            key_at,
        }
    }

    /// The values to bind: one array for each key column. Keys that the column cannot hold are left out: there is no
    /// such row.
    pub(crate) fn arguments<'a>(&self, keys: &'a [Key]) -> Vec<KeyArray<'a>> {
        let possible = |key: &&Key| key.parts().zip(&self.key).all(|(part, stored)| holds(*stored, part));
        let keys: Arc<[&Key]> = keys.iter().filter(possible).collect();
        self.key
            .iter()
            .enumerate()
            .map(|(part, stored)| KeyArray { keys: Arc::clone(&keys), part, stored: *stored })
            .collect()
    }

    /// The key of a row; None where the row is that of nothing found.
    pub(crate) fn key_of(&self, schema: &KeySchema, row: &DatabaseRow) -> Result<Option<Key>, JsonError> {
        let mut parts = Vec::with_capacity(self.key.len());
        for (at, stored) in self.key_at.iter().zip(&self.key) {
            let Some(value) = raw(row, *at)? else { return Ok(None) };
            let mut wire = Wire(value);
            parts.push(match stored {
                KeyStored::Int2 => KeyPart::Integer(i64::from(wire.i16()?)),
                KeyStored::Int4 => KeyPart::Integer(i64::from(wire.i32()?)),
                KeyStored::Int8 => KeyPart::Integer(wire.i64()?),
                KeyStored::Text => KeyPart::Text(std::str::from_utf8(value).map_err(|_| JsonError::Shape)?),
                KeyStored::Uuid | KeyStored::Bytea => KeyPart::Bytes(value),
            });
        }
        schema.key(&parts).map(Some).map_err(|_| JsonError::Shape)
    }

    /// Whether the answer has a row of the table at all.
    pub(crate) fn found(&self, row: &DatabaseRow) -> Result<bool, JsonError> {
        raw(row, self.key_at.first().copied().unwrap_or(LEADING)).map(|value| value.is_some())
    }

    /// The record.
    ///
    /// # Errors
    /// [`JsonError::Shape`] when the table has changed; a record that is too large is an answer.
    pub(crate) fn record(&self, row: &DatabaseRow) -> Result<Row, JsonError> {
        match json::object(&self.fields, |i| raw(row, LEADING + i)) {
            Ok(json) => Ok(Row::Found(json)),
            Err(JsonError::TooLarge) => {
                Ok(Row::Unreadable(format!("the record is larger than {BODY_BYTES_MAX} bytes as JSON")))
            }
            Err(JsonError::Shape) => Err(JsonError::Shape),
        }
    }
}

/// What the query saw, and the log's end when it ran.
pub(crate) fn fence(row: &DatabaseRow) -> Result<(Snapshot, u64), JsonError> {
    let mut wire = Wire(raw(row, 0)?.ok_or(JsonError::Shape)?);
    let count = wire.i32()?;
    let (xmin, xmax) = (wire.i64()?.cast_unsigned(), wire.i64()?.cast_unsigned());
    let mut running = Vec::new();
    for _ in 0..count {
        running.push(wire.i64()?.cast_unsigned());
    }
    let at = Wire(raw(row, 1)?.ok_or(JsonError::Shape)?).i64()?.cast_unsigned();
    Ok((Snapshot { xmin, xmax, running }, at))
}

fn select(served: &Served) -> String {
    let column = format!("t.{}", quote(&served.name));
    match served.select {
        Select::Plain => column,
        Select::Text => format!("{column}::text"),
        Select::TextArray => format!("{column}::text[]"),
        Select::ToJson => format!("{CATALOG}.to_json({column})"),
    }
}

fn join(table: &Table) -> String {
    let name = table.sql_name();
    if let [key] = &table.key[..] {
        return format!("{name} AS t ON t.{} = ANY ($1::{})", quote(&key.name), array_type(key.stored).0);
    }
    let array = |(i, k): (usize, &KeyColumn)| format!("{CATALOG}.unnest(${}::{})", i + 1, array_type(k.stored).0);
    let arrays: Vec<String> = table.key.iter().enumerate().map(array).collect();
    let names: Vec<String> = (0..table.key.len()).map(|i| format!("k{i}")).collect();
    let on: Vec<String> = table.key.iter().enumerate().map(|(i, k)| format!("t.{} = k.k{i}", quote(&k.name))).collect();
    let (arrays, names, on) = (arrays.join(", "), names.join(", "), on.join(" AND "));
    format!("(ROWS FROM ({arrays}) AS k ({names}) JOIN {name} AS t ON {on}) ON true")
}

fn array_type(stored: KeyStored) -> (&'static str, Type) {
    match stored {
        KeyStored::Int2 => ("int2[]", Type::INT2_ARRAY),
        KeyStored::Int4 => ("int4[]", Type::INT4_ARRAY),
        KeyStored::Int8 => ("int8[]", Type::INT8_ARRAY),
        KeyStored::Text => ("text[]", Type::TEXT_ARRAY),
        KeyStored::Uuid => ("uuid[]", Type::UUID_ARRAY),
        KeyStored::Bytea => ("bytea[]", Type::BYTEA_ARRAY),
    }
}

fn holds(stored: KeyStored, part: KeyPart<'_>) -> bool {
    match (stored, part) {
        (KeyStored::Int2, KeyPart::Integer(v)) => i16::try_from(v).is_ok(),
        (KeyStored::Int4, KeyPart::Integer(v)) => i32::try_from(v).is_ok(),
        _ => true,
    }
}

/// A value's bytes; None is NULL.
fn raw(row: &DatabaseRow, at: usize) -> Result<Option<&[u8]>, JsonError> {
    row.try_get::<_, Option<Raw<'_>>>(at).map(|value| value.map(|Raw(bytes)| bytes)).map_err(|_| JsonError::Shape)
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
    /// Source: `array_recv` of PostgreSQL: dimensions, flags, element type, then length and lower bound, then elements.
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let element = match self.stored {
            KeyStored::Int2 => Type::INT2,
            KeyStored::Int4 => Type::INT4,
            KeyStored::Int8 => Type::INT8,
            KeyStored::Text => Type::TEXT,
            KeyStored::Uuid => Type::UUID,
            KeyStored::Bytea => Type::BYTEA,
        };
        out.put_i32(1);
        out.put_i32(0);
        out.put_u32(element.oid());
        out.put_i32(i32::try_from(self.keys.len())?);
        out.put_i32(1);
        for key in self.keys.iter() {
            match (self.stored, key.parts().nth(self.part).ok_or("a key has fewer parts than its collection")?) {
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
