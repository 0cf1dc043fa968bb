//! Decisions only: what is kept, who reads, what is stale. No I/O, no clock, no threads: time and randomness come in as
//! arguments, so every schedule can be tested.
//!
//! Reading order: [`Cache`] (look up, invalidate), [`Turn`] (read what is missing, merged), `desk` and [`flight`]
//! (single flight and leases; who is read next is decided by `hotrow_admit`), `fence` (changes that reads do not see yet), `freshness` (what an entry is worth), `passing` (what is not kept), `store` and [`Record`] (what is kept),
//! [`key`], [`version`] and [`gtid`] (the types shared with the sources).

mod cache;
pub mod config;
mod desk;
mod fence;
mod fixes;
pub mod flight;
mod freshness;
pub mod gtid;
pub mod key;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod model;
mod passing;
mod record;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod schedules;
pub mod stats;
mod store;
mod sync;
#[cfg(test)]
mod testkit;
mod turn;
pub mod version;

pub use cache::{Cache, Lookup, Refusal, Wish};
pub use fixes::Fix;
pub use freshness::Quality;
pub use record::{ENTRY_OVERHEAD_BYTES, Presence, Record};
pub use turn::{Answers, Fetched, Turn};
