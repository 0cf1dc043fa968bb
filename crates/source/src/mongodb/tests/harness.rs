//! An engine over a place, and what tests ask of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotrow_cache::key::{CollectionId, Key};
use hotrow_cache::version::Position;
use hotrow_measure::clock::Nanos;
use tokio::runtime::Runtime;

use super::place::Place;
use super::recorder::{Event, Recorder};
use crate::mongodb::config::{CollectionSpec, Config, Follow, JsonForm};
use crate::mongodb::tuning::Tuning;
use crate::mongodb::{Hooks, Mongo, MongoSource, open};
use crate::{LossCause, ReadError, ReadSet, Row, Source as _};

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
    pub(super) sink: Arc<Recorder>,
    pub(super) runtime: Runtime,
    shutdown: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown.store(true, Ordering::Relaxed);
        let joined = self.thread.take().unwrap().join();
        assert!(joined.is_ok() || std::thread::panicking());
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
        let (sink, shutdown) = (Arc::new(Recorder::default()), Arc::new(AtomicBool::new(false)));
        let (for_feed, stop) = (Arc::clone(&sink), Arc::clone(&shutdown));
        let thread = std::thread::spawn(move || feed.run(for_feed, stop));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { source, sink, runtime, shutdown, thread: Some(thread) }
    }

    /// Waits until the feed has told that all which was committed before this call is delivered.
    #[track_caller]
    pub(super) fn settle(&self) -> Position {
        let now = Nanos::now();
        self.sink.wait("the feed to pass this moment", |events| match events.last() {
            Some(Event::Advance(sent_at, position, _)) if *sent_at >= now => Some(position.unwrap()),
            _ => None,
        })
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
        let from = self.sink.len();
        write();
        self.settle();
        self.sink.since(from)
    }

    /// The keys among what was delivered, which must be changes only.
    #[track_caller]
    pub(super) fn keys(&self, write: impl FnOnce()) -> Vec<Key> {
        let key = |event| match event {
            Event::Change(change) => change.key,
            other => panic!("{other:?}"),
        };
        self.delivered(write).into_iter().map(key).collect()
    }

    /// Waits for a loss of this cause after event `from`, and for the next start; the loss' text.
    #[track_caller]
    pub(super) fn recovers(&self, from: usize, cause: LossCause) -> String {
        self.sink.wait("a loss and a start", |events| {
            let after = &events[from.min(events.len())..];
            let lost = after.iter().position(|e| matches!(e, Event::Loss(c, _) if *c == cause))?;
            after[lost..].iter().find(|e| matches!(e, Event::Started(_)))?;
            let Event::Loss(_, detail) = &after[lost] else { return None };
            Some(detail.clone())
        })
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
