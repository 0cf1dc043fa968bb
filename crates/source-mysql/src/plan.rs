//! Read plans: one query returns the rows of a collection, the version they reflect, and the log's
//! end.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use hotrow_types::key::{Key, KeySchema};
use hotrow_types::version::{GtidSet, Position, Version};
use mysql_async::{Row as DatabaseRow, Value};

use self::embedded::{Embedding, OwnTable};
use self::sql::{condition, select};
use super::embedded_rules::{EmbeddedRule, EmbeddedRules};
use super::inspect::{Embedded, Served, Table, quote};
use super::json::{self, Field, JsonError};
use super::keys::{self, KeyColumn, LogKey, Spelling};
use super::place::LogPosition;
use super::recent::Recent;
use super::record_rows::{RecordForm, Set, number, value};
use super::server::{Flavor, Identity};
use hotrow_source::field_schema::FieldSchema;
use hotrow_source::json::{Pace, into_row};
use hotrow_source::{Room, Row, mark_unread};

mod embedded;
mod sql;

/// Statement of one collection and the parser of its answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadPlan {
    /// `` `database`.`table` ``
    table: String,
    /// Hint that names the unique index of the key. Empty for a view, which accepts none.
    hint: String,
    /// Selected columns: the served ones, then the key's.
    columns: String,
    fields: Vec<Field>,
    /// Schemas of the fields.
    pub(crate) schemas: Arc<[FieldSchema]>,
    key: Vec<KeyColumn>,
    /// Collations of the key's columns.
    collations: Vec<Option<String>>,
    /// Embedded rows, if there are any.
    embedding: Option<Embedding>,
    /// A planted fault: the children are read by a second statement.
    is_split: bool,
    pub(crate) spelling: Spelling,
    flavor: Flavor,
    log_end: &'static str,
}

/// Method by which a query determines the version that it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// MariaDB, keys without a change after `from`, up to which everything is known to be visible:
    /// a plain read.
    Plain { from: u64 },
    /// MariaDB, other keys: queries first the point of the log up to which everything is visible.
    SnapshotPoint,
    /// MySQL, keys whose newest changes are known to be visible: a plain read.
    Visible,
    /// MySQL, other keys: queries first the visible transactions.
    Gtids,
    /// Changes are not followed: no version is determined, and no log is needed.
    Rows,
}

impl Form {
    /// Returns the index of the statement that selects the records.
    fn rows_at(self) -> usize {
        usize::from(matches!(self, Self::SnapshotPoint | Self::Gtids))
    }
}

/// Set of a query's answer with the rows of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    /// Index of the statement.
    pub(crate) at: usize,
    /// Rows of one record.
    pub(crate) form: RecordForm,
}

/// Version and log end of a query.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) version: Version,
    /// None where changes are not followed.
    pub(crate) position: Option<Position>,
}

impl ReadPlan {
    pub(crate) fn new(table: &Table, identity: &Identity, rules: EmbeddedRules) -> Self {
        let key = table.read_key();
        let key_columns = key.iter().map(|k| format!("t.{}", quote(&k.name)));
        let served = table.served.iter().map(|served| select(served, "t"));
        let columns: Vec<String> = served.chain(key_columns).collect();
        let field = |s: &Served| match s.is_tenant {
            false => Field::new(&s.name, s.scalar),
            true => Field::before_object(s.scalar),
        };
        let fields: Vec<Field> = table.served.iter().map(field).collect();
        let record = table.served.iter().filter(|served| !served.is_tenant);
        let collation =
            |k: &KeyColumn| table.columns.get(k.position).and_then(|c| c.collation.clone());
        Self {
            table: table.read_name().sql(),
            hint: match table.view {
                Some(_) => String::new(),
                None => format!(" FORCE INDEX ({})", quote(&table.index)),
            },
            columns: columns.join(", "),
            embedding: Embedding::new(&fields, key.len(), &table.embedded),
            fields,
            schemas: record
                .map(Served::schema)
                .chain(table.embedded.iter().map(Embedded::schema))
                .collect(),
            key,
            collations: table.key.iter().map(collation).collect(),
            is_split: !table.embedded.is_empty() && !rules.has(EmbeddedRule::OneStatement),
            spelling: table.spelling(),
            flavor: identity.flavor,
            log_end: identity.log_end_sql(),
        }
    }

    /// Returns the form of a query, and the version of a plain one of MySQL.
    pub(crate) fn form(&self, recent: &Recent, keys: &[Key]) -> (Form, Option<Arc<GtidSet>>) {
        match self.flavor {
            Flavor::MySql => match recent.plain_read_gtids(keys) {
                Some(set) => (Form::Visible, Some(set)),
                None => (Form::Gtids, None),
            },
            Flavor::MariaDb => match recent.plain_read_point(keys) {
                Some(from) => (Form::Plain { from }, None),
                None => (Form::SnapshotPoint, None),
            },
        }
    }

