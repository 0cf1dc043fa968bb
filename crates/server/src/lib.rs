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

mod access_watch;
pub mod admin;
pub mod documents;
mod late_start;
mod process;
mod readiness;
pub mod reload;
pub mod service;
