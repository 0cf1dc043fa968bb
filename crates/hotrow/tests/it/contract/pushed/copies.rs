//! Readers over the Redis protocol, beside those over HTTP: each has near caches of its own at
//! every instance, kept fresh by `CLIENT TRACKING` in both of its modes. A copy is an observation
//! too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::contract::ask::read_record;
use crate::contract::board::{Board, Instance};
use crate::contract::rows::{Random, Sizes};
use hotrow_verify::history::Ns;
use hotrow_verify::near_client::{NearClient, Replied, claim};
use hotrow_verify::observation::{Claim, Form, Observation, Origin, Outcome, Requirement};
use hotrow_verify::redis::{RedisTarget, TrackingMode, Value};

/// Chances in per cent: of a key that was just changed or is about to change, of the copy that is
/// held longest, and of a key from the whole range; the rest prefers low keys.
const RECENT: u64 = 35;
const OLDEST: u64 = 25;
const ANYWHERE: u64 = 20;
/// Share in per cent of reads of several keys, and most keys of one.
const SEVERAL: u64 = 10;
const SEVERAL_MAX: u64 = 10;
/// Wait after each read: as long as that of the other readers.
const PAUSE: Duration = Duration::from_micros(500);
/// Wait after a refusal or a lost connection.
const BACK_OFF: Duration = Duration::from_millis(4);
/// Longest wait for a reply: longer than a disturbance.
const REPLY_WAIT: Duration = Duration::from_secs(20);
/// Attempts to prove at the end that a connection is alive.
const PROOFS_MAX: usize = 200;

/// One reader.
pub(crate) struct CopyReader {
    id: u16,
    keys: u32,
    board: Arc<Board>,
    sizes: Sizes,
    random: Random,
    /// By instance, then by mode: default, broadcast.
    clients: HashMap<(u16, usize), NearClient>,
    seen: Vec<Observation>,
}

const MODES: [TrackingMode; 2] = [TrackingMode::Default, TrackingMode::Broadcast];

impl CopyReader {
    pub(crate) fn new(id: u16, keys: u32, board: Arc<Board>, sizes: Sizes) -> Self {
        let random = Random(u64::from(id) << 32 | 0xc0b1);
        Self { id, keys, board, sizes, random, clients: HashMap::new(), seen: Vec::new() }
    }

    /// Reads until the board stops readers, then all copies that are left, and returns the
    /// observations.
    pub(crate) fn run(mut self) -> Vec<Observation> {
        while !self.board.readers_stopped() {
            let instance = self.random.one_of(&self.board.instances());
            let Some(address) = instance.redis else { continue };
            let mode = self.random.below(2) as usize;
            // While it works with it, it is nowhere else.
            let mut client = self.clients.remove(&(instance.id, mode)).unwrap_or_else(|| {
                let target = Arc::new(RedisTarget::at(address));
                NearClient::new(target, MODES[mode], "items", REPLY_WAIT)
            });
            let is_refused = match self.step(instance, mode, &mut client) {
                Ok(is_refused) => is_refused,
                Err(_lost) => {
                    client.disconnect();
                    self.board.connections_lost.fetch_add(1, Ordering::Relaxed);
                    true
                }
            };
            self.clients.insert((instance.id, mode), client);
            std::thread::sleep(if is_refused { BACK_OFF } else { PAUSE });
        }
        let clients = std::mem::take(&mut self.clients);
        for ((instance, mode), client) in clients {
            self.read_all_copies(Origin::Instance(instance), mode, client);
        }
        self.seen
    }

