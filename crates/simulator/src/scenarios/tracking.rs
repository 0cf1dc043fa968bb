//! Clients with copies of what they read: the memory of an instance with its fence and its epochs,
//! the log of invalidations, a worker's table, and clients.
//!
//! Whenever everything on its way has arrived, and no feed is lost, each copy must be what the
//! database says, and none past its TTL.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_push::invalidation::{Invalidation, InvalidationBounds, InvalidationLog, Reading};
use hotrow_push::tracking::{
    AllCause, Names, Prefixes, Push, TrackedClient, TrackedKey, TrackedUsage, TrackingPlant,
    TrackingTable,
};
use hotrow_types::key::{CollectionId, Key, KeyPart};
use hotrow_types::source::SourceId;

use super::tally::Tally;
use super::{Mistake, Steps, round_trip_steps};
use crate::database::{Database, Target};
use crate::random::Random;

const SOURCE: SourceId = SourceId::FIRST;
const IDS: usize = 4;
const CLIENTS: usize = 4;

/// A record as a read found it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Found {
    /// Number of the commit that it shows.
    value: u64,
    expires_at: u64,
    is_kept: bool,
}

/// A read of the database that is under way.
struct Read {
    value: u64,
    epoch: u32,
    is_lease_alive: bool,
}

/// A spelling, its row, and what was found or is being read.
type Part = (String, usize, Result<Found, Read>);

enum Message {
    Reply(Vec<(String, Found)>),
    Key(String),
    All,
}

struct Client {
    id: TrackedClient,
    inbox: VecDeque<Message>,
    copies: HashMap<String, Found>,
    /// The command under way, and the time from which its reads have ended.
    command: Option<(u64, Vec<Part>)>,
    is_broadcast: bool,
}

pub(super) struct World {
    random: Random,
    plant: TrackingPlant,
    round_trip: u64,
    now: u64,
    database: Database,
    delivered: u64,
    memory: HashMap<usize, (Found, u32)>,
    epoch: u32,
    is_lost: bool,
    log: InvalidationLog,
    table: TrackingTable,
    place: u64,
    clients: Vec<Client>,
    tally: Tally,
}

struct KeyNames;

impl Names for KeyNames {
    fn spelling(&self, key: &Key) -> Option<Vec<u8>> {
        let KeyPart::Integer(id) = key.parts().next()? else { return None };
        Some(format!("{}:{id}", key.collection().0).into_bytes())
    }

    fn source_of(&self, _: CollectionId) -> SourceId {
        SOURCE
    }
}

/// Each row has two spellings.
fn spelling(row: usize, is_second: bool) -> String {
    format!("{}:{}{}", row / IDS, if is_second { "+" } else { "" }, row % IDS)
}

fn row_of(spelling: &str) -> Option<usize> {
    let (collection, id) = spelling.split_once(':')?;
    let id: usize = id.trim_start_matches('+').parse().ok()?;
    Some(collection.parse::<usize>().ok()? * IDS + id)
}

impl Client {
    fn new(table: &mut TrackingTable, is_broadcast: bool) -> Self {
        let prefixes = is_broadcast.then(|| Prefixes(vec![Box::from(&b"0:"[..])]));
        Self {
            id: table.add(prefixes),
            inbox: VecDeque::new(),
            copies: HashMap::new(),
            command: None,
            is_broadcast,
        }
    }
}

