//! Reader that follows the changes of an instance: it reads a record at its event and keeps it, and
//! submits copies as observations whenever the stream says up to where everything was sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;

use crate::event_stream::{Event, EventKind, EventStream, FollowError};
use crate::follower::{Follower, FollowerCounts, UnreadKeys};
use crate::http::{Client, RequestError, Target};
use crate::ledger::Ledger;
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Position, Requirement};
use crate::random::{Random, Zipf};
use crate::read_request::ReadRequest;
use crate::reader::{Common, FailureCounts};
use crate::record_schema::RecordSchema;
use crate::shared_state::{BackOff, SharedState, lock};

/// Longest wait for an event.
const EVENT_WAIT: Duration = Duration::from_millis(10);
/// Keys that were read last. Copies of them are looked at most.
const RECENT_MAX: usize = 16;
/// Most copies that are looked at because of one event.
const LOOKS: usize = 4;
/// Records that a follower of a few follows.
const FEW: u32 = 50;
/// Probability in per cent that a read goes to another instance, with the event's position.
const ELSEWHERE: u64 = 20;
/// One of this many events is followed by a return; within a commit, one of fewer.
const RETURN_ONE_IN: u64 = 200;
const RETURN_WITHIN_ONE_IN: u64 = 20;
/// Longest wait at the end for the event that covers the last commit. The run has compared all
/// records with the database before; a heartbeat may be further away.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// An instance whose changes are followed.
#[derive(Clone, Debug)]
pub(crate) struct ProbedStream {
    pub(crate) origin: Origin,
    pub(crate) target: Arc<Target>,
    /// Whether `Hotrow-Min-Position` is honoured.
    pub(crate) has_positions: bool,
    /// The reason for which they are not followed, if they are not.
    pub(crate) not_followed: Option<String>,
}

/// Probes whether the changes of the collection can be followed.
pub(crate) fn probe(target: &Target, schema: &RecordSchema, timeout: Duration) -> Option<String> {
    if !target.is_http1() {
        return Some("changes are followed over HTTP/1 only".to_owned());
    }
    match EventStream::open(target, &path(schema, Extent::Collection), None, timeout) {
        Ok(_) => None,
        Err(FollowError::Refused(404)) => Some("the collection has not changes = true".to_owned()),
        Err(FollowError::Refused(status)) => Some(format!("/_changes returned {status}")),
        Err(FollowError::Lost(lost)) => {
            Some(format!("/_changes got no response ({})", lost.name()))
        }
    }
}

fn path(schema: &RecordSchema, extent: Extent) -> String {
    let mut path = format!("/_changes/{}", schema.collection);
    if extent == Extent::Few {
        let few: Vec<String> = (1..=FEW.min(schema.keys)).map(|key| schema.id(key)).collect();
        path.push_str("?ids=");
        path.push_str(&few.join(","));
    }
    path
}

/// A follower that reads.
pub(crate) struct FollowReader {
    id: u16,
    ledger: Arc<Ledger>,
    shared: Arc<SharedState>,
    losses: Arc<FailureCounts>,
    schema: RecordSchema,
    follower: Follower,
    /// The instance that it follows, and then others with positions.
    clients: Vec<(Origin, Client)>,
    /// Records that it follows.
    keys: u32,
    unread: UnreadKeys,
    recent: VecDeque<u32>,
    back_off: BackOff,
    random: Random,
    zipf: Zipf,
    totals: Arc<Mutex<FollowerCounts>>,
}

/// What a follower follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Collection,
    /// The first [`FEW`] records.
    Few,
}

/// Returns the number of followers of these instances.
pub(crate) fn count(streams: &[ProbedStream]) -> u16 {
    let followed = streams.iter().filter(|stream| stream.not_followed.is_none()).count();
    // A plan has at most `plan::TARGETS_MAX` instances.
    if followed == 0 { 0 } else { followed as u16 + 1 }
}

