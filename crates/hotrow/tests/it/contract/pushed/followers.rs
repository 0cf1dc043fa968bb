//! Followers of changes, which keep copies of records by the recipe of docs/changes.md. A copy is
//! an observation, and so is each read after an event; at the end the events are compared with the
//! commits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::delivered::{Entry, delivered};
use crate::contract::ask::ReadRequest;
use crate::contract::board::{Board, Instance};
use crate::contract::engine::Engine;
use crate::contract::reader::Reader;
use crate::contract::rows::Random;
use crate::contract::run::Trial;
use hotrow_testkit::harness::{SOON, await_until};
use hotrow_verify::event_stream::{Event, EventKind, FollowError};
use hotrow_verify::follower::{Follower, FollowerCounts, UnreadKeys};
use hotrow_verify::http::Target;
use hotrow_verify::observation::{
    Claim, Form, Observation, Origin, Outcome, Position, Requirement,
};

/// Longest wait for an event.
const EVENT_WAIT: Duration = Duration::from_millis(5);
/// Wait after a refusal or a lost connection.
const BACK_OFF: Duration = Duration::from_millis(4);
/// Chance in per cent that a read goes to another instance, with the event's position.
const ELSEWHERE: u64 = 20;
/// One of this many events is followed by a return.
const RETURN_ONE_IN: u64 = 200;
/// Records that a follower of a few follows: the most changed ones.
const FEW: u32 = 50;

/// What a follower follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The collection, always at this instance.
    Collection,
    /// The first [`FEW`] records, with each return at another instance.
    Few,
}

/// What a follower has got when it ends.
pub(crate) struct Followed {
    entries: Vec<Entry>,
    few: Option<u32>,
    counts: FollowerCounts,
}

/// One follower.
pub(crate) struct FollowerThread {
    reader: Reader,
    follower: Follower,
    /// The followed instance, and then the others.
    instances: Vec<Instance>,
    extent: Extent,
    id: u16,
    keys: u32,
    board: Arc<Board>,
    random: Random,
    unread: UnreadKeys,
    entries: Vec<Entry>,
    copies: Vec<Observation>,
}

