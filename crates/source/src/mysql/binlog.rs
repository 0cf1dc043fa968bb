//! Events of the binary log, as far as a feed needs them: pure functions from bytes, which never panic.
//!
//! The driver takes the header and the checksum off; what is here reads the rest. Rows are read only as far as their key
//! columns. Source: MariaDB Knowledge Base, "Replication Protocol"; MySQL's "Replication Event" classes
//! (mysql::binlog::event), whose numbers both share up to 0x26.

mod cursor;
pub(crate) mod rows;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use hotrow_cache::version::Gtid;

use self::cursor::Cursor;
use self::rows::Rows;
use self::table::TableMap;

/// A rows event of this table carries no rows; it only ends a statement.
const NO_TABLE: u64 = 0xff_ffff;
/// Longest global and branch part of a transaction's name (XIDDATASIZE of the XA specification).
const XA_DATA_BYTES_MAX: usize = 128;

/// Types of events, where both dialects agree or only one has it.
mod kind {
    pub(super) const QUERY: u8 = 2;
    pub(super) const STOP: u8 = 3;
    pub(super) const ROTATE: u8 = 4;
    pub(super) const XID: u8 = 16;
    pub(super) const EXECUTE_LOAD_QUERY: u8 = 18;
    pub(super) const TABLE_MAP: u8 = 19;
    pub(super) const INCIDENT: u8 = 26;
    pub(super) const HEARTBEAT: u8 = 27;
    pub(super) const GTID: u8 = 33;
    pub(super) const ANONYMOUS_GTID: u8 = 34;
    pub(super) const XA_PREPARE: u8 = 38;
    pub(super) const TRANSACTION_PAYLOAD: u8 = 40;
    pub(super) const GTID_TAGGED: u8 = 42;
    pub(super) const MARIADB_GTID: u8 = 162;
    pub(super) const MARIADB_QUERY_COMPRESSED: u8 = 165;
}

/// What both dialects call a transaction's global name: MariaDB's XA form and MySQL's are one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Xid {
    format: u32,
    global: Vec<u8>,
    branch: Vec<u8>,
}

/// One event.
#[derive(Debug, PartialEq)]
pub(crate) enum Event<'a> {
    /// Another file begins.
    Rotate {
        /// Its name.
        file: &'a [u8],
        /// The first position there.
        at: u64,
    },
    /// A group begins (MariaDB).
    MariaGtid(Begin),
    /// A group begins (MySQL).
    Gtid(Gtid),
    /// A group begins that has no number (MySQL with `gtid_mode=OFF`).
    AnonymousGtid,
    /// A statement, also BEGIN, COMMIT and the like.
    Query(Query<'a>),
    /// A statement that cannot be read, or whose data is elsewhere.
    OpaqueQuery,
    /// COMMIT of a transaction.
    Commit,
    /// XA PREPARE, or XA COMMIT … ONE PHASE.
    Prepare {
        /// Which transaction.
        xid: Xid,
        /// Whether it is committed with this.
        is_one_phase: bool,
    },
    /// A table that rows follow for.
    Table(TableMap<'a>),
    /// Rows.
    Rows(Rows<'a>),
    /// A statement ends, without rows.
    StatementEnd,
    /// A whole transaction, compressed; its events follow (MySQL).
    Payload,
    /// Nothing happened for a while.
    Heartbeat,
    /// The server says that its log lacks something.
    Incident,
    /// The file ends because the server stops.
    Stop,
    /// Nothing that matters to the feed.
    Other,
}

/// How a group of MariaDB begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// A transaction: it ends with a commit, a rollback or XA PREPARE.
    Transaction,
    /// One statement: DDL, XA COMMIT or XA ROLLBACK.
    Standalone,
}

/// A statement in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query<'a> {
    /// The session's database.
    pub(crate) database: &'a [u8],
    /// The text, in the session's character set.
    pub(crate) text: &'a [u8],
}

/// Why bytes are no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// They end too early.
    #[error("an event ends before its {0}")]
    Short(&'static str),
    /// Rows that are compressed or not whole.
    #[error("rows are compressed or not whole")]
    Unreadable,
    /// Something has a value that it cannot have.
    #[error("an event's {what} is {value}")]
    Value {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: u64,
    },
}

