//! From a request or a command to its answer.
//!
//! Reading order: [`shared`] (what threads share), [`current`], [`in_force`], [`apply`] (settings
//! that change), [`handle`] (features of a worker, put together), `authorisation` (credentials),
//! `targets` (grants and limits), `reads`, `alias`, `batch`, `position` (from request to record),
//! `answer_builder` (from record to answer), `answer_counts`, `request_notes`, `observer` (metrics
//! and notes), `redis` (the same for commands), `tracking`, `follow` (clients that get changes),
//! [`consistency_check`].

pub mod admission;
mod alias;
mod answer_builder;
mod answer_counts;
pub mod apply;
mod authorisation;
mod batch;
pub mod consistency_check;
pub mod current;
mod field_selection;
mod follow;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod handle;
pub mod in_force;
mod lookups;
mod observer;
mod position;
mod read_all;
mod reads;
mod redis;
mod request_notes;
mod retry;
pub mod shared;
mod snapshot;
mod step;
mod targets;
mod tracking;
