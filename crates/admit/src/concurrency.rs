//! How many queries are at the database at once, in which order keys are read, and which are not read at all.
//!
//! Reading order: [`limit`] (how many queries a source gets at once), [`queue`] (what a collection's next query takes),
//! [`cost`] (what a query costs by its number of keys, which both judge by).

pub mod cost;
pub mod limit;
pub mod queue;

#[cfg(test)]
mod simulation;
