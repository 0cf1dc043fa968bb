//! Model of clients with copies: a database, the memory of an instance with its fence and its
//! epochs, the log of invalidations, a worker's table, and clients that keep what they read.
//!
//! What must hold: whenever everything on its way has arrived, and no feed is lost, each copy is
//! what the database says, and none is past its TTL.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Snapshot, Version};

use crate::invalidation::{Invalidation, InvalidationBounds, InvalidationLog, Reading};
use crate::tracking::{
    AllCause, Asked, Names, Prefixes, Push, TrackedClient, TrackedUsage, TrackingPlant,
    TrackingTable,
};

const SOURCE: SourceId = SourceId(0);
const COLLECTIONS: u16 = 2;
const KEYS: i64 = 4;
const CLIENTS: usize = 4;

/// A record: its collection and its id.
type Row = (u16, i64);

/// A committed change. Its value is the number of the commit.
struct Commit {
    row: Row,
    is_visible: bool,
    is_delivered: bool,
}

/// A record as a read found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    value: usize,
    expires_at: u64,
    is_kept: bool,
}

/// A read of the database that is under way.
struct Read {
    row: Row,
    value: usize,
    epoch: u32,
    is_lease_alive: bool,
}

/// A spelling, its record, and what was found or is being read.
type Part = (String, Row, Result<Found, Read>);

enum Message {
    Reply(Vec<(String, Found)>),
    Key(String),
    All,
}

#[derive(Default)]
struct Client {
    id: Option<TrackedClient>,
    inbox: VecDeque<Message>,
    copies: HashMap<String, Found>,
    /// The command under way.
    command: Option<Vec<Part>>,
    is_broadcast: bool,
}

pub(super) struct World {
    rng: Rng,
    plant: TrackingPlant,
    now: u64,
    commits: Vec<Commit>,
    memory: HashMap<Row, (Found, u32)>,
    epoch: u32,
    is_lost: bool,
    log: InvalidationLog,
    table: TrackingTable,
    place: u64,
    clients: Vec<Client>,
    pub(super) checks: usize,
    pub(super) pushes: usize,
    pub(super) alls: usize,
}

struct ModelNames;

impl Names for ModelNames {
    fn spelling(&self, key: &Key) -> Option<Vec<u8>> {
        let KeyPart::Integer(id) = key.parts().next()? else { return None };
        Some(spelling((key.collection().0, id), 0).into_bytes())
    }

    fn source_of(&self, _: CollectionId) -> SourceId {
        SOURCE
    }
}

/// Each key has two spellings.
fn spelling((collection, id): Row, variant: u8) -> String {
    format!("{collection}:{}{id}", if variant == 0 { "" } else { "+" })
}

fn key((collection, id): Row) -> Key {
    let schema = KeySchema::new(CollectionId(collection), vec![KeyType::Integer]);
    schema.key(&[KeyPart::Integer(id)]).unwrap()
}

impl World {
    pub(super) fn new(plant: TrackingPlant, seed: u64) -> Self {
        let bounds = InvalidationBounds {
            released_bytes: 600,
            unproven_bytes: 300,
            proof_wait: Duration::from_nanos(150),
        };
        let mut log = InvalidationLog::new(bounds, 1);
        let mut table = TrackingTable::new(1_400);
        table.plant = plant;
        log.reset(SOURCE);
        let clients = (0..CLIENTS)
            .map(|number| {
                let is_broadcast = number == 0;
                let prefix = Prefixes(vec![Box::from(&b"0:"[..])]);
                let id = Some(table.add(is_broadcast.then_some(prefix)));
                Client { id, is_broadcast, ..Client::default() }
            })
            .collect();
        Self {
            rng: Rng::with_seed(seed),
            plant,
            now: 1,
            commits: Vec::new(),
            memory: HashMap::new(),
            epoch: 0,
            is_lost: false,
            place: log.end(),
            log,
            table,
            clients,
            checks: 0,
            pushes: 0,
            alls: 0,
        }
    }

    fn row(&mut self) -> Row {
        (self.rng.u16(..COLLECTIONS), self.rng.i64(0..KEYS))
    }

    /// Returns the newest visible commit of a row.
    fn visible(&self, row: Row) -> usize {
        let seen = |commit: &Commit| commit.is_visible && commit.row == row;
        self.commits.iter().rposition(seen).map_or(0, |at| at + 1)
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        match self.rng.u8(..100) {
            0..10 => {
                let row = self.row();
                self.commits.push(Commit { row, is_visible: false, is_delivered: false });
            }
            10..22 => {
                let hidden: Vec<usize> =
                    (0..self.commits.len()).filter(|at| !self.commits[*at].is_visible).collect();
                if let Some(at) = self.rng.choice(hidden) {
                    self.commits[at].is_visible = true;
                }
            }
            22..37 => self.deliver(),
            37..45 => self.advance(),
            45..55 => self.work(3),
            55..57 => self.table_expires(),
            57 if self.rng.u8(..4) == 0 => self.lose(),
            58..60 if self.is_lost => self.begin(),
            60..95 => {
                let number = self.rng.usize(..CLIENTS);
                self.act(number);
            }
            95..97 => self.check()?,
            _ => {}
        }
        Ok(())
    }

