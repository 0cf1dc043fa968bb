//! A whole hub: a database whose commits become visible late and that
//! fails over, relays that pause and take over, a stream that loses its end and acknowledgements,
//! and servers with a cache, that miss messages and join anew. A participant repeats questions and
//! messages.
//!
//! Two promises are checked at each step: an entry that is served as fresh is no older than the
//! server's watermark, and a take-over of an intact chain is no loss. At the end, when writing has
//! stopped, every server joins and every entry equals the database. With one rule disabled the same
//! runs must break a promise.

use hotrow_hub::message::Nonce;
use hotrow_hub::rules::{Rule, Rules};
use hotrow_measure::clock::Nanos;

use super::hub_relay::Relay;
use super::hub_server::Server;
use super::hub_stream::Stream;
use super::hub_wire::Kept;
use super::tally::Tally;
use super::{Mistake, Steps, round_trip_steps};
use crate::database::{Database, Target};
use crate::random::Random;

/// Rows of the only collection that is used.
const IDS: usize = 4;
const STEPS: u64 = 3_000;

pub(super) struct World {
    random: Random,
    rules: Rules,
    now: u64,
    database: Database,
    /// The primary before a fail-over, which goes on as if nothing had happened.
    zombie: Option<Database>,
    /// What keeps the relay's place.
    kept: Kept,
    /// A chain follows the newest primary. Clients write only then.
    is_followed: bool,
    /// Kind of faults that are more frequent than others.
    mixture: usize,
    stream: Stream,
    relays: Vec<Relay>,
    /// Relay with the lease.
    leader: usize,
    /// Round trip of the servers' readers.
    round_trip: u64,
    /// Number of the lease.
    term: u64,
    servers: Vec<Server>,
    /// Questions under way.
    questions: Vec<Nonce>,
    /// Questions that were delivered, which a participant may repeat.
    seen: Vec<Nonce>,
    /// Steps of this kind are over: only what must happen happens.
    is_settling: bool,
    tally: Tally,
}

impl Steps for World {
    // Its clock begins at 1.
    const STEPS: u64 = STEPS - 1;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let is_disabled = |rule: &Rule| mistake == Some(Mistake::Hub(*rule));
        let disabled = Rule::ALL.iter().position(is_disabled);
        let rules = Rules::without(disabled.map_or(&[], |index| &Rule::ALL[index..=index]));
        let mut random = Random::new(seed);
        let kept = match random.below(4) {
            0 | 1 => Kept::Nowhere,
            2 => Kept::Slot,
            _ => Kept::Stream,
        };
        let mixture = random.below(5);
        Self {
            mixture,
            now: 1,
            database: Database::of("postgres", IDS),
            zombie: None,
            kept,
            is_followed: true,
            stream: Stream::default(),
            relays: (0..2).map(|_| Relay::new(rules)).collect(),
            leader: 0,
            term: 1,
            round_trip: round_trip_steps(seed),
            servers: (0..3).map(|i| Server::new(i, rules)).collect(),
            questions: Vec::new(),
            seen: Vec::new(),
            is_settling: false,
            tally: Tally::default(),
            random,
            rules,
        }
    }

    fn step(&mut self, _: u64) -> Result<(), String> {
        self.now += 1;
        match self.random.below(100) {
            0..6 => self.write(),
            // Hidden changes outlive chains.
            6..12 if self.mixture == 1 && !self.random.one_in(4) => {}
            6..12 => self.database.show_any(&mut self.random, Nanos(self.now)),
            12..50 => {
                let relay = match self.random.below(4) {
                    0 => self.random.below(self.relays.len()),
                    _ => self.leader,
                };
                self.relay_step(relay)?;
            }
            50..90 => {
                let server = self.random.below(self.servers.len());
                self.server_step(server)?;
            }
            90..98 => self.deliver_question(),
            _ if self.random.one_in(2) => self.fault(),
            _ => {}
        }
        self.check()
    }

    /// Ends all faults and checks that every server converges.
    fn settle(&mut self) -> Result<(), String> {
        self.is_settling = true;
        self.database.show_all(Nanos(self.now));
        self.database.end_begun();
        self.zombie = None;
        let survivor = self.leader;
        for index in 0..self.relays.len() {
            self.relays[index].is_paused = false;
            // A session with the old primary ends with it.
            if index != survivor || !self.relays[index].is_on(&self.database) {
                self.relays[index].crash(self.rules);
            }
            self.relays[index].has_faults = false;
        }
        for server in &mut self.servers {
            if server.timeline != self.database.incarnation {
                server.move_reader(false, &self.database);
            }
        }
        let begun = self.now;
        while self.now < begun + 600 {
            self.now += 1;
            self.relay_step(survivor)?;
            self.relay_step(survivor)?;
            for server in 0..self.servers.len() {
                self.server_step(server)?;
            }
            self.deliver_question();
            // A server that gets no answer subscribes anew.
            if self.now == begun + 200 {
                for server in self.servers.iter_mut().filter(|s| s.watermark() < Some(begun)) {
                    server.subscribe_anew(&self.stream);
                }
            }
            self.check()?;
        }
        for (i, server) in self.servers.iter().enumerate() {
            if server.watermark().is_none_or(|watermark| watermark <= begun) {
                return Err(format!("server {i} is not fresh at the end: {server:?}"));
            }
        }
        Ok(())
    }

    fn tally(&mut self) -> &mut Tally {
        let beginnings = std::mem::take(&mut self.stream.beginnings);
        self.tally.add("beginnings", beginnings);
        &mut self.tally
    }
}