impl Steps for World {
    const STEPS: u64 = 1_500;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let plant =
            if let Some(Mistake::Tracking(plant)) = mistake { plant } else { TrackingPlant::None };
        let bounds = InvalidationBounds {
            released_bytes: 600,
            unproven_bytes: 300,
            proof_wait: Duration::from_nanos(150),
        };
        let mut log = InvalidationLog::new(bounds, 1);
        let mut table = TrackingTable::new(1_400);
        table.plant(plant);
        log.reset(SOURCE);
        let clients = (0..CLIENTS).map(|number| Client::new(&mut table, number == 0)).collect();
        Self {
            random: Random::new(seed),
            plant,
            round_trip: round_trip_steps(seed),
            now: 1,
            database: Database::of("postgres", IDS),
            delivered: 0,
            memory: HashMap::new(),
            epoch: 0,
            is_lost: false,
            place: log.end(),
            log,
            table,
            clients,
            tally: Tally::default(),
        }
    }

    fn step(&mut self, _: u64) -> Result<(), String> {
        self.now += 1;
        match self.random.below(100) {
            0..10 => {
                let row = self.random.below(self.database.rows());
                self.database.write(&[Target::Row(row)], Nanos(self.now), |_| Some(0));
            }
            10..18 => self.database.show_any(&mut self.random, Nanos(self.now)),
            22..37 => self.deliver(),
            37..45 => self.advance(),
            45..55 => self.work(3),
            55..57 => self.table_expires(),
            57 if self.random.one_in(4) => self.lose(),
            58..60 if self.is_lost => self.begin(),
            60..95 => {
                let number = self.random.below(CLIENTS);
                self.act(number);
            }
            95..97 => self.check()?,
            _ => {}
        }
        Ok(())
    }

    /// Ends the run: everything arrives, and all clients leave.
    fn settle(&mut self) -> Result<(), String> {
        if self.is_lost {
            self.begin();
        }
        self.check()?;
        self.clients.iter().for_each(|client| self.table.remove(client.id));
        match self.table.usage() == TrackedUsage::default() {
            true => Ok(()),
            false => Err(format!("something is left: {:?}", self.table.usage())),
        }
    }

    fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }
}

impl World {
    /// Delivers the next commit.
    fn deliver(&mut self) {
        if self.is_lost || self.delivered == self.database.end() {
            return;
        }
        self.delivered += 1;
        let mark = self.database.mark(self.delivered);
        let changes = &self.database.log[self.delivered as usize - 1].changes;
        for row in changes.iter().flat_map(|change| self.database.targets(change.target)) {
            self.memory.remove(&row);
            let commands = self.clients.iter_mut().flat_map(|own| &mut own.command);
            for (_, of, read) in commands.flat_map(|(_, parts)| parts) {
                if let Err(read) = read
                    && *of == row
                {
                    read.is_lease_alive = false;
                }
            }
            let change = Invalidation::Record(self.database.key(row));
            _ = self.log.change(SOURCE, change, mark, Nanos(self.now));
        }
    }

    fn advance(&mut self) {
        if !self.is_lost {
            let visible = self.database.snapshot();
            _ = self.log.advance(SOURCE, Some(&visible), Nanos(self.now));
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
        self.database.show_all(Nanos(self.now));
        self.delivered = self.database.end();
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
            self.on_table(|table, emit| table.invalidate(&change, &KeyNames, emit));
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
        let (clients, tally) = (&mut self.clients, &mut self.tally);
        let mut emit = |id: TrackedClient, push: Push<'_>| {
            let Some(own) = clients.iter_mut().find(|client| client.id == id) else { return };
            own.inbox.push_back(match push {
                Push::Key(spelling) => {
                    tally.note("invalidations");
                    Message::Key(String::from_utf8_lossy(spelling).into_owned())
                }
                Push::All(_) => {
                    tally.note("invalidations of everything");
                    Message::All
                }
            });
        };
        act(&mut self.table, &mut emit);
    }

