//! Decoder of the messages of PostgreSQL's `pgoutput` plugin, protocol version 1. Pure: bytes in,
//! values out.
//!
//! Source of the layouts: PostgreSQL documentation, "Logical Replication Message Formats". Any
//! input gives a message or a [`DecodeError`]. Nothing is allocated; all values borrow from the
//! message.

mod cursor;
mod tuple;

use self::cursor::Cursor;
pub use self::cursor::DecodeError;
pub use self::tuple::{Tuple, Value, Values};

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A transaction begins; its rows follow.
    Begin {
        /// Position at which the record of its commit begins.
        final_lsn: u64,
        /// Its number, without the epoch.
        xid: u32,
    },
    /// The transaction is complete.
    Commit {
        /// Position at which the record of its commit ends.
        end_lsn: u64,
    },
    /// The transaction was replicated from another server.
    Origin,
    /// Describes a table before its first row, and again after its shape changed.
    Relation(Relation<'a>),
    /// Names a type that is not built in.
    Type,
    /// A new row.
    Insert {
        /// The table's oid.
        relation: u32,
        /// The row.
        new: Tuple<'a>,
    },
    /// A changed row.
    Update {
        /// The table's oid.
        relation: u32,
        /// The row before, if sent.
        old: Option<Old<'a>>,
        /// The row after.
        new: Tuple<'a>,
    },
    /// A deleted row.
    Delete {
        /// The table's oid.
        relation: u32,
        /// The row before.
        old: Old<'a>,
    },
    /// Emptied tables.
    Truncate(Oids<'a>),
    /// `pg_logical_emit_message`; sent only on request.
    Logical,
}

/// A table's shape at the time of the rows that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation<'a> {
    /// The table's oid.
    pub oid: u32,
    /// Its schema; empty for `pg_catalog`.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// `d` primary key, `n` nothing, `f` full row, `i` index.
    pub identity: u8,
    columns: &'a [u8],
    count: u16,
}

/// A column of a [`Relation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// Part of the replica identity.
    pub is_key: bool,
    /// Its name.
    pub name: &'a str,
    /// Its type's oid.
    pub type_oid: u32,
    /// Its type's modifier, -1 for none.
    pub modifier: i32,
}

/// A row before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old<'a> {
    /// Only the columns of the replica identity; the others read as null.
    Key(Tuple<'a>),
    /// The whole row (`REPLICA IDENTITY FULL`).
    Full(Tuple<'a>),
}

impl<'a> Old<'a> {
    /// Returns the columns.
    pub fn tuple(&self) -> Tuple<'a> {
        match self {
            Self::Key(tuple) | Self::Full(tuple) => *tuple,
        }
    }
}

/// A list of OIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oids<'a>(&'a [u8]);

impl Oids<'_> {
    /// Returns an iterator over the OIDs.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.as_chunks::<4>().0.iter().map(|oid| u32::from_be_bytes(*oid))
    }
}

impl<'a> Relation<'a> {
    /// Returns the columns in the order of the rows that follow.
    pub fn columns(&self) -> impl Iterator<Item = Column<'a>> {
        let mut rest = Cursor::new(self.columns);
        // Validated when the message was decoded, so none fails here.
        (0..self.count).map_while(move |_| column(&mut rest).ok())
    }
}

impl<'a> Message<'a> {
    /// Decodes one whole message.
    ///
    /// # Errors
    /// The bytes are not a message of protocol version 1.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut input = Cursor::new(bytes);
        let kind = input.u8("the kind of the message")?;
        let message = match kind {
            b'B' => begin(&mut input)?,
            b'C' => commit(&mut input)?,
            b'O' => {
                input.u64("the origin's position")?;
                input.text("the origin's name")?;
                Self::Origin
            }
            b'R' => Self::Relation(relation(&mut input)?),
            b'Y' => {
                input.u32("the type's oid")?;
                input.text("the type's schema")?;
                input.text("the type's name")?;
                Self::Type
            }
            b'I' => {
                let relation = input.u32("the table's oid")?;
                input.expect(b'N', "the row")?;
                Self::Insert { relation, new: Tuple::read(&mut input)? }
            }
            b'U' => update(&mut input)?,
            b'D' => {
                let relation = input.u32("the table's oid")?;
                let kind = input.u8("the deleted row's kind")?;
                Self::Delete { relation, old: old(kind, &mut input)? }
            }
            b'T' => truncate(&mut input)?,
            b'M' => logical(&mut input)?,
            kind => return Err(DecodeError::Kind { what: "the message's kind", kind }),
        };
        input.end()?;
        Ok(message)
    }
}

