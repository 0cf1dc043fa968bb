//! What a request passes before a record, and a read before the database: credentials and grants
//! ([`access`]), limits ([`admission`]), and the reads themselves ([`read`]), which concurrency
//! limits and circuit breakers bound.
//!
//! Beside them: [`standby`] (reads from standbys), [`refresh`] (hot records after a change),
//! [`warm_start`] (hot records after a start), [`breaker_probe`].

pub mod access;
pub mod admission;
pub mod breaker_probe;
pub mod cache_in_force;
pub mod feed_counts;
mod feed_progress;
pub mod read;
pub mod refresh;
mod rows;
pub mod snapshot;
pub mod standby;
pub mod warm_start;
