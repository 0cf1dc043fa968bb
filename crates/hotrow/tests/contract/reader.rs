//! A reader: keep-alive connections to every instance, requests of every kind, each answer written down.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::ask::{Ask, Known, provenance};
use crate::board::{Board, Instance};
use crate::faults::is_fresh;
use crate::harness::{Client, SOON, await_until};
use crate::history::Ns;
use crate::observation::{Observation, Seen, Wish};
use crate::rows::{Random, Sizes};

/// How long a reader waits that was refused, as clients do, per request. Refusals come at once: without it an outage of a second would
/// be most of what a run sees.
const BACK_OFF: Duration = Duration::from_millis(4);
/// Of ordinary readers, per request; shorter by so much that refusals stay few.
const PAUSE: Duration = Duration::from_micros(500);

/// How readers behave; chances in per cent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taste {
    /// Of a key that was just changed or is about to be.
    pub(crate) recent: u64,
    /// Of a key out of the whole range, each as likely; the rest prefers low ones.
    pub(crate) anywhere: u64,
    pub(crate) batch: u64,
    pub(crate) no_cache: u64,
    pub(crate) at_least: u64,
    pub(crate) session: u64,
    pub(crate) conditional: u64,
    /// Requests that go out together on one connection.
    pub(crate) pipeline: usize,
    /// After each request, for all of a pipeline together. Without one a few readers take all CPUs, and long runs read, and judge, a multiple of
    /// what they have to.
    pub(crate) pause: Duration,
}

impl Default for Taste {
    fn default() -> Self {
        Self {
            recent: 50,
            anywhere: 20,
            batch: 4,
            no_cache: 4,
            at_least: 4,
            session: 8,
            conditional: 12,
            pipeline: 1,
            pause: PAUSE,
        }
    }
}

impl Taste {
    /// Everything but positions: for runs in which the log changes.
    pub(crate) fn without_positions() -> Self {
        Self { at_least: 0, session: 0, ..Self::default() }
    }

    /// Nothing but ordinary reads of single records, as fast as they go.
    pub(crate) fn plain() -> Self {
        let pause = Duration::ZERO;
        Self { batch: 0, no_cache: 0, at_least: 0, session: 0, conditional: 0, pause, ..Self::default() }
    }
}

/// What the reader remembers of a key.
#[derive(Debug)]
struct Memory {
    version: Option<u64>,
    etag: Option<String>,
    token: u64,
}

/// One reader.
pub(crate) struct Reader {
    id: u16,
    keys: u32,
    board: Arc<Board>,
    sizes: Sizes,
    taste: Taste,
    random: Random,
    clients: HashMap<u8, Client>,
    memory: HashMap<u32, Memory>,
    seen: Vec<Observation>,
}

impl Reader {
    pub(crate) fn new(id: u16, keys: u32, board: Arc<Board>, sizes: Sizes, taste: Taste) -> Self {
        let random = Random(u64::from(id) << 32 | 0x5eed);
        let (clients, memory) = (HashMap::new(), HashMap::new());
        Self { id, keys, board, sizes, taste, random, clients, memory, seen: Vec::new() }
    }

