//! A source on a server, with helpers to read from it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotrow_types::key::CollectionId;
use serde_json::Value;

use super::server::Server;
use crate::config::{CollectionConfig, Config, Follow};
use crate::{Hooks, OpenError, PostgresSource, open};
use hotrow_source::{ReadSet, Row, Source as _, SourceError};

/// Time limit of a condition.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// Parses `table(key, key)`.
pub(super) fn spec(text: &str) -> CollectionConfig {
    let (table, key) = text.strip_suffix(')').unwrap().rsplit_once('(').unwrap();
    CollectionConfig {
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

/// A source, and a runtime for its reads.
pub(super) struct Reader {
    pub(super) source: Arc<PostgresSource>,
    runtime: tokio::runtime::Runtime,
}

impl Reader {
    pub(super) fn open(config: Config) -> Self {
        Self::try_open(config, Hooks::default()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Opens these tables as the server's superuser.
    pub(super) fn on(server: &Server, collections: &[&str]) -> Self {
        Self::open(config(&server.url(), collections))
    }

    pub(super) fn try_open(config: Config, hooks: Hooks) -> Result<Self, OpenError> {
        let source = open(config, hooks)?.source;
        Ok(Self {
            source,
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        })
    }

    pub(super) fn read(&self, collection: u16, ids: &[&str]) -> Result<ReadSet, SourceError> {
        self.block_on(self.reading(collection, ids))
    }

    pub(super) fn reading(
        &self,
        collection: u16,
        ids: &[&str],
    ) -> impl Future<Output = Result<ReadSet, SourceError>> + Send + use<> {
        let schema = &self.source.schemas()[usize::from(collection)];
        let keys = ids.iter().map(|id| schema.parse_url(id).unwrap()).collect();
        let source = Arc::clone(&self.source);
        async move { source.read(CollectionId(collection), keys).await }
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Returns the record as text.
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

/// Returns the faults of a database as text.
pub(super) fn refusal(config: Config) -> String {
    Reader::try_open(config, Hooks::default()).map(|_| ()).unwrap_err().to_string()
}

#[track_caller]
pub(super) fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
