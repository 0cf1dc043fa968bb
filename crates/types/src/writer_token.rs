//! Points of a log as the database itself names them to its writers: what a client has that wrote
//! without asking for a position of Hotrow's.
//!
//! | text | database | where a writer has it from |
//! |---|---|---|
//! | `lsn:0/16B3748` | PostgreSQL | `pg_current_wal_insert_lsn()` after COMMIT |
//! | `gtid:0-1-234` | MariaDB | `@@last_gtid` |
//! | `gtid:3e11fa47-…:77` | MySQL | `session_track_gtids` |
//! | `optime:1732000000.3` | MongoDB | `operationTime` of a session: seconds, increment |
//!
//! Those of PostgreSQL and MongoDB name no incarnation of the log.

use std::fmt;

use crate::gtid::{Gtid, GtidSet};

/// A point of a log, or a transaction in it, in the database's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterToken {
    /// Position in PostgreSQL's log.
    Lsn(u64),
    /// Transaction of MariaDB.
    MariaDbGtid {
        /// Replication domain.
        domain: u32,
        /// Server that committed it first.
        server: u32,
        /// Number, which grows within the domain.
        sequence: u64,
    },
    /// Transaction of MySQL.
    MySqlGtid(Gtid),
    /// Time of an operation of MongoDB, as in [`crate::version::Position::at`].
    Optime(u64),
}

/// Error of a text that begins as a token of a database and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a writer's token is lsn:0/16B3748, gtid:0-1-234, gtid:UUID:77 or optime:1732000000.3")]
pub struct WriterTokenError;

impl WriterToken {
    /// Parses a token; `None` for a text that has none of the prefixes.
    pub fn parse(text: &str) -> Option<Result<Self, WriterTokenError>> {
        let (prefix, rest) = text.split_once(':')?;
        let token = match prefix {
            "lsn" => lsn(rest),
            "gtid" => maria_db(rest).or_else(|| my_sql(rest)),
            "optime" => optime(rest),
            _ => return None,
        };
        Some(token.ok_or(WriterTokenError))
    }
}

impl fmt::Display for WriterToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lsn(at) => write!(f, "lsn:{:X}/{:X}", at >> 32, at & 0xffff_ffff),
            Self::MariaDbGtid { domain, server, sequence } => {
                write!(f, "gtid:{domain}-{server}-{sequence}")
            }
            Self::MySqlGtid(gtid) => write!(f, "gtid:{gtid}"),
            Self::Optime(at) => write!(f, "optime:{}.{}", at >> 32, at & 0xffff_ffff),
        }
    }
}

fn lsn(text: &str) -> Option<WriterToken> {
    let (high, low) = text.split_once('/')?;
    let half = |text: &str| {
        let is_hex = (1..=8).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    };
    Some(WriterToken::Lsn(half(high)? << 32 | half(low)?))
}

fn maria_db(text: &str) -> Option<WriterToken> {
    let mut parts = text.split('-');
    let (domain, server) = (number(parts.next()?)?, number(parts.next()?)?);
    let sequence = number(parts.next()?)?;
    parts.next().is_none().then_some(WriterToken::MariaDbGtid { domain, server, sequence })
}

fn my_sql(text: &str) -> Option<WriterToken> {
    GtidSet::parse(text).ok()?.single().map(WriterToken::MySqlGtid)
}

fn optime(text: &str) -> Option<WriterToken> {
    let (seconds, increment) = text.split_once('.')?;
    let (seconds, increment): (u32, u32) = (number(seconds)?, number(increment)?);
    Some(WriterToken::Optime(u64::from(seconds) << 32 | u64::from(increment)))
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_databases_print_them() {
        for text in [
            "lsn:0/16B3748",
            "lsn:FFFFFFFF/FFFFFFFF",
            "gtid:0-1-234",
            "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:77",
            "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:blue:77",
            "optime:1732000000.3",
        ] {
            assert_eq!(WriterToken::parse(text).unwrap().unwrap().to_string(), text);
        }
        for bad in [
            "lsn:",
            "lsn:0",
            "lsn:0/",
            "lsn:0/g",
            "lsn:0/123456789",
            "lsn:+1/2",
            "gtid:",
            "gtid:0-1",
            "gtid:0-1-2-3",
            "gtid:-1-2-3",
            "gtid:4294967296-1-1",
            "gtid:3e11:7",
            "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:77-78",
            "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1:3",
            "optime:1",
            "optime:1.",
            "optime:4294967296.1",
            "optime:1.2.3",
        ] {
            assert_eq!(WriterToken::parse(bad), Some(Err(WriterTokenError)), "{bad}");
        }
        for other in ["", "now", "00000000000000ab-1", "LSN:0/1"] {
            assert_eq!(WriterToken::parse(other), None, "{other}");
        }
    }
}
