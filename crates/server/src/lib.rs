//! HTTP side: listeners, connections, routing, handling, admission, answers, administration, drain.
//!
//! Below it are crates of their own: `config` (settings), `net` (sockets, TLS, files),
//! `representation` (forms of a record) and `telemetry` (what operators see).
//!
//! Reading order: [`service`] (puts it together), [`shared`] and [`collections`] (what threads
//! share), [`worker`], `acceptor`, [`connection`] and [`context`] (from socket to request),
//! [`handle`] (features of a worker, put together), `route`, `access` and `authorisation`
//! (credentials), `targets` (grants and limits), `read_requirement`, `reads`, `alias`, `batch`,
//! `position` (from request to record), `answer_builder`, `answer`, `record_answer`, `respond`,
//! `http_error`, `body` (from record to answer), `answer_counts`, `request_notes`, `observer`
//! (metrics and notes), `redis` (the same for commands), `current`, [`in_force`], [`reload`]
//! (settings that change), `read` (to the database and back), `breaker_probe`,
//! [`budgets`] (memory of all of them), [`sink`] (delivery of the feed), `follow`, [`purge`] (who
//! gets its changes), `warm_start` (hot records after a start), [`admin`], `readiness`, `openapi`,
//! [`metrics`], [`documents`] (the admin side of a relay).

mod acceptor;
mod access;
pub mod admin;
mod admission;
mod alias;
mod answer;
mod answer_builder;
mod answer_counts;
mod authorisation;
mod batch;
mod body;
mod breaker_probe;
pub mod budgets;
mod cache_in_force;
pub mod collections;
pub mod connection;
mod consistency_check;
pub mod context;
mod cors;
mod current;
pub mod documents;
mod field_selection;
mod follow;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod handle;
mod http_error;
pub mod in_force;
mod late_start;
pub mod lookups;
pub mod metrics;
mod observer;
mod openapi;
mod position;
mod process;
pub mod purge;
mod read;
mod read_all;
mod read_requirement;
mod readiness;
mod reads;
mod receive;
mod record_answer;
mod redis;
mod refresh;
pub mod reload;
mod request_notes;
mod respond;
mod retry_after;
mod route;
mod scan_detector;
pub mod service;
pub mod shared;
mod sight;
pub mod sink;
mod standby;
pub mod step;
mod targets;
mod tracking;
mod warm_start;
pub mod worker;
