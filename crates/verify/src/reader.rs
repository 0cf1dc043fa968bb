//! A reader: keep-alive connections to every target, requests of every kind, each answer handed in.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::ask::{Ask, Shape};
use crate::board::{BackOff, Board};
use crate::granted::Granted;
use crate::http::{Client, LOSSES, Lost};
use crate::ledger::Ledger;
use crate::observation::{Form, Observation, Origin, Position, Seen, Wish};
use crate::random::{Random, Zipf};

/// Chances in per cent: of a key that was just changed or is about to be, and of one out of the whole range, each as likely;
/// else low ones are preferred.
const RECENT: u64 = 70;
const ANYWHERE: u64 = 10;
/// Chances in per cent of forms and wishes, by an instance alone.
const BATCH: u64 = 5;
const HEAD: u64 = 5;
const CONDITIONAL: u64 = 12;
const NO_CACHE: u64 = 4;
/// Of these, so many in batches.
const NO_CACHE_BATCH: u64 = 20;
const SESSION: u64 = 8;
const OWN_WRITE: u64 = 4;
/// By a balancer, sessions are what there is to check.
const SESSION_BALANCED: u64 = 40;
/// Most ids of a batch.
const BATCH_KEYS_MAX: u64 = 20;
/// Answers whose tokens a reader may send along.
const TOKENS_MAX: usize = 64;
/// Of so many uses of a token, one is for another key.
const OTHER_KEY_ONE_IN: u64 = 2;

/// Requests without an answer, by why.
#[derive(Debug, Default)]
pub(crate) struct LossCounts([AtomicU64; LOSSES.len()]);

impl LossCounts {
    fn count(&self, lost: Lost) {
        self.0[lost as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, lost: Lost) -> u64 {
        self.0[lost as usize].load(Ordering::Relaxed)
    }
}

/// A target as a reader sees it.
pub(crate) struct Place {
    pub(crate) origin: Origin,
    pub(crate) client: Client,
    pub(crate) granted: Granted,
    back_off: BackOff,
    /// After a failure, until then it is left alone.
    rests_until: Option<Instant>,
}

impl Place {
    pub(crate) fn new(origin: Origin, client: Client, granted: Granted) -> Self {
        Self { origin, client, granted, back_off: BackOff::new(), rests_until: None }
    }
}

/// An answer whose token may be sent along.
#[derive(Clone, Copy, Debug)]
struct Token {
    key: u32,
    version: u64,
    position: Position,
}

/// One reader.
pub(crate) struct Reader {
    id: u16,
    ledger: Arc<Ledger>,
    board: Arc<Board>,
    losses: Arc<LossCounts>,
    shape: Shape,
    batch_ids_max: u64,
    places: Vec<Place>,
    random: Random,
    zipf: Zipf,
    tokens: VecDeque<Token>,
    /// The newest `ETag` of a key with its version.
    etags: HashMap<u32, (u64, String)>,
}

/// What readers share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) board: Arc<Board>,
    pub(crate) losses: Arc<LossCounts>,
    pub(crate) shape: Shape,
    pub(crate) batch_ids_max: usize,
}

impl Reader {
    pub(crate) fn new(id: u16, common: Common, places: Vec<Place>, random: Random) -> Self {
        let Common { ledger, board, losses, shape, batch_ids_max } = common;
        let zipf = Zipf::new(*ledger.keys().end());
        let batch_ids_max = (batch_ids_max as u64).clamp(1, BATCH_KEYS_MAX);
        let (tokens, etags) = (VecDeque::new(), HashMap::new());
        Self { id, ledger, board, losses, shape, batch_ids_max, places, random, zipf, tokens, etags }
    }

    /// Reads until the board says stop.
    pub(crate) fn run(mut self) {
        let board = self.board.clone();
        while !board.readers_stopped() {
            let now = Instant::now();
            let awake = |place: &Place| place.rests_until.is_none_or(|until| until <= now);
            let able: Vec<usize> = (0..self.places.len()).filter(|i| awake(&self.places[*i])).collect();
            match self.random.one_of(&able) {
                Some(place) => {
                    let ask = self.choose(place);
                    self.ask(place, &ask);
                }
                None => {
                    let first = self.places.iter().filter_map(|place| place.rests_until).min();
                    Board::sleep_until(first.unwrap_or(now), || board.readers_stopped());
                }
            }
        }
    }

    /// Sends the request, hands its answer in, and gives what it said; none without an answer.
    pub(crate) fn ask(&mut self, place: usize, ask: &Ask) -> Option<Vec<Observation>> {
        let (id, ledger) = (self.id, self.ledger.clone());
        let place = self.places.get_mut(place)?;
        match place.client.ask(&ask.request(&self.shape), |sent_ns| ledger.sending(id, sent_ns)) {
            Ok(answer) => {
                place.back_off.succeeded();
                place.rests_until = None;
                let known = |key, etag: &str| ledger.version_of_etag(key, etag);
                let seen = ask.read(&answer, &self.shape, place.origin, known);
                let observations = ask.observations(&answer, seen, place.origin, id);
                self.remember(ask, &observations, answer.header("etag"));
                ledger.hand_in(id, observations.clone());
                Some(observations)
            }
            Err(lost) => {
                place.rests_until = Some(place.back_off.failed());
                self.losses.count(lost);
                ledger.hand_in(id, Vec::new());
                None
            }
        }
    }

