//! How a collection is read: one query that brings the rows, what it saw, and the log's end.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use hotrow_cache::key::{Key, KeySchema};
use hotrow_cache::version::{GtidSet, Position, Version};
use mysql_async::{Column, Row as DatabaseRow, Value};

use super::inspect::{KeyColumn, Select, Served, Table, quote};
use super::json::{self, BODY_BYTES_MAX, Field, JsonError};
use super::keys::{self, LogKey, Spelling};
use super::place::Place;
use super::server::{Flavor, Identity};
use crate::Row;

/// The statement of one collection and how to read its answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadPlan {
    /// `` `database`.`table` ``
    table: String,
    /// The columns to select: those to serve, then the key's.
    columns: String,
    fields: Vec<Field>,
    key: Vec<KeyColumn>,
    /// Collations of the key's columns.
    collations: Vec<Option<String>>,
    pub(crate) spelling: Spelling,
    flavor: Flavor,
    log_end: &'static str,
}

/// How a query finds out what it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// MariaDB, of keys that nothing was told of since everything up to this point was seen: a plain read.
    Plain { from: u64 },
    /// MariaDB, of other keys: asks first up to which point of the log everything is visible.
    Asked,
    /// MySQL: the transactions that were visible before.
    Gtids,
    /// Changes are not followed: nothing is found out, and no log is needed.
    Rows,
}

/// Rows of one statement, with their columns; none for a statement without rows.
pub(crate) type Set = (Option<Arc<[Column]>>, Vec<DatabaseRow>);

/// What a query brought besides the rows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Saw {
    pub(crate) version: Version,
    /// None where changes are not followed.
    pub(crate) position: Option<Position>,
}

impl ReadPlan {
    pub(crate) fn new(table: &Table, identity: &Identity) -> Self {
        let key_columns = table.key.iter().map(|k| format!("t.{}", quote(&k.name)));
        let columns: Vec<String> = table.served.iter().map(select).chain(key_columns).collect();
        let collation = |k: &KeyColumn| table.columns.get(k.position).and_then(|c| c.collation.clone());
        Self {
            table: table.name.sql(),
            columns: columns.join(", "),
            fields: table.served.iter().map(|s| Field::new(&s.name, s.scalar)).collect(),
            key: table.key.clone(),
            collations: table.key.iter().map(collation).collect(),
            spelling: table.spelling(),
            flavor: identity.flavor,
            log_end: identity.log_end_sql(),
        }
    }

    /// The form of a query; `plain` is what a plain read sees at least, if that is enough.
    pub(crate) fn form(&self, plain: Option<u64>) -> Form {
        match (self.flavor, plain) {
            (Flavor::MySql, _) => Form::Gtids,
            (Flavor::MariaDb, Some(from)) => Form::Plain { from },
            (Flavor::MariaDb, None) => Form::Asked,
        }
    }

    /// The statements of one query, sent together.
    pub(crate) fn sql(&self, keys: &[Key], form: Form) -> String {
        let select = self.select(keys);
        let end = self.log_end;
        match form {
            // The end after the row: it must reflect whatever the row does.
            Form::Plain { .. } => format!("{select}; {end}"),
            // Before the row, and not in a snapshot that would tell its own point: the server keeps these values in variables
            // that all sessions fill, so that a neighbour's question may be answered here. What it was told was visible by
            // then, and so is to a row that is read later; a snapshot taken before might not have it.
            Form::Asked => format!("SHOW STATUS LIKE 'binlog\\_snapshot\\_%'; {select}; {end}"),
            Form::Gtids => format!("SELECT @@global.gtid_executed; {select}; {end}"),
            Form::Rows => select,
        }
    }

