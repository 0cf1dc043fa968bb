//! Who is let in, and who is turned away: rate limits, concurrency, circuit breakers, shedding.
//!
//! Decisions only: no I/O, no clock, no threads. Time comes in as an argument, so that all of it is tested in virtual time.

pub mod breaker;
pub mod concurrency;
pub mod rate;
pub mod shed;
