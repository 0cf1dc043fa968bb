//! Messages from a relay to servers, as they are after decoding.

use std::sync::Arc;

use hotrow_types::landmark::Landmark;
use hotrow_types::version::{Gtid, GtidSet, Position, Snapshot, Version};

use crate::tag::Tag;

/// Longest message in bytes, as encoded. Servers of NATS accept 1 MiB by default.
pub const MESSAGE_BYTES_MAX: usize = 512 * 1024;
/// Bytes of changes after which a message is closed. One more key always fits.
pub const CHANGES_BYTES_MAX: usize = 64 * 1024;
/// Most instances that one watermark answers.
pub const ANSWERS_MAX: usize = 4_096;
/// Most hidden changes that a watermark lists. With more, no server can join by it.
pub const HIDDEN_MAX: usize = 2_048;
/// Most running transactions in the snapshot of a watermark. With more it has none.
pub const RUNNING_MAX: usize = 8_192;
/// Longest set of GTIDs in a watermark, as text in bytes. A longer one is not sent.
pub const GTIDS_BYTES_MAX: usize = 128 * 1024;
/// Most collections of a relay.
pub const COLLECTIONS_MAX: usize = 4_096;
/// Longest text in a message, in bytes; a longer one is cut.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// Name of a chain. The identity distinguishes chains of equal numbers: a lost end of the stream
/// may have held a beginning whose number is then given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// One more than the number of the chain before.
    pub number: u64,
    /// Random.
    pub identity: u64,
}

/// One message of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its chain.
    pub generation: Generation,
    /// 0 for the beginning, then one more for each message.
    pub counter: u64,
    /// Point of the log before which the changes of every commit are in this message or an earlier
    /// one. A chain that continues another starts at that one's point.
    pub complete: u64,
    /// Place of the log, no later than `complete`, where a relay of a database that keeps no place
    /// finds it again.
    pub landmark: Option<Landmark>,
    /// Contents.
    pub body: Body,
}

/// Contents of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Start of the chain.
    Beginning(Beginning),
    /// Changes, in the order of the log.
    Changes(Vec<Event>),
    /// Answer to nonces.
    Watermark(Box<Watermark>),
    /// The relay may have missed changes.
    Loss(Loss),
}

/// Start of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Last message of the stream, which this one follows; `None` in an empty stream.
    pub predecessor: Option<Predecessor>,
    /// Point of the log from which the relay delivers; `None` if changes between the chains may be
    /// missing. Only then does the beginning continue its predecessor without a loss.
    pub resumed_at: Option<u64>,
    /// See [`Watermark::watched`].
    pub watched: Option<u64>,
    /// Database that the relay follows.
    pub origin: String,
    /// Reason for which the chain begins, for the log.
    pub reason: String,
}

/// End of the chain before a beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// Its chain.
    pub generation: Generation,
    /// Counter of its last message.
    pub counter: u64,
}

/// One event of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A record changed.
    Change {
        /// Its collection.
        collection: Tag,
        /// Columns of its key, as `hotrow_types::key` encodes them.
        key: Box<[u8]>,
        /// The change.
        mark: Mark,
    },
    /// Any record of the collection may have changed.
    Flush {
        /// The collection.
        collection: Tag,
        /// Reason.
        cause: FlushReason,
        /// The change; `None` if every read sees it.
        mark: Option<Mark>,
    },
    /// Changes of this collection may be missed from now on.
    OpenGap {
        /// The collection.
        collection: Tag,
        /// Cause, for the log.
        detail: String,
    },
    /// Changes of this collection are delivered again.
    CloseGap {
        /// The collection.
        collection: Tag,
    },
}

/// Reason to flush a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushReason {
    /// Too many records to list, or TRUNCATE.
    Bulk,
    /// The table changed its shape.
    Schema,
    /// Records changed that nothing lists.
    Unlisted,
}

/// Identity of a change, without the incarnation of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// A PostgreSQL transaction.
    Transaction(u64),
    /// End of a commit in a log in order of visibility.
    Commit(u64),
    /// A MySQL transaction.
    Gtid(Gtid),
}

/// What every read sees that begins after a look at the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// A PostgreSQL snapshot.
    Snapshot(Snapshot),
    /// Every commit up to a point of a log in order of visibility.
    Through(u64),
    /// At least these transactions of a MySQL server.
    Gtids(Arc<GtidSet>),
}

