//! Reader: keep-alive connections to every target, requests of every kind, submission of each
//! response.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::capabilities::Capabilities;
use crate::http::{Client, REQUEST_ERRORS, RequestError};
use crate::ledger::Ledger;
use crate::observation::{Claim, Form, Observation, Origin, Position, Requirement};
use crate::plan::SET_KEYS;
use crate::random::{Random, Zipf};
use crate::read_request::ReadRequest;
use crate::record_schema::RecordSchema;
use crate::shared_state::{BackOff, SharedState};

/// Probabilities in per cent: of a key that was or will be changed about now, and of a uniformly
/// chosen key; otherwise low keys are preferred.
const RECENT: u64 = 70;
const ANYWHERE: u64 = 10;
/// Probabilities in per cent of request forms and requirements at an instance.
const BATCH: u64 = 5;
const HEAD: u64 = 5;
const CONDITIONAL: u64 = 12;
const NO_CACHE: u64 = 4;
/// Share in per cent of these that are batches.
const NO_CACHE_BATCH: u64 = 20;
const SESSION: u64 = 8;
const OWN_WRITE: u64 = 4;
const SNAPSHOT: u64 = 8;
const STRICT: u64 = 8;
/// Share in per cent of snapshots that are strict too, and that have a token.
const SNAPSHOT_STRICT: u64 = 25;
const SNAPSHOT_SESSION: u64 = 15;
/// Share at a balancer, where sessions are what can be checked.
const SESSION_BALANCED: u64 = 40;
/// Share in per cent of lookups by the alias, if there is one, and of batches of these.
const BY_ALIAS: u64 = 35;
const ALIAS_BATCH: u64 = 10;
/// Most ids of a batch.
const BATCH_KEYS_MAX: u64 = 20;
/// Responses whose tokens a reader may use.
const TOKENS_MAX: usize = 64;
/// One of this many uses of a token is for another key.
const OTHER_KEY_ONE_IN: u64 = 2;

/// Requests without a response, by reason.
#[derive(Debug, Default)]
pub(crate) struct FailureCounts([AtomicU64; REQUEST_ERRORS.len()]);

impl FailureCounts {
    pub(crate) fn count(&self, lost: RequestError) {
        self.0[lost as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, lost: RequestError) -> u64 {
        self.0[lost as usize].load(Ordering::Relaxed)
    }
}

/// A target with a reader's connection.
pub(crate) struct ReaderTarget {
    pub(crate) origin: Origin,
    pub(crate) client: Client,
    pub(crate) capabilities: Capabilities,
    back_off: BackOff,
    /// Time until which it is not used, after a failure.
    rests_until: Option<Instant>,
}

impl ReaderTarget {
    pub(crate) fn new(origin: Origin, client: Client, capabilities: Capabilities) -> Self {
        Self { origin, client, capabilities, back_off: BackOff::new(), rests_until: None }
    }
}

/// A response whose token may be used.
#[derive(Clone, Copy, Debug)]
struct Token {
    key: u32,
    version: u64,
    position: Position,
}

/// A reader.
pub(crate) struct Reader {
    id: u16,
    ledger: Arc<Ledger>,
    shared: Arc<SharedState>,
    losses: Arc<FailureCounts>,
    schema: RecordSchema,
    batch_ids_max: u64,
    targets: Vec<ReaderTarget>,
    /// Time between two requests, at least.
    interval: Duration,
    random: Random,
    zipf: Zipf,
    tokens: VecDeque<Token>,
    /// The newest `ETag` of a key with its version.
    etags: HashMap<u32, (u64, String)>,
}

/// State shared by readers.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) losses: Arc<FailureCounts>,
    pub(crate) schema: RecordSchema,
    pub(crate) batch_ids_max: usize,
}

impl Reader {
    /// Creates a reader; `interval` is the time between two requests, at least.
    pub(crate) fn new(
        id: u16,
        common: Common,
        targets: Vec<ReaderTarget>,
        interval: Duration,
        random: Random,
    ) -> Self {
        let Common { ledger, shared, losses, schema, batch_ids_max } = common;
        let zipf = Zipf::new(*ledger.keys().end());
        let batch_ids_max = (batch_ids_max as u64).clamp(1, BATCH_KEYS_MAX);
        let (tokens, etags) = (VecDeque::new(), HashMap::new());
        Self {
            id,
            ledger,
            shared,
            losses,
            schema,
            batch_ids_max,
            targets,
            interval,
            random,
            zipf,
            tokens,
            etags,
        }
    }

