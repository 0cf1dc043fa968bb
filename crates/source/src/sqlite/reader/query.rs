//! One query: binding keys, stepping through rows.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_cache::key::{CollectionId, Key, KeyPart};
use hotrow_cache::version::{Position, Version};
use rusqlite::{Connection, Statement, Transaction, TransactionBehavior};

use super::Answer;
use crate::sqlite::json::{self, BODY_BYTES_MAX};
use crate::sqlite::plan::{LEADING, SIZE_MAX, SIZES, Statements, size_class};
use crate::sqlite::shared::Plan;
use crate::{ReadError, ReadSet, Row};

/// Statements prepared on one connection for one plan.
pub(super) struct Prepared<'c> {
    conn: &'c Connection,
    by_collection: Vec<[Option<Statement<'c>>; SIZES.len()]>,
}

impl<'c> Prepared<'c> {
    pub(super) fn new(conn: &'c Connection, collections: usize) -> Self {
        Self { conn, by_collection: (0..collections).map(|_| Default::default()).collect() }
    }

    pub(super) fn clear(&mut self) {
        self.by_collection.iter_mut().for_each(|sizes| *sizes = Default::default());
    }

    fn get(&mut self, collection: usize, class: usize, sql: &Statements) -> rusqlite::Result<&mut Statement<'c>> {
        let slot = &mut self.by_collection[collection][class];
        let statement = match slot.take() {
            Some(statement) => statement,
            None => self.conn.prepare(&sql.sql(SIZES[class]))?,
        };
        Ok(slot.insert(statement))
    }
}

/// A read as a query.
pub(super) struct Query<'a> {
    pub(super) collection: CollectionId,
    pub(super) keys: &'a [Key],
    pub(super) queries: &'a AtomicU64,
}

impl Query<'_> {
    /// Reads all keys in one snapshot.
    ///
    /// # Errors
    /// Of the driver. What is wrong with the collection itself is an answer.
    pub(super) fn run(&self, plan: &Plan, prepared: &mut Prepared<'_>) -> rusqlite::Result<Answer> {
        let collection = usize::from(self.collection.0);
        let statements = match plan.collections.get(collection) {
            Some(Ok(statements)) => statements,
            Some(Err(why)) => return Ok(Err(ReadError::Broken { detail: why.clone() })),
            None => return Ok(Err(ReadError::Broken { detail: format!("there is no collection {collection}") })),
        };
        let mut set = ReadSet { version: Version::Unknown, position: None, rows: vec![Row::Missing; self.keys.len()] };
        if self.keys.len() <= SIZE_MAX {
            self.part(self.keys, statements, prepared, &mut set.rows, &mut set.position)?;
        } else {
            // More keys than one statement can name: several in one read transaction see one snapshot too.
            let snapshot = Transaction::new_unchecked(prepared.conn, TransactionBehavior::Deferred)?;
            for (keys, rows) in self.keys.chunks(SIZE_MAX).zip(set.rows.chunks_mut(SIZE_MAX)) {
                self.part(keys, statements, prepared, rows, &mut set.position)?;
            }
            snapshot.finish()?;
        }
        if let Some(position) = set.position {
            set.version = Version::Log(position);
        }
        Ok(Ok(set))
    }

    fn part(
        &self,
        keys: &[Key],
        statements: &Statements,
        prepared: &mut Prepared<'_>,
        answers: &mut [Row],
        position: &mut Option<Position>,
    ) -> rusqlite::Result<()> {
        let class = size_class(keys.len());
        let statement = prepared.get(usize::from(self.collection.0), class, statements)?;
        self.queries.fetch_add(1, Ordering::Relaxed);
        if class > 0 {
            // What is not bound is NULL and matches nothing.
            statement.clear_bindings();
        }
        for (i, key) in keys.iter().enumerate() {
            bind(statement, i * statements.parts + 1, key)?;
        }
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            *position = position_of(row)?;
            let found: bool = row.get(3)?;
            // The statement numbers its keys from 0.
            let index = usize::try_from(row.get::<_, i64>(2)?).unwrap_or(usize::MAX);
            if let (true, Some(answer)) = (found, answers.get_mut(index)) {
                *answer = match json::row(&statements.fields, row, LEADING)? {
                    Ok(json) => Row::Found(json),
                    Err(json::TooLarge) => {
                        Row::Unreadable(format!("{:?} is larger than {BODY_BYTES_MAX} bytes as JSON", keys[index]))
                    }
                };
            }
        }
        Ok(())
    }
}

fn bind(statement: &mut Statement<'_>, first: usize, key: &Key) -> rusqlite::Result<()> {
    for (i, part) in key.parts().enumerate() {
        match part {
            KeyPart::Integer(v) => statement.raw_bind_parameter(first + i, v)?,
            KeyPart::Text(v) => statement.raw_bind_parameter(first + i, v)?,
            KeyPart::Bytes(v) => statement.raw_bind_parameter(first + i, v)?,
        }
    }
    Ok(())
}

fn position_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Position>> {
    let (id, end): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
    Ok(id.zip(end).map(|(id, end)| Position { incarnation: id.cast_unsigned(), at: end.max(0).cast_unsigned() }))
}