    /// Delivers the next commit.
    fn deliver(&mut self) {
        if self.is_lost {
            return;
        }
        let Some(at) = self.commits.iter().position(|commit| !commit.is_delivered) else { return };
        let row = self.commits[at].row;
        self.commits[at].is_delivered = true;
        self.memory.remove(&row);
        for (_, of, read) in
            self.clients.iter_mut().flat_map(|own| own.command.iter_mut().flatten())
        {
            if let Err(read) = read
                && *of == row
            {
                read.is_lease_alive = false;
            }
        }
        let xid = at as u64 + 1;
        let mark = ChangeId::Transaction { xid, commit: xid };
        _ = self.log.change(SOURCE, Invalidation::Record(key(row)), mark, Nanos(self.now));
    }

    fn version(&self) -> Version {
        let hidden = |at: &usize| !self.commits[*at].is_visible;
        let running: Vec<u64> =
            (0..self.commits.len()).filter(hidden).map(|at| at as u64 + 1).collect();
        let xmax = self.commits.len() as u64 + 1;
        let xmin = running.first().copied().unwrap_or(xmax);
        Version::Snapshot { incarnation: 1, snapshot: Arc::new(Snapshot { xmin, xmax, running }) }
    }

    fn advance(&mut self) {
        if !self.is_lost {
            _ = self.log.advance(SOURCE, Some(&self.version()), Nanos(self.now));
        }
    }

    fn lose(&mut self) {
        self.epoch += 1;
        self.is_lost = true;
        self.log.reset(SOURCE);
    }

    /// A feed begins: every read sees what was before.
    fn begin(&mut self) {
        self.epoch += 1;
        self.is_lost = false;
        for commit in &mut self.commits {
            (commit.is_visible, commit.is_delivered) = (true, true);
        }
        if self.plant != TrackingPlant::NothingAtBeginning {
            self.log.reset(SOURCE);
        }
    }

    /// The worker reads the log.
    fn work(&mut self, most: usize) {
        let mut changes = Vec::new();
        let reading = self.log.read(&mut self.place, most, &mut changes);
        if reading == Reading::Overrun && self.plant != TrackingPlant::OverrunIgnored {
            self.on_table(|table, emit| table.all_give_up(AllCause::Behind, emit));
        }
        for change in changes {
            self.on_table(|table, emit| table.invalidate(&change, &ModelNames, emit));
        }
    }

    fn table_expires(&mut self) {
        let now = Nanos(self.now);
        self.on_table(|table, emit| table.expire(now, emit));
    }

