//! A feed against a server, and a sink that remembers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotrow_cache::key::{CollectionId, Key, KeyPart, KeySchema};
use hotrow_cache::version::{Mark, Position, Version};
use hotrow_measure::clock::Nanos;
use parking_lot::{Condvar, Mutex};

use super::server::Server;
use crate::mysql::config::Config;
use crate::mysql::tuning::Tuning;
use crate::mysql::{Hooks, Mysql, MysqlSource, open};
use crate::spec::{CollectionSpec, Follow};
use crate::{Change, FlushCause, LossCause, Sink, Source as _};

/// A condition that does not come true within this time has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Change(Change),
    Flush(CollectionId, FlushCause, Option<Mark>),
    Loss(LossCause, String),
    Started(Position),
    Advance(Nanos, Position, Option<Version>),
}

/// A sink that remembers everything.
#[derive(Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
    /// Longest portion of changes.
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

    pub(crate) fn wait<T>(&self, what: &str, found: impl Fn(&[Event]) -> Option<T>) -> T {
        let until = Instant::now() + DEADLINE;
        let mut events = self.events.lock();
        loop {
            if let Some(found) = found(&events) {
                return found;
            }
            if self.changed.wait_until(&mut events, until).timed_out() {
                let tail = &events[events.len().saturating_sub(30)..];
                panic!("waited in vain for {what}; seen last: {tail:#?}");
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.events.lock().len()
    }

    /// What came since, advances left out.
    pub(crate) fn since(&self, from: usize) -> Vec<Event> {
        let events = self.events.lock();
        events[from.min(events.len())..].iter().filter(|e| !matches!(e, Event::Advance(..))).cloned().collect()
    }

    /// When the newest passed probe was sent.
    pub(crate) fn newest_advance(&self) -> Option<Nanos> {
        self.events.lock().iter().rev().find_map(|e| match e {
            Event::Advance(sent_at, ..) => Some(*sent_at),
            _ => None,
        })
    }

    /// What readers see at least, as it was told last.
    pub(crate) fn visible(&self) -> Version {
        self.visible.lock().clone().expect("a probe was passed")
    }

    pub(crate) fn longest_portion(&self) -> u64 {
        self.longest.load(Ordering::Relaxed)
    }
}

impl Sink for Recorder {
    fn changes(&self, changes: &[Change]) {
        self.longest.fetch_max(changes.len() as u64, Ordering::Relaxed);
        for change in changes {
            self.push(Event::Change(change.clone()));
        }
    }
    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<Mark>) {
        self.push(Event::Flush(collection, cause, mark));
    }
    fn loss(&self, cause: LossCause, detail: &str) {
        self.push(Event::Loss(cause, detail.to_owned()));
    }
    fn started(&self, position: Option<Position>) {
        self.push(Event::Started(position.expect("the engine has positions")));
    }
    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>) {
        if let Some(visible) = visible {
            *self.visible.lock() = Some(visible.clone());
        }
        self.push(Event::Advance(probe_sent_at, position.expect("the engine has positions"), visible.cloned()));
    }
}

/// `table(key, key)`.
pub(crate) fn spec(text: &str) -> CollectionSpec {
    let (table, key) = text.strip_suffix(')').unwrap().rsplit_once('(').unwrap();
    CollectionSpec {
        name: table.into(),
        table: table.into(),
        key: key.split(',').map(|k| k.trim().into()).collect(),
        key_types: Vec::new(),
        columns: None,
        exclude: Vec::new(),
    }
}

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
    pub(crate) sink: Arc<Recorder>,
    shutdown: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) source: Arc<MysqlSource>,
    pub(crate) schemas: Vec<KeySchema>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shutdown.store(true, Ordering::Relaxed);
        let joined = self.thread.take().unwrap().join();
        assert!(joined.is_ok() || std::thread::panicking());
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
        let schemas: Vec<KeySchema> = source.schemas().to_vec();
        let (sink, shutdown) = (Arc::new(Recorder::default()), Arc::new(AtomicBool::new(false)));
        let (for_feed, stop) = (Arc::clone(&sink), Arc::clone(&shutdown));
        let thread = std::thread::spawn(move || feed.run(for_feed, stop));
        Self { sink, source, shutdown, thread: Some(thread), schemas }
    }

    /// Waits until the feed has told that all which was committed before this call is delivered.
    pub(crate) fn settle(&self) -> Position {
        let now = Nanos::now();
        self.sink.wait("the feed to pass this moment", |events| match events.last() {
            Some(Event::Advance(sent_at, position, _)) if *sent_at >= now => Some(*position),
            _ => None,
        })
    }

    /// The key of `collection` with these parts.
    pub(crate) fn key(&self, collection: usize, parts: &[KeyPart<'_>]) -> Key {
        self.schemas[collection].key(parts).unwrap()
    }

    pub(crate) fn int(&self, collection: usize, id: i64) -> Key {
        self.key(collection, &[KeyPart::Integer(id)])
    }

    /// What a read of this row sees.
    pub(crate) fn version_of_a_read(&self, collection: usize, id: i64) -> Version {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = self.int(collection, id);
        runtime.block_on(self.source.read(key.collection(), vec![key])).unwrap().version
    }

    /// Runs `sql` and gives what the feed delivered of it.
    pub(crate) fn delivered(&self, server: &Server, sql: &str) -> Vec<Event> {
        let from = self.sink.len();
        server.batch(sql);
        self.settle();
        self.sink.since(from)
    }

    /// The keys among what was delivered of `sql`, which must be changes only; in the order of their bytes, for a
    /// transaction's have none.
    pub(crate) fn keys(&self, server: &Server, sql: &str) -> Vec<Key> {
        let key = |event| match event {
            Event::Change(change) => change.key,
            other => panic!("{sql}: {other:?}"),
        };
        let mut keys: Vec<Key> = self.delivered(server, sql).into_iter().map(key).collect();
        keys.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        keys
    }

    /// Waits for a loss of this cause after event `from`, and for the next start; the loss' text.
    pub(crate) fn recovers(&self, from: usize, cause: LossCause) -> String {
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
pub(crate) fn refusal(config: Config) -> String {
    open(config, Hooks::default()).map(drop).expect_err("it must be refused").to_string()
}
