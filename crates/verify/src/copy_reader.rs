//! Reader over the Redis protocol with near caches: one for each instance and tracking mode, each
//! with a connection of its own. What a near cache has is not read again, and is submitted as an
//! observation too.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;
use serde_json::{Map, Value};

use crate::history::Ns;
use crate::http::RequestError;
use crate::ledger::Ledger;
use crate::near_cache::{Liveness, NearCache, NearCacheCounts};
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Requirement};
use crate::random::{Random, Zipf};
use crate::read_request::claim_of_record;
use crate::reader::{Common, FailureCounts};
use crate::record_schema::RecordSchema;
use crate::redis::reply::Reply;
use crate::redis::{RedisConnection, RedisTarget, TrackingMode};
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
/// Most keys of `MGET`.
const SEVERAL_MAX: u64 = 10;
/// Pause after a read that a copy answers, so that the checker keeps up.
const COPY_PAUSE: Duration = Duration::from_micros(500);
/// Characters of a reply in a message.
const SHOWN_MAX: usize = 120;

/// An instance's address of the Redis protocol, and how it can be read.
#[derive(Clone, Debug)]
pub(crate) struct ProbedRedis {
    pub(crate) origin: Origin,
    pub(crate) target: Arc<RedisTarget>,
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
    let version = |record: &Map<String, Value>| {
        schema.content(record, key).map(|content| Claim::Version(content.version))
    };
    match claim(&reply, version) {
        Claim::Version(_) => {}
        Claim::Refused(_) => return Err(format!("GET {text} returned {}", shown(&reply))),
        other => return Err(format!("GET {text} returned no row of the run, but {other:?}")),
    }
    let broadcast = target.open(TrackingMode::Broadcast, &schema.collection, timeout);
    Ok(ProbedRedis { origin, target: Arc::new(target.clone()), no_broadcast: broadcast.err() })
}

/// A connection with its near cache.
struct Own {
    origin: Origin,
    target: Arc<RedisTarget>,
    mode: TrackingMode,
    connection: Option<RedisConnection>,
    near: NearCache,
    liveness: Liveness,
    back_off: BackOff,
    /// Time until which it is not used, after a failure.
    rests_until: Option<Instant>,
}

