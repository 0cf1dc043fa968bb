//! The reference service of experiments, written with common libraries as a typical service: axum
//! on tokio, serde, a pool of database connections, a query builder and an ORM.
//!
//! Reading order: this file (configuration), `serve` (listening, stopping), `service` (its state),
//! `routes`, `problem` (error responses), the endpoints: `endpoints` (with `database`), `name`,
//! `work`; `clock` (the date and its validity).

mod clock;
mod database;
mod endpoints;
mod name;
mod problem;
mod routes;
mod serve;
mod service;
mod work;

use std::net::SocketAddr;
use std::num::NonZeroUsize;

pub use clock::{Clock, ClockError, OFFSET_S_MAX, Shift, Time, time_of_day};
pub use database::{DatabaseError, DatabaseUrl, ROWS, make_database};
pub use serve::{ServeError, serve};

/// Maximum number of workers.
pub const WORKERS_MAX: usize = 1024;
/// Maximum number of database connections.
pub const CONNECTIONS_MAX: usize = 2 * WORKERS_MAX;

/// The configuration of the service.
#[derive(Clone, Debug)]
pub struct Config {
    /// Listening address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads that handle requests, at most [`WORKERS_MAX`].
    pub workers: NonZeroUsize,
    /// The concurrency model of the workers.
    pub model: Model,
    /// The clock.
    pub clock: Clock,
    /// The database of `/db`, which otherwise responds 503.
    pub database: Option<DatabaseConfig>,
}

/// A database filled by [`make_database`].
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// Its location.
    pub url: DatabaseUrl,
    /// Number of connections, at most [`CONNECTIONS_MAX`].
    pub connections: NonZeroUsize,
    /// True if connections are kept for further requests; otherwise each request makes one.
    pub keepalive: bool,
}

/// The concurrency model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The workers are the threads of an asynchronous runtime: while one request waits, a worker
    /// handles others.
    Async,
    /// The workers are a pool of threads. Each handles one request from beginning to end, and
    /// blocks while it waits. Other threads read and write connections, so that an idle one holds
    /// no worker.
    Blocking,
}
