//! Counters of the cache's decisions. All are off the hit path; the server's workers count hits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::{Presence, Record};

/// Reason for which an entry left the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Evicted for capacity.
    Capacity,
    /// A newer answer replaced it.
    Replaced,
    /// The feed reported a change, or an answer proved it older than one already given to a client.
    Invalidated,
    /// Purged by an operator.
    Purged,
    /// Larger than any shard accepts.
    TooLarge,
    /// Found to be of an older epoch (a flush or a gap in the feed) by a lookup.
    Flushed,
}

impl Removal {
    /// All reasons, in the order of [`Snapshot::removed`].
    pub const ALL: [Self; 6] = [
        Self::Capacity,
        Self::Replaced,
        Self::Invalidated,
        Self::Purged,
        Self::TooLarge,
        Self::Flushed,
    ];

    /// Returns the reason as a metric's label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Replaced => "replaced",
            Self::Invalidated => "invalidated",
            Self::Purged => "purged",
            Self::TooLarge => "too_large",
            Self::Flushed => "flushed",
        }
    }
}

/// Upper bounds of the classes of [`Snapshot::query_keys`]; the last class is open.
pub const QUERY_KEYS_BOUNDS: [u64; 6] = [1, 4, 16, 64, 256, 1024];

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One collection's counters.
        #[derive(Debug, Default)]
        pub(crate) struct CollectionStats {
            $(pub(crate) $name: Count,)*
            removed: [Count; 6],
            query_keys: [Count; 7],
        }

        /// A reading of one collection's counters. Counters named `_total` only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Removed entries, by [`Removal::ALL`].
            pub removed: [u64; 6],
            /// Queries by number of keys: not cumulative, classes bounded by [`QUERY_KEYS_BOUNDS`].
            pub query_keys: [u64; 7],
        }

        impl CollectionStats {
            pub(crate) fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.get(),)*
                    removed: std::array::from_fn(|i| self.removed[i].get()),
                    query_keys: std::array::from_fn(|i| self.query_keys[i].get()),
                }
            }
        }
    };
}

counters! {
    /// Entries now, negative ones included.
    entries,
    /// Negative entries now ("no such record").
    negative_entries,
    /// Weight of the entries in bytes.
    bytes,
    /// Reads queued because no read of the key was in flight.
    fills_total,
    /// Requests that joined a read.
    coalesced_total,
    /// Queries sent.
    queries_total,
    /// Keys in those queries.
    batch_keys_total,
    /// Keys whose read failed.
    failed_keys_total,
    /// Answers given to their waiters and not stored, because a change, a flush or a newer lease
    /// intervened, or because they lack a change that the feed had delivered.
    fills_discarded_total,
    /// Answers given and not stored, because only scanning clients requested them.
    fills_not_admitted_total,
    /// Reads repeated because a newer answer had been given in the meantime.
    fill_retries_total,
    /// Keys that the feed reported.
    invalidations_total,
    /// Hot records queued for a new read because they changed.
    hot_refreshes_total,
    /// Flushes of the whole collection.
    flushes_total,
    /// Requests refused because too many keys were waiting.
    refused_total,
    /// Keys rejected unread because the answer would have come after the deadline.
    deadline_rejected_total,
    /// Keys rejected unread because of a standing queue in which newer keys go first.
    queue_dropped_total,
    /// 1 while the newest keys are read first because of a standing queue.
    lifo,
    /// Keys waiting for a query now.
    waiting_keys,
    /// Queries at the database now.
    queries_in_flight,
}

impl CollectionStats {
    pub(crate) fn inserted(&self, record: &Record) {
        self.entries.add(1);
        self.bytes.add(record.weight_bytes());
        self.negative_entries.add(u64::from(record.presence() == Presence::Missing));
    }

    pub(crate) fn removed(&self, record: &Record, cause: Removal) {
        self.entries.sub(1);
        self.bytes.sub(record.weight_bytes());
        self.negative_entries.sub(u64::from(record.presence() == Presence::Missing));
        self.removed[cause as usize].add(1);
    }

    pub(crate) fn query_sent(&self, keys: u64) {
        self.queries_total.add(1);
        self.batch_keys_total.add(keys);
        let class =
            QUERY_KEYS_BOUNDS.iter().position(|&b| keys <= b).unwrap_or(QUERY_KEYS_BOUNDS.len());
        self.query_keys[class].add(1);
    }
}

/// A counter shared by threads; used where a lock was taken anyway.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