impl World {
    /// Begins a transaction, or writes one to the log. A row has one writer at a time.
    fn write(&mut self) {
        if !self.is_followed {
            return;
        }
        let target = Target::Row(self.random.below(IDS));
        let database = &mut self.database;
        if database.begin(&[target]).is_none()
            && let Some(id) = database.begun(target)
        {
            database.commit(id, |_| Some(0));
        }
    }

    /// Removes the table from the publication, changes a row, and adds the table again.
    fn write_unpublished(&mut self) {
        let target = Target::Row(self.random.below(IDS));
        let database = &mut self.database;
        database.is_published[0] = false;
        if let Some(id) = database.begin(&[target]) {
            database.withdrawals[0] += 1;
            database.commit(id, |_| Some(0));
            database.show(id, Nanos(self.now));
        }
        database.is_published[0] = true;
    }

    fn deliver_question(&mut self) {
        if self.questions.is_empty() {
            return;
        }
        let question = self.random.below(self.questions.len());
        let nonce = self.questions.swap_remove(question);
        // All relays receive it; one may be paused and receive it later.
        for relay in &mut self.relays {
            relay.ask(nonce, Nanos(self.now));
        }
        self.seen.push(nonce);
        if self.mixture == 4 && !self.is_settling {
            let repeated = self.seen[self.random.below(self.seen.len())];
            let invented = Nonce { question: repeated.question.wrapping_add(1), ..repeated };
            self.questions.push(if self.random.one_in(2) { repeated } else { invented });
        }
    }

    /// Repeats messages of the stream, as another publisher on its subject can.
    fn replay(&mut self) {
        let end = self.stream.end();
        let back = self.random.below(12) as u64;
        for sequence in end.saturating_sub(back)..=end.saturating_sub(back / 2) {
            if let Some(message) = self.stream.get(sequence).cloned() {
                self.stream.has_lost = true;
                _ = self.stream.publish(message, None);
            }
        }
    }

