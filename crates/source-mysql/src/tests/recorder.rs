//! Feed against a server, for tests.

use std::ops::Deref;

use hotrow_supervisor::Supervisor;
use hotrow_types::key::Key;

use super::harness;
use super::server::Server;
use crate::config::{Config, Tuning};
use crate::{Hooks, Mysql, MysqlSource, open};
use hotrow_source::spec::ServerConfig;
use hotrow_source::testkit::{self, Running};
pub(crate) use hotrow_source::testkit::{DEADLINE, Event};

/// Returns a configuration with short times.
pub(crate) fn config(url: String, collections: &[&str]) -> Config {
    let server = ServerConfig { url, ..testkit::brisk_server("", collections) };
    Config { server, ..harness::config("", &[]) }
}

/// Feed that runs; it stops when dropped.
pub(crate) struct Feed(Running<MysqlSource>);

impl Deref for Feed {
    type Target = Running<MysqlSource>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Feed {
    /// Starts a feed and waits until it is fresh.
    pub(crate) fn start(server: &Server, collections: &[&str]) -> Self {
        let feed = Self::launch(config(server.url(), collections), |_| {});
        feed.settle();
        feed
    }

    /// Starts a feed.
    pub(crate) fn launch(config: Config, tune: impl FnOnce(&mut Tuning)) -> Self {
        let Mysql { source, mut feed } = open(config, Hooks::default(), &Supervisor::default())
            .unwrap_or_else(|e| panic!("{e}"));
        tune(&mut feed.tuning);
        Self(Running::start(source, move |sink, shutdown| feed.run(sink, shutdown)))
    }

    /// Runs `sql` and returns the events that the feed delivered for it.
    pub(crate) fn delivered(&self, server: &Server, sql: &str) -> Vec<Event> {
        self.delivered_of(|| server.batch(sql))
    }

    /// Runs `sql` and returns the changed keys in byte order, because those of one transaction have
    /// no order. Panics on any other event.
    pub(crate) fn keys(&self, server: &Server, sql: &str) -> Vec<Key> {
        let mut keys = self.keys_of(|| server.batch(sql));
        keys.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        keys
    }
}
