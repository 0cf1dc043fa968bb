//! What the tests of several engines share: a feed that runs, and a sink that remembers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotrow_cache::key::{CollectionId, Key, KeyPart, KeySchema};
use hotrow_cache::version::{Mark, Position, Version};
use hotrow_measure::clock::Nanos;
use parking_lot::{Condvar, Mutex};

use crate::spec::CollectionSpec;
use crate::{Change, FlushCause, LossCause, Sink};

/// A condition that does not come true within this time has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Change(Change),
    Flush(CollectionId, FlushCause, Option<Mark>),
    Loss(LossCause, String),
    Started(Option<Position>),
    Advance(Nanos, Option<Position>, Option<Version>),
}

/// A sink that remembers everything; of advances that follow each other the last.
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

    #[track_caller]
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

    /// Waits until the feed has told that all which was committed before this call is delivered.
    #[track_caller]
    pub(crate) fn settle(&self) -> Position {
        let now = Nanos::now();
        self.wait("the feed to pass this moment", |events| match events.last() {
            Some(Event::Advance(sent_at, position, _)) if *sent_at >= now => Some(position.expect("it has positions")),
            _ => None,
        })
    }

    /// Waits for a loss of this cause after event `from`, and for the next start; the loss' text.
    #[track_caller]
    pub(crate) fn recovers(&self, from: usize, cause: LossCause) -> String {
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
    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<Mark>) {
        self.push(Event::Flush(collection, cause, mark));
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

/// A running feed; it stops when dropped.
pub(crate) struct Running {
    pub(crate) sink: Arc<Recorder>,
    shutdown: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) schemas: Vec<KeySchema>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.store(true, Ordering::Relaxed);
        let joined = self.thread.take().unwrap().join();
        assert!(joined.is_ok() || std::thread::panicking());
    }
}

impl Running {
    /// Runs `feed` on a thread.
    pub(crate) fn start(
        schemas: &[KeySchema],
        feed: impl FnOnce(Arc<dyn Sink>, Arc<AtomicBool>) + Send + 'static,
    ) -> Self {
        let (sink, shutdown) = (Arc::new(Recorder::default()), Arc::new(AtomicBool::new(false)));
        let (for_feed, stop) = (Arc::clone(&sink), Arc::clone(&shutdown));
        let thread = Some(std::thread::spawn(move || feed(for_feed, stop)));
        Self { sink, shutdown, thread, schemas: schemas.to_vec() }
    }

    pub(crate) fn settle(&self) -> Position {
        self.sink.settle()
    }

    pub(crate) fn recovers(&self, from: usize, cause: LossCause) -> String {
        self.sink.recovers(from, cause)
    }

    /// The key of `collection` with these parts.
    pub(crate) fn key(&self, collection: usize, parts: &[KeyPart<'_>]) -> Key {
        self.schemas[collection].key(parts).unwrap()
    }

    pub(crate) fn int(&self, collection: usize, id: i64) -> Key {
        self.key(collection, &[KeyPart::Integer(id)])
    }

    /// What the feed delivers of what `work` does.
    pub(crate) fn delivered_of(&self, work: impl FnOnce()) -> Vec<Event> {
        let from = self.sink.len();
        work();
        self.settle();
        self.sink.since(from)
    }

    /// The keys among what is delivered of what `work` does, which must be changes only.
    pub(crate) fn keys_of(&self, work: impl FnOnce()) -> Vec<Key> {
        let key = |event| match event {
            Event::Change(change) => change.key,
            other => panic!("{other:?}"),
        };
        self.delivered_of(work).into_iter().map(key).collect()
    }
}
