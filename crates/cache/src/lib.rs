//! Decisions of the cache, without I/O, clock or threads. Time and randomness are arguments, so
//! that every schedule can be tested.
//!
//! Reading order: [`Cache`] (lookup and invalidation), [`BatchLoader`] (merged reads of missing
//! keys), `fetch_queue` and [`flight`] (single flight and leases; `hotrow_admission` decides which
//! keys are read next), `fence` (changes that a read may not see yet), `freshness` (whether an
//! entry may be served), `scan_filter` and `collection_gap` (answers that are not stored),
//! `min_position` (read your writes), `snapshot` with `marks` (batches of one point of the log),
//! `standby` (reads of standbys), [`alias`] (lookup by another unique value), `store` and
//! [`Record`] (the entries), [`miniature`] (the hit ratio at other capacities). Keys, positions and
//! versions are those of `hotrow_types`.

pub mod alias;
mod batch_loader;
mod cache;
mod collection_gap;
pub mod config;
mod fence;
mod fetch_queue;
pub mod flight;
mod freshness;
mod lookup_error;
mod marks;
mod min_position;
pub mod miniature;
mod record;
mod safeguards;
mod scan_filter;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod schedules;
mod snapshot;
mod source_state;
mod standby;
mod standbys;
pub mod stats;
mod store;
mod sync;
#[cfg(feature = "failpoints")]
mod testing;
#[cfg(test)]
mod testkit;

pub use batch_loader::{Answers, BatchLoader, Fetched, Fills, Interest, SPLIT_QUERIES_MAX};
pub use cache::{Cache, Lookup, ReadMode};
pub use freshness::{Ages, Freshness};
pub use lookup_error::LookupError;
pub use min_position::NotReached;
pub use record::{ContentCoding, ENTRY_OVERHEAD_BYTES, Presence, Record, hash_of_body};
pub use safeguards::Safeguard;
pub use snapshot::SnapshotKeys;
pub use standby::StandbyBound;
pub use store::{Attached, Walk};
