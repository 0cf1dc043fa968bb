//! Counts of what the cache decided. All of them are off the hit path: hits are counted by the server's workers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::{Presence, Record};

/// Why an entry left the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The policy needed the room.
    Capacity,
    /// A newer answer took its place.
    Replaced,
    /// The feed reported a change, or an answer proved it older than what a client already got.
    Invalidated,
    /// Someone asked for it.
    Purged,
    /// It fits no shard.
    TooLarge,
    /// Found to be of a past era (a flush or a loss of the feed) when it was looked up.
    Flushed,
}

impl Removal {
    /// All causes, in the order of [`Snapshot::removed`].
    pub const ALL: [Self; 6] =
        [Self::Capacity, Self::Replaced, Self::Invalidated, Self::Purged, Self::TooLarge, Self::Flushed];

    /// The cause as a metric's label.
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

        /// A reading of one collection's counters. `_total`s only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Entries that left, by [`Removal::ALL`].
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
    /// Entries now, missing ones included.
    entries,
    /// Those of them that say "no such record".
    negative_entries,
    /// Bytes that the entries count for.
    bytes,
    /// Reads that were queued because nobody was reading the key.
    fills_total,
    /// Requests that joined a read.
    waits_total,
    /// Queries sent.
    queries_total,
    /// Keys in them.
    queried_keys_total,
    /// Keys whose read failed.
    failed_keys_total,
    /// Answers that were given to their waiters but not kept, because a change, a flush or a newer lease came between, or
    /// because they did not see a change that the feed had delivered.
    dead_leases_total,
    /// Answers that were given and not kept, because only those who roam over everything asked for them.
    passing_total,
    /// Reads sent once more because a newer answer had been given meanwhile.
    rereads_total,
    /// Keys that the feed reported.
    invalidations_total,
    /// Hot records that were queued to be read again because they changed.
    hot_refreshes_total,
    /// Flushes of the whole collection.
    flushes_total,
    /// Requests refused because too many keys were waiting.
    refused_total,
    /// Keys refused before they were read, because the answer would have come after the deadline.
    overdue_total,
    /// Keys refused before they were read, because the queue stood and newer ones went first.
    displaced_total,
    /// 1 while the newest keys are read first, because the queue stands.
    newest_first,
    /// Keys that wait for a query now.
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
        self.queried_keys_total.add(keys);
        let class = QUERY_KEYS_BOUNDS.iter().position(|&b| keys <= b).unwrap_or(QUERY_KEYS_BOUNDS.len());
        self.query_keys[class].add(1);
    }
}

/// A counter that many threads may touch; used where a lock was taken anyway.
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
