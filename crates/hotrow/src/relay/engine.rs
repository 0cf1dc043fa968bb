//! Feeds of the databases that a change hub supports.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use hotrow_hub_nats::relay::EngineFeed;
use hotrow_source::origin::Origins;
use hotrow_source::place::Place;
use hotrow_source::{Sink, Source};
#[cfg(feature = "mysql")]
use hotrow_source_mysql::{self as mysql, Mysql, MysqlFeed};
use hotrow_source_postgres::{self as postgres, Hooks, Postgres, PostgresFeed};
use hotrow_supervisor::Supervisor;
use hotrow_types::key::KeySchema;

/// Feed of a database with a change hub.
pub(crate) enum Engine {
    Postgres(PostgresFeed),
    #[cfg(feature = "mysql")]
    Mysql(MysqlFeed),
}

/// An opened database: what reads it, and its feed.
pub(crate) type Opened = (Arc<dyn Source>, Engine);

/// Opens a PostgreSQL database.
///
/// # Errors
/// Every problem of the start.
pub(crate) fn open_postgres(
    config: postgres::config::Config,
    hooks: Hooks,
    supervisor: &Supervisor,
) -> Result<Opened, postgres::OpenError> {
    let Postgres { source, feed } = postgres::open(config, hooks, supervisor)?;
    Ok((source, Engine::Postgres(feed)))
}

/// Opens a MariaDB or MySQL database.
///
/// # Errors
/// Every problem of the start.
#[cfg(feature = "mysql")]
pub(crate) fn open_mysql(
    config: mysql::config::Config,
    hooks: Hooks,
    supervisor: &Supervisor,
) -> Result<Opened, mysql::OpenError> {
    let Mysql { source, feed } = mysql::open(config, hooks, supervisor)?;
    Ok((source, Engine::Mysql(feed)))
}

impl Engine {
    /// Returns the keys of the collections, in the order of the configuration.
    pub(crate) fn schemas(&self) -> &[KeySchema] {
        match self {
            Self::Postgres(feed) => feed.schemas(),
            #[cfg(feature = "mysql")]
            Self::Mysql(feed) => feed.schemas(),
        }
    }

    /// Returns where the feed reports the database that its sessions lead to.
    pub(crate) fn origins(&self) -> Arc<Origins> {
        match self {
            Self::Postgres(feed) => feed.origins(),
            #[cfg(feature = "mysql")]
            Self::Mysql(feed) => feed.origins(),
        }
    }

    /// Returns the receiver of the hub's changes in a server: `sink`, and the engine's readers
    /// where they need to know of them.
    pub(crate) fn hub_sink(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        match self {
            Self::Postgres(_) => sink,
            #[cfg(feature = "mysql")]
            Self::Mysql(feed) => feed.hub_sink(sink),
        }
    }
}

impl EngineFeed for Engine {
    fn follow<'a>(
        &'a self,
        sink: &'a dyn Sink,
        place: Option<&'a dyn Place>,
    ) -> Pin<Box<dyn Future<Output = Infallible> + 'a>> {
        match self {
            Self::Postgres(feed) => Box::pin(feed.follow(sink, place)),
            #[cfg(feature = "mysql")]
            Self::Mysql(feed) => Box::pin(feed.follow(sink, place)),
        }
    }
}
