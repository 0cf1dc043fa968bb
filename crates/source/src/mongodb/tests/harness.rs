//! An engine over a place, and what tests ask of it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotrow_cache::key::{CollectionId, Key};
use tokio::runtime::Runtime;

use super::place::Place;
use crate::mongodb::config::{CollectionSpec, Config, Follow, JsonForm};
use crate::mongodb::tuning::Tuning;
use crate::mongodb::{Hooks, Mongo, MongoSource, open};
use crate::testkit::{Event, Running};
use crate::{ReadError, ReadSet, Row, Source as _};

/// A condition that does not come true within this time has failed.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// `things` by `_id`.
pub(super) fn spec(name: &str) -> CollectionSpec {
    CollectionSpec {
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

/// A source with a running feed; it stops when dropped.
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
    /// Runs over these collections, and waits until it is fresh.
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
        let running = Running::start(source.schemas(), |sink, shutdown| feed.run(sink, shutdown));
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
    ) -> impl Future<Output = Result<ReadSet, ReadError>> + Send + use<> {
        let keys = ids.iter().map(|id| self.key(collection, id)).collect();
        let source = Arc::clone(&self.source);
        async move { source.read(CollectionId(collection), keys).await }
    }

    pub(super) fn read(&self, collection: u16, ids: &[&str]) -> Result<ReadSet, ReadError> {
        self.runtime.block_on(self.reading(collection, ids))
    }

    /// The record as text; "-" where there is none.
    #[track_caller]
    pub(super) fn text(&self, collection: u16, id: &str) -> String {
        match self.read(collection, &[id]).unwrap().rows.remove(0) {
            Row::Found(json) => String::from_utf8(json).unwrap(),
            Row::Missing => "-".into(),
            other => panic!("{id}: {other:?}"),
        }
    }

    /// What the feed delivered of what `write` did, advances left out.
    #[track_caller]
    pub(super) fn delivered(&self, write: impl FnOnce()) -> Vec<Event> {
        self.delivered_of(write)
    }

    /// The keys among what was delivered, which must be changes only.
    #[track_caller]
    pub(super) fn keys(&self, write: impl FnOnce()) -> Vec<Key> {
        self.keys_of(write)
    }
}

/// What `open` says against this configuration.
#[track_caller]
pub(super) fn refusal(config: Config) -> String {
    open(config, Hooks::default()).map(drop).expect_err("it must be refused").to_string()
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
