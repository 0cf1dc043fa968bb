//! The table of a worker: which client may hold a copy of which record.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};

#[cfg(any(test, feature = "failpoints"))]
use super::TrackingPlant;
use super::client::{Client, Interest, UnderWay};
use super::{AllCause, Names, Prefixes, Push, TrackedClient, TrackedKey};
use crate::invalidation::Invalidation;

/// Expiries of copies that are gone, from which the queue of expiries is made anew.
const GONE_EXPIRIES_MAX: usize = 1_024;

/// Where pushes go.
pub(super) type Emit<'a> = &'a mut dyn FnMut(TrackedClient, Push<'_>);

/// See [`super`].
#[derive(Debug)]
pub struct TrackingTable {
    clients: Vec<Option<Client>>,
    free: Vec<TrackedClient>,
    /// Clients with a copy of a record, or with a command under way that asks for it.
    watchers: HashMap<Key, HashSet<TrackedClient>>,
    broadcasting: Vec<TrackedClient>,
    expiries: BinaryHeap<Reverse<(Nanos, TrackedClient, SortedKey)>>,
    usage: TrackedUsage,
    bytes_max: usize,
    #[cfg(any(test, feature = "failpoints"))]
    pub(crate) plant: TrackingPlant,
}

/// A key in a queue by time.
#[derive(Debug, PartialEq, Eq)]
struct SortedKey(Key);

impl PartialOrd for SortedKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortedKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.as_bytes().cmp(other.0.as_bytes())
    }
}

/// What the table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackedUsage {
    /// Clients.
    pub clients: usize,
    /// Copies that they may hold, by spelling.
    pub keys: usize,
    /// Bytes of memory for these.
    pub bytes: usize,
}

