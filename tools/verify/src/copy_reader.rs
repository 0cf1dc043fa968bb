//! Reader over the Redis protocol with near caches: one for each instance and tracking mode, each
//! with a connection of its own. What a near cache has is not read again, and is submitted as an
//! observation too.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::redis::Value as Reply;
use hotrow_measure::clock::Nanos;
use serde_json::{Map, Value};

use crate::history::Ns;
use crate::http::RequestError;
use crate::ledger::Ledger;
use crate::near_cache::NearCacheCounts;
use crate::near_client::{NearClient, Replied, claim, shown};
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Requirement};
use crate::random::{Random, Zipf};
use crate::read_request::claim_of_record;
use crate::reader::{Common, FailureCounts};
use crate::record_schema::RecordSchema;
use crate::redis::{RedisTarget, TrackingMode};
use crate::shared_state::{BackOff, SharedState, lock};

/// Readers of a run, besides those over HTTP.
pub(crate) const COPY_READERS: u16 = 4;
/// Probabilities in per cent: of a key that was or will be changed about now, of the copy that is
/// held longest, and of a uniformly chosen key; otherwise low keys are preferred.
const RECENT: u64 = 35;
const OLDEST: u64 = 25;
const ANYWHERE: u64 = 20;
/// Share in per cent of reads of several keys.
const SEVERAL: u64 = 10;
/// Share in per cent of strict reads among those of one key.
const STRICT: u64 = 15;
/// Most keys of `MGET`.
const SEVERAL_MAX: u64 = 10;
/// Pause after a read that a copy answers, so that the checker keeps up.
const COPY_PAUSE: Duration = Duration::from_micros(500);

/// An instance's address of the Redis protocol, and how it can be read.
#[derive(Clone, Debug)]
pub(crate) struct ProbedRedis {
    pub(crate) origin: Origin,
    pub(crate) target: Arc<RedisTarget>,
    /// Whether strict reads are answered.
    pub(crate) strict: bool,
    /// The reason for which it does not broadcast, if it does not.
    pub(crate) no_broadcast: Option<String>,
}

impl ProbedRedis {
    pub(crate) fn modes(&self) -> impl Iterator<Item = TrackingMode> {
        let broadcast = self.no_broadcast.is_none().then_some(TrackingMode::Broadcast);
        [TrackingMode::Default].into_iter().chain(broadcast)
    }
}

/// Probes an address with an existing row.
///
/// # Errors
/// The reason the collection cannot be read there, as a message for the user.
pub(crate) fn probe(
    origin: Origin,
    target: &RedisTarget,
    schema: &RecordSchema,
    key: u32,
    timeout: Duration,
) -> Result<ProbedRedis, String> {
    let mut connection = target.open(TrackingMode::Default, &schema.collection, timeout)?;
    let text = redis_key(schema, key);
    let reply = connection.ask(&["GET", &text], &mut |_| {}).map_err(|lost| lost.name())?;
    let version = |record: &[u8]| {
        schema.content(&parsed(record)?, key).map(|content| Claim::Version(content.version))
    };
    match claim(&reply, version) {
        Claim::Version(_) => {}
        Claim::Refused(_) => return Err(format!("GET {text} returned {}", shown(&reply))),
        other => return Err(format!("GET {text} returned no row of the run, but {other:?}")),
    }
    let reply = connection.ask(&strict_get(&text), &mut |_| {}).map_err(|lost| lost.name())?;
    let strict = !matches!(reply, Reply::ServerError(_));
    let broadcast = target.open(TrackingMode::Broadcast, &schema.collection, timeout);
    let target = Arc::new(target.clone());
    Ok(ProbedRedis { origin, target, strict, no_broadcast: broadcast.err() })
}

/// A client with its near cache.
struct CopyClient {
    origin: Origin,
    strict: bool,
    client: NearClient,
    back_off: BackOff,
    /// Time until which it is not used, after a failure.
    rests_until: Option<Instant>,
}

/// Times of a request.
#[derive(Clone, Copy)]
struct RequestTimes {
    sent_ns: Ns,
    received_ns: Ns,
}

/// A reader with near caches.
pub(crate) struct CopyReader {
    id: u16,
    ledger: Arc<Ledger>,
    shared: Arc<SharedState>,
    losses: Arc<FailureCounts>,
    schema: RecordSchema,
    several_max: u64,
    clients: Vec<CopyClient>,
    random: Random,
    zipf: Zipf,
    totals: Arc<Mutex<NearCacheCounts>>,
}

