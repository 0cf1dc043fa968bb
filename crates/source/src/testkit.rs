//! Test helpers for all engines: a running feed and a recording sink.
#![allow(
    missing_docs,
    clippy::len_without_is_empty,
    clippy::panic,
    clippy::unwrap_used,
    reason = "for the tests of engines only"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema};
use hotrow_types::version::{ChangeId, Position, Version};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Runtime;

use crate::looks::Looks;
use crate::spec::{CollectionConfig, Follow, ServerConfig};
use crate::standby::{StandbyRead, StandbyRefusal};
use crate::{Change, FlushCause, LossCause, ReadSet, RowBudget, Sink, Source, SourceError};

/// Longest wait for a condition; a later one is a failure.
pub const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Change(Change),
    Flush(CollectionId, FlushCause, Option<ChangeId>),
    Gap(CollectionId),
    GapClosed(CollectionId),
    Loss(LossCause, String),
    Started(Option<Position>),
    Advance(Nanos, Option<Position>, Option<Version>),
}

/// Sink that records every call; of consecutive advances only the last.
#[derive(Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
    /// Length of the longest portion of changes.
    longest: AtomicU64,
    visible: Mutex<Option<Version>>,
}

impl Recorder {
    fn push(&self, event: Event) {
        let mut events = self.events.lock();
        if let (Event::Advance(..), Some(Event::Advance(..))) = (&event, events.last()) {
            events.pop();
        }
        events.push(event);
        self.changed.notify_all();
    }

    #[track_caller]
    pub fn wait<T>(&self, what: &str, found: impl Fn(&[Event]) -> Option<T>) -> T {
        let until = Instant::now() + DEADLINE;
        let mut events = self.events.lock();
        loop {
            if let Some(found) = found(&events) {
                return found;
            }
            if self.changed.wait_until(&mut events, until).timed_out() {
                let tail = &events[events.len().saturating_sub(30)..];
                panic!("timed out waiting for {what}; last events: {tail:#?}");
            }
        }
    }

    pub fn len(&self) -> usize {
        self.events.lock().len()
    }

    /// Returns the events from index `from` on, without advances.
    pub fn since(&self, from: usize) -> Vec<Event> {
        let events = self.events.lock();
        events[from.min(events.len())..]
            .iter()
            .filter(|e| !matches!(e, Event::Advance(..)))
            .cloned()
            .collect()
    }

    /// Returns the send time of the newest delivered probe.
    pub fn newest_advance(&self) -> Option<Nanos> {
        self.events.lock().iter().rev().find_map(|e| match e {
            Event::Advance(sent_at, ..) => Some(*sent_at),
            _ => None,
        })
    }

    /// Returns the newest reported lower bound of what readers see.
    pub fn visible(&self) -> Version {
        self.visible.lock().clone().expect("a probe was passed")
    }

    pub fn longest_portion(&self) -> u64 {
        self.longest.load(Ordering::Relaxed)
    }

    /// Waits until the feed has reported that all changes committed before this call are delivered.
    #[track_caller]
    pub fn settle(&self) -> Position {
        let now = Nanos::now();
        self.wait("the feed to pass this moment", |events| match events.last() {
            Some(Event::Advance(sent_at, position, _)) if *sent_at >= now => {
                Some(position.expect("it has positions"))
            }
            _ => None,
        })
    }

    /// Waits for a loss with this cause after event `from`, and returns its detail.
    #[track_caller]
    pub fn loses(&self, from: usize, cause: LossCause) -> String {
        self.wait("the loss", |events| {
            events[from..].iter().find_map(|event| match event {
                Event::Loss(found, detail) if *found == cause => Some(detail.clone()),
                _ => None,
            })
        })
    }

    /// Returns the losses and starts since event `from`, in order.
    pub fn losses_and_starts(&self, from: usize) -> Vec<String> {
        let name = |event| match event {
            Event::Loss(cause, _) => Some(format!("{cause:?}")),
            Event::Started(_) => Some("started".to_owned()),
            _ => None,
        };
        self.since(from).into_iter().filter_map(name).collect()
    }