    fn select(&self, keys: &[Key]) -> String {
        // MariaDB's query cache would have to be trusted to forget in time.
        let no_cache = if self.flavor == Flavor::MariaDb { "SQL_NO_CACHE " } else { "" };
        let (columns, table) = (&self.columns, &self.table);
        // Of such a table each row must tell which of several spellings found it.
        if self.spelling == Spelling::Many && keys.len() > 1 {
            let asked = self.asked(keys);
            let on: Vec<String> =
                self.key.iter().enumerate().map(|(i, k)| format!("t.{} = a.k{i}", quote(&k.name))).collect();
            return match asked.is_empty() {
                true => format!("SELECT {no_cache}0, {columns} FROM {table} AS t WHERE 1 = 0"),
                false => format!(
                    "SELECT {no_cache}a.i, {columns} FROM ({asked}) AS a STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON {}",
                    on.join(" AND ")
                ),
            };
        }
        format!("SELECT {no_cache}0, {columns} FROM {table} AS t FORCE INDEX (PRIMARY) WHERE {}", self.condition(keys))
    }

    /// Keys that the columns cannot hold are left out: there is no such row.
    fn condition(&self, keys: &[Key]) -> String {
        let mut sql = String::new();
        for key in keys {
            let start = sql.len();
            match (&self.key[..], start) {
                ([only], 0) => _ = write!(sql, "t.{} IN (", quote(&only.name)),
                ([_], _) => sql.push_str(", "),
                (_, 0) => sql.push('('),
                (_, _) => sql.push_str(" OR ("),
            }
            let mut possible = true;
            for (i, (column, part)) in self.key.iter().zip(key.parts()).enumerate() {
                if self.key.len() > 1 {
                    _ = write!(sql, "{}t.{} = ", if i == 0 { "" } else { " AND " }, quote(&column.name));
                }
                possible &= column.stored.write_literal(part, &mut sql);
            }
            if !possible {
                sql.truncate(start);
            } else if self.key.len() > 1 {
                sql.push(')');
            }
        }
        match sql.is_empty() {
            true => "1 = 0".into(),
            false if self.key.len() == 1 => sql + ")",
            false => sql,
        }
    }

    /// The keys as a table, with their numbers; in the columns' own collations, so that the index serves.
    fn asked(&self, keys: &[Key]) -> String {
        let mut sql = String::new();
        for (i, key) in keys.iter().enumerate() {
            let start = sql.len();
            let (union, name) = if start == 0 { ("", " AS i") } else { (" UNION ALL ", "") };
            _ = write!(sql, "{union}SELECT {i}{name}");
            let mut possible = true;
            for (n, ((column, part), collation)) in self.key.iter().zip(key.parts()).zip(&self.collations).enumerate() {
                sql.push_str(", ");
                possible &= column.stored.write_literal(part, &mut sql);
                if let Some(collation) = collation {
                    _ = write!(sql, " COLLATE {collation}");
                }
                if start == 0 {
                    _ = write!(sql, " AS k{n}");
                }
            }
            if !possible {
                sql.truncate(start);
            }
        }
        sql
    }

    /// Reads the answer of [`Self::sql`]: the rows in the order of `keys`, and what was seen.
    ///
    /// # Errors
    /// [`JsonError::Shape`] when the table has changed, or the server's answer is not of the expected form.
    pub(crate) fn answer(
        &self,
        sets: &[Set],
        keys: &[Key],
        schema: &KeySchema,
        form: Form,
        incarnation: u64,
    ) -> Result<(Vec<Row>, Saw), JsonError> {
        let saw = saw(sets, form, incarnation).ok_or(JsonError::Shape)?;
        let at = usize::from(matches!(form, Form::Asked | Form::Gtids));
        let (columns, found) = sets.get(at).ok_or(JsonError::Shape)?;
        let columns = columns.as_deref().and_then(|c| c.get(1..)).ok_or(JsonError::Shape)?;
        if columns.len() != self.fields.len() + self.key.len()
            || !self.fields.iter().zip(columns).all(|(field, column)| field.fits(column))
        {
            return Err(JsonError::Shape);
        }
        let rows = match self.spelling {
            Spelling::One => self.by_key(found, keys, schema)?,
            Spelling::Many => self.by_spelling(found, keys, schema)?,
        };
        Ok((rows, saw))
    }

    fn by_key(&self, found: &[DatabaseRow], keys: &[Key], schema: &KeySchema) -> Result<Vec<Row>, JsonError> {
        let mut rows = vec![Row::Missing; keys.len()];
        let places = crate::places::Places::new(keys);
        for row in found {
            if let LogKey::Key(key) = self.key_of(row, schema)?
                && let Some(place) = places.of(&key)
            {
                rows[place] = self.record(row)?;
            }
        }
        places.spread(&mut rows);
        Ok(rows)
    }