impl CopyReader {
    pub(crate) fn new(
        id: u16,
        common: Common,
        targets: &[ProbedRedis],
        timeout: Duration,
        random: Random,
        totals: Arc<Mutex<NearCacheCounts>>,
    ) -> Self {
        let Common { ledger, shared, losses, schema, batch_ids_max } = common;
        let own = |probed: &ProbedRedis, mode| CopyClient {
            origin: probed.origin,
            strict: probed.strict,
            client: NearClient::new(Arc::clone(&probed.target), mode, &schema.collection, timeout),
            back_off: BackOff::new(),
            rests_until: None,
        };
        let clients: Vec<CopyClient> = targets
            .iter()
            .flat_map(|probed| probed.modes().map(move |mode| (probed, mode)))
            .map(|(probed, mode)| own(probed, mode))
            .collect();
        Self {
            id,
            zipf: Zipf::new(*ledger.keys().end()),
            ledger,
            shared,
            losses,
            schema,
            several_max: (batch_ids_max as u64).clamp(1, SEVERAL_MAX),
            clients,
            random,
            totals,
        }
    }

    /// Reads until the stop flag is set, and then every copy that is left.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        while !shared.readers_stopped() {
            let now = Instant::now();
            let awake = |client: &CopyClient| client.rests_until.is_none_or(|until| until <= now);
            let able: Vec<usize> =
                (0..self.clients.len()).filter(|i| awake(&self.clients[*i])).collect();
            match self.random.one_of(&able) {
                Some(at) => self.step(at),
                None => {
                    let first = self.clients.iter().filter_map(|own| own.rests_until).min();
                    SharedState::sleep_until(first.unwrap_or(now), || shared.readers_stopped());
                }
            }
        }
        for at in 0..self.clients.len() {
            self.read_all_copies(at);
        }
        let mut totals = lock(&self.totals);
        self.clients.iter().for_each(|own| totals.add(&own.client.counts()));
    }

    /// One read at one near cache.
    fn step(&mut self, at: usize) {
        if let Err(lost) = self.try_step(at) {
            self.losses.count(lost);
            self.ledger.submit(self.id, Vec::new());
            let own = &mut self.clients[at];
            own.client.disconnect();
            own.rests_until = Some(own.back_off.failed());
        }
    }

    fn try_step(&mut self, at: usize) -> Result<(), RequestError> {
        self.connect(at)?;
        if self.random.percent(SEVERAL) {
            return self.read_several(at);
        }
        let key = self.choose_key(at);
        let text = redis_key(&self.schema, key);
        let sent_ns = self.take_pushes(at)?;
        let own = &mut self.clients[at];
        if own.client.needs_proof(sent_ns) {
            return self.ask(at, &["PING"]).map(|_| ());
        }
        let Some(seen) = own.client.copy(&text).cloned() else {
            let is_strict = own.strict && self.random.percent(STRICT);
            let requirement = if is_strict { Requirement::Strict } else { Requirement::Any };
            return self.read(at, Form::RedisGet, requirement, &[key]);
        };
        if !own.client.may_use(sent_ns) {
            return self.ask(at, &["PING"]).map(|_| std::thread::sleep(COPY_PAUSE));
        }
        own.client.count_used(1);
        let observation = self.copy(at, key, seen, sent_ns);
        self.ledger.submit(self.id, vec![observation]);
        std::thread::sleep(COPY_PAUSE);
        Ok(())
    }

    fn connect(&mut self, at: usize) -> Result<(), RequestError> {
        let own = &mut self.clients[at];
        if own.client.connect()? {
            own.back_off.succeeded();
            own.rests_until = None;
        }
        Ok(())
    }

    /// Applies what was pushed by now, and returns the time just before.
    fn take_pushes(&mut self, at: usize) -> Result<Ns, RequestError> {
        let sent_ns = Nanos::now().0;
        self.ledger.sending(self.id, sent_ns);
        self.clients[at].client.take_pushes()?;
        Ok(sent_ns)
    }

    fn copy(&self, at: usize, key: u32, seen: Claim, sent_ns: Ns) -> Observation {
        let times = RequestTimes { sent_ns, received_ns: Nanos::now().0 };
        self.observe(at, (Form::Copy, Requirement::Any), key, seen, times)
    }

    fn observe(
        &self,
        at: usize,
        (form, requirement): (Form, Requirement),
        key: u32,
        seen: Claim,
        RequestTimes { sent_ns, received_ns }: RequestTimes,
    ) -> Observation {
        Observation {
            key,
            reader: self.id,
            origin: self.clients[at].origin,
            sent_ns,
            received_ns,
            form,
            requirement,
            seen,
            outcome: Outcome::None,
            age_s: None,
            position: None,
        }
    }

    /// Sends a command, and returns its reply with the times.
    fn ask(&mut self, at: usize, arguments: &[&str]) -> Result<Replied, RequestError> {
        self.ledger.sending(self.id, Nanos::now().0);
        self.clients[at].client.ask(arguments, &|| Nanos::now().0)
    }

    /// Reads keys from the instance, and keeps what it replies.
    fn read(
        &mut self,
        at: usize,
        form: Form,
        requirement: Requirement,
        keys: &[u32],
    ) -> Result<(), RequestError> {
        let texts: Vec<String> = keys.iter().map(|key| redis_key(&self.schema, *key)).collect();
        let name = if form == Form::RedisMget { "MGET" } else { "GET" };
        let arguments: Vec<&str> = match (requirement, texts.as_slice()) {
            (Requirement::Strict, [text]) => strict_get(text).to_vec(),
            _ => [name].into_iter().chain(texts.iter().map(|text| &**text)).collect(),
        };
        let Replied { reply, sent_ns, received_ns } = self.ask(at, &arguments)?;
        let replies = match (form, reply) {
            (Form::RedisMget, Reply::Array(replies)) if replies.len() == keys.len() => replies,
            // An error concerns all keys.
            (_, reply) => vec![reply; keys.len()],
        };
        let mut observations = Vec::with_capacity(keys.len());
        for ((key, text), reply) in keys.iter().zip(&texts).zip(&replies) {
            let seen = claim(reply, |record| {
                claim_of_record(&parsed(record)?, *key, &self.schema, &self.ledger)
            });
            self.clients[at].client.keep(text, *key, &seen);
            let times = RequestTimes { sent_ns, received_ns };
            observations.push(self.observe(at, (form, requirement), *key, seen, times));
        }
        self.ledger.submit(self.id, observations);
        Ok(())
    }

    fn read_several(&mut self, at: usize) -> Result<(), RequestError> {
        let count = 1 + self.random.below(self.several_max);
        let mut keys: Vec<u32> = (0..count).map(|_| self.choose_key(at)).collect();
        keys.sort_unstable();
        keys.dedup();
        self.read(at, Form::RedisMget, Requirement::Any, &keys)
    }

    /// Submits all copies of one near cache.
    fn read_all_copies(&mut self, at: usize) {
        if !self.clients[at].client.is_connected() {
            return;
        }
        // Until a fast answer proves that the connection is alive, nothing follows.
        let is_alive = (0..100).any(|_| {
            let alive =
                self.ask(at, &["PING"]).is_ok() && self.clients[at].client.may_use(Nanos::now().0);
            if !alive {
                std::thread::sleep(Duration::from_millis(10));
            }
            alive
        });
        let Ok(sent_ns) = self.take_pushes(at) else { return };
        if !is_alive {
            self.ledger.submit(self.id, Vec::new());
            return;
        }
        let copies: Vec<(u32, Claim)> =
            self.clients[at].client.copies().map(|(key, seen)| (key, seen.clone())).collect();
        self.clients[at].client.count_used(copies.len() as u64);
        let observe = |(key, seen)| self.copy(at, key, seen, sent_ns);
        let observations = copies.into_iter().map(observe).collect();
        self.ledger.submit(self.id, observations);
    }

    fn choose_key(&mut self, at: usize) -> u32 {
        let chosen = match self.random.below(100) {
            n if n < RECENT => self.shared.recent(&mut self.random),
            n if n < RECENT + OLDEST => self.clients[at].client.oldest(),
            n if n < RECENT + OLDEST + ANYWHERE => {
                let keys = self.ledger.keys();
                Some(keys.start() + self.random.below(u64::from(*keys.end())) as u32)
            }
            _ => None,
        };
        chosen.unwrap_or_else(|| 1 + self.zipf.pick(&mut self.random))
    }
}

/// Returns the strict read of a key.
fn strict_get(key: &str) -> [&str; 4] {
    ["HOTROW.GET", key, "MINPOS", "now"]
}

fn redis_key(schema: &RecordSchema, key: u32) -> String {
    format!("{}:{}", schema.collection, schema.key_type.text(key))
}

/// Parses a record.
fn parsed(record: &[u8]) -> Result<Map<String, Value>, String> {
    serde_json::from_slice(record).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::KeyType;

    #[test]
    fn a_key_names_its_collection() {
        let schema = RecordSchema {
            collection: "c".to_owned(),
            key: "id".to_owned(),
            key_type: KeyType::Integer,
            alias: None,
            embedded: None,
            other: None,
            keys: 10,
        };
        assert_eq!(redis_key(&schema, 7), "c:7");
        assert!(parsed(b"[]").is_err() && parsed(b"{}").is_ok());
    }
}
