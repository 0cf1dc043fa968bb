//! Event queue: what is pending, by virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher as _;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;

use crate::feed::{CatalogueLook, Probe};
use crate::slab::SlabId;
use crate::standby::Statement;

/// Occurrence at one moment.
#[derive(Debug)]
pub(crate) enum Event {
    /// Clients send requests.
    Requests,
    /// A writer begins a transaction.
    Begin,
    /// A transaction reaches the log, or is rolled back.
    Commit(SlabId),
    /// A committed transaction may become visible.
    Visible(SlabId),
    /// The writer receives the answer to COMMIT.
    Returned(SlabId),
    /// Something breaks.
    Fault,
    /// The database answers again.
    OutageEnds,
    /// A collection is published again.
    Publish(CollectionId),
    /// A standby replays the log.
    Replay(usize),
    /// A standby follows the database that answers now.
    Rejoin(usize),
    /// Within one instance of the service.
    Instance(usize, InstanceEvent),
}

/// Occurrence within one instance.
#[derive(Debug)]
pub(crate) enum InstanceEvent {
    /// A task asks for the right to send queries of the collection.
    Lead(CollectionId),
    /// Of a loader.
    Loader(SlabId, LoaderEvent),
    /// Of a request.
    Request(SlabId, RequestEvent),
    /// Of a snapshot.
    Snapshot(SlabId, SnapshotEvent),
    /// Of this session of the feed.
    Feed(u32, FeedEvent),
}

/// Occurrence of a loader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoaderEvent {
    /// It sends its next query.
    NextBatch,
    /// The database takes the snapshot of its query.
    Snapshot,
    /// A standby carries out the next statement of its query.
    Standby(Statement),
    /// The answer of a standby has arrived.
    StandbyArrived,
    /// The answer of its query has arrived.
    Arrived,
    /// It copies more of its answers.
    AnswerSome,
}

/// Occurrence of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestEvent {
    /// Its task was woken.
    Poll,
    /// Its deadline passes.
    Deadline,
    /// It has waited for the feed as long as it may.
    PositionWaitEnds,
    /// It reads again because its answer lacked a delivered change.
    ReadAgain,
}

/// Occurrence of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SnapshotEvent {
    /// Its task goes on.
    Step,
    /// The database reads the rows of its transaction, in the snapshot that it opens.
    Rows,
    /// The database reads the log's end in the transaction.
    End,
    /// Its deadline passes.
    Deadline,
}

/// Occurrence of a feed. All but the first three are of a session that runs.
#[derive(Debug)]
pub(crate) enum FeedEvent {
    /// The instance notices that its feed was cut.
    CutNoticed,
    /// The feed tries to connect.
    Connect,
    /// The feed checks whether it may start.
    Start,
    /// It looks for new log entries.
    Deliver,
    /// It sends a probe of the log's end.
    ProbeSent,
    /// It sends a look at the log's end for requests.
    EndLookSent,
    /// The database answers a probe.
    ProbeRead(Nanos),
    /// The answer of a probe has arrived.
    ProbeArrived(Box<Probe>),
    /// It sends a look at the catalogue.
    LookSent,
    /// The database answers a look.
    LookRead(Nanos),
    /// The answer of a look has arrived.
    LookArrived(Box<CatalogueLook>),
}

impl Event {
    /// Returns a number of the event's kind and object, for the trace.
    pub(crate) fn number(&self) -> u64 {
        let object = match self {
            Self::Requests | Self::Begin | Self::Fault | Self::OutageEnds | Self::Publish(_) => 0,
            Self::Commit(id) | Self::Visible(id) | Self::Returned(id) => id.number(),
            Self::Replay(n) | Self::Rejoin(n) => *n as u64,
            Self::Instance(i, event) => (*i as u64) << 56 ^ event.number(),
        };
        kind(self) ^ object << 8
    }
}

impl InstanceEvent {
    fn number(&self) -> u64 {
        match self {
            Self::Lead(collection) => u64::from(collection.0),
            Self::Loader(id, event) => kind(event) ^ id.number() << 8,
            Self::Request(id, event) => kind(event) ^ id.number() << 8,
            Self::Snapshot(id, event) => kind(event) ^ id.number() << 8,
            Self::Feed(session, event) => kind(event) ^ u64::from(*session) << 8,
        }
    }

    /// Returns whether it happens at the database: a stopped process does not delay it.
    pub(crate) fn is_at_database(&self) -> bool {
        matches!(
            self,
            Self::Loader(_, LoaderEvent::Snapshot | LoaderEvent::Standby(_))
                | Self::Snapshot(_, SnapshotEvent::Rows | SnapshotEvent::End)
                | Self::Feed(_, FeedEvent::ProbeRead(_) | FeedEvent::LookRead(_))
        )
    }
}

/// Returns a number of the variant.
fn kind<T>(event: &T) -> u64 {
    FixedState::with_seed(4).hash_one(std::mem::discriminant(event))
}

/// The pending events.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Pending>>,
    pushed: u64,
}

#[derive(Debug)]
struct Pending {
    at: Nanos,
    /// Order among events of one moment.
    number: u64,
    event: Event,
}

impl Queue {
    pub(crate) fn push(&mut self, now: Nanos, after: Duration, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse(Pending { at: now.after(after), number: self.pushed, event }));
    }

    pub(crate) fn pop(&mut self) -> Option<(Nanos, Event)> {
        self.heap.pop().map(|Reverse(pending)| (pending.at, pending.event))
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Pending {}
impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Pending {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