/// Creates a follower of each instance, and at the first one another of a few records.
pub(crate) fn followers(
    streams: &[ProbedStream],
    first_id: u16,
    common: &Common,
    timeout: Duration,
    seed: u64,
    totals: &Arc<Mutex<FollowerCounts>>,
) -> Vec<FollowReader> {
    let followed: Vec<&ProbedStream> =
        streams.iter().filter(|stream| stream.not_followed.is_none()).collect();
    let whole = followed.iter().map(|own| (*own, Extent::Collection));
    let few = followed.first().map(|own| (*own, Extent::Few));
    let followers = whole.chain(few).zip(first_id..).map(|((own, extent), id)| {
        let others = streams.iter().filter(|other| other.origin != own.origin);
        let clients = [own].into_iter().chain(others.filter(|other| other.has_positions));
        let clients = clients.map(|of| (of.origin, Client::new(Arc::clone(&of.target), timeout)));
        let path = path(&common.schema, extent);
        let follower = Follower::new(Arc::clone(&own.target), path, timeout);
        let random = Random::new(seed, 1 << 34 | u64::from(id));
        let common = common.clone();
        FollowReader::new(id, common, extent, follower, clients.collect(), random, totals.clone())
    });
    followers.collect()
}

impl FollowReader {
    fn new(
        id: u16,
        common: Common,
        extent: Extent,
        follower: Follower,
        clients: Vec<(Origin, Client)>,
        random: Random,
        totals: Arc<Mutex<FollowerCounts>>,
    ) -> Self {
        let Common { ledger, shared, losses, schema, .. } = common;
        let keys = match extent {
            Extent::Collection => schema.keys,
            Extent::Few => FEW.min(schema.keys),
        };
        Self {
            id,
            ledger,
            shared,
            losses,
            follower,
            clients,
            zipf: Zipf::new(keys),
            keys,
            schema,
            unread: UnreadKeys::default(),
            recent: VecDeque::new(),
            back_off: BackOff::new(),
            random,
            totals,
        }
    }

