//! An HTTP load generator that cannot flatter.
//!
//! Reading order: [`plan`] (which request is intended when), [`request`] and [`ids`] (what is sent), [`target`] (where to),
//! [`response`] (what comes back), [`run`] (threads, from the beginning to the outcome), `worker` (one thread's loop),
//! `connection`, `outbox` (what a socket did not take), `stream` (sockets and TLS), [`record`] (what is counted),
//! [`outcome`], [`limited`] (was it us?), [`objective`] (was it good enough?), [`null`] and [`calibrate`] (how much can we do?);
//! [`ask`] (one request and its whole answer, no load) and [`form`].
//!
//! Everything in here is pure but `ask`, `run`, `worker`, `connection`, `stream` and `null`.

pub mod ask;
pub mod calibrate;
mod connection;
pub mod form;
pub mod ids;
pub mod limited;
pub mod null;
pub mod objective;
mod outbox;
pub mod outcome;
pub mod plan;
pub mod random;
pub mod record;
pub mod request;
pub mod response;
pub mod run;
mod stream;
mod tally;
pub mod target;
pub mod tls;
mod worker;