    /// A client receives, asks, or is answered.
    fn act(&mut self, number: usize) {
        let ends_at = self.clients[number].command.as_ref().map(|(ends_at, _)| *ends_at);
        match (self.random.below(3), ends_at) {
            (1.., None) => self.ask(number),
            (1.., Some(ends_at)) if ends_at <= self.now => self.reply(number),
            _ => self.receive(number),
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

    fn register(&mut self, number: usize, spelled: &[(String, usize)]) {
        let Client { is_broadcast, id, .. } = self.clients[number];
        let database = &self.database;
        let asked = spelled.iter().map(|(text, row)| {
            let can_keep = !is_broadcast || *text == spelling(*row, false);
            TrackedKey {
                key: can_keep.then(|| database.key(*row)),
                spelling: text.as_bytes().into(),
            }
        });
        self.table.begin(id, asked);
    }

    fn ask(&mut self, number: usize) {
        let mut spelled = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            let row = self.random.below(self.database.rows());
            spelled.push((spelling(row, self.random.one_in(2)), row));
        }
        if self.plant != TrackingPlant::RegisteredLate {
            self.register(number, &spelled);
        }
        let is_good =
            |(found, epoch): &(Found, u32)| *epoch == self.epoch && found.expires_at > self.now;
        let parts: Vec<Part> = spelled
            .into_iter()
            .map(|(text, row)| {
                let value = self.database.seen(row);
                let read = Read { value, epoch: self.epoch, is_lease_alive: true };
                let held = self.memory.get(&row).filter(|held| is_good(held));
                (text, row, held.map(|(found, _)| *found).ok_or(read))
            })
            .collect();
        let reads = parts.iter().any(|(_, _, found)| found.is_err());
        let ends_at = self.now + if reads { self.round_trip } else { 0 };
        self.clients[number].command = Some((ends_at, parts));
    }

    /// Ends a read. Returns what it found, and stores it as the cache would.
    fn fill(&mut self, row: usize, read: &Read) -> Found {
        let is_hidden = self.database.has_commit(row, read.value + 1..=self.delivered);
        let is_current = read.is_lease_alive && read.epoch == self.epoch;
        let is_kept = is_current && !is_hidden;
        let expires_at = self.now + 50 + self.random.below(350) as u64;
        let found = Found { value: read.value, expires_at, is_kept };
        if is_kept {
            self.memory.insert(row, (found, self.epoch));
        }
        let is_planted = self.plant == TrackingPlant::HiddenReplyKept && is_current;
        Found { is_kept: is_kept || is_planted, ..found }
    }

    fn reply(&mut self, number: usize) {
        let Some((_, command)) = self.clients[number].command.take() else { return };
        let spelled: Vec<_> = command.iter().map(|(text, row, _)| (text.clone(), *row)).collect();
        let mut found = Vec::new();
        let mut kept = HashMap::new();
        for (text, row, result) in command {
            let own = match result {
                Ok(found) => found,
                Err(read) => self.fill(row, &read),
            };
            // Two reads of one key in a command: the worse of the two.
            let both = kept.entry(self.database.key(row)).or_insert(own);
            both.is_kept &= own.is_kept && both.value == own.value;
            both.expires_at = both.expires_at.min(own.expires_at);
            found.push((text, own));
        }
        if self.plant == TrackingPlant::RegisteredLate {
            self.register(number, &spelled);
        }
        let client = &mut self.clients[number];
        client.inbox.push_back(Message::Reply(found));
        let (id, is_broadcast) = (client.id, client.is_broadcast);
        // What has expired by now is no longer in memory.
        let now = self.now;
        let is_held = |found: &&Found| found.is_kept && found.expires_at > now;
        let mut keeps = |key: &Key| kept.get(key).filter(is_held).map(|own| Nanos(own.expires_at));
        self.on_table(|table, emit| table.replied(id, false, &mut keeps, emit));
        if self.random.one_in(100) {
            // It connects again, with nothing.
            self.table.remove(id);
            self.clients[number] = Client::new(&mut self.table, is_broadcast);
        }
    }

    /// Has everything arrive, and compares.
    fn check(&mut self) -> Result<(), String> {
        if self.is_lost {
            return Ok(());
        }
        self.database.show_all(Nanos(self.now));
        while self.delivered < self.database.end() {
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
                let now = row_of(text).map(|row| self.database.seen(row));
                if now != Some(found.value) {
                    let held = found.value;
                    return Err(format!("client {number} holds {text} of {held}, not {now:?}"));
                }
                if found.expires_at <= self.now {
                    return Err(format!("client {number} holds {text} past its TTL"));
                }
                self.tally.note("checked");
            }
        }
        Ok(())
    }
}
