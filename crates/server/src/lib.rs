//! HTTP side: listeners, connections, routing, handling, admission, answers, administration, drain.
//!
//! Below it are crates of their own: `config` (settings), `net` (sockets, TLS, files),
//! `representation` (forms of a record) and `telemetry` (what operators see).
//!
//! Reading order: [`service`] (puts it together), [`shared`] and [`collections`] (what threads
//! share), [`worker`], `acceptor`, [`connection`] and [`context`] (from socket to request),
//! `route`, `access` (credentials), [`handle`], `batch`, `position` (from request to answer),
//! `redis` (the same for commands), `current`, [`in_force`], [`reload`] (settings that change),
//! `observer` (notes of requests), `read` (to the database and back), `breaker_probe`,
//! `read_requirement`, `answer`, `record_answer`, `respond`, `http_error`, `body` (the answer),
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
