//! Decoder of binary log events: pure functions on bytes, which never panic.
//!
//! The driver removes header and checksum. Rows are decoded only as far as needed for their key
//! columns. Source: MariaDB Knowledge Base, "Replication Protocol"; MySQL's "Replication Event"
//! classes (mysql::binlog::event). Both dialects use the same event types up to 0x26.

mod cursor;
pub(crate) mod rows;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use hotrow_types::version::Gtid;

use self::cursor::Cursor;
pub(crate) use self::cursor::DecodeError;
use self::rows::Rows;
use self::table::TableMap;

/// Maximum length of the global and branch parts of a transaction's name (XIDDATASIZE of the XA
/// specification).
const XA_DATA_BYTES_MAX: usize = 128;

/// Event types, common to both dialects or present in only one.
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

/// Type of the event with which a file begins. A stream begins with it too.
pub(crate) const FORMAT_DESCRIPTION: u8 = 15;

/// Returns sequence and domain of the group that an event begins; `None` for other events than
/// MariaDB's GTIDs.
pub(crate) fn mariadb_gtid(kind: u8, data: &[u8]) -> Option<(u64, u32)> {
    let mut cursor = Cursor::new(data);
    let is_gtid = kind == kind::MARIADB_GTID;
    is_gtid.then(|| Some((cursor.u64("sequence").ok()?, cursor.u32("domain").ok()?))).flatten()
}

/// Returns whether an event of this type is the commit of a transaction.
pub(crate) fn is_commit(kind: u8) -> bool {
    kind == kind::XID
}

/// Returns whether an event of this type is a compressed transaction. Its events follow.
pub(crate) fn is_payload(kind: u8) -> bool {
    kind == kind::TRANSACTION_PAYLOAD
}

/// Global name of an XA transaction, in the same form in both dialects.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Xid {
    format: u32,
    global: Vec<u8>,
    branch: Vec<u8>,
}

/// Event of the log.
#[derive(Debug, PartialEq)]
pub(crate) enum Event<'a> {
    /// Start of another file.
    Rotate {
        /// Name of the file.
        file: &'a [u8],
        /// First position in the file.
        at: u64,
    },
    /// Start of a group (MariaDB).
    MariaGtid(Begin),
    /// Start of a group (MySQL).
    Gtid(Gtid),
    /// Start of a group without a number (MySQL with `gtid_mode=OFF`).
    AnonymousGtid,
    /// Statement, including BEGIN, COMMIT and the like.
    Query(Query<'a>),
    /// Statement that cannot be decoded or whose data is elsewhere.
    OpaqueQuery,
    /// Commit of a transaction.
    Commit,
    /// XA PREPARE, or XA COMMIT … ONE PHASE.
    Prepare {
        /// Name of the transaction.
        xid: Xid,
        /// True if it is committed too.
        is_one_phase: bool,
    },
    /// Description of a table before its rows.
    Table(TableMap<'a>),
    /// Rows of a table.
    Rows(Rows<'a>),
    /// End of a statement without rows.
    StatementEnd,
    /// Compressed transaction, whose events follow (MySQL).
    Payload,
    /// Sign of life without an event.
    Heartbeat,
    /// Report of the server that its log lacks changes.
    Incident,
    /// End of the file because the server stops.
    Stop,
    /// Event without relevance to the feed.
    Other,
}

/// Kind of a MariaDB group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Transaction, which ends with a commit, a rollback or XA PREPARE.
    Transaction,
    /// Single statement: DDL, XA COMMIT or XA ROLLBACK.
    Standalone,
}

/// Statement in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query<'a> {
    /// Database of the session.
    pub(crate) database: &'a [u8],
    /// Text in the session's character set.
    pub(crate) text: &'a [u8],
}

impl<'a> Event<'a> {
    /// Decodes an event from the driver's `kind` and `data`. The driver itself decodes MySQL's
    /// GTIDs, see [`Event::is_mysql_gtid`].
    ///
    /// # Errors
    /// Fails if the data does not match the type.
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
                let global = cursor.u32("XA name")?;
                let branch = cursor.u32("XA branch")?;
                Self::Prepare { xid: xid(cursor, format, global, branch)?, is_one_phase }
            }
            kind::TRANSACTION_PAYLOAD => Self::Payload,
            kind::MARIADB_GTID => Self::MariaGtid(begin(cursor)?),
            kind::EXECUTE_LOAD_QUERY | kind::MARIADB_QUERY_COMPRESSED => Self::OpaqueQuery,
            _ => match rows::Layout::of(kind) {
                Some(layout) => {
                    rows::decode(cursor, layout)?.map_or(Self::StatementEnd, Self::Rows)
                }
                None => Self::Other,
            },
        })
    }

    /// Returns true for the event types of MySQL's GTIDs.
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

/// Source: MariaDB Knowledge Base, "GTID_EVENT". The event has a sequence number, a domain, flags,
/// and fields that depend on the flags.
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
    // Both fit, because their sum is at most 128.
    let global = cursor.take(global as usize, "XA name")?.to_vec();
    let branch = cursor.take(branch as usize, "XA branch")?.to_vec();
    Ok(Xid { format, global, branch })
}

impl Xid {
    /// Parses `X'6162',X'',1` as in the server's log.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.split(',').map(str::trim);
        let global = hexadecimal(parts.next()?)?;
        let branch = hexadecimal(parts.next()?)?;
        let format = parts.next()?;
        if parts.next().is_some() || global.len() + branch.len() > XA_DATA_BYTES_MAX {
            return None;
        }
        Some(Self { format: format.parse().ok()?, global, branch })
    }

    /// Creates the name that XA RECOVER lists: the lengths of the two parts, and both in one text.
    pub(crate) fn listed(format: u32, global: usize, branch: usize, data: &[u8]) -> Option<Self> {
        let (name, rest) = data.split_at_checked(global)?;
        (rest.len() == branch).then(|| Self { format, global: name.into(), branch: rest.into() })
    }
}

/// Parses `X'6162'`.
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
        write!(
            f,
            "Xid({:?}, {:?}, {format})",
            String::from_utf8_lossy(global),
            String::from_utf8_lossy(branch)
        )
    }
}
