//! The reference service that experiments measure, as a good engineer would write it with common libraries. It stands for
//! "your service": axum on tokio, serde, a pool of database connections, a query builder and an ORM.
//!
//! Reading order: here (what can be set), `serve` (listening, stopping), `routes`, then a file per endpoint: `hello`, `date`,
//! `name`, `row` (with `database`), `work`, and `clock` (the date and until when it holds) and `problem` (what a client is told).

mod clock;
mod database;
mod date;
mod hello;
mod name;
mod problem;
mod routes;
mod row;
mod serve;
mod work;

use std::net::SocketAddr;
use std::num::NonZeroUsize;

pub use clock::{Clock, ClockError, OFFSET_S_MAX, Shift, Time, time_of_day};
pub use database::{DatabaseError, DatabaseUrl, ROWS, make_database};
pub use serve::{ServeError, serve};

/// The most workers that may be asked for.
pub const WORKERS_MAX: usize = 1024;
/// The most connections to the database that may be asked for.
pub const CONNECTIONS_MAX: usize = 2 * WORKERS_MAX;

/// What the service is given.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads that handle requests, at most [`WORKERS_MAX`].
    pub workers: NonZeroUsize,
    /// How they handle them.
    pub model: Model,
    /// What it takes for now.
    pub clock: Clock,
    /// What `/db` reads; without it, `/db` answers 503.
    pub database: Option<DatabaseConfig>,
}

/// A database that [`make_database`] has filled.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// Where it is.
    pub url: DatabaseUrl,
    /// Connections that are kept, at most [`CONNECTIONS_MAX`].
    pub connections: NonZeroUsize,
}

/// How requests are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The workers are the threads of the runtime: one that waits, for a time or for the database, handles others meanwhile.
    Async,
    /// The workers are a pool of threads; each handles one request from its beginning to its end, and stands still while it
    /// waits. Connections are read and written elsewhere, so that an idle one holds no worker.
    Blocking,
}
