//! A sink that remembers.

use std::time::Instant;

use hotrow_cache::key::CollectionId;
use hotrow_cache::version::{Mark, Position, Version};
use hotrow_measure::clock::Nanos;
use parking_lot::{Condvar, Mutex};

use super::harness::DEADLINE;
use crate::{Change, FlushCause, LossCause, Sink};

#[derive(Clone, Debug, PartialEq)]
pub(in crate::mongodb) enum Event {
    Change(Change),
    Flush(CollectionId, FlushCause, Option<Mark>),
    Loss(LossCause, String),
    Started(Option<Position>),
    Advance(Nanos, Option<Position>, Option<Version>),
}

/// Remembers everything; of advances that follow each other the last.
#[derive(Default)]
pub(in crate::mongodb) struct Recorder {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
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
    pub(in crate::mongodb) fn wait<T>(&self, what: &str, found: impl Fn(&[Event]) -> Option<T>) -> T {
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

    pub(in crate::mongodb) fn len(&self) -> usize {
        self.events.lock().len()
    }

    /// What came since, advances left out.
    pub(in crate::mongodb) fn since(&self, from: usize) -> Vec<Event> {
        let events = self.events.lock();
        events[from.min(events.len())..].iter().filter(|e| !matches!(e, Event::Advance(..))).cloned().collect()
    }

    /// When the newest passed probe was sent.
    pub(in crate::mongodb) fn newest_advance(&self) -> Option<Nanos> {
        self.events.lock().iter().rev().find_map(|e| match e {
            Event::Advance(sent_at, ..) => Some(*sent_at),
            _ => None,
        })
    }
}

impl Sink for Recorder {
    fn changes(&self, changes: &[Change]) {
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
        self.push(Event::Advance(probe_sent_at, position, visible.cloned()));
    }
}
