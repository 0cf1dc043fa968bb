//! Test harness: a database, an engine on it, and a recording sink.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;
use hotrow_supervisor::Supervisor;
use hotrow_types::key::{CollectionId, Key, KeyPart};
use hotrow_types::version::{ChangeId, Position, Version};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::config::Tuning;
use crate::config::{CollectionConfig, Config, Watch};
use crate::{Hooks, SqliteSource, open_with};
use hotrow_source::looks::Looks;
use hotrow_source::testkit::FeedThread;
pub(super) use hotrow_source::testkit::spec;
use hotrow_source::{Change, FlushCause, LossCause, ReadSet, Row, Sink, Source, SourceError};

pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// Database file with a writer on it.
pub(super) struct Db {
    pub(super) dir: TempDir,
    pub(super) path: PathBuf,
    pub(super) writer: Connection,
}

impl Db {
    /// Creates a database in WAL mode with this content.
    pub(super) fn new(sql: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.db");
        let writer = writer(&path);
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        writer.execute_batch(sql).unwrap();
        Self { dir, path, writer }
    }

    pub(super) fn run(&self, sql: &str) {
        self.writer.execute_batch(sql).unwrap();
    }

    pub(super) fn one<T: rusqlite::types::FromSql>(&self, sql: &str) -> T {
        self.writer.query_row(sql, [], |r| r.get(0)).unwrap()
    }

    pub(super) fn config(&self, collections: Vec<CollectionConfig>) -> Config {
        Config {
            is_trial: false,
            path: self.path.clone(),
            watch: Watch::Triggers,
            reads_in_flight: 2,
            read_timeout: Duration::from_secs(5),
            collections,
        }
    }

    /// Starts an engine on collections of the form `table(key, key)`.
    pub(super) fn start(&self, collections: &[&str]) -> Engine {
        Engine::start(self.config(collections.iter().map(|c| spec(c)).collect()), Tuning::default())
    }
}

/// Opens a connection that writes like any other program: short waits, none of Hotrow's settings.
pub(super) fn writer(path: &Path) -> Connection {
    let writer = Connection::open(path).unwrap();
    writer.busy_timeout(DEADLINE).unwrap();
    writer.pragma_update(None, "synchronous", "OFF").unwrap();
    writer
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    Changes(Vec<Change>),
    Flush(CollectionId, FlushCause),
    Loss(LossCause),
    Started(Option<Position>),
    Advance(Nanos, Option<Position>),
}

/// Sink that records every event. Tests can wait for an event or block the feed.
#[derive(Default)]
pub(super) struct Recorder {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
    held: Mutex<()>,
    advances: AtomicU64,
    /// Calls of the feed begun, and calls completed.
    calls_begun: AtomicU64,
    calls_done: AtomicU64,
}

impl Recorder {
    fn push(&self, event: Event) {
        self.calls_begun.fetch_add(1, Ordering::SeqCst);
        let _held = self.held.lock();
        let mut events = self.events.lock();
        if let (Event::Advance(..), Some(Event::Advance(..))) = (&event, events.last()) {
            events.pop();
        }
        events.push(event);
        self.changed.notify_all();
        self.calls_done.fetch_add(1, Ordering::SeqCst);
    }

    /// Blocks the feed in its next delivery while the guard lives.
    pub(super) fn hold(&self) -> parking_lot::MutexGuard<'_, ()> {
        let held = self.held.lock();
        let until = Instant::now() + DEADLINE;
        while self.calls_begun.load(Ordering::SeqCst) == self.calls_done.load(Ordering::SeqCst) {
            assert!(Instant::now() < until, "the feed makes no delivery");
            std::thread::yield_now();
        }
        held
    }

    pub(super) fn wait<T>(&self, what: &str, found: impl Fn(&[Event]) -> Option<T>) -> T {
        let until = Instant::now() + DEADLINE;
        let mut events = self.events.lock();
        loop {
            if let Some(found) = found(&events) {
                return found;
            }
            if self.changed.wait_until(&mut events, until).timed_out() {
                panic!("timed out waiting for {what}; events: {events:?}");
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.events.lock().len()
    }

    pub(super) fn advances(&self) -> u64 {
        self.advances.load(Ordering::SeqCst)
    }
}

impl Sink for Recorder {
    fn changes(&self, changes: &[Change]) {
        self.push(Event::Changes(changes.to_vec()));
    }
    fn flush(&self, collection: CollectionId, cause: FlushCause, _: Option<ChangeId>) {
        self.push(Event::Flush(collection, cause));
    }
    fn open_gap(&self, _: CollectionId, _: &str) {}
    fn close_gap(&self, _: CollectionId) {}
    fn loss(&self, cause: LossCause, _detail: &str) {
        self.push(Event::Loss(cause));
    }
    fn started(&self, position: Option<Position>) {
        self.push(Event::Started(position));
    }
    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, _: Option<&Version>) {
        self.push(Event::Advance(probe_sent_at, position));
        self.advances.fetch_add(1, Ordering::SeqCst);
    }

    fn looks(&self) -> Option<&Looks> {
        None
    }
}