    /// Reads until the board says stop, and returns what was seen.
    pub(crate) fn run(mut self) -> Vec<Observation> {
        while !self.board.readers_stopped() {
            let instances = self.board.instances();
            let instance = self.random.one_of(&instances);
            let asks: Vec<Ask> = (0..self.taste.pipeline).map(|_| self.choose()).collect();
            self.ask(instance, &asks);
            let refused = matches!(self.seen.last(), Some(Observation { seen: Seen::Refused(_), .. }));
            let pause = if refused { BACK_OFF } else { self.taste.pause } * asks.len() as u32;
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
        self.seen
    }

    /// Sends the requests together and notes their answers.
    pub(crate) fn ask(&mut self, instance: Instance, asks: &[Ask]) {
        let sent_ns = self.send(instance, asks);
        self.receive(instance, asks, sent_ns);
    }

    /// Asks again until every answer says something of the database as it is.
    #[track_caller]
    pub(crate) fn ask_for_good(&mut self, instance: Instance, ask: &Ask) {
        await_until("answers that claim something", SOON, || {
            let before = self.seen.len();
            self.ask(instance, std::slice::from_ref(ask));
            self.seen[before..].iter().all(is_fresh)
        });
    }

    /// Sends the requests together, and says when.
    pub(crate) fn send(&mut self, instance: Instance, asks: &[Ask]) -> Ns {
        let log = self.board.log.load(Ordering::Relaxed);
        let bytes: Vec<u8> = asks.iter().flat_map(|ask| ask.bytes(log)).collect();
        let client = self.clients.entry(instance.id).or_insert_with(|| Client::connect(instance.data));
        let sent_ns = self.board.now();
        client.send(&bytes);
        sent_ns
    }

    /// Notes the answers to what was sent.
    pub(crate) fn receive(&mut self, instance: Instance, asks: &[Ask], sent_ns: Ns) {
        for ask in asks {
            let client = self.clients.get_mut(&instance.id).expect("something was sent");
            let answer = client.try_answer("GET", SOON);
            let answer = answer.unwrap_or_else(|fault| panic!("reader {}: no answer to {ask:?}: {fault:?}", self.id));
            let received_ns = self.board.now();
            self.note(instance, ask, &answer, sent_ns, received_ns);
        }
    }

    /// Reads one record as anybody does, and gives the answer.
    pub(crate) fn get(&mut self, instance: Instance, key: u32) -> &Observation {
        self.ask(instance, &[Ask::One { key, wish: Wish::Any, known: None }]);
        self.seen.last().expect("just asked")
    }

    /// What was seen so far.
    pub(crate) fn into_seen(self) -> Vec<Observation> {
        self.seen
    }

    fn note(&mut self, instance: Instance, ask: &Ask, answer: &crate::harness::Answer, sent_ns: u64, received_ns: u64) {
        let provenance = provenance(answer);
        if let Some(token) = provenance.token {
            // The first to know tells the others; a run has one log unless the test replaces the file.
            _ = self.board.log.compare_exchange(0, token.log, Ordering::Relaxed, Ordering::Relaxed);
        }
        let (wish, batch, conditional) = match ask {
            Ask::One { wish, known, .. } => (*wish, false, known.is_some()),
            Ask::Batch { wish, .. } => (*wish, true, false),
        };
        let answers = ask.read(answer, self.sizes);
        self.board.reads.fetch_add(answers.len() as u64, Ordering::Relaxed);
        for (key, seen) in answers {
            if let (false, Some(token)) = (batch, provenance.token) {
                self.remember(key, &seen, answer.header("etag"), token.at);
            }
            self.seen.push(Observation {
                key,
                reader: self.id,
                instance: instance.id,
                sent_ns,
                received_ns,
                wish,
                seen,
                outcome: provenance.outcome,
                age_s: provenance.age_s,
                token: provenance.token,
                batch,
                conditional,
            });
        }
    }

    fn remember(&mut self, key: u32, seen: &Seen, etag: Option<&str>, token: u64) {
        let version = match seen {
            Seen::Version(version) => Some(*version),
            Seen::Absent => None,
            Seen::Refused(_) | Seen::Invented(_) => return,
        };
        self.memory.insert(key, Memory { version, etag: etag.map(str::to_owned), token });
    }

    fn choose(&mut self) -> Ask {
        let key = self.choose_key();
        let Taste { batch, no_cache, at_least, session, conditional, .. } = self.taste;
        let kind = self.random.below(100);
        let no_log = self.board.log.load(Ordering::Relaxed) == 0;
        let wish = match self.random.below(100) {
            n if n < no_cache => Wish::New,
            n if n < no_cache + at_least && !no_log => Wish::AtLeast(self.board.newest_at.load(Ordering::Acquire)),
            _ => Wish::Any,
        };
        if kind < batch {
            let mut keys: Vec<u32> = (0..self.random.below(20)).map(|_| self.choose_key()).collect();
            keys.push(key);
            keys.sort_unstable();
            keys.dedup();
            return Ask::Batch { keys, wish, post: self.random.percent(50) };
        }
        let memory = self.memory.get(&key);
        if let Some(memory) = memory.filter(|_| kind < batch + session && !no_log) {
            let wish = Wish::Session { token: memory.token, version: memory.version };
            return Ask::One { key, wish, known: None };
        }
        let known = memory.filter(|_| kind < batch + session + conditional).and_then(|memory| {
            let (version, etag) = (memory.version?, memory.etag.clone()?);
            Some(Known { version, etag })
        });
        Ask::One { key, wish, known }
    }

    fn choose_key(&mut self) -> u32 {
        let keys = u64::from(self.keys);
        match self.random.below(100) {
            n if n < self.taste.recent => self.board.recent(&mut self.random),
            n if n < self.taste.recent + self.taste.anywhere => self.random.below(keys) as u32,
            _ => self.random.skewed(keys) as u32,
        }
    }
}
