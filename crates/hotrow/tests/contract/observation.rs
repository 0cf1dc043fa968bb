//! What the readers saw: per key of each answer, when it was asked and what it said.

use crate::history::Ns;

/// What an answer says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The row of this version, its body correct to the last byte; or 304 for the `ETag` that such a body had.
    Version(u64),
    /// 404: there is no such record.
    Absent,
    /// 503 or 504: no claim about the record.
    Refused(u16),
    /// Anything else: no writer ever wrote this.
    Invented(Box<str>),
}

/// `Hotrow-Cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Hit,
    Miss,
    Wait,
    Stale,
    Bypass,
    /// No such header: a refusal.
    None,
}

/// What the request asked beyond any answer of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Any,
    /// `Cache-Control: no-cache`.
    New,
    /// `Hotrow-Min-Position`, with a commit's own position.
    AtLeast(u64),
    /// `Hotrow-Min-Position`, with the token of an answer that said `version` of this key; none if that was 404.
    Session {
        token: u64,
        version: Option<u64>,
    },
}

/// `Hotrow-Position`: which log, and the point in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token {
    pub(crate) log: u64,
    pub(crate) at: u64,
}

impl Token {
    /// Reads the header's text, by docs/http.md: 16 hexadecimal digits, a hyphen, a decimal number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (log, at) = text.split_once('-')?;
        Some(Self { log: u64::from_str_radix(log, 16).ok().filter(|_| log.len() == 16)?, at: at.parse().ok()? })
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{}", self.log, self.at)
    }
}

/// One key's part of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) key: u32,
    pub(crate) reader: u16,
    pub(crate) instance: u8,
    /// Just before the first byte of the request was sent.
    pub(crate) sent_ns: Ns,
    /// Just after the last byte of the answer was received.
    pub(crate) received_ns: Ns,
    pub(crate) wish: Wish,
    pub(crate) seen: Seen,
    pub(crate) outcome: Outcome,
    /// `Age`.
    pub(crate) age_s: u32,
    /// On a batch, the largest of its records.
    pub(crate) token: Option<Token>,
    pub(crate) batch: bool,
    pub(crate) conditional: bool,
}

/// A purge over the admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purge {
    pub(crate) instance: u8,
    /// `None`: the whole collection.
    pub(crate) key: Option<u32>,
    pub(crate) sent_ns: Ns,
    pub(crate) received_ns: Ns,
}