    /// Absence is not kept either: a row that appears may be spelt in another way.
    fn by_spelling(&self, found: &[DatabaseRow], keys: &[Key], schema: &KeySchema) -> Result<Vec<Row>, JsonError> {
        let mut rows = vec![Row::Passing(None); keys.len()];
        for row in found {
            let Some(Value::Bytes(number)) = row.as_ref(0) else { return Err(JsonError::Shape) };
            let number: usize = text(number).and_then(|t| t.parse().ok()).ok_or(JsonError::Shape)?;
            let (key, place) = keys.get(number).zip(rows.get_mut(number)).ok_or(JsonError::Shape)?;
            let same = self.key_of(row, schema)? == LogKey::Key(key.clone());
            *place = match self.record(row)? {
                Row::Found(body) if !same => Row::Passing(Some(body)),
                row => row,
            };
        }
        Ok(rows)
    }

    fn key_of(&self, row: &DatabaseRow, schema: &KeySchema) -> Result<LogKey, JsonError> {
        let values = (0..self.key.len()).map(|i| row.as_ref(1 + self.fields.len() + i).ok_or(JsonError::Shape));
        let values: Vec<&Value> = values.collect::<Result<_, _>>()?;
        match keys::of_answer(&self.key, schema, &values) {
            LogKey::Mismatch => Err(JsonError::Shape),
            key => Ok(key),
        }
    }

    fn record(&self, row: &DatabaseRow) -> Result<Row, JsonError> {
        let value = |i: usize| match row.as_ref(1 + i) {
            Some(Value::NULL) => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(&bytes[..])),
            _ => Err(JsonError::Shape),
        };
        match json::object(&self.fields, value) {
            Ok(json) => Ok(Row::Found(json)),
            Err(JsonError::TooLarge) => {
                Ok(Row::Unreadable(format!("the record is larger than {BODY_BYTES_MAX} bytes as JSON")))
            }
            Err(JsonError::Shape) => Err(JsonError::Shape),
        }
    }
}

fn select(served: &Served) -> String {
    let column = format!("t.{}", quote(&served.name));
    match served.select {
        Select::Plain => column,
        Select::Double => format!("{column} + 0e0"),
        Select::Wkb => format!("ST_AsBinary({column})"),
    }
}

fn saw(sets: &[Set], form: Form, incarnation: u64) -> Option<Saw> {
    let position = |at| Position { incarnation, at };
    let end_of = |set: &Set| {
        let row = set.1.first()?;
        Some(position(place(row.as_ref(0)?, row.as_ref(1)?)?))
    };
    let (version, position) = match (form, sets) {
        (Form::Rows, _) => return Some(Saw { version: Version::Unknown, position: None }),
        (Form::Plain { from }, [_, end]) => {
            let end = end_of(end)?;
            (Version::Span { from: position(from), to: end }, end)
        }
        (Form::Asked, [status, _, end]) => {
            let of: HashMap<String, Value> = status
                .1
                .iter()
                .filter_map(|row| Some((text_of(row.as_ref(0)?)?.to_lowercase(), row.as_ref(1)?.clone())))
                .collect();
            let at = place(of.get("binlog_snapshot_file")?, of.get("binlog_snapshot_position")?)?;
            let end = end_of(end)?;
            // Files and offsets of two sessions' questions, mixed: then nothing is known.
            let from = position(at);
            (if end.reaches(&from) { Version::Span { from, to: end } } else { Version::Unknown }, end)
        }
        (Form::Gtids, [before, _, end]) => {
            let set = GtidSet::parse(text_of(before.1.first()?.as_ref(0)?)?).ok()?;
            (Version::Gtids(Arc::new(set)), end_of(end)?)
        }
        _ => return None,
    };
    Some(Saw { version, position: Some(position) })
}

fn place(file: &Value, offset: &Value) -> Option<u64> {
    let Value::Bytes(file) = file else { return None };
    Some(Place::new(file, text_of(offset)?.parse().ok()?)?.point())
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::Bytes(bytes) => text(bytes),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
