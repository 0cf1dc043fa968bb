//! An HTTP load generator whose measurements include the time that requests waited to be sent.
//!
//! Reading order: [`plan`] (the schedule of requests), [`request`] and [`ids`] (the bytes sent),
//! [`response`] (the response parser), [`run`] (threads, from start to result), `worker` (the event
//! loop of a thread), `connection`, `outbox` (bytes that a socket has not accepted), `stream`
//! (sockets and TLS), [`stats`] (counts and durations), [`outcome`], [`bottleneck`] (whether the
//! generator was the limit), [`objective`] (service level objectives), [`null`] and [`calibrate`]
//! (the generator's own maximum), [`mod@format`] (durations and counts as text).
//! Everything here is pure except `run`, `worker`, `connection`, `stream` and `null`.

pub mod bottleneck;
pub mod calibrate;
pub mod config;
mod connection;
pub mod format;
mod http2;
pub mod ids;
pub mod latency_map;
pub mod null;
pub mod objective;
mod outbox;
pub mod outcome;
pub mod plan;
pub mod random;
pub mod request;
pub mod response;
pub mod run;
mod sent_request;
pub mod stats;
mod stream;
mod tally;
mod worker;
