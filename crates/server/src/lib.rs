//! HTTP: listen, connection, route, handle, admit, respond, admin, drain.
//!
//! Reading order: [`service`] (puts it together), [`worker`], [`listen`], [`connection`] and [`guard`] (from socket to
//! request), `route`, [`handle`], `batch`, `position` (from request to answer), `read` (to the database and back),
//! `respond`, `problem`, `body` (the answer), [`sink`] (where the feed delivers), [`admin`], [`metrics`].

pub mod admin;
mod admit;
mod batch;
mod body;
pub mod config;
pub mod connection;
pub mod drain;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod guard;
mod habits;
pub mod handle;
pub mod listen;
pub mod lookups;
pub mod metrics;
mod position;
mod problem;
mod read;
mod receive;
mod refresh;
mod respond;
mod route;
mod sampling;
pub mod service;
pub mod shared;
pub mod sink;
mod throttle;
mod trouble;
pub mod worker;

pub use trouble::Trouble;