    /// Returns where the answer to [`Self::sql`] has records.
    pub(crate) fn records(&self, form: Form) -> Records {
        let rows = if self.embedding.is_none() { RecordForm::Row } else { RecordForm::Rows };
        Records { at: form.rows_at(), form: rows }
    }

    /// Returns the statements of one query, sent together.
    pub(crate) fn sql(&self, keys: &[Key], form: Form) -> String {
        let mut select = self.select(keys);
        if self.is_split {
            select = embedded::split(&select);
        }
        let end = self.log_end;
        match form {
            // The end after the row, because it must include the changes that the row reflects.
            Form::Plain { .. } | Form::Visible => format!("{select}; {end}"),
            // Before the row, and not in a snapshot with a point of its own. The server keeps these
            // values in variables that all sessions fill, so a concurrent session's query may
            // answer this one. Its point was visible by then, and thus is visible to a later read,
            // but perhaps not in an earlier snapshot.
            Form::SnapshotPoint => {
                format!("{}; {select}; {end}", Flavor::MariaDb.visible_sql())
            }
            Form::Gtids => format!("{}; {select}; {end}", Flavor::MySql.visible_sql()),
            Form::Rows => select,
        }
    }

    fn select(&self, keys: &[Key]) -> String {
        // Without the query cache of MariaDB, which may return outdated rows.
        let no_cache = if self.flavor == Flavor::MariaDb { "SQL_NO_CACHE " } else { "" };
        let columns = &self.columns;
        let table = &self.table;
        let hint = &self.hint;
        if let Some(embedding) = &self.embedding {
            let keys_table = self.keys_table(keys);
            let own = OwnTable { table, hint, columns, keys_table, is_key_of: self.is_key_of() };
            return embedding.select(no_cache, own, keys);
        }
        // With several spellings, each row must identify the key that found it.
        if self.spelling == Spelling::Many && keys.len() > 1 {
            let keys_table = self.keys_table(keys);
            let on = self.is_key_of();
            return match keys_table.is_empty() {
                true => format!("SELECT {no_cache}0, {columns} FROM {table} AS t WHERE 1 = 0"),
                false => format!(
                    "SELECT {no_cache}a.i, {columns} FROM ({keys_table}) AS a \
                     STRAIGHT_JOIN {table} AS t{hint} ON {on}"
                ),
            };
        }
        format!(
            "SELECT {no_cache}0, {columns} FROM {table} AS t{hint} WHERE {}",
            condition("t", &self.key, keys)
        )
    }

    /// Returns the condition that a row has the key of a row of [`Self::keys_table`].
    fn is_key_of(&self) -> String {
        let is_part = |(i, k): (usize, &KeyColumn)| format!("t.{} = a.k{i}", quote(&k.name));
        let parts: Vec<String> = self.key.iter().enumerate().map(is_part).collect();
        parts.join(" AND ")
    }

