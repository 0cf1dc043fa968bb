//! Feed against a server, for tests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use hotrow_types::key::Key;
use hotrow_types::version::Version;

use super::server::Server;
use crate::config::Config;
use crate::tuning::Tuning;
use crate::{Hooks, Mysql, MysqlSource, open};
use hotrow_source::Source as _;
use hotrow_source::spec::Follow;
use hotrow_source::testkit::Running;
pub(crate) use hotrow_source::testkit::{DEADLINE, Event, spec};

pub(crate) fn config(url: String, collections: &[&str]) -> Config {
    Config {
        url,
        feed_url: None,
        follow: Follow::Changes,
        server_id: None,
        reads_in_flight: 2,
        read_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        max_staleness: Duration::from_millis(200),
        schema_poll: Duration::from_millis(50),
        collections: collections.iter().map(|c| spec(c)).collect(),
    }
}

/// Running feed. It stops when dropped.
pub(crate) struct Feed {
    pub(crate) source: Arc<MysqlSource>,
    running: Running,
}

impl Deref for Feed {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
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
        let Mysql { source, mut feed } =
            open(config, Hooks::default()).unwrap_or_else(|e| panic!("{e}"));
        tune(&mut feed.tuning);
        let running =
            Running::start(source.schemas(), move |sink, shutdown| feed.run(sink, shutdown));
        Self { source, running }
    }

    /// Returns the version of a read of this row.
    pub(crate) fn version_of_a_read(&self, collection: usize, id: i64) -> Version {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = self.int(collection, id);
        runtime.block_on(self.source.read(key.collection(), vec![key])).unwrap().version
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

/// Returns the error of `open` for this configuration.
pub(crate) fn refusal(config: Config) -> String {
    open(config, Hooks::default()).map(drop).expect_err("it must be refused").to_string()
}
