//! One query: binds keys and steps through rows.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_types::key::{CollectionId, Key, KeyPart};
use hotrow_types::version::{Position, Version};
use rusqlite::{Connection, Statement};

use crate::json::{self, BODY_BYTES_MAX};
use crate::plan::{LEADING, SIZE_MAX, SIZES, Statements, size_class};
use crate::queue::Answer;
use crate::shared::Plan;
use hotrow_source::json::{JsonError, with_rows};
use hotrow_source::{ReadSet, Room, Row, RowBudget, SourceError, mark_unread};

/// Statements prepared on one connection for one plan.
pub(super) struct Prepared<'c> {
    conn: &'c Connection,
    by_collection: Vec<[Option<Statement<'c>>; SIZES.len()]>,
    /// Per collection the statements of its children; empty until they are needed.
    children: Vec<Vec<Statement<'c>>>,
}

impl<'c> Prepared<'c> {
    pub(super) fn new(conn: &'c Connection, collections: usize) -> Self {
        Self {
            conn,
            by_collection: (0..collections).map(|_| Default::default()).collect(),
            children: (0..collections).map(|_| Vec::new()).collect(),
        }
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.conn
    }

    pub(super) fn clear(&mut self) {
        self.by_collection.iter_mut().for_each(|sizes| *sizes = Default::default());
        self.children.iter_mut().for_each(Vec::clear);
    }

    /// Returns the statement of the records, and those of their children.
    fn get(
        &mut self,
        collection: usize,
        class: usize,
        sql: &Statements,
    ) -> rusqlite::Result<(&mut Statement<'c>, &mut [Statement<'c>])> {
        let slot = &mut self.by_collection[collection][class];
        let statement = match slot.take() {
            Some(statement) => statement,
            None => self.conn.prepare(&sql.sql(SIZES[class]))?,
        };
        let children = &mut self.children[collection];
        while let Some(next) = sql.children.get(children.len()) {
            children.push(self.conn.prepare(&next.sql)?);
        }
        Ok((slot.insert(statement), children.as_mut_slice()))
    }
}

/// Read of one collection's keys.
pub(super) struct Query<'a> {
    pub(super) collection: CollectionId,
    pub(super) keys: &'a [Key],
    /// Reserved for each row before the row is kept.
    pub(super) budget: &'a RowBudget,
    pub(super) queries: &'a AtomicU64,
}

impl Query<'_> {
    /// Returns whether one statement can name all keys.
    pub(super) fn is_one_statement(&self) -> bool {
        self.keys.len() <= SIZE_MAX
    }

    /// Reads all keys, in one statement or in a transaction of the caller.
    ///
    /// # Errors
    /// Returns errors of the driver. A problem of the collection itself is an answer.
    pub(super) fn rows(
        &self,
        plan: &Plan,
        prepared: &mut Prepared<'_>,
    ) -> rusqlite::Result<Answer> {
        let collection = usize::from(self.collection.0);
        let statements = match plan.collections.get(collection) {
            Some(Ok(statements)) => statements,
            Some(Err(why)) => return Ok(Err(SourceError::Broken { detail: why.clone() })),
            None => {
                return Ok(Err(SourceError::Broken {
                    detail: format!("there is no collection {collection}"),
                }));
            }
        };
        let mut set = ReadSet {
            version: Version::Unknown,
            position: None,
            rows: vec![Row::NotRead; self.keys.len()],
        };
        let mut ended = Room::Taken;
        for (keys, rows) in self.keys.chunks(SIZE_MAX).zip(set.rows.chunks_mut(SIZE_MAX)) {
            ended = self.part(keys, statements, prepared, rows, &mut set.position)?;
            if ended != Room::Taken {
                break;
            }
        }
        mark_unread(&mut set.rows, &Row::NotRead, ended);
        if let Some(position) = set.position {
            set.version = Version::Log(position);
        }
        Ok(Ok(set))
    }

    /// Returns whether the statements of the collection can be prepared with the schema of now.
    pub(super) fn fits(&self, plan: &Plan, prepared: &Prepared<'_>) -> bool {
        let Some(Ok(statements)) = plan.collections.get(usize::from(self.collection.0)) else {
            return false;
        };
        let of_children = statements.children.iter().map(|child| child.sql.clone());
        let mut all = std::iter::once(statements.sql(1)).chain(of_children);
        all.all(|sql| prepared.conn.prepare(&sql).is_ok())
    }

    /// Reads keys that fit one statement, and returns the limit that ended the query early, if any.
    /// Keys not reached stay [`Row::NotRead`].
    fn part(
        &self,
        keys: &[Key],
        statements: &Statements,
        prepared: &mut Prepared<'_>,
        answers: &mut [Row],
        position: &mut Option<Position>,
    ) -> rusqlite::Result<Room> {
        let class = size_class(keys.len());
        let (statement, of_children) =
            prepared.get(usize::from(self.collection.0), class, statements)?;
        self.queries.fetch_add(1, Ordering::Relaxed);
        if class > 0 {
            // Unbound parameters are NULL and match nothing.
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
            let Some(answer) = answers.get_mut(index) else { continue };
            if !found {
                *answer = Row::Missing;
                continue;
            }
            // The children are in the snapshot of the record: a statement that is not at its end
            // keeps the read transaction of its connection.
            let record = match json::row(&statements.fields, row, LEADING) {
                Ok(record) => add_children(record, &keys[index], statements, of_children)?,
                Err(error) => Err(error),
            };
            *answer = match record {
                Ok(json) => match self.budget.take(json.len()) {
                    Room::Taken => Row::Found(json),
                    ended @ (Room::QueryFull | Room::NoRoom) => return Ok(ended),
                },
                Err(JsonError::TooLarge) => Row::Unreadable(format!(
                    "{:?} is larger than {BODY_BYTES_MAX} bytes as JSON",
                    keys[index]
                )),
                Err(JsonError::NoMemory) => return Ok(Room::NoRoom),
                Err(JsonError::Shape) => return Err(rusqlite::Error::InvalidColumnIndex(LEADING)),
            };
        }
        Ok(Room::Taken)
    }
}

/// Appends the children to a record. The inner error is one of the record alone.
fn add_children(
    mut record: Vec<u8>,
    key: &Key,
    statements: &Statements,
    of_children: &mut [Statement<'_>],
) -> rusqlite::Result<Result<Vec<u8>, JsonError>> {
    for (children, statement) in statements.children.iter().zip(of_children) {
        bind(statement, 1, key)?;
        let mut rows = statement.raw_query();
        let mut failed = None;
        let written = with_rows(&mut record, &children.label, || match rows.next() {
            Ok(row) => row.map(|row| json::row(&children.fields, row, 0)).transpose(),
            Err(error) => {
                failed = Some(error);
                Ok(None)
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if let Err(error) = written {
            return Ok(Err(error));
        }
    }
    record.shrink_to_fit();
    Ok(Ok(record))
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
    let id: Option<i64> = row.get(0)?;
    let end: Option<i64> = row.get(1)?;
    Ok(id.zip(end).map(|(id, end)| Position {
        incarnation: id.cast_unsigned(),
        at: end.max(0).cast_unsigned(),
    }))
}