impl<'a> Event<'a> {
    /// Reads an event: `kind` and `data` as the driver gives them. The GTIDs of MySQL are read by the driver, see
    /// [`Event::is_mysql_gtid`].
    ///
    /// # Errors
    /// When it is not what its type promises.
    pub(crate) fn decode(kind: u8, data: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(data);
        let cursor = &mut cursor;
        Ok(match kind {
            kind::QUERY => Self::Query(query(cursor)?),
            kind::STOP => Self::Stop,
            kind::ROTATE => Self::Rotate { at: cursor.u64("position")?, file: cursor.rest() },
            kind::XID => Self::Commit,
            kind::TABLE_MAP => Self::Table(TableMap::decode(cursor)?),
            kind::INCIDENT => Self::Incident,
            kind::HEARTBEAT => Self::Heartbeat,
            kind::ANONYMOUS_GTID => Self::AnonymousGtid,
            kind::XA_PREPARE => {
                let is_one_phase = cursor.u8("phase")? != 0;
                let format = cursor.u32("XA format")?;
                let (global, branch) = (cursor.u32("XA name")?, cursor.u32("XA branch")?);
                Self::Prepare { xid: xid(cursor, format, global, branch)?, is_one_phase }
            }
            kind::TRANSACTION_PAYLOAD => Self::Payload,
            kind::MARIADB_GTID => Self::MariaGtid(begin(cursor)?),
            kind::EXECUTE_LOAD_QUERY | kind::MARIADB_QUERY_COMPRESSED => Self::OpaqueQuery,
            _ => match rows::Layout::of(kind) {
                Some(layout) => rows::decode(cursor, layout)?,
                None => Self::Other,
            },
        })
    }

    /// Whether events of this type are MySQL's numbers of transactions.
    pub(crate) fn is_mysql_gtid(kind: u8) -> bool {
        matches!(kind, kind::GTID | kind::GTID_TAGGED)
    }
}

fn query<'a>(cursor: &mut Cursor<'a>) -> Result<Query<'a>, DecodeError> {
    cursor.take(8, "thread and time")?;
    let database_bytes = cursor.u8("database")?;
    cursor.u16("error code")?;
    let status_bytes = cursor.u16("status variables")?;
    cursor.take(usize::from(status_bytes), "status variables")?;
    let database = cursor.take(usize::from(database_bytes), "database")?;
    cursor.u8("database's end")?;
    Ok(Query { database, text: cursor.rest() })
}

/// Source: MariaDB Knowledge Base, "GTID_EVENT": sequence, domain, flags, then what the flags say.
fn begin(cursor: &mut Cursor<'_>) -> Result<Begin, DecodeError> {
    const STANDALONE: u8 = 1;
    const COMPLETED_XA: u8 = 128;
    cursor.take(12, "sequence and domain")?;
    Ok(match cursor.u8("flags")? {
        flags if flags & (STANDALONE | COMPLETED_XA) != 0 => Begin::Standalone,
        _ => Begin::Transaction,
    })
}

fn xid(cursor: &mut Cursor<'_>, format: u32, global: u32, branch: u32) -> Result<Xid, DecodeError> {
    let total = u64::from(global) + u64::from(branch);
    if total > XA_DATA_BYTES_MAX as u64 {
        return Err(DecodeError::Value { what: "XA name's length", value: total });
    }
    // Both fit: their sum is at most 128.
    let global = cursor.take(global as usize, "XA name")?.to_vec();
    let branch = cursor.take(branch as usize, "XA branch")?.to_vec();
    Ok(Xid { format, global, branch })
}

impl Xid {
    /// Reads `X'6162',X'',1` as the server writes it into its log.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.split(',').map(str::trim);
        let (global, branch, format) = (parts.next()?, parts.next()?, parts.next()?);
        let (global, branch) = (hexadecimal(global)?, hexadecimal(branch)?);
        if parts.next().is_some() || global.len() + branch.len() > XA_DATA_BYTES_MAX {
            return None;
        }
        Some(Self { format: format.parse().ok()?, global, branch })
    }
}

/// `X'6162'`.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("X'").or_else(|| text.strip_prefix("x'"))?.strip_suffix('\'')?;
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let digit = |b: u8| char::from(b).to_digit(16);
    // Two hexadecimal digits fit a byte.
    pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect()
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, global, branch } = self;
        write!(f, "Xid({:?}, {:?}, {format})", String::from_utf8_lossy(global), String::from_utf8_lossy(branch))
    }
}
