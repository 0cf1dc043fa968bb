//! Admission decisions: rate limits, byte budgets, concurrency, circuit breakers, load shedding.
//!
//! No I/O, no clock, no threads. Time is an argument, so that everything is tested in virtual time.

pub mod breaker;
pub mod byte_budget;
pub mod concurrency;
pub mod rate;
pub mod shed;
