//! Observations: one key's part of a response, with the request's time, target and form.

use std::fmt;

use crate::history::Ns;

/// One key's part of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Key.
    pub key: u32,
    /// Reader.
    pub reader: u16,
    /// Responding instance or balancer.
    pub origin: Origin,
    /// Time just before the first byte of the request was sent.
    pub sent_ns: Ns,
    /// Time just after the last byte of the response was received.
    pub received_ns: Ns,
    /// Form of the request.
    pub form: Form,
    /// Requirement beyond the contract's defaults.
    pub requirement: Requirement,
    /// The response's claim about the key.
    pub seen: Claim,
    /// `Hotrow-Cache`.
    pub outcome: Outcome,
    /// `Age` in seconds, if present.
    pub age_s: Option<u32>,
    /// `Hotrow-Position`; in a batch, the largest of its records.
    pub position: Option<Position>,
}

/// Responding instance or balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// An instance, by its index on the command line.
    Instance(u16),
    /// One of several instances. It is unknown which, so point 1 does not apply.
    Balancer(u16),
}

impl Origin {
    /// Returns whether a response with this status is a refusal that the contract allows: a missing
    /// or expired credential, too many requests, unavailable, too late; and from a balancer that it
    /// reached no instance.
    #[must_use]
    pub fn may_refuse_with(self, status: u16) -> bool {
        match status {
            // A credential may expire during the run.
            401 | 403 | 429 | 503 | 504 => true,
            502 => matches!(self, Self::Balancer(_)),
            _ => false,
        }
    }
}

/// The form of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// `GET /collection/id`.
    Get,
    /// GET with `If-None-Match`.
    Conditional,
    /// `HEAD /collection/id`.
    Head,
    /// `GET /collection?ids=…`.
    BatchGet,
    /// `POST /collection`.
    BatchPost,
    /// `GET /collection/by/alias/value`.
    Alias,
    /// `GET /collection/by/alias?ids=…`.
    AliasBatch,
    /// `GET /collection?ids=…&snapshot=true`.
    SnapshotGet,
    /// `POST /collection` with `"snapshot": true`.
    SnapshotPost,
    /// `POST /_snapshot`: the parts of the collection.
    SnapshotAcross,
    /// The same: the parts of another collection of the same table.
    SnapshotOther,
    /// `GET` of the Redis protocol.
    RedisGet,
    /// `MGET` of the Redis protocol.
    RedisMget,
    /// No request: a near cache answers with a copy of an earlier reply.
    Copy,
    /// No request: a follower of changes answers with a copy of an earlier response.
    FollowedCopy,
}

/// All forms, for counts.
pub const FORMS: [Form; 15] = [
    Form::Get,
    Form::Conditional,
    Form::Head,
    Form::BatchGet,
    Form::BatchPost,
    Form::Alias,
    Form::AliasBatch,
    Form::SnapshotGet,
    Form::SnapshotPost,
    Form::SnapshotAcross,
    Form::SnapshotOther,
    Form::RedisGet,
    Form::RedisMget,
    Form::Copy,
    Form::FollowedCopy,
];

/// Requirement of a request beyond the contract's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// None.
    Any,
    /// `Cache-Control: no-cache`.
    NoCache,
    /// `Hotrow-Min-Position: now`.
    Strict,
    /// `Hotrow-Min-Position` with the token of an earlier response, which implies that the response
    /// is not older than the version `floor`.
    Session {
        /// The token.
        position: Position,
        /// Oldest version of this key that reflects it; 0: nothing follows for this key.
        floor: u64,
    },
    /// `Hotrow-Min-Position` with the position of a commit by a writer.
    OwnWrite {
        /// The position.
        position: Position,
        /// Oldest version of this key that reflects it; 0: nothing follows for this key.
        floor: u64,
    },
    /// A follower got an event with this position before: a change, or that everything up to here
    /// was sent.
    Followed {
        /// The position.
        position: Position,
        /// True if it is sent as `Hotrow-Min-Position`, because another instance is read.
        is_sent: bool,
    },
}

impl Requirement {
    /// Returns the position in `Hotrow-Min-Position`, if the request has one.
    #[must_use]
    pub fn position(self) -> Option<Position> {
        match self {
            Self::Any | Self::NoCache | Self::Strict | Self::Followed { is_sent: false, .. } => {
                None
            }
            Self::Session { position, .. }
            | Self::OwnWrite { position, .. }
            | Self::Followed { position, .. } => Some(position),
        }
    }

