//! Rate limits: the rules that apply to a request, their decision, and the headers of the answer.
//!
//! A rule by client, identity or header keeps its keys in a bounded table, one by collection has a
//! cell for each, a global one a single cell. A decision is one compare-and-swap on the state of
//! its key; for a global rule that is one cache line shared by all workers. Without rules all of
//! this is one branch.

mod view;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hotrow_access::caller::{Caller, Peer};
use hotrow_access::grant::RateClasses;
use hotrow_admission::rate::keyed::{KeyHash, Keyed};
use hotrow_admission::rate::limit::{Limit, Setting};
use hotrow_admission::rate::{Cell, Decision, Policy};
use hotrow_answer::client::Clients;
use hotrow_answer::collections::Collection;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::rate_fields::{Fields, RuleState, TooMany};
use hotrow_config::rate::{BatchCost, Per, RateLimits as Config, RateRule};
use hotrow_http1::fields::Fields as HeaderFields;
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;

pub use self::view::NotChanged;

/// All rules in operation.
#[derive(Debug)]
pub struct RateLimits {
    rules: Box<[Rule]>,
    /// By collection, the indexes of the rules that apply.
    of_collection: Box<[Box<[usize]>]>,
    clients: Clients,
    headers: bool,
}

/// One rule in operation.
#[derive(Debug)]
struct Rule {
    name: String,
    per: Per,
    batch_cost: BatchCost,
    classes: Option<RateClasses>,
    /// As configured; the admin side may have changed it since.
    configured: Setting,
    keys_max: usize,
    state: Arc<RuleInForce>,
}

/// State of a rule: shared with the same rule of another configuration.
#[derive(Debug)]
struct RuleInForce {
    limit: Limit,
    storage: RuleStorage,
    /// Requests refused and delayed. Shared by the workers, because neither is a hit.
    refused: AtomicU64,
    delayed: AtomicU64,
    /// The admin side has changed the rate or the burst.
    is_changed: AtomicBool,
}

/// Storage of a rule's states.
#[derive(Debug)]
enum RuleStorage {
    One(Cell),
    PerCollection(Box<[Cell]>),
    Keyed(Keyed),
}

/// Properties of a request that rules examine.
#[derive(Clone, Copy, Debug)]
pub struct RateRequest<'a> {
    pub(crate) collection: CollectionId,
    /// Distinct ids.
    pub(crate) ids: u64,
    pub(crate) peer: Peer,
    pub(crate) headers: HeaderFields<'a>,
    pub(crate) caller: Caller,
}

impl<'a> RateRequest<'a> {
    /// Describes what a request costs.
    pub fn new(collection: CollectionId, ids: usize, request: &ReadRequest<'a>) -> Self {
        let peer = request.connection.peer;
        let (headers, caller) = (request.headers, request.caller);
        Self { collection, ids: ids as u64, peer, headers, caller }
    }
}

/// Combined decision of the rules.
#[derive(Debug)]
pub enum RateDecision {
    /// Continue.
    Permit,
    /// Continue, and report the remaining units to the client.
    PermitWithFields(Fields),
    /// Continue after a delay.
    Wait(Duration, Option<Fields>),
    /// 429.
    Refuse(Box<TooMany>),
    /// 400: the cost exceeds what a rule ever admits at once, so waiting would not help. With the
    /// reason.
    Never(String),
}

