//! A running feed against a server, with a recording sink.

use std::ops::Deref;

use hotrow_supervisor::Supervisor;
use hotrow_types::key::Key;
use hotrow_types::version::Position;

use super::harness;
use super::server::Server;
use crate::config::{Config, Tuning};
use crate::{Hooks, Postgres, PostgresSource, open};
use hotrow_source::spec::ServerConfig;
use hotrow_source::testkit::{self, Running};
pub(crate) use hotrow_source::testkit::{DEADLINE, Event};

/// Returns a configuration with short times.
pub(crate) fn config(url: String, collections: &[&str]) -> Config {
    let server = ServerConfig { url, ..testkit::brisk_server("", collections) };
    Config { server, ..harness::config("", &[]) }
}

/// Feed that runs; it stops when dropped.
pub(crate) struct Feed(Running<PostgresSource>);

impl Deref for Feed {
    type Target = Running<PostgresSource>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Feed {
    /// Launches a feed and waits until it has started and is fresh.
    pub(crate) fn start(server: &Server, collections: &[&str]) -> Self {
        let feed = Self::launch(config(server.url(), collections), |_| {});
        feed.settle();
        feed
    }

    pub(crate) fn launch(config: Config, tune: impl FnOnce(&mut Tuning)) -> Self {
        let Postgres { source, mut feed } = open(config, Hooks::default(), &Supervisor::default())
            .unwrap_or_else(|e| panic!("{e}"));
        tune(&mut feed.tuning);
        Self(Running::start(source, move |sink, shutdown| feed.run(sink, shutdown)))
    }

    /// Returns the position of a read of this row.
    pub(crate) fn position_of_a_read(&self, collection: usize, id: i64) -> Position {
        self.read(collection, id).position.expect("it has positions")
    }

    /// Runs `sql` and returns the events that the feed delivered for it.
    pub(crate) fn delivered(&self, server: &Server, sql: &str) -> Vec<Event> {
        self.delivered_of(|| server.batch(sql))
    }

    /// Runs `sql` and returns the keys that the feed delivered for it; the events must be changes
    /// only.
    pub(crate) fn keys(&self, server: &Server, sql: &str) -> Vec<Key> {
        self.keys_of(|| server.batch(sql))
    }
}

/// Returns the blockers as the log would name them.
pub(crate) fn blockers(server: &Server, xids: Option<&[u64]>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let blockers = crate::visibility::blockers(&client, xids).await.unwrap();
        driver.abort();
        blockers
    })
}
