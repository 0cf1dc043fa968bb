//! Plain values that the rest of Hotrow measures with. Nothing here speaks a protocol or knows a database.
//!
//! Reading order: [`clock`] (the one clock of the process), [`counter`] (counts that one thread writes),
//! [`histogram`] (latencies), [`sketch`] (distinct counts), [`statistics`] (medians, intervals, comparisons).

pub mod clock;
pub mod counter;
pub mod histogram;
pub mod sketch;
pub mod statistics;
