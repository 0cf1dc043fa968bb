//! Rate limits: which rules apply to a request, what they say, and what the client is told.
//!
//! A rule by client or header keeps its keys in a bounded table, one by collection a cell for each, a global one a single cell. A
//! decision is one compare-and-swap on the state of its key; for a global rule that is one cache line which all workers share,
//! by nature. Without rules all of this is one branch.

mod fields;
mod pass;
mod view;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_admit::rate::keyed::{KeyHash, Keyed};
use hotrow_admit::rate::limit::Limit;
use hotrow_admit::rate::{Cell, Decision, Policy};
use hotrow_cache::key::CollectionId;
use hotrow_measure::clock::Nanos;
use http::{HeaderMap, HeaderName};

pub(crate) use self::fields::{Fields, TooMany};
pub(crate) use self::view::NotChanged;
use super::client::Clients;
use crate::config::rate::{BatchCost, Per, RateLimits as Config, RateRule};
use crate::shared::Collection;

/// All rules at work.
#[derive(Debug)]
pub(crate) struct RateLimits {
    rules: Box<[Rule]>,
    /// By collection, the places of the rules that apply.
    of_collection: Box<[Box<[usize]>]>,
    clients: Clients,
    headers: bool,
}

/// One rule at work.
#[derive(Debug)]
struct Rule {
    name: String,
    per: Per,
    limit: Limit,
    memory: Memory,
    batch_cost: BatchCost,
    /// Requests refused and held back. Shared by the workers: neither is a hit.
    refused: AtomicU64,
    delayed: AtomicU64,
}

/// Where a rule keeps what its keys owe.
#[derive(Debug)]
enum Memory {
    One(Cell),
    PerCollection(Box<[Cell]>),
    Keyed(Keyed),
}

/// A request, as far as rules look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) collection: CollectionId,
    /// Distinct ids.
    pub(crate) ids: u64,
    pub(crate) peer: IpAddr,
    pub(crate) headers: &'a HeaderMap,
}

/// What the rules say together.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Go on.
    Pass,
    /// Go on, and tell the client what is left.
    PassTelling(Fields),
    /// Go on after a delay.
    Wait(Duration, Option<Fields>),
    /// 429.
    Refuse(Box<TooMany>),
    /// 400: it asks for more than a rule ever lets in at once, so that waiting helps nobody. Why.
    Never(String),
}

