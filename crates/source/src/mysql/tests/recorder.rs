//! A feed against a server.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::key::Key;
use hotrow_cache::version::Version;

use super::server::Server;
use crate::Source as _;
use crate::mysql::config::Config;
use crate::mysql::tuning::Tuning;
use crate::mysql::{Hooks, Mysql, MysqlSource, open};
use crate::spec::Follow;
use crate::testkit::Running;
pub(crate) use crate::testkit::{DEADLINE, Event, spec};

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

/// A running feed; it stops when dropped.
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
    /// Runs, and waits until it has started and is fresh.
    pub(crate) fn start(server: &Server, collections: &[&str]) -> Self {
        let feed = Self::launch(config(server.url(), collections), |_| {});
        feed.settle();
        feed
    }

    /// Runs.
    pub(crate) fn launch(config: Config, tune: impl FnOnce(&mut Tuning)) -> Self {
        let Mysql { source, mut feed } = open(config, Hooks::default()).unwrap_or_else(|e| panic!("{e}"));
        tune(&mut feed.tuning);
        let running = Running::start(source.schemas(), |sink, shutdown| feed.run(sink, shutdown));
        Self { source, running }
    }

    /// What a read of this row sees.
    pub(crate) fn version_of_a_read(&self, collection: usize, id: i64) -> Version {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = self.int(collection, id);
        runtime.block_on(self.source.read(key.collection(), vec![key])).unwrap().version
    }

    /// Runs `sql` and gives what the feed delivered of it.
    pub(crate) fn delivered(&self, server: &Server, sql: &str) -> Vec<Event> {
        self.delivered_of(|| server.batch(sql))
    }

    /// The keys among what was delivered of `sql`, which must be changes only; in the order of their bytes, for a
    /// transaction's have none.
    pub(crate) fn keys(&self, server: &Server, sql: &str) -> Vec<Key> {
        let mut keys = self.keys_of(|| server.batch(sql));
        keys.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        keys
    }
}

/// What `open` says against this configuration.
pub(crate) fn refusal(config: Config) -> String {
    open(config, Hooks::default()).map(drop).expect_err("it must be refused").to_string()
}