    fn on_table(
        &mut self,
        act: impl FnOnce(&mut TrackingTable, &mut dyn FnMut(TrackedClient, Push<'_>)),
    ) {
        let (clients, pushes, alls) = (&mut self.clients, &mut self.pushes, &mut self.alls);
        let mut emit = |id: TrackedClient, push: Push<'_>| {
            let own = clients.iter_mut().find(|client| client.id == Some(id)).unwrap();
            own.inbox.push_back(match push {
                Push::Key(spelling) => {
                    *pushes += 1;
                    Message::Key(String::from_utf8(spelling.to_vec()).unwrap())
                }
                Push::All(_) => {
                    *alls += 1;
                    Message::All
                }
            });
        };
        act(&mut self.table, &mut emit);
    }

    /// A client receives, asks, or is answered.
    fn act(&mut self, number: usize) {
        match (self.rng.u8(..3), self.clients[number].command.is_some()) {
            (0, _) => self.receive(number),
            (_, false) => self.ask(number),
            (_, true) => self.reply(number),
        }
    }

    fn receive(&mut self, number: usize) {
        let client = &mut self.clients[number];
        match client.inbox.pop_front() {
            Some(Message::Reply(found)) => {
                // Beyond its prefixes a broadcasting client is promised nothing.
                let is_promised = |(spelling, _): &(String, Found)| {
                    !client.is_broadcast || spelling.starts_with("0:")
                };
                client.copies.extend(found.into_iter().filter(is_promised));
            }
            Some(Message::Key(spelling)) => _ = client.copies.remove(&spelling),
            Some(Message::All) => client.copies.clear(),
            None => {}
        }
    }

    fn asked(&self, number: usize, spelled: &[(String, Row)]) -> Vec<Asked> {
        let is_broadcast = self.clients[number].is_broadcast;
        let asked = |(text, row): &(String, Row)| {
            let can_keep = !is_broadcast || *text == spelling(*row, 0);
            Asked { key: can_keep.then(|| key(*row)), spelling: text.as_bytes().into() }
        };
        spelled.iter().map(asked).collect()
    }

    fn register(&mut self, number: usize, spelled: &[(String, Row)]) {
        let asked = self.asked(number, spelled);
        let id = self.clients[number].id.unwrap();
        self.table.begin(id, asked.into_iter());
    }

    fn ask(&mut self, number: usize) {
        let count = self.rng.usize(1..3);
        let spelled: Vec<(String, Row)> = (0..count)
            .map(|_| {
                let row = self.row();
                (spelling(row, self.rng.u8(..2)), row)
            })
            .collect();
        if self.plant != TrackingPlant::RegisteredLate {
            self.register(number, &spelled);
        }
        let command = spelled.into_iter().map(|(text, row)| {
            let held = self
                .memory
                .get(&row)
                .filter(|(found, epoch)| *epoch == self.epoch && found.expires_at > self.now);
            let result = match held {
                Some((found, _)) => Ok(*found),
                None => Err(Read {
                    row,
                    value: self.visible(row),
                    epoch: self.epoch,
                    is_lease_alive: true,
                }),
            };
            (text, row, result)
        });
        let command = command.collect();
        self.clients[number].command = Some(command);
    }

    /// Ends a read. Returns what it found, and stores it as the cache would.
    fn fill(&mut self, read: &Read) -> Found {
        let newer = |commit: &&Commit| commit.row == read.row && commit.is_delivered;
        let delivered = self.commits.iter().filter(newer).count();
        let seen = self.commits.iter().take(read.value).filter(newer).count();
        let is_hidden = seen < delivered;
        let is_current = read.is_lease_alive && read.epoch == self.epoch;
        let is_kept = is_current && !is_hidden;
        let expires_at = self.now + self.rng.u64(50..400);
        let found = Found { value: read.value, expires_at, is_kept };
        if is_kept {
            self.memory.insert(read.row, (found, self.epoch));
        }
        let is_planted = self.plant == TrackingPlant::HiddenReplyKept && is_current;
        Found { is_kept: is_kept || is_planted, ..found }
    }

    fn reply(&mut self, number: usize) {
        let Some(command) = self.clients[number].command.take() else { return };
        let spelled: Vec<_> = command.iter().map(|(text, row, _)| (text.clone(), *row)).collect();
        let mut found = Vec::new();
        let mut kept = HashMap::new();
        for (text, row, result) in command {
            let own = match result {
                Ok(found) => found,
                Err(read) => self.fill(&read),
            };
            // Two reads of one key in a command: the worse of the two.
            let both = kept.entry(key(row)).or_insert(own);
            both.is_kept &= own.is_kept && both.value == own.value;
            both.expires_at = both.expires_at.min(own.expires_at);
            found.push((text, own));
        }
        if self.plant == TrackingPlant::RegisteredLate {
            self.register(number, &spelled);
        }
        let client = &mut self.clients[number];
        client.inbox.push_back(Message::Reply(found));
        let id = client.id.unwrap();
        // What has expired by now is no longer in memory.
        let now = self.now;
        let is_held = |found: &&Found| found.is_kept && found.expires_at > now;
        let mut keeps = |key: &Key| kept.get(key).filter(is_held).map(|own| Nanos(own.expires_at));
        self.on_table(|table, emit| table.replied(id, false, &mut keeps, emit));
        if self.rng.u8(..100) == 0 {
            // It connects again, with nothing.
            self.table.remove(id);
            let client = &mut self.clients[number];
            let prefixes = client.is_broadcast.then(|| Prefixes(vec![Box::from(&b"0:"[..])]));
            *client = Client {
                id: Some(self.table.add(prefixes)),
                is_broadcast: client.is_broadcast,
                ..Client::default()
            };
        }
    }

    /// Has everything arrive, and compares.
    fn check(&mut self) -> Result<(), String> {
        if self.is_lost {
            return Ok(());
        }
        for commit in &mut self.commits {
            commit.is_visible = true;
        }
        while self.commits.iter().any(|commit| !commit.is_delivered) {
            self.deliver();
        }
        self.advance();
        self.work(usize::MAX);
        self.table_expires();
        for number in 0..CLIENTS {
            self.reply(number);
            while !self.clients[number].inbox.is_empty() {
                self.receive(number);
            }
            for (text, found) in &self.clients[number].copies {
                let (collection, id) = text.split_once(':').unwrap();
                let id = id.trim_start_matches('+').parse().unwrap();
                let now = self.visible((collection.parse().unwrap(), id));
                if found.value != now {
                    let held = found.value;
                    return Err(format!("client {number} holds {text} of {held}, not {now}"));
                }
                if found.expires_at <= self.now {
                    return Err(format!("client {number} holds {text} past its TTL"));
                }
                self.checks += 1;
            }
        }
        Ok(())
    }

    /// Ends the run: everything arrives, and all clients leave.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        if self.is_lost {
            self.begin();
        }
        self.check()?;
        self.clients.iter().filter_map(|client| client.id).for_each(|id| self.table.remove(id));
        match self.table.usage() == TrackedUsage::default() {
            true => Ok(()),
            false => Err(format!("something is left: {:?}", self.table.usage())),
        }
    }
}
