//! What was read of one key: when it was asked, where, how, and what the answer said.

use std::fmt;

use crate::history::Ns;

/// One key's part of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Which key.
    pub key: u32,
    /// Which reader.
    pub reader: u16,
    /// Who answered.
    pub origin: Origin,
    /// Just before the first byte of the request was sent.
    pub sent_ns: Ns,
    /// Just after the last byte of the answer was received.
    pub received_ns: Ns,
    /// The form of the request.
    pub form: Form,
    /// What it asked for beyond any answer of the contract.
    pub wish: Wish,
    /// What the answer says about the key.
    pub seen: Seen,
    /// `Hotrow-Cache`.
    pub outcome: Outcome,
    /// `Age` in seconds, where the answer has one.
    pub age_s: Option<u32>,
    /// `Hotrow-Position`; on a batch, the largest of its records.
    pub position: Option<Position>,
}

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// One instance, by its place on the command line.
    Instance(u16),
    /// One of several instances: nobody knows which, so point 1 has nothing to say.
    Balancer(u16),
}

/// The form of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// `GET /collection/id`.
    Get,
    /// The same with `If-None-Match`.
    Conditional,
    /// `HEAD /collection/id`.
    Head,
    /// `GET /collection?ids=…`.
    BatchGet,
    /// `POST /collection`.
    BatchPost,
}

/// All forms, for counts.
pub const FORMS: [Form; 5] = [Form::Get, Form::Conditional, Form::Head, Form::BatchGet, Form::BatchPost];

/// What a request asks for beyond any answer of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Any,
    /// `Cache-Control: no-cache`.
    NoCache,
    /// `Hotrow-Min-Position` with the token of an earlier answer, from which it follows that the answer must not be older
    /// than the version `floor`.
    Session {
        /// The token.
        position: Position,
        /// The oldest version of this key that reflects it; 0: nothing follows for this key.
        floor: u64,
    },
    /// `Hotrow-Min-Position` with the position of a commit of our own.
    OwnWrite {
        /// The position.
        position: Position,
        /// The oldest version of this key that reflects it; 0: nothing follows for this key.
        floor: u64,
    },
}

/// What an answer says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The row of this version, correct to the last byte; or its `ETag`.
    Version(u64),
    /// 404, or listed as missing.
    Absent,
    /// A refusal that the contract allows: no claim about the record.
    Refused(u16),
    /// 400 to a position, as for one of a log that was replaced: no claim about the record.
    PositionRefused,
    /// A row whose version cannot be told (its `ETag` is new to us): no claim that can be checked.
    SomeRow,
    /// What no writer ever wrote, or an answer outside of what is documented.
    Invented(Box<str>),
}

/// `Hotrow-Cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// From memory.
    Hit,
    /// This request's read.
    Miss,
    /// Joined another's read.
    Wait,
    /// From memory, past a bound by policy: point 2 is waived.
    Stale,
    /// Read because the request or the state of the feed asked for it.
    Bypass,
    /// No such header, as on refusals.
    None,
}

/// All outcomes, for counts.
pub const OUTCOMES: [Outcome; 6] =
    [Outcome::Hit, Outcome::Miss, Outcome::Wait, Outcome::Stale, Outcome::Bypass, Outcome::None];

impl Outcome {
    /// Reads the header.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("hit") => Self::Hit,
            Some("miss") => Self::Miss,
            Some("wait") => Self::Wait,
            Some("stale") => Self::Stale,
            Some("bypass") => Self::Bypass,
            _ => Self::None,
        }
    }

    /// The header's value.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Wait => "wait",
            Self::Stale => "stale",
            Self::Bypass => "bypass",
            Self::None => "none",
        }
    }
}

impl Form {
    /// For people and for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Conditional => "conditional",
            Self::Head => "head",
            Self::BatchGet => "batch_get",
            Self::BatchPost => "batch_post",
        }
    }
}

/// `Hotrow-Position`: which log, and the point in it. Text form by docs/http.md: 16 hexadecimal digits, a hyphen, a
/// decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The log.
    pub log: u64,
    /// The point in it.
    pub at: u64,
}

impl Position {
    /// Reads the text form; none if it is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (log, at) = text.split_once('-')?;
        let log = u64::from_str_radix(log, 16).ok().filter(|_| log.len() == 16)?;
        Some(Self { log, at: at.parse().ok()? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.log, self.at)
    }
}

/// A purge over the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Where; admin APIs are given in the order of the instances.
    pub origin: Origin,
    /// Just before the request was sent.
    pub sent_ns: Ns,
    /// Just after it was answered.
    pub received_ns: Ns,
}