/// State of a request's key with one rule.
#[derive(Clone, Copy)]
enum KeyState<'a> {
    Cell(&'a Cell),
    Keyed(&'a Keyed, KeyHash),
}

impl RateLimits {
    /// Starts at `now`; `wall_lead_ns` is the wall clock's lead over the process's clock.
    pub fn new(config: &Config, collections: &[Collection], wall_lead_ns: u64, now: Nanos) -> Self {
        Self::after(None, config, collections, wall_lead_ns, now)
    }

    /// Replaces `before`. A rule whose name, key and setting are configured as before keeps its
    /// state: what its clients have used, its counters, and what the admin side has changed.
    pub fn after(
        before: Option<&Self>,
        config: &Config,
        collections: &[Collection],
        wall_lead_ns: u64,
        now: Nanos,
    ) -> Self {
        let rule = |rule: &RateRule| {
            let same = before.and_then(|before| before.same(rule, config.keys_max));
            Rule {
                name: rule.name.clone(),
                per: rule.per.clone(),
                batch_cost: rule.batch_cost,
                classes: rule.classes,
                configured: rule.setting,
                keys_max: config.keys_max,
                state: same.map_or_else(
                    || Arc::new(RuleInForce::new(rule, config, collections, wall_lead_ns, now)),
                    |same| Arc::clone(&same.state),
                ),
            }
        };
        let applies = |rule: &RateRule, collection: &Collection| {
            rule.collections.as_ref().is_none_or(|names| names.contains(&collection.name))
        };
        let of = |collection: &Collection| -> Box<[usize]> {
            config
                .rules
                .iter()
                .enumerate()
                .filter(|(_, rule)| applies(rule, collection))
                .map(|(i, _)| i)
                .collect()
        };
        Self {
            rules: config.rules.iter().map(rule).collect(),
            of_collection: collections.iter().map(of).collect(),
            clients: Clients::new(config),
            headers: config.headers,
        }
    }

    /// Returns the rule that is configured as `rule` is.
    fn same(&self, rule: &RateRule, keys_max: usize) -> Option<&Rule> {
        self.rules.iter().find(|own| {
            own.name == rule.name
                && own.per == rule.per
                && own.configured == rule.setting
                && own.keys_max == keys_max
        })
    }

    /// Returns the client behind a request, as a key.
    pub(crate) fn client_key(&self, request: &ReadRequest<'_>) -> [u8; 17] {
        self.clients.key(request.connection.peer, request.headers)
    }

    /// Returns the method of identifying clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Returns whether there are no rules.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the decision of the first rule that would refuse the request now, if any. Takes
    /// nothing.
    pub fn refusal(&self, request: &RateRequest<'_>, now: Nanos) -> Option<RateDecision> {
        self.applying(request).find_map(|rule| {
            let state = rule.key_state(request, &self.clients).state();
            let decision = rule.state.limit.judge(state, rule.cost(request), now).0;
            (!decision.is_admitted()).then(|| rule.refuse(decision, request, &self.clients, now))
        })
    }

    /// Returns the rules that apply to a request.
    fn applying(&self, request: &RateRequest<'_>) -> impl Iterator<Item = &Rule> {
        let classes = request.caller.rate_classes;
        let of_collection = &self.of_collection[usize::from(request.collection.0)];
        of_collection
            .iter()
            .map(|i| &self.rules[*i])
            .filter(move |rule| rule.classes.is_none_or(|of_rule| of_rule.intersects(classes)))
    }

    /// Asks all rules that apply. If one refuses, nothing is taken from any, except in a race with
    /// other requests.
    pub fn ask(&self, request: &RateRequest<'_>, now: Nanos) -> RateDecision {
        let rules = &self.of_collection[usize::from(request.collection.0)];
        // With several rules, first without taking. Another thread may take in between: then a rule
        // that admits is charged for a request that the next refuses, which errs on the strict
        // side.
        if let [_, _, ..] = **rules
            && let Some(refusal) = self.refusal(request, now)
        {
            return refusal;
        }
        let mut delay = Duration::ZERO;
        for rule in self.applying(request) {
            match rule.key_state(request, &self.clients).decide(
                &rule.state.limit,
                rule.cost(request),
                now,
            ) {
                Decision::Admitted { .. } => {}
                Decision::Wait { delay: longer } => {
                    rule.state.delayed.fetch_add(1, Ordering::Relaxed);
                    delay = delay.max(longer);
                }
                refused => return rule.refuse(refused, request, &self.clients, now),
            }
        }
        let fields = (self.headers && self.applying(request).next().is_some())
            .then(|| self.fields(request, now));
        match (delay.is_zero(), fields) {
            (true, None) => RateDecision::Permit,
            (true, Some(fields)) => RateDecision::PermitWithFields(fields),
            (false, fields) => RateDecision::Wait(delay, fields),
        }
    }

    fn fields(&self, request: &RateRequest<'_>, now: Nanos) -> Fields {
        let rules = self.applying(request);
        Fields::of(rules.map(|rule| rule.rule_state(request, &self.clients, now)))
    }
}

impl RuleInForce {
    fn new(
        rule: &RateRule,
        config: &Config,
        collections: &[Collection],
        wall_lead_ns: u64,
        now: Nanos,
    ) -> Self {
        Self {
            limit: Limit::new(&rule.setting, wall_lead_ns, now),
            storage: match rule.per {
                Per::Client | Per::Identity | Per::Header(_) => {
                    RuleStorage::Keyed(Keyed::new(config.keys_max, seed()))
                }
                Per::Collection => RuleStorage::PerCollection(
                    collections.iter().map(|_| Cell::default()).collect(),
                ),
                Per::Global => RuleStorage::One(Cell::default()),
            },
            refused: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            is_changed: AtomicBool::new(false),
        }
    }
}

impl Rule {
    fn rule_state(
        &self,
        request: &RateRequest<'_>,
        clients: &Clients,
        now: Nanos,
    ) -> RuleState<'_> {
        let state = self.key_state(request, clients).state();
        let remaining = match self.state.limit.judge(state, 0, now).0 {
            Decision::Admitted { remaining } => remaining,
            _ => 0,
        };
        let settled_after = self.state.limit.settled_after(state, now);
        RuleState {
            name: &self.name,
            setting: self.state.limit.setting(),
            remaining,
            settled_after,
        }
    }

    fn key_state<'a>(&'a self, request: &RateRequest<'_>, clients: &Clients) -> KeyState<'a> {
        match (&self.state.storage, &self.per) {
            (RuleStorage::One(cell), _) => KeyState::Cell(cell),
            (RuleStorage::PerCollection(cells), _) => {
                KeyState::Cell(&cells[usize::from(request.collection.0)])
            }
            (RuleStorage::Keyed(keyed), Per::Header(name)) => {
                KeyState::Keyed(keyed, of_header(keyed, name.as_str(), request.headers))
            }
            (RuleStorage::Keyed(keyed), per) => {
                let identity = request.caller.identity.filter(|_| *per == Per::Identity);
                let hash = match identity {
                    Some(identity) => keyed.hash(identity.as_bytes()),
                    None => keyed.hash(&clients.key(request.peer, request.headers)),
                };
                KeyState::Keyed(keyed, hash)
            }
        }
    }

    fn cost(&self, request: &RateRequest<'_>) -> u64 {
        match self.batch_cost {
            BatchCost::Ids => request.ids,
            BatchCost::Request => 1,
        }
    }

    #[cold]
    fn refuse(
        &self,
        decision: Decision,
        request: &RateRequest<'_>,
        clients: &Clients,
        now: Nanos,
    ) -> RateDecision {
        let retry_after = match decision {
            Decision::TooLarge { most } => {
                return RateDecision::Never(self.too_large(self.cost(request), most));
            }
            Decision::Refused { retry_after } => retry_after,
            // These are admitted.
            Decision::Admitted { .. } | Decision::Wait { .. } => Duration::ZERO,
        };
        self.state.refused.fetch_add(1, Ordering::Relaxed);
        RateDecision::Refuse(Box::new(TooMany::new(
            retry_after,
            &self.rule_state(request, clients, now),
        )))
    }

    fn too_large(&self, cost: u64, most: u64) -> String {
        let name = &self.name;
        format!(
            "the batch costs {cost}, and the limit {name:?} never admits more than {most} at once; \
             ask for fewer ids"
        )
    }
}

impl KeyState<'_> {
    fn decide(self, limit: &Limit, cost: u64, now: Nanos) -> Decision {
        match self {
            Self::Cell(cell) => cell.decide(limit, cost, now),
            Self::Keyed(keyed, key) => keyed.decide(key, limit, cost, now),
        }
    }

    fn state(self) -> u64 {
        match self {
            Self::Cell(cell) => cell.state(),
            Self::Keyed(keyed, key) => keyed.state(key),
        }
    }
}

/// Hashes all values of the header, in their order; without it, the shared key of requests that
/// lack it.
fn of_header(keyed: &Keyed, name: &str, headers: HeaderFields<'_>) -> KeyHash {
    let mut values = headers.get_all(name);
    let first = keyed.hash(values.next().unwrap_or_default());
    values.fold(first, |before, value| keyed.hash_after(before, value))
}

/// Returns a secret random seed, from the source that seeds the standard library's hash maps.
pub fn seed() -> [u64; 2] {
    [RandomState::new().hash_one(0_u8), RandomState::new().hash_one(1_u8)]
}

#[cfg(test)]
mod tests;
