//! Event queue: what is pending, by virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

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
    /// A loader sends its next query.
    NextBatch(SlabId),
    /// The database takes the snapshot of a loader's query.
    Snapshot(SlabId),
    /// A standby carries out the next statement of a loader's query.
    Standby(SlabId, Statement),
    /// The answer of a standby has arrived.
    StandbyArrived(SlabId),
    /// The answer of a loader's query has arrived.
    Arrived(SlabId),
    /// A loader copies more of its answers.
    AnswerSome(SlabId),
    /// A request's task was woken.
    Poll(SlabId),
    /// A request's deadline.
    Deadline(SlabId),
    /// A request has waited for the feed as long as it may.
    PositionWaitEnds(SlabId),
    /// A request reads again because its answer lacked a delivered change.
    ReadAgain(SlabId),
    /// The feed of this session looks for new log entries.
    Deliver(u32),
    /// The feed sends a probe of the log's end.
    ProbeSent(u32),
    /// The database answers a probe.
    ProbeRead(u32, Nanos),
    /// The answer of a probe has arrived.
    ProbeArrived(u32, Box<Probe>),
    /// The feed sends a look at the catalogue.
    LookSent(u32),
    /// The database answers a look.
    LookRead(u32, Nanos),
    /// The answer of a look has arrived.
    LookArrived(u32, Box<CatalogueLook>),
    /// The instance notices that its feed was cut.
    CutNoticed(u32),
    /// The feed tries to connect.
    Connect(u32),
    /// The feed checks whether it may start.
    Start(u32),
}

impl Event {
    /// Returns a number of the event's kind and object, for the trace.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Requests => 1,
            Self::Begin => 2,
            Self::Commit(id) => 3 ^ id.number() << 8,
            Self::Visible(id) => 4 ^ id.number() << 8,
            Self::Returned(id) => 5 ^ id.number() << 8,
            Self::Fault => 6,
            Self::OutageEnds => 7,
            Self::Publish(_) => 8,
            Self::Replay(n) => 9 ^ (*n as u64) << 8,
            Self::Rejoin(n) => 10 ^ (*n as u64) << 8,
            Self::Instance(i, event) => (*i as u64) << 56 ^ event.number(),
        }
    }
}

impl InstanceEvent {
    fn number(&self) -> u64 {
        let (kind, object) = match self {
            Self::Lead(collection) => (16, u64::from(collection.0)),
            Self::NextBatch(id) => (17, id.number()),
            Self::Snapshot(id) => (18, id.number()),
            Self::Arrived(id) => (19, id.number()),
            Self::AnswerSome(id) => (20, id.number()),
            Self::Poll(id) => (21, id.number()),
            Self::Deadline(id) => (22, id.number()),
            Self::PositionWaitEnds(id) => (23, id.number()),
            Self::ReadAgain(id) => (24, id.number()),
            Self::Deliver(session) => (25, u64::from(*session)),
            Self::ProbeSent(session) => (26, u64::from(*session)),
            Self::ProbeRead(session, _) => (27, u64::from(*session)),
            Self::ProbeArrived(session, _) => (28, u64::from(*session)),
            Self::LookSent(session) => (29, u64::from(*session)),
            Self::LookRead(session, _) => (30, u64::from(*session)),
            Self::LookArrived(session, _) => (31, u64::from(*session)),
            Self::CutNoticed(session) => (32, u64::from(*session)),
            Self::Connect(session) => (33, u64::from(*session)),
            Self::Start(session) => (34, u64::from(*session)),
            Self::Standby(id, statement) => (35 + *statement as u64, id.number()),
            Self::StandbyArrived(id) => (39, id.number()),
        };
        kind ^ object << 8
    }

    /// Returns whether it happens at the database: a stopped process does not delay it.
    pub(crate) fn is_at_database(&self) -> bool {
        matches!(
            self,
            Self::Snapshot(_) | Self::ProbeRead(..) | Self::LookRead(..) | Self::Standby(..)
        )
    }
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
