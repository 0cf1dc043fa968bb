//! Clients that keep copies of what they have read, and what each of them must give up
//! (`CLIENT TRACKING` of the Redis protocol). One worker uses a table.
//!
//! A client's keys have *spellings*: several texts can name one record, and the client keeps its
//! copy under the text that it has sent. From [`TrackingTable::begin`], before the lookup, to
//! [`TrackingTable::replied`] a key is *under way*: an invalidation must follow the reply, or the
//! client would keep a reply that was already outdated. A reply that the cache itself does not keep
//! is followed by its invalidation.
//!
//! Nothing is forgotten in silence. Without room the client with the most keys gives up everything,
//! and is informed of it before its keys are forgotten.

mod client;
mod table;

pub use client::{Prefixes, TrackedKey};
pub use table::{TrackedUsage, TrackingTable};

use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;

/// Number of a client in the table of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackedClient(pub(crate) u32);

impl TrackedClient {
    /// Returns the number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a client is informed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push<'a> {
    /// The copy under this spelling is outdated.
    Key(&'a [u8]),
    /// All copies may be.
    All(AllCause),
}

/// Reason for which a client must give up all copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllCause {
    /// The feed was lost, or a new one begins.
    Feed,
    /// Any record of a collection may have changed.
    Flush,
    /// The feed is behind by more than the contract's bound.
    Stale,
    /// The table has no room for the keys of this client.
    Full,
    /// The worker, or the client, did not take its invalidations in time.
    Behind,
    /// Grants, keys or settings have changed, or the credential is no longer good.
    Access,
    /// A copy of a broadcasting client is past its TTL.
    Expired,
    /// The connection that has named this one for its invalidations tracks no more.
    Ended,
}

impl AllCause {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Feed,
        Self::Flush,
        Self::Stale,
        Self::Full,
        Self::Behind,
        Self::Access,
        Self::Expired,
        Self::Ended,
    ];

    /// Returns its name in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Feed => "feed",
            Self::Flush => "flush",
            Self::Stale => "stale",
            Self::Full => "full",
            Self::Behind => "behind",
            Self::Access => "access",
            Self::Expired => "expired",
            Self::Ended => "ended",
        }
    }
}

/// A mistake that a test plants, to show that it is found.
#[cfg(any(test, feature = "failpoints"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackingPlant {
    /// None.
    #[default]
    None,
    /// Interest is registered after the lookup.
    RegisteredLate,
    /// An invalidation of a key under way leaves before its reply.
    PushedBeforeReply,
    /// A reply that lacks a delivered change is not followed by its invalidation.
    HiddenReplyKept,
    /// Of several spellings of a key the first alone is remembered.
    SecondSpellingForgotten,
    /// Copies are given up at a loss only, not at the new beginning.
    NothingAtBeginning,
    /// Without room, copies are forgotten and their client is not informed.
    ForgottenInSilence,
    /// A worker that did not read in time goes on.
    OverrunIgnored,
}

/// Facts about keys and collections that the table does not have.
pub trait Names {
    /// Returns the spelling of a key that broadcasts use.
    fn spelling(&self, key: &Key) -> Option<Vec<u8>>;
    /// Returns the source that a collection is read from.
    fn source_of(&self, collection: CollectionId) -> SourceId;
}
