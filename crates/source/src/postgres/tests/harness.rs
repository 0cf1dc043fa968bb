//! A source on a server, and ways to ask it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotrow_cache::key::CollectionId;
use serde_json::Value;

use super::server::Server;
use crate::postgres::config::{CollectionSpec, Config, Follow};
use crate::postgres::{Hooks, OpenError, PostgresSource, open};
use crate::{ReadError, ReadSet, Row, Source as _};

/// A condition that does not come true within this time has failed.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// `table(key, key)`.
pub(super) fn spec(text: &str) -> CollectionSpec {
    let (table, key) = text.strip_suffix(')').unwrap().rsplit_once('(').unwrap();
    CollectionSpec {
        name: table.into(),
        table: table.into(),
        key: key.split(", ").map(Into::into).collect(),
        key_types: Vec::new(),
        columns: None,
        exclude: Vec::new(),
    }
}

pub(super) fn config(url: &str, collections: &[&str]) -> Config {
    Config {
        url: url.into(),
        feed_url: None,
        publication: "hotrow".into(),
        reads_in_flight: 2,
        read_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        follow: Follow::Changes,
        max_staleness: Duration::from_secs(1),
        schema_poll: Duration::from_secs(1),
        collections: collections.iter().map(|text| spec(text)).collect(),
    }
}

/// A source, and a runtime to ask it from.
pub(super) struct Reader {
    pub(super) source: Arc<PostgresSource>,
    runtime: tokio::runtime::Runtime,
}

impl Reader {
    pub(super) fn open(config: Config) -> Self {
        Self::try_open(config, Hooks::default()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// All of these tables, by the server's superuser.
    pub(super) fn on(server: &Server, collections: &[&str]) -> Self {
        Self::open(config(&server.url(), collections))
    }

    pub(super) fn try_open(config: Config, hooks: Hooks) -> Result<Self, OpenError> {
        let source = open(config, hooks)?.source;
        Ok(Self { source, runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() })
    }

    pub(super) fn read(&self, collection: u16, ids: &[&str]) -> Result<ReadSet, ReadError> {
        self.block_on(self.reading(collection, ids))
    }

    pub(super) fn reading(
        &self,
        collection: u16,
        ids: &[&str],
    ) -> impl Future<Output = Result<ReadSet, ReadError>> + Send + use<> {
        let schema = &self.source.schemas()[usize::from(collection)];
        let keys = ids.iter().map(|id| schema.parse_url(id).unwrap()).collect();
        let source = Arc::clone(&self.source);
        async move { source.read(CollectionId(collection), keys).await }
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The record as text.
    pub(super) fn text(&self, collection: u16, id: &str) -> String {
        match self.read(collection, &[id]).unwrap().rows.remove(0) {
            Row::Found(json) => String::from_utf8(json).unwrap(),
            other => panic!("{id}: {other:?}"),
        }
    }

    pub(super) fn json(&self, collection: u16, id: &str) -> Value {
        let text = self.text(collection, id);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
}

/// What is wrong with a database, as a text.
pub(super) fn refusal(config: Config) -> String {
    Reader::try_open(config, Hooks::default()).map(|_| ()).unwrap_err().to_string()
}

/// Waits until `condition` holds.
#[track_caller]
pub(super) fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