    /// Waits for a loss with this cause after event `from` and for the next start. Returns the
    /// detail of the loss.
    #[track_caller]
    pub fn recovers(&self, from: usize, cause: LossCause) -> String {
        self.wait("a loss and a start", |events| {
            let after = &events[from.min(events.len())..];
            let lost = after.iter().position(|e| matches!(e, Event::Loss(c, _) if *c == cause))?;
            after[lost..].iter().find(|e| matches!(e, Event::Started(_)))?;
            let Event::Loss(_, detail) = &after[lost] else { return None };
            Some(detail.clone())
        })
    }
}

impl Sink for Recorder {
    fn changes(&self, changes: &[Change]) {
        self.longest.fetch_max(changes.len() as u64, Ordering::Relaxed);
        for change in changes {
            self.push(Event::Change(change.clone()));
        }
    }
    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>) {
        self.push(Event::Flush(collection, cause, mark));
    }
    fn open_gap(&self, collection: CollectionId, _: &str) {
        self.push(Event::Gap(collection));
    }
    fn close_gap(&self, collection: CollectionId) {
        self.push(Event::GapClosed(collection));
    }
    fn loss(&self, cause: LossCause, detail: &str) {
        self.push(Event::Loss(cause, detail.to_owned()));
    }
    fn started(&self, position: Option<Position>) {
        self.push(Event::Started(position));
    }
    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>) {
        if let Some(visible) = visible {
            *self.visible.lock() = Some(visible.clone());
        }
        self.push(Event::Advance(probe_sent_at, position, visible.cloned()));
    }

    fn looks(&self) -> Option<&Looks> {
        None
    }
}

/// Returns the settings of a server with these collections, each of the form `table(key, key)`.
pub fn server(url: &str, collections: &[&str]) -> ServerConfig {
    ServerConfig {
        url: url.into(),
        feed_url: None,
        read_urls: Vec::new(),
        reads_in_flight: 2,
        read_timeout: Duration::from_secs(10),
        // No bound on starting on a loaded machine; tests of this limit set their own.
        connect_timeout: DEADLINE,
        follow: Follow::Changes,
        max_staleness: Duration::from_secs(1),
        schema_poll: Duration::from_secs(1),
        collections: collections.iter().map(|text| spec(text)).collect(),
    }
}

/// Returns the same with short times, for tests of the feed.
pub fn brisk_server(url: &str, collections: &[&str]) -> ServerConfig {
    ServerConfig {
        max_staleness: Duration::from_millis(200),
        schema_poll: Duration::from_millis(50),
        ..server(url, collections)
    }
}

/// Parses a collection of the form `table(key, key)`.
pub fn spec(text: &str) -> CollectionConfig {
    let (table, key) = text.strip_suffix(')').unwrap().rsplit_once('(').unwrap();
    CollectionConfig {
        name: table.into(),
        table: table.into(),
        key: key.split(',').map(|k| k.trim().into()).collect(),
        key_types: Vec::new(),
        columns: None,
        exclude: Vec::new(),
        tenant: None,
        is_alias: false,
        embed: Vec::new(),
    }
}

/// Feed on a thread of its own; dropping it stops the feed.
pub struct FeedThread {
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Drop for FeedThread {
    fn drop(&mut self) {
        self.shutdown.now();
        let joined = self.thread.take().unwrap().join();
        assert!(joined.is_ok() || std::thread::panicking());
    }
}

impl FeedThread {
    pub fn start(feed: impl FnOnce(&Shutdown) -> std::io::Result<()> + Send + 'static) -> Self {
        let shutdown = Shutdown::new();
        let ending = shutdown.clone();
        let thread = std::thread::spawn(move || feed(&ending).expect("an event loop"));
        Self { shutdown, thread: Some(thread) }
    }
}

/// Source whose feed runs.
pub struct Running<S> {
    pub source: Arc<S>,
    pub sink: Arc<Recorder>,
    _feed: FeedThread,
}

impl<S: Source> Running<S> {
    pub fn start(
        source: Arc<S>,
        feed: impl FnOnce(Arc<dyn Sink>, &Shutdown) -> std::io::Result<()> + Send + 'static,
    ) -> Self {
        let sink = Arc::new(Recorder::default());
        let feed_sink = Arc::clone(&sink);
        Self { source, sink, _feed: FeedThread::start(move |shutdown| feed(feed_sink, shutdown)) }
    }

