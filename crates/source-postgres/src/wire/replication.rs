//! Commands and stream of a replication session.

use std::fmt;
use std::str::FromStr;

use bytes::{BufMut, Bytes, BytesMut};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::error::{ServerError, WireError};
use super::{Frame, Wire};
use crate::config::KeptSlot;

/// A position in the write-ahead log, written as `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lsn(pub(crate) u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl FromStr for Lsn {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let half = |text: &str| u32::from_str_radix(text, 16).ok().map(u64::from);
        let parts =
            text.split_once('/').and_then(|(high, low)| Some(half(high)? << 32 | half(low)?));
        parts
            .map(Self)
            .ok_or_else(|| WireError::Protocol(format!("`{text}` is not a position of the log")))
    }
}

/// Result of `IDENTIFY_SYSTEM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct System {
    /// Identifier of a cluster, set by initdb and shared by its replicas.
    pub(crate) identifier: u64,
    /// Timeline of that cluster.
    pub(crate) timeline: u32,
}

/// One message of the stream.
#[derive(Debug)]
pub(crate) enum Streamed {
    /// A message of the plugin.
    Data {
        bytes: Bytes,
        /// `bytes` is only the beginning.
        is_cut: bool,
    },
    /// Everything before this position has been sent.
    KeepAlive { wal_end: Lsn, wants_reply: ReplyWanted },
}

/// Request for an answer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyWanted {
    Yes,
    No,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) async fn identify_system(&mut self, deadline: Instant) -> Result<System, WireError> {
        let rows = self.query("IDENTIFY_SYSTEM", deadline, "IDENTIFY_SYSTEM").await?;
        let row = rows
            .first()
            .ok_or_else(|| WireError::Protocol("IDENTIFY_SYSTEM without an answer".to_owned()))?;
        let wrong = |what: &str| WireError::Protocol(format!("IDENTIFY_SYSTEM without {what}"));
        Ok(System {
            identifier: row.text(0)?.parse().map_err(|_| wrong("a system identifier"))?,
            timeline: row.text(1)?.parse().map_err(|_| wrong("a timeline"))?,
        })
    }

    /// Creates a slot and returns the position from which it sees every commit. Waits for the
    /// running transactions.
    pub(crate) async fn create_slot(
        &mut self,
        name: &SlotName,
        deadline: Instant,
    ) -> Result<Lsn, WireError> {
        let sql = name.creation();
        let rows = self.query(&sql, deadline, "CREATE_REPLICATION_SLOT").await?;
        let row = rows.first().ok_or_else(|| {
            WireError::Protocol("no answer to CREATE_REPLICATION_SLOT".to_owned())
        })?;
        row.text(1)?.parse()
    }

    /// Starts the stream of the changes of the tables in `publication`.
    pub(crate) async fn start_replication(
        &mut self,
        slot: &SlotName,
        publication: &str,
        deadline: Instant,
    ) -> Result<(), WireError> {
        let publication = quote_literal(&quote_identifier(publication));
        let sql = format!(
            "START_REPLICATION SLOT \"{slot}\" LOGICAL 0/0 (proto_version '1', \
             publication_names {publication})"
        );
        self.send(deadline, |out| frontend::query(&sql, out)).await?;
        match self.answer(deadline, "START_REPLICATION").await {
            Ok(frame) if frame.tag == b'W' => Ok(()),
            Ok(Frame { tag, .. }) => {
                Err(WireError::Protocol(format!("`{}` instead of a stream", tag.escape_ascii())))
            }
            Err(refused @ WireError::Server(_)) => {
                // The session can be used again once the server says so.
                while self.answer(deadline, "START_REPLICATION").await?.tag != b'Z' {}
                Err(refused)
            }
            Err(e) => Err(e),
        }
    }

    /// Reports that everything before `at` is processed and need not be kept.
    pub(crate) async fn confirm(
        &mut self,
        at: Lsn,
        reply: ReplyWanted,
        deadline: Instant,
    ) -> Result<(), WireError> {
        self.send(deadline, |out| {
            status(at, reply, out);
            Ok(())
        })
        .await
    }
}

/// Writes a standby status update, wrapped as copied data. Its time is for display only and left at
/// zero.
fn status(at: Lsn, reply: ReplyWanted, out: &mut BytesMut) {
    const BODY_BYTES: u32 = 1 + 4 * 8 + 1;
    out.put_u8(b'd');
    out.put_u32(4 + BODY_BYTES);
    out.put_u8(b'r');
    for _written_flushed_applied in 0..3 {
        out.put_u64(at.0);
    }
    out.put_u64(0);
    out.put_u8(u8::from(reply == ReplyWanted::Yes));
}

impl Streamed {
    /// Parses one message of a stream; `None` for kinds that are ignored.
    pub(crate) fn parse(frame: &Frame) -> Result<Option<Self>, WireError> {
        match frame.tag {
            b'd' => {}
            b'E' => return Err(WireError::Server(Box::new(ServerError::parse(&frame.body)))),
            // The server ends the stream when it shuts down.
            b'c' | b'C' => return Err(WireError::Closed),
            b'N' | b'S' | b'A' => return Ok(None),
            tag => {
                return Err(WireError::Protocol(format!(
                    "`{}` within a stream",
                    tag.escape_ascii()
                )));
            }
        }
        match frame.body.split_first() {
            // Start, end and time of the data come first; they have no meaning of their own in a
            // logical stream.
            Some((b'w', rest)) if rest.len() >= 24 => {
                Ok(Some(Self::Data { bytes: frame.body.slice(25..), is_cut: frame.is_cut }))
            }
            Some((b'k', rest)) => match (rest.first_chunk::<8>(), rest.get(16)) {
                (Some(wal_end), Some(wants)) => Ok(Some(Self::KeepAlive {
                    wal_end: Lsn(u64::from_be_bytes(*wal_end)),
                    wants_reply: if *wants == 0 { ReplyWanted::No } else { ReplyWanted::Yes },
                })),
                _ => Err(WireError::Protocol("a keep-alive ends too early".to_owned())),
            },
            _ => Err(WireError::Protocol("copied data of an unknown kind".to_owned())),
        }
    }
}

/// Name and kind of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotName {
    /// Lives as long as its session. The number is unique among all instances that share the
    /// server.
    Temporary(u64),
    /// Outlives its sessions.
    Kept(KeptSlot),
}

impl SlotName {
    /// Returns the command that creates the slot. The form with parentheses exists since PostgreSQL
    /// 15.
    fn creation(&self) -> String {
        let (kind, options) = match self {
            Self::Temporary(_) => ("TEMPORARY ", "NOEXPORT_SNAPSHOT"),
            Self::Kept(slot) if slot.has_failover => ("", "(SNAPSHOT 'nothing', FAILOVER true)"),
            Self::Kept(_) => ("", "NOEXPORT_SNAPSHOT"),
        };
        format!("CREATE_REPLICATION_SLOT \"{self}\" {kind}LOGICAL pgoutput {options}")
    }
}

impl fmt::Display for SlotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Temporary(random) => write!(f, "hotrow_{random:016x}"),
            Self::Kept(slot) => f.write_str(&slot.name),
        }
    }
}

/// Returns a quoted identifier for SQL.
pub(crate) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns a quoted text for SQL. Backslashes are data: `standard_conforming_strings` is the
/// default since 9.1, and replication commands have no other syntax.
pub(crate) fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