pub(super) struct Engine {
    pub(super) source: Arc<SqliteSource>,
    pub(super) sink: Arc<Recorder>,
    _feed: FeedThread,
}

impl Engine {
    pub(super) fn start(config: Config, tuning: Tuning) -> Self {
        Self::start_hooked(config, tuning, Hooks::default())
    }

    pub(super) fn start_hooked(config: Config, tuning: Tuning, hooks: Hooks) -> Self {
        let sqlite = open_with(config, hooks, tuning, &Supervisor::default()).unwrap();
        let sink = Arc::new(Recorder::default());
        let feed_sink = Arc::clone(&sink);
        let mut feed = sqlite.feed;
        let feed = FeedThread::start(move |shutdown| feed.run(feed_sink, shutdown));
        Self { source: sqlite.source, sink, _feed: feed }
    }

    /// Waits until the feed has reported that all changes committed before this call are delivered.
    pub(super) fn settle(&self) -> Option<Position> {
        let now = Nanos::now();
        self.sink.wait("the feed to pass this moment", |events| match events.last() {
            Some(Event::Advance(sent_at, position)) if *sent_at >= now => Some(*position),
            _ => None,
        })
    }

    /// Returns the deliveries from the start of `act` until the feed has passed its end.
    pub(super) fn during(&self, act: impl FnOnce()) -> Deliveries {
        self.settle();
        let from = self.sink.len();
        act();
        self.settle();
        Deliveries::of(&self.sink.events.lock()[from - 1..])
    }

    pub(super) fn read(&self, collection: u16, keys: &[&str]) -> Result<ReadSet, SourceError> {
        let schema = &self.source.schemas()[usize::from(collection)];
        let keys = keys.iter().map(|k| schema.parse_url(k).unwrap()).collect();
        block_on(self.source.read(CollectionId(collection), keys))
    }

    /// Returns one row as JSON text; `None` if it is missing.
    pub(super) fn row(&self, collection: u16, key: &str) -> Option<String> {
        let mut set = self.read(collection, &[key]).unwrap();
        match set.rows.pop().unwrap() {
            Row::Found(json) => Some(String::from_utf8(json).unwrap()),
            Row::Missing => None,
            row => panic!("{row:?}"),
        }
    }
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Deliveries {
    /// Keys in the form `collection:part,part`.
    pub(super) keys: BTreeSet<String>,
    pub(super) flushes: Vec<(u16, FlushCause)>,
    pub(super) losses: Vec<LossCause>,
    pub(super) starts: usize,
    pub(super) last_mark: Option<ChangeId>,
}

impl Deliveries {
    fn of(events: &[Event]) -> Self {
        let mut deliveries = Self::default();
        for event in events {
            match event {
                Event::Changes(changes) => {
                    deliveries.keys.extend(changes.iter().map(|c| spell(&c.key)));
                    deliveries.last_mark = changes.last().map(|c| c.mark);
                }
                Event::Flush(collection, cause) => deliveries.flushes.push((collection.0, *cause)),
                Event::Loss(cause) => deliveries.losses.push(*cause),
                Event::Started(_) => deliveries.starts += 1,
                Event::Advance(..) => {}
            }
        }
        deliveries
    }

    /// Asserts that exactly these keys were delivered, without flushes or losses.
    pub(super) fn only(&self, keys: &[&str]) {
        let expected: BTreeSet<String> = keys.iter().map(|k| (*k).into()).collect();
        assert_eq!(self.keys, expected, "{self:?}");
        assert!(self.flushes.is_empty() && self.losses.is_empty(), "{self:?}");
    }
}

fn spell(key: &Key) -> String {
    let parts = key.parts().map(|p| match p {
        KeyPart::Integer(v) => v.to_string(),
        KeyPart::Text(v) => v.into(),
        KeyPart::Bytes(v) => v.iter().map(|b| format!("{b:02x}")).collect(),
    });
    format!("{}:{}", key.collection().0, parts.collect::<Vec<_>>().join(","))
}

pub(super) fn program(name: &str, args: &[&str]) {
    let output = std::process::Command::new(name).args(args).output().unwrap();
    assert!(output.status.success(), "{name} {args:?}: {output:?}");
}