    pub fn settle(&self) -> Position {
        self.sink.settle()
    }

    pub fn recovers(&self, from: usize, cause: LossCause) -> String {
        self.sink.recovers(from, cause)
    }

    pub fn schema(&self, collection: usize) -> &KeySchema {
        &self.source.schemas()[collection]
    }

    pub fn key(&self, collection: usize, parts: &[KeyPart<'_>]) -> Key {
        self.schema(collection).key(parts).unwrap()
    }

    pub fn int(&self, collection: usize, id: i64) -> Key {
        self.key(collection, &[KeyPart::Integer(id)])
    }

    /// Reads the row with this id.
    pub fn read(&self, collection: usize, id: i64) -> ReadSet {
        let key = self.int(collection, id);
        runtime().block_on(self.source.read(key.collection(), vec![key])).unwrap()
    }

    /// Returns the version of a read of this row.
    pub fn version_of_a_read(&self, collection: usize, id: i64) -> Version {
        self.read(collection, id).version
    }

    /// Returns the events that the feed delivers for the changes of `work`.
    pub fn delivered_of(&self, work: impl FnOnce()) -> Vec<Event> {
        let from = self.sink.len();
        work();
        self.settle();
        self.sink.since(from)
    }

    /// Returns the keys delivered for the changes of `work`; panics on other events.
    pub fn keys_of(&self, work: impl FnOnce()) -> Vec<Key> {
        let key = |event| match event {
            Event::Change(change) => change.key,
            other => panic!("{other:?}"),
        };
        self.delivered_of(work).into_iter().map(key).collect()
    }
}

/// Source with a runtime for its reads.
pub struct Reader<S> {
    pub source: Arc<S>,
    runtime: Runtime,
}

impl<S: Source> Reader<S> {
    pub fn new(source: Arc<S>) -> Self {
        Self { source, runtime: runtime() }
    }

    pub fn reading(
        &self,
        collection: u16,
        ids: &[&str],
    ) -> impl Future<Output = Result<ReadSet, SourceError>> + Send + use<S> {
        let schema = &self.source.schemas()[usize::from(collection)];
        let keys = ids
            .iter()
            .map(|id| schema.parse_url(id).unwrap_or_else(|e| panic!("{id}: {e}")))
            .collect();
        let source = Arc::clone(&self.source);
        async move { source.read(CollectionId(collection), keys).await }
    }

    pub fn read(&self, collection: u16, ids: &[&str]) -> Result<ReadSet, SourceError> {
        self.block_on(self.reading(collection, ids))
    }

    /// Reads this id of each of the first collections, in one transaction.
    pub fn read_snapshot(&self, ids: &[&str]) -> Result<ReadSet, SourceError> {
        let part = |(schema, id): (&KeySchema, &&str)| {
            (schema.collection(), vec![schema.parse_url(id).unwrap()])
        };
        let parts = self.source.schemas().iter().zip(ids).map(part).collect();
        self.block_on(self.source.read_snapshot(parts, RowBudget::unlimited()))
    }

    pub fn read_standby(
        &self,
        collection: u16,
        ids: &[&str],
        floor: Position,
    ) -> Result<StandbyRead, StandbyRefusal> {
        let schema = &self.source.schemas()[usize::from(collection)];
        let keys = ids.iter().map(|id| schema.parse_url(id).unwrap()).collect();
        let rows = RowBudget::unlimited();
        self.block_on(self.source.read_standby(CollectionId(collection), keys, rows, floor))
    }

    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Waits until `condition` is true.
#[track_caller]
pub fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
