//! Decisions only: what is kept, who reads, what is stale. No I/O, no clock, no threads: time and randomness come in as
//! arguments, so every schedule can be tested.

pub mod config;
pub mod key;
pub mod version;