    /// Follows until the stop flag is set, and looks at every copy that is left then.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        while !shared.readers_stopped() {
            self.step();
        }
        self.finish();
        lock(&self.totals).add(&self.follower.copies.counts);
    }

    fn step(&mut self) {
        match self.try_step() {
            Ok(()) => self.back_off.succeeded(),
            Err(lost) => {
                if let Some(lost) = lost {
                    self.losses.count(lost);
                }
                self.ledger.submit(self.id, Vec::new());
                let (until, shared) = (self.back_off.failed(), self.shared.clone());
                SharedState::sleep_until(until, || shared.readers_stopped());
            }
        }
    }

    /// Takes an event, and reads a record.
    fn try_step(&mut self) -> Result<(), Option<RequestError>> {
        self.follower.open().map_err(|error| match error {
            FollowError::Lost(lost) => Some(lost),
            FollowError::Refused(_) => None,
        })?;
        let wait = if self.unread.is_empty() { EVENT_WAIT } else { Duration::from_millis(1) };
        if let Some(event) = self.follower.next(wait).map_err(Some)? {
            self.take(&event);
            let is_within = event.id.is_none();
            let one_in = if is_within { RETURN_WITHIN_ONE_IN } else { RETURN_ONE_IN };
            if self.random.below(one_in) == 0 {
                self.follower.leave_once(None);
            }
        } else if self.random.percent(50) {
            let key = self.choose_key();
            self.read(key, None)?;
        }
        match self.unread.take() {
            Some((key, position)) => self.read(key, Some(position)),
            None => Ok(()),
        }
    }

    fn take(&mut self, event: &Event) {
        match self.follower.copies.apply(event) {
            Ok(covered) => {
                if let EventKind::Change { key } = &event.kind
                    && let Some(key) = self.schema.key_type.parse(key)
                    && let Some(position) = event.position
                    && (1..=self.keys).contains(&key)
                {
                    self.unread.add(key, position);
                }
                if let Some(covered) = covered {
                    self.look(covered);
                }
            }
            Err(what) => {
                let key = match &event.kind {
                    EventKind::Change { key } => self.schema.key_type.parse(key),
                    _ => None,
                };
                let seen = Claim::Invalid(what.into());
                let observation = self.observe(key.unwrap_or(1), seen, Requirement::Any);
                self.ledger.submit(self.id, vec![observation]);
            }
        }
    }

    /// Submits some copies, at a point up to which everything was sent.
    fn look(&mut self, covered: Position) {
        let copies = &mut self.follower.copies;
        let mut keys: Vec<u32> = (0..LOOKS / 2).filter_map(|_| copies.oldest()).collect();
        let recent = self.recent.make_contiguous();
        keys.extend((0..LOOKS / 2).filter_map(|_| self.random.one_of(recent)));
        keys.extend(self.shared.recent(&mut self.random));
        keys.sort_unstable();
        keys.dedup();
        self.submit_copies(&keys, covered);
    }

    fn submit_copies(&mut self, keys: &[u32], covered: Position) {
        let requirement = Requirement::Followed { position: covered, is_sent: false };
        let copy = |key: &u32| {
            let seen = self.follower.copies.copy(&self.schema.id(*key))?;
            Some(self.observe(*key, seen.clone(), requirement))
        };
        let observations: Vec<Observation> = keys.iter().filter_map(copy).collect();
        self.follower.copies.counts.copies_read += observations.len() as u64;
        self.ledger.submit(self.id, observations);
    }

    fn observe(&self, key: u32, seen: Claim, requirement: Requirement) -> Observation {
        let now = Nanos::now().0;
        Observation {
            key,
            reader: self.id,
            origin: self.clients.first().map_or(Origin::Instance(0), |(origin, _)| *origin),
            sent_ns: now,
            received_ns: now,
            form: Form::FollowedCopy,
            requirement,
            seen,
            outcome: Outcome::None,
            age_s: None,
            position: None,
        }
    }

    /// Reads a record, at the instance or with the position of its event at another one.
    fn read(&mut self, key: u32, event: Option<Position>) -> Result<(), Option<RequestError>> {
        let others = self.clients.len().saturating_sub(1) as u64;
        let (at, requirement) = match event {
            Some(position) if others > 0 && self.random.percent(ELSEWHERE) => {
                let at = 1 + self.random.below(others) as usize;
                (at, Requirement::Followed { position, is_sent: true })
            }
            _ => (0, self.follower.copies.requirement(event)),
        };
        let ask = ReadRequest { keys: vec![(key, requirement)], ..ReadRequest::plain(key) };
        let (id, ledger) = (self.id, self.ledger.clone());
        let Some((origin, client)) = self.clients.get_mut(at) else { return Ok(()) };
        let response = client
            .ask(&ask.request(&self.schema), |sent_ns| ledger.sending(id, sent_ns))
            .map_err(Some)?;
        let parts = ask.read(&response, &self.schema, *origin, &ledger);
        let observations = ask.observations(&response, parts, *origin, id);
        for read in observations.iter().filter(|read| read.outcome != Outcome::Stale) {
            self.follower.copies.keep(&self.schema.id(key), key, &read.seen);
        }
        ledger.submit(id, observations);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(key);
        Ok(())
    }

    /// Looks at every copy once everything is sent that was committed.
    fn finish(&mut self) {
        let end = Instant::now() + LAST_WAIT;
        let last = self.shared.newest_commit();
        let is_covered =
            |covered: Option<Position>| covered.is_some_and(|covered| last <= Some(covered.at));
        while !is_covered(self.follower.copies.covered()) && Instant::now() < end {
            if self.follower.open().is_err() {
                std::thread::sleep(EVENT_WAIT);
            } else if let Ok(Some(event)) = self.follower.next(EVENT_WAIT) {
                self.take(&event);
            }
        }
        if let Some(covered) = self.follower.copies.covered() {
            let keys: Vec<u32> = self.follower.copies.copies().map(|(key, _)| key).collect();
            self.submit_copies(&keys, covered);
        }
    }

    fn choose_key(&mut self) -> u32 {
        let recent = self.shared.recent(&mut self.random).filter(|key| *key <= self.keys);
        match self.random.percent(50) {
            true => recent.unwrap_or(1),
            false => 1 + self.zipf.pick(&mut self.random),
        }
    }
}