    /// Returns the keys as a numbered derived table, in the columns' own collations so that the
    /// index applies.
    fn keys_table(&self, keys: &[Key]) -> String {
        let mut sql = String::new();
        for (i, key) in keys.iter().enumerate() {
            let start = sql.len();
            let (union, name) = if start == 0 { ("", " AS i") } else { (" UNION ALL ", "") };
            _ = write!(sql, "{union}SELECT {i}{name}");
            let mut possible = true;
            for (n, ((column, part), collation)) in
                self.key.iter().zip(key.parts()).zip(&self.collations).enumerate()
            {
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

    /// Parses the answer of [`Self::sql`]: the rows in the order of `keys`, and their version.
    ///
    /// # Errors
    /// [`JsonError::Shape`] if the table has changed or the server's answer has an unexpected form.
    pub(crate) async fn answer(
        &self,
        mut sets: Vec<Set>,
        keys: &[Key],
        schema: &KeySchema,
        form: Form,
        incarnation: u64,
        room: Room,
    ) -> Result<(Vec<Row>, Observed), JsonError> {
        if self.is_split {
            embedded::unsplit(&mut sets, form.rows_at())?;
        }
        let observed = observed(&sets, form, incarnation).ok_or(JsonError::Shape)?;
        let (columns, found) =
            sets.get_mut(form.rows_at()).map(std::mem::take).ok_or(JsonError::Shape)?;
        if let Some(embedding) = &self.embedding {
            let rows = embedding.rows(columns.as_deref(), &found, keys, room).await?;
            return Ok((rows, observed));
        }
        let columns = columns.as_deref().and_then(|c| c.get(1..)).ok_or(JsonError::Shape)?;
        if columns.len() != self.fields.len() + self.key.len()
            || !self.fields.iter().zip(columns).all(|(field, column)| field.fits(column))
        {
            return Err(JsonError::Shape);
        }
        let rows = match self.spelling {
            Spelling::One => self.by_key(found, room, keys, schema).await?,
            Spelling::Many => self.by_spelling(found, room, keys, schema).await?,
        };
        Ok((rows, observed))
    }

    async fn by_key(
        &self,
        found: Vec<DatabaseRow>,
        room: Room,
        keys: &[Key],
        schema: &KeySchema,
    ) -> Result<Vec<Row>, JsonError> {
        let mut rows = vec![Row::Missing; keys.len()];
        let row_index = hotrow_source::row_index::RowIndex::new(keys);
        let mut pace = Pace::default();
        // By value, so that only one row at a time exists in both forms.
        for row in found {
            if let LogKey::Key(key) = self.key_of(&row, schema)?
                && let Some(index) = row_index.of(&key)
            {
                rows[index] = self.record(&row)?;
                pace.wrote(rows[index].bytes()).await;
            }
        }
        mark_unread(&mut rows, &Row::Missing, room);
        row_index.spread(&mut rows);
        Ok(rows)
    }

    /// Absence is not cached either: a row with another spelling may appear.
    async fn by_spelling(
        &self,
        found: Vec<DatabaseRow>,
        room: Room,
        keys: &[Key],
        schema: &KeySchema,
    ) -> Result<Vec<Row>, JsonError> {
        let mut rows = vec![Row::Uncacheable(None); keys.len()];
        let mut pace = Pace::default();
        for row in found {
            let number = number(&row, 0)?;
            let (key, slot) = keys.get(number).zip(rows.get_mut(number)).ok_or(JsonError::Shape)?;
            let same = self.key_of(&row, schema)? == LogKey::Key(key.clone());
            *slot = match self.record(&row)? {
                Row::Found(body) if !same => Row::Uncacheable(Some(body)),
                row => row,
            };
            pace.wrote(slot.bytes()).await;
        }
        mark_unread(&mut rows, &Row::Uncacheable(None), room);
        Ok(rows)
    }

    fn key_of(&self, row: &DatabaseRow, schema: &KeySchema) -> Result<LogKey, JsonError> {
        let values = (0..self.key.len())
            .map(|i| row.as_ref(1 + self.fields.len() + i).ok_or(JsonError::Shape));
        let values: Vec<&Value> = values.collect::<Result<_, _>>()?;
        match keys::of_answer(&self.key, schema, &values) {
            LogKey::Mismatch => Err(JsonError::Shape),
            key => Ok(key),
        }
    }

    fn record(&self, row: &DatabaseRow) -> Result<Row, JsonError> {
        into_row(json::object(&self.fields, |i| value(row, 1 + i)))
    }
}

/// Returns the version and the log's end by the sets of an answer; of the one with records, only
/// its place matters.
pub(crate) fn observed(sets: &[Set], form: Form, incarnation: u64) -> Option<Observed> {
    let position = |at| Position { incarnation, at };
    let end_of = |set: &Set| {
        let row = set.1.first()?;
        Some(position(log_point(row.as_ref(0)?, row.as_ref(1)?)?))
    };
    let (version, position) = match (form, sets) {
        (Form::Rows, _) => return Some(Observed { version: Version::Unknown, position: None }),
        (Form::Plain { from }, [_, end]) => {
            let end = end_of(end)?;
            (Version::Span { from: position(from), to: end }, end)
        }
        // The caller has the version.
        (Form::Visible, [_, end]) => (Version::Unknown, end_of(end)?),
        (Form::SnapshotPoint, [status, _, end]) => {
            let of: HashMap<String, Value> = status
                .1
                .iter()
                .filter_map(|row| {
                    Some((text_of(row.as_ref(0)?)?.to_lowercase(), row.as_ref(1)?.clone()))
                })
                .collect();
            let at =
                log_point(of.get("binlog_snapshot_file")?, of.get("binlog_snapshot_position")?)?;
            let end = end_of(end)?;
            // Two sessions' files and offsets may be mixed. The version is unknown then.
            let from = position(at);
            (
                if end.reaches(&from) { Version::Span { from, to: end } } else { Version::Unknown },
                end,
            )
        }
        (Form::Gtids, [before, _, end]) => {
            let set = GtidSet::parse(text_of(before.1.first()?.as_ref(0)?)?).ok()?;
            (Version::Gtids(Arc::new(set)), end_of(end)?)
        }
        _ => return None,
    };
    Some(Observed { version, position: Some(position) })
}

fn log_point(file: &Value, offset: &Value) -> Option<u64> {
    let Value::Bytes(file) = file else { return None };
    Some(LogPosition::new(file, text_of(offset)?.parse().ok()?)?.point())
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
