//! A reader: keep-alive connections to every instance, requests of every kind, a record of each
//! answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::contract::ask::{Known, ReadRequest, provenance};
use crate::contract::board::{Board, Instance};
use crate::contract::faults::{is_fresh, is_refused};
use crate::contract::rows::{Random, Sizes};
use hotrow_testkit::harness::{Client, SOON, await_until};
use hotrow_verify::history::Ns;
use hotrow_verify::observation::{Claim, Observation, Origin, Position, Requirement};

/// Wait per request after a refusal, as clients do. Refusals return at once: without the wait, an
/// outage of a second would dominate a run.
const BACK_OFF: Duration = Duration::from_millis(4);
/// Wait per request otherwise; shorter, so that refusals stay few.
const PAUSE: Duration = Duration::from_micros(500);

/// Behaviour of readers; chances in per cent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadProfile {
    /// Chance of a key that was just changed or is about to change.
    pub(crate) recent: u64,
    /// Chance of a key uniformly from the whole range; the rest prefers low keys.
    pub(crate) anywhere: u64,
    pub(crate) batch: u64,
    pub(crate) no_cache: u64,
    pub(crate) at_least: u64,
    pub(crate) strict: u64,
    pub(crate) session: u64,
    pub(crate) conditional: u64,
    /// Requests sent together on one connection.
    pub(crate) pipeline: usize,
    /// Wait after each request, multiplied by the pipeline's length. Without it a few readers take
    /// all CPUs, and long runs read and judge a multiple of what they need.
    pub(crate) pause: Duration,
}

impl Default for ReadProfile {
    fn default() -> Self {
        Self {
            recent: 50,
            anywhere: 20,
            batch: 4,
            no_cache: 4,
            at_least: 4,
            strict: 8,
            session: 8,
            conditional: 12,
            pipeline: 1,
            pause: PAUSE,
        }
    }
}

impl ReadProfile {
    /// Returns a profile without positions, for runs in which the log changes.
    pub(crate) fn without_positions() -> Self {
        Self { at_least: 0, session: 0, ..Self::default() }
    }

    /// Returns a profile of plain reads of single records, without waits.
    pub(crate) fn plain() -> Self {
        let pause = Duration::ZERO;
        Self {
            batch: 0,
            no_cache: 0,
            at_least: 0,
            strict: 0,
            session: 0,
            conditional: 0,
            pause,
            ..Self::default()
        }
    }
}

/// The reader's last answer for a key.
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
    profile: ReadProfile,
    random: Random,
    clients: HashMap<u16, Client>,
    memory: HashMap<u32, Memory>,
    seen: Vec<Observation>,
}

impl Reader {
    pub(crate) fn new(
        id: u16,
        keys: u32,
        board: Arc<Board>,
        sizes: Sizes,
        profile: ReadProfile,
    ) -> Self {
        let random = Random(u64::from(id) << 32 | 0x5eed);
        let clients = HashMap::new();
        let memory = HashMap::new();
        Self { id, keys, board, sizes, profile, random, clients, memory, seen: Vec::new() }
    }