    /// One read. Returns whether it was refused.
    fn step(
        &mut self,
        instance: Instance,
        mode: usize,
        client: &mut NearClient,
    ) -> Result<bool, hotrow_verify::http::RequestError> {
        let board = Arc::clone(&self.board);
        let clock = || board.now();
        client.connect()?;
        let origin = Origin::Instance(instance.id);
        if self.random.percent(SEVERAL) {
            let count = 1 + self.random.below(SEVERAL_MAX);
            let mut keys: Vec<u32> = (0..count).map(|_| self.choose_key(client)).collect();
            keys.sort_unstable();
            keys.dedup();
            return self.read(origin, client, Form::RedisMget, &keys);
        }
        let key = self.choose_key(client);
        let sent_ns = clock();
        client.take_pushes()?;
        if client.needs_proof(sent_ns) {
            return client.ask(&["PING"], &clock).map(|_| false);
        }
        let Some(seen) = client.copy(&text_of(key)).cloned() else {
            return self.read(origin, client, Form::RedisGet, &[key]);
        };
        if client.may_use(sent_ns) {
            self.board.copies[mode].fetch_add(1, Ordering::Relaxed);
            self.note(origin, Form::Copy, key, seen, (sent_ns, clock()));
        } else {
            client.ask(&["PING"], &clock)?;
        }
        Ok(false)
    }

    /// Reads keys from the instance, and keeps what it replies.
    fn read(
        &mut self,
        origin: Origin,
        client: &mut NearClient,
        form: Form,
        keys: &[u32],
    ) -> Result<bool, hotrow_verify::http::RequestError> {
        let board = Arc::clone(&self.board);
        let texts: Vec<String> = keys.iter().map(|key| text_of(*key)).collect();
        let name = if form == Form::RedisMget { "MGET" } else { "GET" };
        let arguments: Vec<&str> = [name].into_iter().chain(texts.iter().map(|t| &**t)).collect();
        let Replied { reply, sent_ns, received_ns } = client.ask(&arguments, &|| board.now())?;
        let replies = match (form, reply) {
            (Form::RedisMget, Value::Array(replies)) if replies.len() == keys.len() => replies,
            // An error concerns all keys.
            (_, reply) => vec![reply; keys.len()],
        };
        let mut is_refused = false;
        for ((key, text), reply) in keys.iter().zip(&texts).zip(&replies) {
            let seen = claim(reply, |record| read_record(*key, record, self.sizes));
            is_refused |= matches!(seen, Claim::Refused(_));
            client.keep(text, *key, &seen);
            self.note(origin, form, *key, seen, (sent_ns, received_ns));
        }
        Ok(is_refused)
    }

    /// Notes all copies of a client whose connection is alive.
    fn read_all_copies(&mut self, origin: Origin, mode: usize, mut client: NearClient) {
        let board = Arc::clone(&self.board);
        let clock = || board.now();
        let is_alive = client.is_connected()
            && (0..PROOFS_MAX).any(|_| {
                let is_alive = client.ask(&["PING"], &clock).is_ok() && client.may_use(clock());
                if !is_alive {
                    std::thread::sleep(Duration::from_millis(10));
                }
                is_alive
            });
        let sent_ns = clock();
        if !is_alive || client.take_pushes().is_err() {
            return;
        }
        for (key, seen) in client.copies() {
            self.board.copies[mode].fetch_add(1, Ordering::Relaxed);
            self.note(origin, Form::Copy, key, seen.clone(), (sent_ns, clock()));
        }
    }

    fn note(&mut self, origin: Origin, form: Form, key: u32, seen: Claim, times: (Ns, Ns)) {
        self.board.redis_reads.fetch_add(1, Ordering::Relaxed);
        self.seen.push(Observation {
            key,
            reader: self.id,
            origin,
            sent_ns: times.0,
            received_ns: times.1,
            form,
            requirement: Requirement::Any,
            seen,
            outcome: Outcome::None,
            age_s: None,
            position: None,
        });
    }

    fn choose_key(&mut self, client: &mut NearClient) -> u32 {
        let keys = u64::from(self.keys);
        match self.random.below(100) {
            n if n < RECENT => self.board.recent(&mut self.random),
            n if n < RECENT + OLDEST => match client.oldest() {
                Some(key) => key,
                None => self.random.below(keys) as u32,
            },
            n if n < RECENT + OLDEST + ANYWHERE => self.random.below(keys) as u32,
            _ => self.random.skewed(keys) as u32,
        }
    }
}

fn text_of(key: u32) -> String {
    format!("items:{key}")
}