    /// Returns the position of the event, if a follower got one.
    #[must_use]
    pub fn followed(self) -> Option<Position> {
        match self {
            Self::Followed { position, .. } => Some(position),
            Self::Any
            | Self::NoCache
            | Self::Strict
            | Self::Session { .. }
            | Self::OwnWrite { .. } => None,
        }
    }
}

/// A response's claim about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The row of this version, correct in every byte; or its `ETag`.
    Version(u64),
    /// 404, or listed as missing.
    Absent,
    /// A refusal with this status; no claim about the record.
    Refused(u16),
    /// 400 for a position, as after a replacement of its log; no claim about the record.
    PositionRefused,
    /// A row of unknown version (its `ETag` is not remembered); no claim that can be checked.
    UnknownVersion,
    /// Content that no writer wrote, or an undocumented response.
    Invalid(Box<str>),
}

/// `Hotrow-Cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// From memory.
    Hit,
    /// Read by this request.
    Miss,
    /// Joined another request's read.
    Coalesced,
    /// From memory, beyond a bound by policy: point 2 is waived.
    Stale,
    /// Read because the request or the state of the feed required it.
    Bypass,
    /// No such header, as on refusals.
    None,
}

/// All outcomes, for counts.
pub const OUTCOMES: [Outcome; 6] = [
    Outcome::Hit,
    Outcome::Miss,
    Outcome::Coalesced,
    Outcome::Stale,
    Outcome::Bypass,
    Outcome::None,
];

impl Outcome {
    /// Parses the header.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("hit") => Self::Hit,
            Some("miss") => Self::Miss,
            Some("coalesced") => Self::Coalesced,
            Some("stale") => Self::Stale,
            Some("bypass") => Self::Bypass,
            _ => Self::None,
        }
    }

    /// Returns the header's value.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Coalesced => "coalesced",
            Self::Stale => "stale",
            Self::Bypass => "bypass",
            Self::None => "none",
        }
    }
}

impl Form {
    /// Returns whether the request names several keys.
    #[must_use]
    pub fn is_batch(self) -> bool {
        self.is_snapshot()
            || matches!(self, Self::BatchGet | Self::BatchPost | Self::AliasBatch | Self::RedisMget)
    }

    /// Returns whether the response must be one state of the database.
    #[must_use]
    pub fn is_snapshot(self) -> bool {
        matches!(
            self,
            Self::SnapshotGet | Self::SnapshotPost | Self::SnapshotAcross | Self::SnapshotOther
        )
    }

    /// Returns whether a client answers itself, with what it has kept.
    #[must_use]
    pub fn is_copy(self) -> bool {
        matches!(self, Self::Copy | Self::FollowedCopy)
    }

    /// Returns whether the request names values of an alias.
    #[must_use]
    pub fn is_by_alias(self) -> bool {
        matches!(self, Self::Alias | Self::AliasBatch)
    }

    /// Returns its name for text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Conditional => "conditional",
            Self::Head => "head",
            Self::BatchGet => "batch_get",
            Self::BatchPost => "batch_post",
            Self::Alias => "alias",
            Self::AliasBatch => "alias_batch",
            Self::SnapshotGet => "snapshot_get",
            Self::SnapshotPost => "snapshot_post",
            Self::SnapshotAcross => "snapshot_across",
            Self::SnapshotOther => "snapshot_other",
            Self::RedisGet => "redis_get",
            Self::RedisMget => "redis_mget",
            Self::Copy => "copy",
            Self::FollowedCopy => "followed_copy",
        }
    }
}

/// `Hotrow-Position`: a log and a point in it. Text form by docs/http.md: 16 hexadecimal digits, a
/// hyphen, a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The log.
    pub log: u64,
    /// Point in the log.
    pub at: u64,
}

impl Position {
    /// Parses the text form; `None` if invalid.
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

/// A purge through the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Key; `None`: the whole collection.
    pub key: Option<u32>,
    /// Instance; admin APIs are given in the order of the instances.
    pub origin: Origin,
    /// Time just before the request was sent.
    pub sent_ns: Ns,
    /// Time just after its response.
    pub received_ns: Ns,
}

impl Purge {
    /// Returns whether it includes the key.
    pub fn includes(&self, key: u32) -> bool {
        self.key.is_none_or(|purged| purged == key)
    }
}