    /// Reads until the stop flag is set.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        // Readers do not begin at the same time.
        let mut due = Instant::now() + self.interval.mul_f64(self.random.unit());
        while !shared.readers_stopped() {
            SharedState::sleep_until(due, || shared.readers_stopped());
            let now = Instant::now();
            due = now + self.interval;
            let awake = |target: &ReaderTarget| target.rests_until.is_none_or(|until| until <= now);
            let able: Vec<usize> =
                (0..self.targets.len()).filter(|i| awake(&self.targets[*i])).collect();
            match self.random.one_of(&able) {
                Some(target_index) => {
                    let ask = self.choose(target_index);
                    self.ask(target_index, &ask);
                }
                None => {
                    let first = self.targets.iter().filter_map(|target| target.rests_until).min();
                    SharedState::sleep_until(first.unwrap_or(now), || shared.readers_stopped());
                }
            }
        }
    }

    /// Sends the request, submits the response and returns its observations; `None` without a
    /// response.
    pub(crate) fn ask(
        &mut self,
        target_index: usize,
        ask: &ReadRequest,
    ) -> Option<Vec<Observation>> {
        let (id, ledger) = (self.id, self.ledger.clone());
        let target = self.targets.get_mut(target_index)?;
        match target.client.ask(&ask.request(&self.schema), |sent_ns| ledger.sending(id, sent_ns)) {
            Ok(response) => {
                target.back_off.succeeded();
                target.rests_until = None;
                let parts = ask.read(&response, &self.schema, target.origin, &ledger);
                let observations = ask.observations(&response, parts, target.origin, id);
                self.remember(ask, &observations, response.header("etag"));
                ledger.submit(id, observations.clone());
                Some(observations)
            }
            Err(error) => {
                target.rests_until = Some(target.back_off.failed());
                self.losses.count(error);
                ledger.submit(id, Vec::new());
                None
            }
        }
    }

    fn remember(&mut self, ask: &ReadRequest, observations: &[Observation], etag: Option<&str>) {
        let [Observation { key, seen, position, form, .. }] = observations else { return };
        if let Some(position) = position {
            self.shared.saw_log(position.log);
        }
        match (seen, position) {
            (Claim::Version(version), Some(position)) => {
                if self.tokens.len() == TOKENS_MAX {
                    self.tokens.pop_front();
                }
                self.tokens.push_back(Token { key: *key, version: *version, position: *position });
            }
            // Tokens of a replaced log are useless.
            (Claim::PositionRefused, _) => self.tokens.clear(),
            _ => {}
        }
        if let (Claim::Version(version), Some(etag), Form::Get | Form::Conditional) =
            (seen, etag, form)
        {
            if ask.known.as_ref().is_none_or(|(_, known)| known != etag) {
                self.ledger.saw_etag(*key, etag, *version);
            }
            self.etags.insert(*key, (*version, etag.to_owned()));
        }
    }

    fn choose(&mut self, target_index: usize) -> ReadRequest {
        let (capabilities, origin) = self
            .targets
            .get(target_index)
            .map_or_else(Default::default, |p| (p.capabilities, Some(p.origin)));
        let session =
            if matches!(origin, Some(Origin::Balancer(_))) { SESSION_BALANCED } else { SESSION };
        let kind = self.random.below(100);
        let by_alias = self.schema.alias.is_some() && self.random.percent(BY_ALIAS);
        if capabilities.min_position && kind < session {
            if let Some(ask) = self.choose_session(by_alias) {
                return ask;
            }
        } else if capabilities.min_position && kind < session + OWN_WRITE {
            if let Some((position, key)) = self.shared.commit(&mut self.random) {
                let id = if by_alias { self.choose_value() } else { key };
                return self.choose_own_write(position, id);
            }
        } else if capabilities.no_cache && kind < session + OWN_WRITE + NO_CACHE {
            if self.random.percent(NO_CACHE_BATCH) {
                return self.choose_batch(Form::BatchPost, Requirement::NoCache);
            }
            let id = if by_alias { self.choose_value() } else { self.choose_key() };
            return self.single(id, Requirement::NoCache);
        }
        if capabilities.snapshot && self.random.percent(SNAPSHOT) {
            return self.choose_snapshot(capabilities);
        }
        let is_strict = capabilities.strict && self.random.percent(STRICT);
        let requirement = if is_strict { Requirement::Strict } else { Requirement::Any };
        if by_alias && self.random.percent(ALIAS_BATCH) {
            return self.choose_batch(Form::AliasBatch, requirement);
        }
        if by_alias {
            let value = self.choose_value();
            return self.single(value, requirement);
        }
        self.choose_form(requirement)
    }

    /// Chooses a read of records.
    fn choose_form(&mut self, requirement: Requirement) -> ReadRequest {
        let chosen = self.random.below(100);
        if chosen < BATCH {
            let form = self.random.one_of(&[Form::BatchGet, Form::BatchPost]);
            return self.choose_batch(form.unwrap_or(Form::BatchGet), requirement);
        }
        let key = self.choose_key();
        let (form, known) = match chosen {
            n if n < BATCH + HEAD => (Form::Head, None),
            n if n < BATCH + HEAD + CONDITIONAL => match self.etags.get(&key).cloned() {
                Some(known) => (Form::Conditional, Some(known)),
                None => (Form::Get, None),
            },
            _ => (Form::Get, None),
        };
        ReadRequest { form, keys: vec![(key, requirement)], known }
    }

    /// Chooses a snapshot: sets of keys that some transactions change together.
    fn choose_snapshot(&mut self, capabilities: Capabilities) -> ReadRequest {
        let all = [Form::SnapshotGet, Form::SnapshotPost, Form::SnapshotAcross];
        let forms = if capabilities.across { &all[..] } else { &all[..2] };
        let form = self.random.one_of(forms).unwrap_or(Form::SnapshotGet);
        let count = 1 + self.random.below(self.batch_ids_max);
        let mut keys = Vec::new();
        while (keys.len() as u64) < count {
            let first = (self.choose_key() - 1) / SET_KEYS * SET_KEYS + 1;
            keys.extend((first..first + SET_KEYS).filter(|key| self.ledger.keys().contains(key)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(self.batch_ids_max as usize);
        let token = match self.random.below(100) {
            n if n < SNAPSHOT_SESSION && capabilities.min_position => self.choose_token(),
            _ => None,
        };
        let is_strict = capabilities.strict && self.random.percent(SNAPSHOT_STRICT);
        let requirement = |key: &u32| match token {
            Some(token) => {
                let floor = self.follows_for(*key, &token);
                (*key, Requirement::Session { position: token.position, floor })
            }
            None if is_strict => (*key, Requirement::Strict),
            None => (*key, Requirement::Any),
        };
        ReadRequest { form, keys: keys.iter().map(requirement).collect(), known: None }
    }

    fn choose_token(&mut self) -> Option<Token> {
        let at = self.random.below(self.tokens.len() as u64) as usize;
        self.tokens.get(at).copied()
    }

    fn choose_batch(&mut self, form: Form, requirement: Requirement) -> ReadRequest {
        let count = 1 + self.random.below(self.batch_ids_max);
        let choose = |_| match form.is_by_alias() {
            true => self.choose_value(),
            false => self.choose_key(),
        };
        let mut keys: Vec<u32> = (0..count).map(choose).collect();
        keys.sort_unstable();
        keys.dedup();
        ReadRequest {
            form,
            keys: keys.into_iter().map(|key| (key, requirement)).collect(),
            known: None,
        }
    }

    /// Returns a read of one key, or of one value.
    fn single(&self, id: u32, requirement: Requirement) -> ReadRequest {
        let is_value = self.schema.value_of(id).is_some();
        let form = if is_value { Form::Alias } else { Form::Get };
        ReadRequest { form, keys: vec![(id, requirement)], known: None }
    }

    /// Chooses a read with the token of an earlier response, for its key or another, or a value.
    fn choose_session(&mut self, by_alias: bool) -> Option<ReadRequest> {
        let token = self.choose_token()?;
        let Token { position, version, .. } = token;
        let (key, floor) = if by_alias {
            let value = self.choose_value();
            (value, self.follows_for(value, &token))
        } else if self.random.below(OTHER_KEY_ONE_IN) == 0 {
            let key = self.choose_key();
            (key, self.follows_for(key, &token))
        } else {
            (token.key, version)
        };
        Some(self.single(key, Requirement::Session { position, floor }))
    }

    /// Returns the oldest version of a key or value that reflects a response: the state committed
    /// before the commit shown by the response began, and that commit's own change of it.
    fn follows_for(&self, key: u32, token: &Token) -> u64 {
        let shown = self
            .ledger
            .with(token.key, |entry| entry.checker.history.get(token.version).copied())
            .flatten();
        let Some((commit_sent_ns, transaction)) =
            shown.and_then(|state| Some((state.commit_sent_ns?, state.transaction)))
        else {
            return 0;
        };
        let floor = self.ledger.with(key, |entry| {
            let history = &entry.checker.history;
            let of_it = history.of_transaction(transaction).filter(|_| transaction != 0);
            history.certain_before(commit_sent_ns).max(of_it.unwrap_or(0))
        });
        floor.unwrap_or(0).max(if key == token.key { token.version } else { 0 })
    }

    /// Chooses a read with the position of a commit, for its key.
    fn choose_own_write(&mut self, position: Position, key: u32) -> ReadRequest {
        let floor = self
            .ledger
            .with(key, |entry| entry.checker.history.certain_at(position.at))
            .unwrap_or(0);
        self.single(key, Requirement::OwnWrite { position, floor })
    }

    fn choose_value(&mut self) -> u32 {
        let recent = self.shared.recent_value(&mut self.random);
        if let Some(value) = recent.filter(|_| self.random.percent(RECENT)) {
            return value;
        }
        let values = *self.ledger.ids().end() - *self.ledger.keys().end();
        *self.ledger.keys().end() + 1 + Zipf::new(values).pick(&mut self.random)
    }

    fn choose_key(&mut self) -> u32 {
        let recent = match self.random.below(100) {
            n if n < RECENT => self.shared.recent(&mut self.random),
            n if n < RECENT + ANYWHERE => {
                let keys = self.ledger.keys();
                Some(keys.start() + self.random.below(u64::from(*keys.end())) as u32)
            }
            _ => None,
        };
        recent.unwrap_or_else(|| 1 + self.zipf.pick(&mut self.random))
    }
}
