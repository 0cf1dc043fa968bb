//! HTTP side: listeners, connections, routing, handling, admission, answers, administration, drain.
//!
//! Reading order: [`service`] (puts it together), [`shared`] and [`collections`] (what threads
//! share), [`worker`], `acceptor`, `accept_budget`, [`listen`], [`tls`], [`connection`] and
//! [`context`] (from socket to request), `route`, `access` (credentials), [`handle`], `batch`,
//! `position` (from request to answer), `redis` (the same for commands), `current`, [`in_force`],
//! [`reload`] (settings that change), `observer`, [`access_log`], `trace_context`, `query_log`,
//! `server_timing`, [`traces`] (what operators see), `read` (to the database and back),
//! `breaker_probe`, `precondition`, `read_requirement`, `answer`, `record_form`, `record_answer`,
//! `compression`, `respond`, `header_writer`, `surrogate_key`, `http_error`, `body` (the answer),
//! [`budgets`] (memory of all of them), `http_client` (what the program itself requests), [`sink`]
//! (delivery of the feed), `follow`, [`purge`] (who gets its changes), `warm_start` (hot records
//! after a start), [`admin`], `readiness`, `openapi`, [`metrics`], `history` (ten minutes of them,
//! and hot keys), [`documents`] (the admin side of a relay).

mod acceptor;
mod access;
pub mod admin;
mod admission;
mod alias;
mod answer;
mod batch;
mod body;
mod breaker_probe;
pub mod budgets;
pub mod collections;
mod compression;
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
mod narrow;
mod observer;
mod openapi;
mod position;
mod process;
pub mod purge;
mod read;
mod read_all;
mod read_requirement;
mod readiness;
mod receive;
mod record_answer;
mod redis;
mod refresh;
pub mod reload;
mod respond;
mod retry_after;
mod route;
mod scan_detector;
pub mod service;
pub mod shared;
mod sight;
pub mod sink;
mod standby;
mod surrogate_key;
mod tracking;
mod warm_start;
pub mod worker;

use hotrow_config as config;