    fn fault(&mut self) {
        // Some faults hide others: each run has a mixture of its own.
        let fault = match (self.mixture, self.random.below(24)) {
            (1, 12..18) => 3,
            (1, 18..) => 6,
            (2, 12..) => 5,
            // The publication changes while no relay looks.
            (3, 12..18) => 11,
            (3, 18..) => 3,
            (4, 12..) => 12,
            (_, fault) => fault % 12,
        };
        match fault {
            0..3 => {
                let relay = self.random.below(self.relays.len());
                self.relays[relay].is_paused = true;
            }
            3 | 4 => {
                self.leader = self.random.below(self.relays.len());
                self.term += 1;
            }
            5 => {
                let lost = self.random.below(6);
                self.stream.lose_end(lost);
                if self.mixture == 2 || self.random.one_in(2) {
                    // One machine had both.
                    self.relays[self.leader].crash(self.rules);
                }
            }
            6 => {
                let server = self.random.below(self.servers.len());
                self.servers[server].subscribe_anew(&self.stream);
            }
            7 => {
                let relay = self.random.below(self.relays.len());
                self.relays[relay].crash(self.rules);
            }
            8 if self.zombie.is_none() && self.now > STEPS / 4 => self.fail_over(),
            9..11 => {
                let server = self.random.below(self.servers.len());
                self.servers[server].move_reader(self.zombie.is_some(), &self.database);
            }
            11 if self.is_followed && self.random.one_in(3) => {
                self.database.pruned = self.database.end();
            }
            12 => self.replay(),
            11 if self.is_followed => {
                self.write_unpublished();
            }
            _ => {}
        }
    }

    fn fail_over(&mut self) {
        let next = self.database.promoted(Nanos(self.now));
        self.zombie = Some(std::mem::replace(&mut self.database, next));
        self.is_followed = false;
    }

    fn relay_step(&mut self, index: usize) -> Result<(), String> {
        let relay = &mut self.relays[index];
        if relay.is_paused {
            // Woken, it goes on where it stopped, without a look at the lease.
            relay.is_paused = !self.random.one_in(8);
            return Ok(());
        }
        if !relay.is_leading() {
            if self.leader == index {
                if self.kept == Kept::Slot {
                    // The database ends the session that has the slot.
                    for other in self.relays.iter_mut().filter(|r| r.is_on(&self.database)) {
                        other.end_session();
                    }
                }
                let place = (self.kept, self.stream.last());
                self.relays[index].lead(&self.database, place, self.term);
            }
            return Ok(());
        }
        let has_lease = self.leader == index && relay.term == self.term;
        if !has_lease && self.random.one_in(20) {
            // It sees that the lease is lost.
            relay.stand_by(self.rules);
            return Ok(());
        }
        let is_newest = relay.is_on(&self.database);
        let relay = &mut self.relays[index];
        let database = match &mut self.zombie {
            Some(zombie) if relay.is_on(zombie) => zombie,
            _ => &mut self.database,
        };
        let now = (self.now, has_lease);
        let began = relay.step(database, &mut self.stream, &mut self.random, now)?;
        if began && is_newest && !self.is_followed {
            self.is_followed = true;
            self.database.open(Nanos(self.now));
        }
        Ok(())
    }

    fn server_step(&mut self, index: usize) -> Result<(), String> {
        let server = &mut self.servers[index];
        let database = match &self.zombie {
            Some(zombie) if server.timeline == zombie.incarnation => zombie,
            _ => &self.database,
        };
        if server.timeline != database.incarnation {
            server.move_reader(false, database);
        }
        match self.random.below(10) {
            // Slow servers are behind when the stream loses its end.
            0..5 if !self.is_settling && self.mixture == 2 && !self.random.one_in(3) => {}
            0..5 => {
                let is_skipped = !self.is_settling && self.random.one_in(60);
                let is_repeated = !self.is_settling && self.random.one_in(60);
                let happened = server.receive(&self.stream, (is_skipped, is_repeated));
                happened.into_iter().for_each(|happened| self.tally.note(happened));
            }
            5 => self.questions.push(server.ask(self.now, &mut self.random)),
            6..8 => {
                let ends_at = self.now + if self.is_settling { 0 } else { self.round_trip };
                server.begin_read(self.random.below(IDS), database, ends_at);
            }
            _ => server.end_read(&mut self.random, self.now),
        }
        Ok(())
    }

    /// An entry that is served as fresh reflects every commit before the watermark.
    fn check(&self) -> Result<(), String> {
        for server in &self.servers {
            let Some(watermark) = server.watermark() else { continue };
            for (key, version) in server.served() {
                let least =
                    self.database.newest(key, |version| version.returned_at < Nanos(watermark));
                if version < least {
                    return Err(format!(
                        "key {key} is served with version {version}, and {least} was committed \
                         before the watermark",
                    ));
                }
            }
        }
        Ok(())
    }
}
