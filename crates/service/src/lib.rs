//! From a request or a command to its answer.
//!
//! Reading order: [`shared`] (what threads share), [`current`], [`in_force`] (settings that change),
//! [`handle`], `reads`, `answer_builder`, `batch`, `alias`, `position` (from request to answer), `redis` (the same for commands),
//! `tracking`, `follow` (clients that get changes), `lookups`, `field_selection`, `observer`
//! (notes of requests), [`openapi`], [`consistency_check`].

pub mod admission;
mod alias;
mod answer_builder;
pub mod apply;
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
pub mod openapi;
mod position;
mod read_all;
mod reads;
mod redis;
pub mod shared;
mod tracking;