impl FollowerThread {
    pub(crate) fn new(
        id: u16,
        keys: u32,
        (instances, extent): (Vec<Instance>, Extent),
        board: Arc<Board>,
        reader: Reader,
    ) -> Self {
        let keys = if extent == Extent::Few { FEW.min(keys) } else { keys };
        let mut path = "/_changes/items".to_owned();
        if extent == Extent::Few {
            let few: Vec<String> = (0..keys).map(|key| key.to_string()).collect();
            path = format!("{path}?ids={}", few.join(","));
        }
        let follower = Follower::new(target(&instances), path, SOON);
        Self {
            reader,
            follower,
            instances,
            extent,
            id,
            keys,
            board,
            random: Random(u64::from(id) << 32 | 0xf0110),
            unread: UnreadKeys::default(),
            entries: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// Follows until the board stops readers, then until everything committed was sent, and
    /// returns the observations.
    pub(crate) fn run(mut self) -> (Vec<Observation>, Followed) {
        while !self.board.readers_stopped() {
            if !self.open() {
                continue;
            }
            self.take_event(EVENT_WAIT);
            match self.unread.take() {
                Some((key, position)) => self.read(key, Some(position)),
                None if self.random.percent(30) => {
                    let key = self.choose_key();
                    self.read(key, None);
                }
                None => {}
            }
        }
        let newest = self.board.newest_at.load(Ordering::Acquire);
        await_until("everything to be sent to a follower", SOON, || {
            if self.open() {
                self.take_event(EVENT_WAIT);
            }
            self.follower.copies.covered().is_some_and(|covered| covered.at >= newest)
        });
        let covered = self.follower.copies.covered().expect("just awaited");
        let all: Vec<u32> = self.follower.copies.copies().map(|(key, _)| key).collect();
        all.into_iter().for_each(|key| self.look(key, covered));
        let few = (self.extent == Extent::Few).then_some(self.keys);
        let counts = self.follower.copies.counts;
        let followed = Followed { entries: self.entries, few, counts };
        let mut seen = self.reader.into_seen();
        seen.append(&mut self.copies);
        (seen, followed)
    }

    /// Returns whether there is a stream.
    fn open(&mut self) -> bool {
        match self.follower.open() {
            Ok(is_new) => {
                if is_new && let Some(behind) = self.follower.copies.returns_behind() {
                    self.entries.push(Entry::Returned(behind.at));
                }
                true
            }
            Err(FollowError::Lost(_) | FollowError::Refused(503)) => {
                std::thread::sleep(BACK_OFF);
                false
            }
            Err(FollowError::Refused(status)) => panic!("a follower got {status}"),
        }
    }

    fn take_event(&mut self, wait: Duration) {
        // A lost stream is opened again.
        let Ok(Some(event)) = self.follower.next(wait) else { return };
        self.note(&event);
        let covered = self
            .follower
            .copies
            .apply(&event)
            .unwrap_or_else(|what| panic!("follower {}: {what}", self.id));
        if let Some(covered) = covered {
            let oldest = self.follower.copies.oldest();
            let recent = self.board.recent(&mut self.random);
            oldest.into_iter().chain([recent]).for_each(|key| self.look(key, covered));
        }
        if self.random.below(RETURN_ONE_IN) == 0 {
            let mut instances = self.instances.clone();
            if self.extent == Extent::Few {
                instances.rotate_left(1);
            }
            if self.follower.leave_once(Some(target(&instances))) {
                self.instances = instances;
            }
        }
    }

    fn note(&mut self, event: &Event) {
        let at = event.position.map(|position| position.at);
        match (&event.kind, at) {
            (EventKind::Begin | EventKind::Reset, Some(at)) => self.entries.push(Entry::Began(at)),
            (EventKind::Reset, None) => self.entries.push(Entry::Lost),
            (EventKind::Change { key }, Some(at)) => {
                let key: u32 = key.parse().expect("a key of the run");
                assert!(key < self.keys, "an event of {key}, which was not asked for");
                self.entries.push(Entry::Change { key, at });
                self.unread.add(key, event.position.expect("just read"));
            }
            (EventKind::Flush, Some(at)) => self.entries.push(Entry::Flush { at }),
            _ => {}
        }
        if let Some(covered) = event.covered() {
            self.entries.push(Entry::Covered(covered.at));
        }
    }

    /// Notes a copy, at a point up to which everything was sent.
    fn look(&mut self, key: u32, covered: Position) {
        let Some(seen) = self.follower.copies.copy(&key.to_string()).cloned() else { return };
        self.follower.copies.counts.copies_read += 1;
        let now = self.board.now();
        self.copies.push(Observation {
            key,
            reader: self.id,
            origin: Origin::Instance(self.instances[0].id),
            sent_ns: now,
            received_ns: now,
            form: Form::FollowedCopy,
            requirement: Requirement::Followed { position: covered, is_sent: false },
            seen,
            outcome: Outcome::None,
            age_s: None,
            position: None,
        });
    }

    /// Reads a record at the followed instance, or with the position of its event at another one.
    fn read(&mut self, key: u32, event: Option<Position>) {
        let other = self.random.one_of(&self.instances);
        let is_elsewhere = other.id != self.instances[0].id && self.random.percent(ELSEWHERE);
        let (instance, requirement) = match event {
            Some(position) if is_elsewhere => {
                (other, Requirement::Followed { position, is_sent: true })
            }
            _ => (self.instances[0], self.requirement(event)),
        };
        let request = ReadRequest::One { key, requirement, known: None };
        self.reader.send_and_receive(instance, &[request]);
        let Some(read) = self.reader.last_seen() else { return };
        if read.outcome != Outcome::Stale {
            let seen = read.seen.clone();
            self.follower.copies.keep(&key.to_string(), key, &seen);
        }
        if matches!(self.reader.last_seen().map(|read| &read.seen), Some(Claim::Refused(_))) {
            std::thread::sleep(BACK_OFF);
        }
    }

    /// Returns what a read at the followed instance must reflect. A follower that changes instances
    /// may know more than the present one, and sends the position.
    fn requirement(&self, event: Option<Position>) -> Requirement {
        let is_sent = self.extent == Extent::Few;
        match self.follower.copies.requirement(event) {
            Requirement::Followed { position, .. } => Requirement::Followed { position, is_sent },
            other => other,
        }
    }

    fn choose_key(&mut self) -> u32 {
        match self.board.recent(&mut self.random) {
            key if key < self.keys && self.random.percent(30) => key,
            _ => self.random.below(u64::from(self.keys)) as u32,
        }
    }
}

fn target(instances: &[Instance]) -> Arc<Target> {
    Arc::new(Target::at(instances[0].data))
}

/// Compares what the followers got with the commits, and returns their counts.
pub(super) fn judge<E: Engine>(run: &Trial<E>) -> Value {
    let mut counts = FollowerCounts::default();
    let mut commits = 0;
    for (number, followed) in run.followed.iter().enumerate() {
        let follows = |key| followed.few.is_none_or(|few| key < few);
        let delivered = delivered(&followed.entries, &run.histories, follows);
        let first = delivered.missing.first();
        let missing = delivered.missing.len();
        assert!(missing == 0, "follower {number} got no event of {missing} commits, as {first:?}");
        commits += delivered.commits;
        counts.add(&followed.counts);
    }
    let mut summary = json!(counts.by_name());
    summary["followers"] = json!(run.followed.len());
    summary["delivered"] = json!(commits);
    summary
}