/// Returns the table of a row's message, even if the message is cut off after its head.
pub fn relation_of_row(bytes: &[u8]) -> Option<u32> {
    let (kind, rest) = bytes.split_first()?;
    let oid = rest.first_chunk::<4>()?;
    matches!(kind, b'I' | b'U' | b'D').then(|| u32::from_be_bytes(*oid))
}

fn begin<'a>(input: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let final_lsn = input.u64("the commit's position")?;
    input.u64("the commit's time")?;
    Ok(Message::Begin { final_lsn, xid: input.u32("the transaction's number")? })
}

fn commit<'a>(input: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    input.u8("the commit's flags")?;
    input.u64("the commit's position")?;
    let end_lsn = input.u64("the commit's end")?;
    input.u64("the commit's time")?;
    Ok(Message::Commit { end_lsn })
}

fn relation<'a>(input: &mut Cursor<'a>) -> Result<Relation<'a>, DecodeError> {
    let oid = input.u32("the table's oid")?;
    let namespace = input.text("the table's schema")?;
    let name = input.text("the table's name")?;
    let identity = input.u8("the replica identity")?;
    let count = input.u16("the number of columns")?;
    let columns = input.rest();
    for _ in 0..count {
        column(input)?;
    }
    Ok(Relation { oid, namespace, name, identity, columns, count })
}

fn column<'a>(input: &mut Cursor<'a>) -> Result<Column<'a>, DecodeError> {
    Ok(Column {
        is_key: input.u8("the column's flags")? & 1 != 0,
        name: input.text("the column's name")?,
        type_oid: input.u32("the column's type")?,
        modifier: input.u32("the column's type modifier")?.cast_signed(),
    })
}

fn update<'a>(input: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let relation = input.u32("the table's oid")?;
    let kind = input.u8("the row's kind")?;
    let old = if kind == b'N' {
        None
    } else {
        let old = old(kind, input)?;
        input.expect(b'N', "the new row")?;
        Some(old)
    };
    Ok(Message::Update { relation, old, new: Tuple::read(input)? })
}

fn old<'a>(kind: u8, input: &mut Cursor<'a>) -> Result<Old<'a>, DecodeError> {
    match kind {
        b'K' => Ok(Old::Key(Tuple::read(input)?)),
        b'O' => Ok(Old::Full(Tuple::read(input)?)),
        kind => Err(DecodeError::Kind { what: "the old row's kind", kind }),
    }
}

fn truncate<'a>(input: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let count = input.length("the number of emptied tables")?;
    input.u8("the options of the TRUNCATE")?;
    let bytes = count.checked_mul(4).ok_or(DecodeError::Short("the emptied tables"))?;
    Ok(Message::Truncate(Oids(input.take(bytes, "the emptied tables")?)))
}

fn logical<'a>(input: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    input.u8("the message's flags")?;
    input.u64("the message's position")?;
    input.text("the message's prefix")?;
    let bytes = input.length("the message's length")?;
    input.take(bytes, "the message's content")?;
    Ok(Message::Logical)
}

/// Entry point of the fuzz target and of its short form in the tests. Not in ordinary builds.
#[cfg(any(test, fuzzing))]
pub mod fuzzing {
    use crate::pgoutput::{Message, Tuple, relation_of_row};

    /// Decodes a message and reads each of its parts, as the feed does.
    ///
    /// # Panics
    /// The message contradicts itself.
    pub fn walk(bytes: &[u8]) {
        let values = |tuple: Tuple<'_>| assert_eq!(tuple.values().count(), tuple.count());
        assert!(relation_of_row(bytes).is_none() || bytes.len() >= 5);
        match Message::decode(bytes) {
            Ok(Message::Relation(relation)) => {
                assert_eq!(relation.columns().count(), usize::from(relation.count))
            }
            Ok(Message::Insert { new, .. }) => values(new),
            Ok(Message::Update { old, new, .. }) => {
                values(new);
                old.iter().for_each(|old| values(old.tuple()));
            }
            Ok(Message::Delete { old, .. }) => values(old.tuple()),
            Ok(Message::Truncate(oids)) => assert!(oids.iter().count() <= bytes.len()),
            Ok(_) => {}
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
}

#[cfg(test)]
mod tests;
