//! Test harness: an engine over a test database.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotrow_types::key::{CollectionId, Key};
use tokio::runtime::Runtime;

use super::place::Place;
use crate::config::{CollectionConfig, Config, Follow, JsonForm};
use crate::tuning::Tuning;
use crate::{Hooks, Mongo, MongoSource, open};
use hotrow_source::testkit::{Event, Running};
use hotrow_source::{ReadSet, Row, Source as _, SourceError};

pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the settings of a collection by `_id`.
pub(super) fn spec(name: &str) -> CollectionConfig {
    CollectionConfig {
        name: name.into(),
        table: name.into(),
        key: vec!["_id".into()],
        key_types: Vec::new(),
        columns: None,
        exclude: Vec::new(),
    }
}

pub(super) fn config(url: &str, collections: &[&str]) -> Config {
    Config {
        url: url.into(),
        feed_url: None,
        follow: Follow::Changes,
        json: JsonForm::Plain,
        reads_in_flight: 4,
        read_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        max_staleness: Duration::from_millis(200),
        schema_poll: Duration::from_millis(50),
        collections: collections.iter().map(|name| spec(name)).collect(),
    }
}

/// Source with a running feed; dropping it stops the feed.
pub(super) struct Engine {
    pub(super) source: Arc<MongoSource>,
    pub(super) runtime: Runtime,
    running: Running,
}

impl Deref for Engine {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl Engine {
    /// Starts an engine on these collections and waits until it is fresh.
    #[track_caller]
    pub(super) fn on(place: &Place, collections: &[&str]) -> Self {
        let engine = Self::launch(config(place.url(), collections), Hooks::default(), |_| {});
        engine.settle();
        engine
    }

    #[track_caller]
    pub(super) fn launch(config: Config, hooks: Hooks, tune: impl FnOnce(&mut Tuning)) -> Self {
        let Mongo { source, mut feed } = open(config, hooks).unwrap_or_else(|e| panic!("{e}"));
        tune(&mut feed.tuning);
        let running =
            Running::start(source.schemas(), move |sink, shutdown| feed.run(sink, shutdown));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { source, runtime, running }
    }

    pub(super) fn key(&self, collection: u16, id: &str) -> Key {
        self.source.schemas()[usize::from(collection)].parse_url(id).unwrap()
    }

    pub(super) fn reading(
        &self,
        collection: u16,
        ids: &[&str],
    ) -> impl Future<Output = Result<ReadSet, SourceError>> + Send + use<> {
        let keys = ids.iter().map(|id| self.key(collection, id)).collect();
        let source = Arc::clone(&self.source);
        async move { source.read(CollectionId(collection), keys).await }
    }

    pub(super) fn read(&self, collection: u16, ids: &[&str]) -> Result<ReadSet, SourceError> {
        self.runtime.block_on(self.reading(collection, ids))
    }

    /// Returns the record as text; "-" if there is none.
    #[track_caller]
    pub(super) fn text(&self, collection: u16, id: &str) -> String {
        match self.read(collection, &[id]).unwrap().rows.remove(0) {
            Row::Found(json) => String::from_utf8(json).unwrap(),
            Row::Missing => "-".into(),
            other => panic!("{id}: {other:?}"),
        }
    }

    /// Returns the events delivered for the changes of `write`, without advances.
    #[track_caller]
    pub(super) fn delivered(&self, write: impl FnOnce()) -> Vec<Event> {
        self.delivered_of(write)
    }

    /// Returns the delivered keys; panics on events other than changes.
    #[track_caller]
    pub(super) fn keys(&self, write: impl FnOnce()) -> Vec<Key> {
        self.keys_of(write)
    }
}

/// Returns the error of `open` for this configuration.
#[track_caller]
pub(super) fn refusal(config: Config) -> String {
    open(config, Hooks::default()).map(drop).expect_err("it must be refused").to_string()
}

#[track_caller]
pub(super) fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
