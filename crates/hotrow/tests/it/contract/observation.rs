//! Observations of the readers: per key of each answer, the times of request and answer, and the
//! result.

use crate::contract::history::Ns;

/// Result for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The row of this version, correct to the last byte; or 304 for the `ETag` of such a body.
    Version(u64),
    /// 404.
    Absent,
    /// 503 or 504: no claim about the record.
    Refused(u16),
    /// Any other answer, which no writer can have caused.
    Invented(Box<str>),
}

/// Value of `Hotrow-Cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Hit,
    Miss,
    Coalesced,
    Stale,
    Bypass,
    /// No such header: the request was refused.
    None,
}

/// Consistency requirement that the request adds to the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    Normal,
    /// `Cache-Control: no-cache`.
    Revalidate,
    /// `Hotrow-Min-Position` with the position of a commit.
    AtLeast(u64),
    /// `Hotrow-Min-Position` with the token of an answer that returned `version` of this key;
    /// `None` after a 404.
    Session {
        token: u64,
        version: Option<u64>,
    },
}

impl ReadMode {
    /// Returns true if the request carries a position.
    pub(crate) fn has_position(self) -> bool {
        matches!(self, Self::AtLeast(_) | Self::Session { .. })
    }
}

/// Parsed `Hotrow-Position`: the log's id and a point in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token {
    pub(crate) log: u64,
    pub(crate) at: u64,
}

impl Token {
    /// Parses the header's text as docs/http.md defines it: 16 hexadecimal digits, a hyphen, a
    /// decimal number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (log, at) = text.split_once('-')?;
        Some(Self {
            log: u64::from_str_radix(log, 16).ok().filter(|_| log.len() == 16)?,
            at: at.parse().ok()?,
        })
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{}", self.log, self.at)
    }
}

/// One key's share of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) key: u32,
    pub(crate) reader: u16,
    pub(crate) instance: u8,
    /// Time just before the first byte of the request was sent.
    pub(crate) sent_ns: Ns,
    /// Time just after the last byte of the answer was received.
    pub(crate) received_ns: Ns,
    pub(crate) mode: ReadMode,
    pub(crate) seen: Seen,
    pub(crate) outcome: Outcome,
    /// Value of `Age`.
    pub(crate) age_s: u32,
    /// In a batch, the largest token of its records.
    pub(crate) token: Option<Token>,
    pub(crate) batch: bool,
    pub(crate) conditional: bool,
}

/// A purge through the admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purge {
    pub(crate) instance: u8,
    /// `None`: the whole collection.
    pub(crate) key: Option<u32>,
    pub(crate) sent_ns: Ns,
    pub(crate) received_ns: Ns,
}