/// Answer to nonces: everything committed before they were sent is in this chain, before this
/// message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// Newest answered question of each instance that asked since the last answer.
    pub answers: Vec<u128>,
    /// End of the log at the look.
    pub end: u64,
    /// What reads see since the look; `None` if that is too long to send.
    pub visible: Option<Visible>,
    /// Changes in this chain that `visible` does not contain; `None` if they are not known or too
    /// many to send. A server cannot join by such a watermark.
    pub hidden: Option<Vec<Mark>>,
    /// Collections whose changes may be missed now.
    pub gaps: Vec<Tag>,
    /// Collections that the relay follows.
    pub collections: Vec<Tag>,
    /// Digest of what decides which changes the database delivers. It changes for good when a table
    /// leaves the publication and comes back, so that two relays with the same digest have missed
    /// nothing between them. `None`: not known, or changes of a collection are missed now.
    pub watched: Option<u64>,
    /// Database that the relay follows.
    pub origin: String,
}

/// Number with which an instance asks for a watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce {
    /// Random number of the instance: the relay has a place for each.
    pub instance: u64,
    /// Random: only an instance's own questions have answers that it believes.
    pub question: u128,
}

/// Changes may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Number of the cause, of those that `hotrow_source::LossCause::ALL` lists.
    pub cause: u8,
    /// For the log.
    pub detail: String,
}

impl Mark {
    /// Returns whether a read of `visible` saw the change.
    pub fn is_in(&self, visible: &Visible) -> bool {
        match (self, visible) {
            (Self::Transaction(xid), Visible::Snapshot(snapshot)) => snapshot.contains(*xid),
            (Self::Commit(at), Visible::Through(through)) => at <= through,
            (Self::Gtid(gtid), Visible::Gtids(set)) => set.contains(gtid),
            _ => false,
        }
    }

    /// Returns whether a read of `visible` saw this change and every earlier one that ever commits.
    pub fn is_passed_by(&self, visible: &Visible) -> bool {
        match (self, visible) {
            // Transactions are numbered at their start: a lower one may commit later.
            (Self::Transaction(xid), Visible::Snapshot(snapshot)) => snapshot.xmin > *xid,
            (Self::Gtid(gtid), Visible::Gtids(set)) => set.contains_up_to(gtid),
            _ => self.is_in(visible),
        }
    }

    /// Returns the greater of two; `None` if their numbers do not compare.
    #[must_use]
    pub(crate) fn later(self, other: Self) -> Option<Self> {
        let place = |mark: Self| match mark {
            Self::Transaction(number) | Self::Commit(number) => (None, number),
            Self::Gtid(gtid) => (Some(gtid.source), gtid.number),
        };
        let (source, number) = place(self);
        let (others, greatest) = place(other);
        (source == others).then_some(if greatest > number { other } else { self })
    }

    /// Returns an upper bound of its encoded length.
    pub(crate) fn bytes_max(&self) -> usize {
        match self {
            Self::Transaction(_) | Self::Commit(_) => 9,
            Self::Gtid(gtid) => 29 + gtid.source.tag().len(),
        }
    }
}

impl Visible {
    /// Converts a version that an engine reported; `None` if messages cannot carry it.
    #[must_use]
    pub fn of(version: &Version) -> Option<Self> {
        match version {
            Version::Snapshot { snapshot, .. } if snapshot.running.len() <= RUNNING_MAX => {
                Some(Self::Snapshot(snapshot.as_ref().clone()))
            }
            Version::Log(to) | Version::Span { from: to, .. } => Some(Self::Through(to.at)),
            Version::Gtids(set) if set.to_string().len() <= GTIDS_BYTES_MAX => {
                Some(Self::Gtids(Arc::clone(set)))
            }
            Version::Snapshot { .. }
            | Version::Replayed { .. }
            | Version::Gtids(_)
            | Version::Unknown => None,
        }
    }

    /// Returns it as a version in the log of this incarnation.
    pub fn version(&self, incarnation: u64) -> Version {
        match self {
            Self::Snapshot(snapshot) => {
                Version::Snapshot { incarnation, snapshot: snapshot.clone().into() }
            }
            Self::Through(at) => Version::Log(Position { incarnation, at: *at }),
            Self::Gtids(set) => Version::Gtids(Arc::clone(set)),
        }
    }
}

/// Cuts a text to [`TEXT_BYTES_MAX`] bytes.
pub fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}