/// The memory of the key that a request has with one rule.
#[derive(Clone, Copy)]
enum Account<'a> {
    Cell(&'a Cell),
    Keyed(&'a Keyed, KeyHash),
}

impl RateLimits {
    /// Begins at `now`; `wall_lead_ns` is how far the wall clock is ahead of the process's clock.
    pub(crate) fn new(config: &Config, collections: &[Collection], wall_lead_ns: u64, now: Nanos) -> Self {
        let rule = |rule: &RateRule| Rule {
            name: rule.name.clone(),
            per: rule.per.clone(),
            limit: Limit::new(&rule.setting, wall_lead_ns, now),
            memory: match rule.per {
                Per::Client | Per::Header(_) => Memory::Keyed(Keyed::new(config.keys_max, seed())),
                Per::Collection => Memory::PerCollection(collections.iter().map(|_| Cell::default()).collect()),
                Per::Global => Memory::One(Cell::default()),
            },
            batch_cost: rule.batch_cost,
            refused: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
        };
        let applies = |rule: &RateRule, collection: &Collection| {
            rule.collections.as_ref().is_none_or(|names| names.contains(&collection.name))
        };
        let of = |collection: &Collection| -> Box<[usize]> {
            config.rules.iter().enumerate().filter(|(_, rule)| applies(rule, collection)).map(|(i, _)| i).collect()
        };
        Self {
            rules: config.rules.iter().map(rule).collect(),
            of_collection: collections.iter().map(of).collect(),
            clients: Clients::new(config),
            headers: config.headers,
        }
    }

    /// Whether there is nothing to ask.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.rules.is_empty()
    }

    /// What the first rule says that would refuse the request now, if one does. Takes nothing from any.
    pub(crate) fn refusal(&self, asked: &Asked<'_>, now: Nanos) -> Option<Verdict> {
        let rules = &self.of_collection[usize::from(asked.collection.0)];
        rules.iter().map(|i| &self.rules[*i]).find_map(|rule| {
            let state = rule.account(asked, &self.clients).state();
            let decision = rule.limit.judge(state, rule.cost(asked), now).0;
            (!decision.lets_in()).then(|| rule.refuse(decision, asked, &self.clients, now))
        })
    }

    /// Asks all rules that apply. If one refuses, nothing is taken from any, but where others ask at the same moment.
    pub(crate) fn ask(&self, asked: &Asked<'_>, now: Nanos) -> Verdict {
        let rules = &self.of_collection[usize::from(asked.collection.0)];
        // With several rules, first without taking. Another thread may take in between: then one that admits is charged for a
        // request that the next refuses, which errs on the strict side.
        if let [_, _, ..] = **rules
            && let Some(refusal) = self.refusal(asked, now)
        {
            return refusal;
        }
        let mut delay = Duration::ZERO;
        for rule in rules.iter().map(|i| &self.rules[*i]) {
            match rule.account(asked, &self.clients).decide(&rule.limit, rule.cost(asked), now) {
                Decision::Admitted { .. } => {}
                Decision::Wait { delay: longer } => {
                    rule.delayed.fetch_add(1, Ordering::Relaxed);
                    delay = delay.max(longer);
                }
                refused => return rule.refuse(refused, asked, &self.clients, now),
            }
        }
        let fields = (self.headers && !rules.is_empty()).then(|| self.fields(rules, asked, now));
        match (delay.is_zero(), fields) {
            (true, None) => Verdict::Pass,
            (true, Some(fields)) => Verdict::PassTelling(fields),
            (false, fields) => Verdict::Wait(delay, fields),
        }
    }

    fn fields(&self, rules: &[usize], asked: &Asked<'_>, now: Nanos) -> Fields {
        let standing = |i: &usize| self.rules[*i].standing(asked, &self.clients, now);
        Fields::of(rules.iter().map(standing))
    }
}

impl Rule {
    fn account<'a>(&'a self, asked: &Asked<'_>, clients: &Clients) -> Account<'a> {
        match (&self.memory, &self.per) {
            (Memory::One(cell), _) => Account::Cell(cell),
            (Memory::PerCollection(cells), _) => Account::Cell(&cells[usize::from(asked.collection.0)]),
            (Memory::Keyed(keyed), Per::Header(name)) => Account::Keyed(keyed, of_header(keyed, name, asked.headers)),
            (Memory::Keyed(keyed), _) => Account::Keyed(keyed, keyed.hash(&clients.key(asked.peer, asked.headers))),
        }
    }

    fn cost(&self, asked: &Asked<'_>) -> u64 {
        match self.batch_cost {
            BatchCost::Ids => asked.ids,
            BatchCost::Request => 1,
        }
    }

    #[cold]
    fn refuse(&self, decision: Decision, asked: &Asked<'_>, clients: &Clients, now: Nanos) -> Verdict {
        let retry_after = match decision {
            Decision::TooLarge { most } => return Verdict::Never(self.too_large(self.cost(asked), most)),
            Decision::Refused { retry_after } => retry_after,
            // Those are let in.
            Decision::Admitted { .. } | Decision::Wait { .. } => Duration::ZERO,
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        Verdict::Refuse(Box::new(TooMany::new(retry_after, &self.standing(asked, clients, now))))
    }

    fn too_large(&self, cost: u64, most: u64) -> String {
        let name = &self.name;
        format!(
            "the batch costs {cost} and the limit {name:?} never lets in more than {most} at once; ask for fewer ids"
        )
    }
}

impl Account<'_> {
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

/// All values of the field, in their order; without it, the key of those who do not send it.
fn of_header(keyed: &Keyed, name: &HeaderName, headers: &HeaderMap) -> KeyHash {
    let mut values = headers.get_all(name).iter().map(http::HeaderValue::as_bytes);
    let first = keyed.hash(values.next().unwrap_or_default());
    values.fold(first, |before, value| keyed.hash_after(before, value))
}

/// Secret and random, as the standard library seeds its hash maps.
fn seed() -> [u64; 2] {
    [RandomState::new().hash_one(0_u8), RandomState::new().hash_one(1_u8)]
}

#[cfg(test)]
mod tests;
