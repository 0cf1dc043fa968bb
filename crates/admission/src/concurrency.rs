//! Concurrency: number of queries at the database, order of the keys, and keys that are rejected.
//!
//! Reading order: [`limit`] (queries of a source in flight), [`queue`] (content of a collection's
//! next query), [`cost`] (expected duration of a query by its number of keys, used by both).

pub mod cost;
pub mod limit;
pub mod queue;

#[cfg(test)]
mod simulation;