impl TrackingTable {
    /// Creates a table that takes up to `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            clients: Vec::new(),
            free: Vec::new(),
            watchers: HashMap::new(),
            broadcasting: Vec::new(),
            expiries: BinaryHeap::new(),
            usage: TrackedUsage::default(),
            bytes_max,
            #[cfg(any(test, feature = "failpoints"))]
            plant: TrackingPlant::None,
        }
    }

    /// Plants a mistake; for tests.
    #[cfg(feature = "failpoints")]
    pub fn plant(&mut self, plant: TrackingPlant) {
        self.plant = plant;
    }

    /// Returns what the table holds.
    pub fn usage(&self) -> TrackedUsage {
        self.usage
    }

    /// Adds a client. `broadcast`: it is informed of all keys with these beginnings, and not of
    /// those that it has asked for.
    pub fn add(&mut self, broadcast: Option<Prefixes>) -> TrackedClient {
        let id = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            // Each is a connection of this process.
            TrackedClient((self.clients.len() - 1) as u32)
        });
        if broadcast.is_some() {
            self.broadcasting.push(id);
        }
        self.clients[id.index()] = Some(Client { broadcast, ..Client::default() });
        self.usage.clients += 1;
        id
    }

    /// Adds prefixes of a broadcasting client.
    pub fn add_prefixes(&mut self, id: TrackedClient, more: Prefixes) {
        if let Some(Prefixes(own)) = self.client(id).and_then(|client| client.broadcast.as_mut()) {
            own.extend(more.0);
        }
    }

    /// Removes a client, which has gone or tracks no more.
    pub fn remove(&mut self, id: TrackedClient) {
        self.forget_interests(id);
        let Some(client) = self.clients.get_mut(id.index()).and_then(Option::take) else { return };
        for UnderWay { asked, .. } in client.under_way {
            asked.key.iter().for_each(|key| self.unwatch(key, id));
        }
        self.broadcasting.retain(|other| *other != id);
        self.free.push(id);
        self.usage.clients -= 1;
    }

    fn client(&mut self, id: TrackedClient) -> Option<&mut Client> {
        self.clients.get_mut(id.index())?.as_mut()
    }

    fn unwatch(&mut self, key: &Key, id: TrackedClient) {
        if let Some(watchers) = self.watchers.get_mut(key) {
            watchers.remove(&id);
            if watchers.is_empty() {
                self.watchers.remove(key);
            }
        }
    }

    /// Registers the keys of a command, before its lookup. Those of a command that is evaluated
    /// again may be registered again.
    pub fn begin(&mut self, id: TrackedClient, keys: impl Iterator<Item = TrackedKey>) {
        let Some(client) = self.clients.get_mut(id.index()).and_then(Option::as_mut) else {
            return;
        };
        for asked in keys {
            match (&client.broadcast, &asked.key) {
                (Some(prefixes), _) if !prefixes.cover(&asked.spelling) => continue,
                (None, Some(key)) => {
                    self.watchers.entry(key.clone()).or_default().insert(id);
                }
                (Some(_), _) | (None, None) => {}
            }
            client.under_way.push(UnderWay { asked, is_hit: false });
        }
    }

    /// Ends the command under way, whose reply is written before what `emit` gets. `keeps` returns
    /// the time up to which the cache itself keeps what was replied for a key, if it does.
    /// `is_error`: the reply has no record.
    pub fn replied(
        &mut self,
        id: TrackedClient,
        is_error: bool,
        keeps: &mut dyn FnMut(&Key) -> Option<Nanos>,
        emit: Emit<'_>,
    ) {
        let Some(client) = self.client(id) else { return };
        let under_way = std::mem::take(&mut client.under_way);
        for UnderWay { asked, is_hit } in &under_way {
            let TrackedKey { key, spelling } = asked;
            let kept = key.as_ref().and_then(&mut *keeps).filter(|_| !is_hit && !is_error);
            match (key, kept) {
                (Some(key), Some(expires_at)) => self.keep(id, key, spelling, expires_at),
                _ => {
                    if *is_hit || !is_error {
                        key.iter().for_each(|key| self.forget(id, key, spelling));
                        emit(id, Push::Key(spelling));
                    }
                }
            }
        }
        for key in under_way.iter().filter_map(|own| own.asked.key.as_ref()) {
            let holds = |client: &mut Client| client.interests.contains_key(key);
            if !self.client(id).is_some_and(holds) {
                self.unwatch(key, id);
            }
        }
        self.make_room(emit);
    }

    /// Notes a copy that the client may hold.
    fn keep(&mut self, id: TrackedClient, key: &Key, spelling: &[u8], expires_at: Nanos) {
        #[cfg(any(test, feature = "failpoints"))]
        let forgets_spelling = self.plant == TrackingPlant::SecondSpellingForgotten;
        let Some(client) = self.clients.get_mut(id.index()).and_then(Option::as_mut) else {
            return;
        };
        client.touch(key.collection());
        if client.broadcast.is_some() {
            let first = client.broadcast_expires_at.map_or(expires_at, |own| own.min(expires_at));
            client.broadcast_expires_at = Some(first);
            return;
        }
        let own = client.interests.entry(key.clone()).or_default();
        #[cfg(any(test, feature = "failpoints"))]
        if forgets_spelling && !own.is_empty() {
            return;
        }
        if let Some(known) = own.iter_mut().find(|known| *known.spelling == *spelling) {
            // Its place in the queue of expiries moves when it is due, unless that is too late.
            if expires_at < known.expires_at {
                self.expiries.push(Reverse((expires_at, id, SortedKey(key.clone()))));
            }
            known.expires_at = expires_at;
            return;
        }
        let interest = Interest { spelling: spelling.into(), expires_at };
        let bytes = interest.bytes(key);
        own.push(interest);
        client.bytes += bytes;
        self.usage.bytes += bytes;
        self.usage.keys += 1;
        if expires_at < Nanos::MAX {
            self.expiries.push(Reverse((expires_at, id, SortedKey(key.clone()))));
            self.drop_gone_expiries();
        }
    }

    fn forget(&mut self, id: TrackedClient, key: &Key, spelling: &[u8]) {
        let bytes = self.client(id).map_or(0, |client| client.forget(key, spelling));
        self.usage.bytes -= bytes;
        self.usage.keys -= usize::from(bytes > 0);
    }

    /// Makes the queue of expiries anew if most of it is of copies that are gone.
    fn drop_gone_expiries(&mut self) {
        if self.expiries.len() <= 2 * self.usage.keys + GONE_EXPIRIES_MAX {
            return;
        }
        let mut expiries = Vec::with_capacity(self.usage.keys);
        for (index, client) in self.clients.iter().enumerate() {
            for (key, interests) in client.iter().flat_map(|client| &client.interests) {
                let times = interests.iter().map(|interest| interest.expires_at);
                if let Some(first) = times.min().filter(|first| *first < Nanos::MAX) {
                    let id = TrackedClient(index as u32);
                    expiries.push(Reverse((first, id, SortedKey(key.clone()))));
                }
            }
        }
        self.expiries = expiries.into();
    }

    /// While there is no room: has the client with the most keys give up everything.
    fn make_room(&mut self, emit: Emit<'_>) {
        while self.usage.bytes > self.bytes_max {
            let bytes_of = |client: &Option<Client>| client.as_ref().map_or(0, |own| own.bytes);
            let largest = (0..self.clients.len()).max_by_key(|at| bytes_of(&self.clients[*at]));
            let Some(largest) = largest.map(|at| TrackedClient(at as u32)) else { return };
            #[cfg(any(test, feature = "failpoints"))]
            if self.plant == TrackingPlant::ForgottenInSilence {
                self.forget_interests(largest);
                continue;
            }
            self.give_up_all(largest, AllCause::Full, emit);
        }
    }

    /// Forgets the copies of a client.
    fn forget_interests(&mut self, id: TrackedClient) {
        let Some(client) = self.client(id) else { return };
        let interests = std::mem::take(&mut client.interests);
        let bytes = std::mem::take(&mut client.bytes);
        client.forget_touched();
        client.broadcast_expires_at = None;
        self.usage.bytes -= bytes;
        for (key, own) in interests {
            self.usage.keys -= own.len();
            if !self.client(id).is_some_and(|client| client.has_key_under_way(&key)) {
                self.unwatch(&key, id);
            }
        }
    }

    /// Has a client give up everything, and the reply under way when it is written.
    pub fn give_up_all(&mut self, id: TrackedClient, cause: AllCause, emit: Emit<'_>) {
        self.forget_interests(id);
        if let Some(client) = self.client(id) {
            client.hit(|_| true);
            emit(id, Push::All(cause));
        }
    }

    /// Has all clients give up everything.
    pub fn all_give_up(&mut self, cause: AllCause, emit: Emit<'_>) {
        self.concerned_give_up(&|_| true, true, cause, emit);
    }

    /// Has those clients give up everything that may hold a copy of these collections. `is_any`:
    /// all clients.
    fn concerned_give_up(
        &mut self,
        concerns: &dyn Fn(CollectionId) -> bool,
        is_any: bool,
        cause: AllCause,
        emit: Emit<'_>,
    ) {
        for at in 0..self.clients.len() {
            let id = TrackedClient(at as u32);
            let Some(client) = self.client(id) else { continue };
            client.hit(|key| concerns(key.collection()));
            if is_any || client.has_touched(concerns) || client.broadcast.is_some() {
                self.give_up_all(id, cause, emit);
            }
        }
    }

    /// Applies an invalidation.
    pub fn invalidate(&mut self, change: &Invalidation, names: &dyn Names, emit: Emit<'_>) {
        match change {
            Invalidation::Record(key) => {
                self.invalidate_record(key, emit);
                self.broadcast(key, names, emit);
            }
            Invalidation::Collection(id) => {
                self.concerned_give_up(&|other| other == *id, false, AllCause::Flush, emit);
            }
            Invalidation::Source(source) => {
                self.source_gives_up(*source, AllCause::Feed, names, emit)
            }
        }
    }

    /// Has those clients give up everything that may hold a copy of a record of this source.
    pub fn source_gives_up(
        &mut self,
        source: hotrow_types::source::SourceId,
        cause: AllCause,
        names: &dyn Names,
        emit: Emit<'_>,
    ) {
        let concerns = |collection| names.source_of(collection) == source;
        self.concerned_give_up(&concerns, false, cause, emit);
    }

    fn invalidate_record(&mut self, key: &Key, emit: Emit<'_>) {
        let Some(watchers) = self.watchers.remove(key) else { return };
        let mut still = HashSet::new();
        #[cfg(any(test, feature = "failpoints"))]
        let pushes_before = self.plant == TrackingPlant::PushedBeforeReply;
        for id in watchers {
            let Some(client) = self.clients.get_mut(id.index()).and_then(Option::as_mut) else {
                continue;
            };
            #[cfg(any(test, feature = "failpoints"))]
            if pushes_before {
                let own = client.under_way.iter().filter(|own| own.asked.key.as_ref() == Some(key));
                own.for_each(|own| emit(id, Push::Key(&own.asked.spelling)));
            }
            #[cfg(any(test, feature = "failpoints"))]
            let is_hit = !pushes_before && client.hit(|other| other == key);
            #[cfg(not(any(test, feature = "failpoints")))]
            let is_hit = client.hit(|other| other == key);
            if is_hit {
                still.insert(id);
            }
            for interest in client.interests.remove(key).unwrap_or_default() {
                let bytes = interest.bytes(key);
                client.bytes -= bytes;
                self.usage.bytes -= bytes;
                self.usage.keys -= 1;
                // What is under way follows its reply.
                if !is_hit || !client.is_under_way(&interest.spelling) {
                    emit(id, Push::Key(&interest.spelling));
                }
            }
        }
        if !still.is_empty() {
            self.watchers.insert(key.clone(), still);
        }
    }

    fn broadcast(&mut self, key: &Key, names: &dyn Names, emit: Emit<'_>) {
        if self.broadcasting.is_empty() {
            return;
        }
        let Some(spelling) = names.spelling(key) else { return };
        for id in &self.broadcasting {
            let Some(client) = self.clients.get_mut(id.index()).and_then(Option::as_mut) else {
                continue;
            };
            if !client.broadcast.as_ref().is_some_and(|own| own.cover(&spelling)) {
                continue;
            }
            if !client.hit(|other| other == key) {
                emit(*id, Push::Key(&spelling));
            }
        }
    }

    /// Invalidates copies of which the cache itself would read the record again by now.
    pub fn expire(&mut self, now: Nanos, emit: Emit<'_>) {
        while let Some(Reverse((at, id, _))) = self.expiries.peek()
            && *at <= now
        {
            let id = *id;
            let Some(Reverse((_, _, SortedKey(key)))) = self.expiries.pop() else { break };
            self.expire_one(id, &key, now, emit);
        }
        for at in 0..self.broadcasting.len() {
            let id = self.broadcasting[at];
            let first = self.client(id).and_then(|client| client.broadcast_expires_at);
            if first.is_some_and(|first| first <= now) {
                self.give_up_all(id, AllCause::Expired, emit);
            }
        }
    }

    fn expire_one(&mut self, id: TrackedClient, key: &Key, now: Nanos, emit: Emit<'_>) {
        let Some(client) = self.client(id) else { return };
        let Some(own) = client.interests.get(key) else { return };
        let (past, left): (Vec<_>, Vec<_>) =
            own.iter().partition(|interest| interest.expires_at <= now);
        let next = left.iter().map(|interest| interest.expires_at).min();
        let past: Vec<Box<[u8]>> = past.iter().map(|interest| interest.spelling.clone()).collect();
        for spelling in &past {
            self.forget(id, key, spelling);
            emit(id, Push::Key(spelling));
        }
        match next {
            Some(next) if next < Nanos::MAX => {
                self.expiries.push(Reverse((next, id, SortedKey(key.clone()))));
            }
            Some(_) => {}
            None => {
                if !self.client(id).is_some_and(|client| client.has_key_under_way(key)) {
                    self.unwatch(key, id);
                }
            }
        }
    }
}