    fn remember(&mut self, ask: &Ask, observations: &[Observation], etag: Option<&str>) {
        let [Observation { key, seen, position, form, .. }] = observations else { return };
        if let Some(position) = position {
            self.board.saw_log(position.log);
        }
        match (seen, position) {
            (Seen::Version(version), Some(position)) => {
                if self.tokens.len() == TOKENS_MAX {
                    self.tokens.pop_front();
                }
                self.tokens.push_back(Token { key: *key, version: *version, position: *position });
            }
            // Tokens of a log that was replaced are of no use any more.
            (Seen::PositionRefused, _) => self.tokens.clear(),
            _ => {}
        }
        if let (Seen::Version(version), Some(etag), Form::Get | Form::Conditional) = (seen, etag, form) {
            if ask.known.as_ref().is_none_or(|(_, known)| known != etag) {
                self.ledger.saw_etag(*key, etag, *version);
            }
            self.etags.insert(*key, (*version, etag.to_owned()));
        }
    }

    fn choose(&mut self, place: usize) -> Ask {
        let (granted, origin) = self.places.get(place).map_or_else(Default::default, |p| (p.granted, Some(p.origin)));
        let session = if matches!(origin, Some(Origin::Balancer(_))) { SESSION_BALANCED } else { SESSION };
        let kind = self.random.below(100);
        if granted.min_position && kind < session {
            if let Some(ask) = self.choose_session() {
                return ask;
            }
        } else if granted.min_position && kind < session + OWN_WRITE {
            if let Some((position, key)) = self.board.commit(&mut self.random) {
                return self.choose_own_write(position, key);
            }
        } else if granted.no_cache && kind < session + OWN_WRITE + NO_CACHE {
            if self.random.percent(NO_CACHE_BATCH) {
                return self.choose_batch(Form::BatchPost, Wish::NoCache);
            }
            return Ask { form: Form::Get, keys: vec![(self.choose_key(), Wish::NoCache)], known: None };
        }
        let form = match self.random.below(100) {
            n if n < BATCH => self.random.one_of(&[Form::BatchGet, Form::BatchPost]).unwrap_or(Form::BatchGet),
            n if n < BATCH + HEAD => Form::Head,
            n if n < BATCH + HEAD + CONDITIONAL => Form::Conditional,
            _ => Form::Get,
        };
        let key = self.choose_key();
        match form {
            Form::BatchGet | Form::BatchPost => self.choose_batch(form, Wish::Any),
            Form::Conditional => match self.etags.get(&key).cloned() {
                Some(known) => Ask { form, keys: vec![(key, Wish::Any)], known: Some(known) },
                None => Ask::plain(key),
            },
            Form::Get | Form::Head => Ask { form, keys: vec![(key, Wish::Any)], known: None },
        }
    }

    fn choose_batch(&mut self, form: Form, wish: Wish) -> Ask {
        let count = 1 + self.random.below(self.batch_ids_max);
        let mut keys: Vec<u32> = (0..count).map(|_| self.choose_key()).collect();
        keys.sort_unstable();
        keys.dedup();
        Ask { form, keys: keys.into_iter().map(|key| (key, wish)).collect(), known: None }
    }

    /// With the token of an earlier answer, for its key or another.
    fn choose_session(&mut self) -> Option<Ask> {
        let at = self.random.below(self.tokens.len() as u64) as usize;
        let token = *self.tokens.get(at)?;
        let Token { position, version, .. } = token;
        let (key, floor) = if self.random.below(OTHER_KEY_ONE_IN) == 0 {
            let key = self.choose_key();
            (key, self.follows_for(key, &token))
        } else {
            (token.key, version)
        };
        Some(Ask { form: Form::Get, keys: vec![(key, Wish::Session { position, floor })], known: None })
    }

    /// The oldest version of `key` that reflects an answer: what had been committed when the commit of what it showed was
    /// begun, and what that commit itself made of the key.
    fn follows_for(&self, key: u32, token: &Token) -> u64 {
        let shown = self.ledger.with(token.key, |book| book.judge.history.get(token.version).copied()).flatten();
        let Some((begun_ns, transaction)) = shown.and_then(|state| Some((state.begun_ns?, state.transaction))) else {
            return 0;
        };
        let floor = self.ledger.with(key, |book| {
            let history = &book.judge.history;
            let of_it = history.of_transaction(transaction).filter(|_| transaction != 0);
            history.certain_before(begun_ns).max(of_it.unwrap_or(0))
        });
        floor.unwrap_or(0).max(if key == token.key { token.version } else { 0 })
    }

    /// With the position of a commit, for its key.
    fn choose_own_write(&mut self, position: Position, key: u32) -> Ask {
        let floor = self.ledger.with(key, |book| book.judge.history.certain_at(position.at)).unwrap_or(0);
        Ask { form: Form::Get, keys: vec![(key, Wish::OwnWrite { position, floor })], known: None }
    }

    fn choose_key(&mut self) -> u32 {
        let recent = match self.random.below(100) {
            n if n < RECENT => self.board.recent(&mut self.random),
            n if n < RECENT + ANYWHERE => {
                let keys = self.ledger.keys();
                Some(keys.start() + self.random.below(u64::from(*keys.end())) as u32)
            }
            _ => None,
        };
        recent.unwrap_or_else(|| 1 + self.zipf.pick(&mut self.random))
    }
}