/// A reader with near caches.
pub(crate) struct CopyReader {
    id: u16,
    ledger: Arc<Ledger>,
    shared: Arc<SharedState>,
    losses: Arc<FailureCounts>,
    schema: RecordSchema,
    timeout: Duration,
    several_max: u64,
    own: Vec<Own>,
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
        let own = |probed: &ProbedRedis, mode| Own {
            origin: probed.origin,
            target: Arc::clone(&probed.target),
            mode,
            connection: None,
            near: NearCache::default(),
            liveness: Liveness::default(),
            back_off: BackOff::new(),
            rests_until: None,
        };
        let own =
            targets.iter().flat_map(|probed| probed.modes().map(move |mode| own(probed, mode)));
        Self {
            id,
            zipf: Zipf::new(*ledger.keys().end()),
            ledger,
            shared,
            losses,
            schema,
            timeout,
            several_max: (batch_ids_max as u64).clamp(1, SEVERAL_MAX),
            own: own.collect(),
            random,
            totals,
        }
    }

    /// Reads until the stop flag is set, and then every copy that is left.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        while !shared.readers_stopped() {
            let now = Instant::now();
            let awake = |own: &Own| own.rests_until.is_none_or(|until| until <= now);
            let able: Vec<usize> = (0..self.own.len()).filter(|i| awake(&self.own[*i])).collect();
            match self.random.one_of(&able) {
                Some(at) => self.step(at),
                None => {
                    let first = self.own.iter().filter_map(|own| own.rests_until).min();
                    SharedState::sleep_until(first.unwrap_or(now), || shared.readers_stopped());
                }
            }
        }
        for at in 0..self.own.len() {
            self.read_all_copies(at);
        }
        let mut totals = lock(&self.totals);
        self.own.iter().for_each(|own| totals.add(&own.near.counts));
    }

    /// One read at one near cache.
    fn step(&mut self, at: usize) {
        if let Err(lost) = self.try_step(at) {
            self.losses.count(lost);
            self.ledger.submit(self.id, Vec::new());
            let own = &mut self.own[at];
            own.connection = None;
            own.near.disconnected();
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
        let own = &mut self.own[at];
        if own.liveness.needs_proof(sent_ns) {
            return self.ask(at, &["PING"]).map(|_| ());
        }
        let Some(seen) = own.near.get(&text).cloned() else {
            return self.read(at, Form::RedisGet, &[key]);
        };
        if !own.liveness.may_use(sent_ns) {
            return self.ask(at, &["PING"]).map(|_| std::thread::sleep(COPY_PAUSE));
        }
        own.near.counts.copies_read += 1;
        let observation = self.copy(at, key, seen, sent_ns);
        self.ledger.submit(self.id, vec![observation]);
        std::thread::sleep(COPY_PAUSE);
        Ok(())
    }

    fn connect(&mut self, at: usize) -> Result<(), RequestError> {
        let own = &mut self.own[at];
        if own.connection.is_none() {
            let opened = own.target.open(own.mode, &self.schema.collection, self.timeout);
            // Why is known from the probe, or is a fault of the run.
            own.connection = Some(opened.map_err(|_| RequestError::Connect)?);
            own.liveness = Liveness::default();
            own.back_off.succeeded();
            own.rests_until = None;
        }
        Ok(())
    }

    /// Applies what was pushed by now, and returns the time just before.
    fn take_pushes(&mut self, at: usize) -> Result<Ns, RequestError> {
        let sent_ns = Nanos::now().0;
        self.ledger.sending(self.id, sent_ns);
        let Own { connection, near, .. } = &mut self.own[at];
        let connection = connection.as_mut().ok_or(RequestError::Closed)?;
        let mut is_known = true;
        connection.take_pushes(&mut |push| is_known &= near.apply(&push))?;
        if is_known { Ok(sent_ns) } else { Err(RequestError::Malformed) }
    }

    fn copy(&self, at: usize, key: u32, seen: Claim, sent_ns: Ns) -> Observation {
        self.observe(at, Form::Copy, key, seen, (sent_ns, Nanos::now().0))
    }

    fn observe(
        &self,
        at: usize,
        form: Form,
        key: u32,
        seen: Claim,
        (sent_ns, received_ns): (Ns, Ns),
    ) -> Observation {
        Observation {
            key,
            reader: self.id,
            origin: self.own[at].origin,
            sent_ns,
            received_ns,
            form,
            requirement: Requirement::Any,
            seen,
            outcome: Outcome::None,
            age_s: None,
            position: None,
        }
    }

    /// Sends a command, and returns its reply with the times.
    fn ask(&mut self, at: usize, arguments: &[&str]) -> Result<(Reply, Ns, Ns), RequestError> {
        let sent_ns = Nanos::now().0;
        self.ledger.sending(self.id, sent_ns);
        let Own { connection, near, liveness, .. } = &mut self.own[at];
        let connection = connection.as_mut().ok_or(RequestError::Closed)?;
        let mut is_known = true;
        let reply = connection.ask(arguments, &mut |push| is_known &= near.apply(&push))?;
        let received_ns = Nanos::now().0;
        liveness.answered(sent_ns, received_ns);
        if is_known { Ok((reply, sent_ns, received_ns)) } else { Err(RequestError::Malformed) }
    }

    /// Reads keys from the instance, and keeps what it replies.
    fn read(&mut self, at: usize, form: Form, keys: &[u32]) -> Result<(), RequestError> {
        let texts: Vec<String> = keys.iter().map(|key| redis_key(&self.schema, *key)).collect();
        let name = if form == Form::RedisMget { "MGET" } else { "GET" };
        let arguments: Vec<&str> = [name].into_iter().chain(texts.iter().map(|t| &**t)).collect();
        let (reply, sent_ns, received_ns) = self.ask(at, &arguments)?;
        let replies = match (form, reply) {
            (Form::RedisMget, Reply::Array(replies)) if replies.len() == keys.len() => replies,
            // An error concerns all keys.
            (_, reply) => vec![reply; keys.len()],
        };
        let mut observations = Vec::with_capacity(keys.len());
        for ((key, text), reply) in keys.iter().zip(&texts).zip(&replies) {
            let stated = |record: &Map<String, Value>| {
                claim_of_record(record, *key, &self.schema, &self.ledger)
            };
            let seen = claim(reply, stated);
            self.own[at].near.keep(text, *key, &seen);
            observations.push(self.observe(at, form, *key, seen, (sent_ns, received_ns)));
        }
        self.ledger.submit(self.id, observations);
        Ok(())
    }

    fn read_several(&mut self, at: usize) -> Result<(), RequestError> {
        let count = 1 + self.random.below(self.several_max);
        let mut keys: Vec<u32> = (0..count).map(|_| self.choose_key(at)).collect();
        keys.sort_unstable();
        keys.dedup();
        self.read(at, Form::RedisMget, &keys)
    }

    /// Submits all copies of one near cache.
    fn read_all_copies(&mut self, at: usize) {
        if self.own[at].connection.is_none() {
            return;
        }
        // Until a fast answer proves that the connection is alive, nothing follows.
        let is_alive = (0..100).any(|_| {
            let alive =
                self.ask(at, &["PING"]).is_ok() && self.own[at].liveness.may_use(Nanos::now().0);
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
            self.own[at].near.all().map(|(key, seen)| (key, seen.clone())).collect();
        self.own[at].near.counts.copies_read += copies.len() as u64;
        let observe = |(key, seen)| self.copy(at, key, seen, sent_ns);
        let observations = copies.into_iter().map(observe).collect();
        self.ledger.submit(self.id, observations);
    }

    fn choose_key(&mut self, at: usize) -> u32 {
        let chosen = match self.random.below(100) {
            n if n < RECENT => self.shared.recent(&mut self.random),
            n if n < RECENT + OLDEST => self.own[at].near.oldest(),
            n if n < RECENT + OLDEST + ANYWHERE => {
                let keys = self.ledger.keys();
                Some(keys.start() + self.random.below(u64::from(*keys.end())) as u32)
            }
            _ => None,
        };
        chosen.unwrap_or_else(|| 1 + self.zipf.pick(&mut self.random))
    }
}

fn redis_key(schema: &RecordSchema, key: u32) -> String {
    format!("{}:{}", schema.collection, schema.key_type.text(key))
}

/// Interprets the reply for one key; `stated` interprets its record. A refusal has the status that
/// HTTP has for it.
fn claim(
    reply: &Reply,
    stated: impl FnOnce(&Map<String, Value>) -> Result<Claim, String>,
) -> Claim {
    match reply {
        Reply::Null => Claim::Absent,
        Reply::Bulk(record) => {
            let record = serde_json::from_slice(record).map_err(|error| error.to_string());
            record
                .and_then(|record| stated(&record))
                .unwrap_or_else(|what| Claim::Invalid(format!("a record, but {what}").into()))
        }
        Reply::Error(text) => match text.split(' ').next().unwrap_or_default() {
            "NOAUTH" | "WRONGPASS" => Claim::Refused(401),
            "NOPERM" => Claim::Refused(403),
            "RATELIMIT" => Claim::Refused(429),
            "BUSY" | "TRYAGAIN" | "MASTERDOWN" => Claim::Refused(503),
            "TIMEOUT" => Claim::Refused(504),
            _ => Claim::Invalid(shown(reply).into()),
        },
        _ => Claim::Invalid(shown(reply).into()),
    }
}

/// Returns the beginning of a reply as text.
fn shown(reply: &Reply) -> String {
    let text = match reply {
        Reply::Error(text) => format!("the error {text}"),
        other => format!("the reply {other:?}"),
    };
    text.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::KeyType;

    #[test]
    fn replies_are_claims_and_refusals_have_the_status_of_http() {
        let schema = RecordSchema {
            collection: "c".to_owned(),
            key: "id".to_owned(),
            key_type: KeyType::Integer,
            alias: None,
            embedded: None,
            keys: 10,
        };
        let stated = |record: &Map<String, Value>| {
            schema.content(record, 7).map(|content| Claim::Version(content.version))
        };
        let claim = |reply: &Reply| claim(reply, stated);
        assert_eq!(redis_key(&schema, 7), "c:7");
        assert_eq!(claim(&Reply::Null), Claim::Absent);
        for (text, status) in
            [("NOAUTH x", 401), ("NOPERM", 403), ("BUSY a", 503), ("MASTERDOWN", 503)]
        {
            assert_eq!(claim(&Reply::Error(text.to_owned())), Claim::Refused(status), "{text}");
        }
        for reply in [
            Reply::Error("ERR bad id".to_owned()),
            Reply::Integer(1),
            Reply::Bulk(b"{\"id\":7}".to_vec()),
        ] {
            assert!(matches!(claim(&reply), Claim::Invalid(_)), "{reply:?}");
        }
    }
}