    /// Reads until the board stops readers, and returns the observations.
    pub(crate) fn run(mut self) -> Vec<Observation> {
        while !self.board.readers_stopped() {
            let instances = self.board.instances();
            let instance = self.random.one_of(&instances);
            let requests: Vec<ReadRequest> =
                (0..self.profile.pipeline).map(|_| self.choose()).collect();
            self.send_and_receive(instance, &requests);
            let refused = self.seen.last().is_some_and(is_refused);
            let pause = self.profile.pause;
            let pause = if refused { pause.max(BACK_OFF) } else { pause } * requests.len() as u32;
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
        self.seen
    }

    /// Sends the requests together and records their answers.
    pub(crate) fn send_and_receive(&mut self, instance: Instance, requests: &[ReadRequest]) {
        let sent_ns = self.send(instance, requests);
        self.receive(instance, requests, sent_ns);
    }

    /// Repeats the request until every answer reflects the current database.
    #[track_caller]
    pub(crate) fn send_until_fresh(&mut self, instance: Instance, request: &ReadRequest) {
        await_until("fresh answers", SOON, || {
            let before = self.seen.len();
            self.send_and_receive(instance, std::slice::from_ref(request));
            self.seen[before..].iter().all(is_fresh)
        });
    }

    /// Sends the requests together and returns the time.
    pub(crate) fn send(&mut self, instance: Instance, requests: &[ReadRequest]) -> Ns {
        let bytes: Vec<u8> = requests.iter().flat_map(ReadRequest::bytes).collect();
        let client =
            self.clients.entry(instance.id).or_insert_with(|| Client::connect(instance.data));
        let sent_ns = self.board.now();
        client.send(&bytes);
        sent_ns
    }

    /// Records the answers to sent requests.
    pub(crate) fn receive(&mut self, instance: Instance, requests: &[ReadRequest], sent_ns: Ns) {
        for request in requests {
            let client = self.clients.get_mut(&instance.id).expect("something was sent");
            let answer = client.try_answer("GET", SOON);
            let answer = answer.unwrap_or_else(|fault| {
                panic!("reader {}: no answer to {request:?}: {fault:?}", self.id)
            });
            let received_ns = self.board.now();
            self.note(instance, request, &answer, sent_ns, received_ns);
        }
    }

    /// Reads one record without conditions and returns the observation.
    pub(crate) fn get(&mut self, instance: Instance, key: u32) -> &Observation {
        self.send_and_receive(instance, &[ReadRequest::plain(key)]);
        self.seen.last().expect("just asked")
    }

    /// Returns the newest observation.
    pub(crate) fn last_seen(&self) -> Option<&Observation> {
        self.seen.last()
    }

    /// Returns the observations so far.
    pub(crate) fn into_seen(self) -> Vec<Observation> {
        self.seen
    }

    fn note(
        &mut self,
        instance: Instance,
        request: &ReadRequest,
        answer: &hotrow_testkit::harness::Answer,
        sent_ns: u64,
        received_ns: u64,
    ) {
        let provenance = provenance(answer);
        if let Some(Position { log, .. }) = provenance.position {
            // The first answer sets the log for all threads; a run has one log unless the test
            // replaces the file.
            _ = self.board.log.compare_exchange(0, log, Ordering::Relaxed, Ordering::Relaxed);
        }
        let form = request.form();
        let answers = request.read(answer, self.sizes);
        self.board.reads.fetch_add(answers.len() as u64, Ordering::Relaxed);
        for (key, seen) in answers {
            if let (false, Some(token)) = (form.is_batch(), provenance.position) {
                self.remember(key, &seen, answer.header("etag"), token.at);
            }
            self.seen.push(Observation {
                key,
                reader: self.id,
                origin: Origin::Instance(instance.id),
                sent_ns,
                received_ns,
                form,
                requirement: request.requirement(),
                seen,
                outcome: provenance.outcome,
                // Checked as 0 where it is missing.
                age_s: Some(provenance.age_s),
                position: provenance.position,
            });
        }
    }

    fn remember(&mut self, key: u32, seen: &Claim, etag: Option<&str>, token: u64) {
        let version = match seen {
            Claim::Version(version) => Some(*version),
            Claim::Absent => None,
            Claim::Refused(_)
            | Claim::PositionRefused
            | Claim::UnknownVersion
            | Claim::Invalid(_) => return,
        };
        self.memory.insert(key, Memory { version, etag: etag.map(str::to_owned), token });
    }

    fn choose(&mut self) -> ReadRequest {
        let key = self.choose_key();
        let ReadProfile { batch, no_cache, at_least, strict, session, conditional, .. } =
            self.profile;
        let kind = self.random.below(100);
        let log = self.board.log.load(Ordering::Relaxed);
        let no_log = log == 0;
        let requirement = match self.random.below(100) {
            n if n < no_cache => Requirement::NoCache,
            n if n < no_cache + strict => Requirement::Strict,
            n if n < no_cache + strict + at_least && !no_log => {
                let at = self.board.newest_at.load(Ordering::Acquire);
                Requirement::OwnWrite { position: Position { log, at }, floor: 0 }
            }
            _ => Requirement::Any,
        };
        if kind < batch {
            let mut keys: Vec<u32> =
                (0..self.random.below(20)).map(|_| self.choose_key()).collect();
            keys.push(key);
            keys.sort_unstable();
            keys.dedup();
            return ReadRequest::Batch { keys, requirement, post: self.random.percent(50) };
        }
        let memory = self.memory.get(&key);
        if let Some(memory) = memory.filter(|_| kind < batch + session && !no_log) {
            let requirement = Requirement::Session {
                position: Position { log, at: memory.token },
                floor: memory.version.unwrap_or(0),
            };
            return ReadRequest::One { key, requirement, known: None };
        }
        let known = memory.filter(|_| kind < batch + session + conditional).and_then(|memory| {
            let version = memory.version?;
            let etag = memory.etag.clone()?;
            Some(Known { version, etag })
        });
        ReadRequest::One { key, requirement, known }
    }

    fn choose_key(&mut self) -> u32 {
        let keys = u64::from(self.keys);
        match self.random.below(100) {
            n if n < self.profile.recent => self.board.recent(&mut self.random),
            n if n < self.profile.recent + self.profile.anywhere => self.random.below(keys) as u32,
            _ => self.random.skewed(keys) as u32,
        }
    }
}
