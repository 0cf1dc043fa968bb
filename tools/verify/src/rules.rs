//! The contract (docs/consistency.md) as a checker of one key: writes and reads go in, violations
//! come out. Pure: no I/O, no clock, and no knowledge of the implementation.
//!
//! Each rule yields, for each response, the oldest version that it may show. A row states its
//! version. A 404 states none and counts as any absence that the rules allow, unless its token
//! determines which.
//!
//! Responses are checked in the order of their receipt. One submitted late is checked against
//! everything received before its request was sent; responses checked in between are not checked
//! again.

use std::collections::{BTreeMap, VecDeque};

use crate::history::{History, Ns, SECOND};
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Position, Purge, Requirement};

mod rule;
mod snapshot;
#[cfg(test)]
mod tests;

pub use rule::{RULES, Rule};
pub use snapshot::{Snapshot, SnapshotPart};

/// Rounding of `Age`, in whole seconds.
const AGE_ROUNDING_NS: Ns = SECOND / 2;

/// Time beyond twice `max_staleness` after which no copy may lack a commit: a tenth of a second by
/// the contract, and the rest for the way to the client and a busy machine.
const COPY_GRACE_NS: Ns = 600_000_000;

/// Parameters of the contract, from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ContractTerms {
    /// `cache.max_staleness`.
    pub max_staleness_ns: Ns,
    /// Terms of tokens; `None` if the histories do not know where their commits lie in the log.
    pub tokens: Option<TokenTerms>,
}

impl ContractTerms {
    /// Returns the time after which no copy of a client that tracks may lack a commit: one
    /// `max_staleness` for the feed, and one for the proof that reads see the change.
    pub fn copy_bound_ns(&self) -> Ns {
        self.max_staleness_ns.saturating_mul(2).saturating_add(COPY_GRACE_NS)
    }
}

/// Terms of tokens: `Hotrow-Position` of responses, `Hotrow-Min-Position` of requests.
///
/// The histories must know the log interval of each commit, and positions must grow from one log to
/// the next.
#[derive(Clone, Copy, Debug)]
pub struct TokenTerms {
    /// The log whose tokens are checked.
    pub log: u64,
    /// True if a response is the state at its token; otherwise the token is an upper bound.
    pub exact: bool,
    /// True if tokens may end, as with the restart of a server: a position may be refused with 400.
    pub may_end: bool,
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The response that violates it.
    pub observation: Observation,
    /// The oldest version that the rule allows; for [`Rule::Committed`], the newest begun; for
    /// [`Rule::Token`], the newest allowed.
    pub floor: u64,
    /// The earlier response to which the rule refers, if any.
    pub earlier: Option<PriorResponse>,
    /// For [`Rule::Snapshot`], the part of the same response from which the floor follows.
    pub beside: Option<Beside>,
}

/// Another part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Its key.
    pub key: u32,
    /// The version that it shows.
    pub version: u64,
}

/// A response that was newer than all earlier ones of its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorResponse {
    /// The version it showed.
    pub version: u64,
    /// Time at which its request was sent.
    pub sent_ns: Ns,
    /// Time of its receipt.
    pub received_ns: Ns,
    /// Its reader.
    pub reader: u16,
}

/// Result of checking one response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckResult {
    /// The violated rules, in the order in which they are checked.
    pub violations: Vec<Violation>,
    /// The rules that applied.
    pub applied: Vec<Rule>,
    /// Time from the return of a commit to the sending of the request, if its response did not show
    /// the commit; 0 if it showed all.
    pub lag_ns: Ns,
}

/// State of one key for checking later responses.
#[derive(Clone, Debug)]
pub struct KeyChecker {
    /// Write history.
    pub history: History,
    /// Whether it is a value of an alias: by docs/aliases.md no order of its answers, no `Age` and
    /// no `no-cache`, which all concern the record.
    is_value: bool,
    /// Newest responses per instance, in order of receipt and version.
    prior_responses: BTreeMap<Origin, VecDeque<PriorResponse>>,
    /// The same of strict responses, of any instance.
    strict_responses: VecDeque<PriorResponse>,
    /// Purges of the key per instance, in order of completion.
    purges: BTreeMap<Origin, VecDeque<Purge>>,
}

/// The oldest version that a rule allows, and the earlier response that implies it.
struct Floor {
    rule: Rule,
    version: u64,
    earlier: Option<PriorResponse>,
}

/// What the token of a response says about its version.
struct TokenBound {
    newest: u64,
    /// True if the response is of this version; false if it may be older.
    exact: bool,
}

impl KeyChecker {
    /// Creates the checker of a key without responses.
    #[must_use]
    pub fn new(history: History) -> Self {
        Self {
            history,
            is_value: false,
            prior_responses: BTreeMap::new(),
            strict_responses: VecDeque::new(),
            purges: BTreeMap::new(),
        }
    }

    /// Creates the checker of a value of an alias: its states are records that have it, or none.
    #[must_use]
    pub fn of_value(history: History) -> Self {
        Self { is_value: true, ..Self::new(history) }
    }

    /// Records a purge of the key or its collection. Must precede responses to requests sent after
    /// it.
    pub fn purge(&mut self, purge: Purge) {
        self.purges.entry(purge.origin).or_default().push_back(purge);
    }

    /// Checks one response and remembers it.
    pub fn check(&mut self, observation: &Observation, terms: &ContractTerms) -> CheckResult {
        let Some(candidates) = self.candidates(observation, terms) else {
            return CheckResult::default();
        };
        let mut result = CheckResult { applied: vec![Rule::Committed], ..CheckResult::default() };
        let violation = |rule, floor, earlier| Violation {
            rule,
            observation: observation.clone(),
            floor,
            earlier,
            beside: None,
        };
        let Some(&latest) = candidates.last() else {
            let newest = self.history.newest_commit_sent(observation.received_ns);
            result.violations.push(violation(Rule::Committed, newest, None));
            return result;
        };
        if let Some(TokenBound { newest, exact }) = self.token_bound(observation, terms) {
            result.applied.push(Rule::Token);
            let agrees = |version: &u64| *version == newest || !exact && *version < newest;
            if !candidates.iter().any(agrees) {
                result.violations.push(violation(Rule::Token, newest, None));
            }
        }
        let mut highest = 0;
        for floor in self.floors(observation, terms) {
            result.applied.push(floor.rule);
            if latest >= floor.version {
                highest = highest.max(floor.version);
            } else {
                result.violations.push(violation(floor.rule, floor.version, floor.earlier));
            }
        }
        // The oldest that all rules allow: a 404 claims no more than it states.
        let version =
            candidates.iter().copied().find(|version| *version >= highest).unwrap_or(latest);
        result.lag_ns = self.lag_ns(observation, latest);
        self.remember(observation, version);
        result
    }

    /// Returns the committed versions that the response may mean, oldest first; `None` if it makes
    /// no claim that can be checked.
    fn candidates(&self, observation: &Observation, terms: &ContractTerms) -> Option<Vec<u64>> {
        let received = observation.received_ns;
        match &observation.seen {
            Claim::UnknownVersion => None,
            Claim::Refused(status) if observation.origin.may_refuse_with(*status) => None,
            Claim::PositionRefused
                if observation.requirement.position().is_some()
                    && terms.tokens.is_none_or(|tokens| tokens.may_end) =>
            {
                None
            }
            Claim::Refused(_) | Claim::PositionRefused | Claim::Invalid(_) => Some(Vec::new()),
            Claim::Version(version) => {
                Some(Vec::from_iter(self.is_real(*version, received).then_some(*version)))
            }
            Claim::Absent => {
                let mut absences: Vec<u64> = self.history.absences(received).collect();
                let by_token = self.token_bound(observation, terms).filter(|bound| bound.exact);
                if let Some(TokenBound { newest, .. }) = by_token
                    && self.history.get(newest).is_some_and(|state| !state.present)
                {
                    absences.retain(|version| *version == newest);
                }
                Some(absences)
            }
        }
    }

    /// Returns whether a response received at that time may show a row of that version.
    fn is_real(&self, version: u64, received_ns: Ns) -> bool {
        // A discarded row was checked by its own bytes.
        let seen =
            |state: &crate::history::KeyState| state.present && state.may_be_seen_by(received_ns);
        self.history.is_pruned(version) || self.history.get(version).is_some_and(seen)
    }

    fn token_bound(&self, observation: &Observation, terms: &ContractTerms) -> Option<TokenBound> {
        let tokens = terms.tokens?;
        let token = observation.position.filter(|position| position.log == tokens.log)?;
        let newest = self.history.newest_at(token.at)?;
        // A batch's token is the largest of several: no record of the batch is newer.
        Some(TokenBound { newest, exact: tokens.exact && !observation.form.is_batch() })
    }

    fn floors(&self, observation: &Observation, terms: &ContractTerms) -> Vec<Floor> {
        let mut floors = Vec::with_capacity(4);
        let mut add = |rule, version, earlier| {
            let is_of_records = matches!(rule, Rule::Monotonic | Rule::Age | Rule::NoCache);
            if !(self.is_value && is_of_records) {
                floors.push(Floor { rule, version, earlier });
            }
        };
        let sent = observation.sent_ns;
        if observation.form == Form::Copy {
            // Not monotonic with reads that reach the instance.
            let bound = terms.copy_bound_ns();
            add(Rule::Copied, self.history.certain_before(sent.saturating_sub(bound)), None);
            return floors;
        }
        if let Some(Position { at, .. }) = observation.requirement.followed()
            && observation.outcome != Outcome::Stale
        {
            // A commit that was sent later can be at that position only in another log.
            let included = self.history.certain_at_and_sent(at, observation.received_ns);
            if included > 0 {
                add(Rule::Followed, included, None);
            }
        }
        if observation.form == Form::FollowedCopy {
            return floors;
        }
        let prior = self.prior_responses.get(&observation.origin);
        if let Some(earlier) = prior.and_then(|prior| newest_before(prior, sent))
            && observation.form != Form::SnapshotOther
        {
            add(Rule::Monotonic, earlier.version, Some(earlier));
        }
        if observation.outcome != Outcome::Stale {
            add(
                Rule::Fresh,
                self.history.certain_before(sent.saturating_sub(terms.max_staleness_ns)),
                None,
            );
        }
        if let (Outcome::Hit | Outcome::Stale, Some(age_s)) =
            (observation.outcome, observation.age_s)
        {
            let age = u64::from(age_s) * SECOND + AGE_ROUNDING_NS;
            add(Rule::Age, self.history.certain_before(sent.saturating_sub(age)), None);
        }
        // The version that the requested position includes.
        let position = observation.requirement.position().filter(|_| terms.tokens.is_some());
        let included = position.map_or(0, |position| self.history.certain_at(position.at));
        match observation.requirement {
            Requirement::Any | Requirement::Followed { .. } => {}
            Requirement::NoCache => add(Rule::NoCache, self.history.certain_before(sent), None),
            Requirement::Strict => {
                let certain = self.history.certain_before(sent);
                let earlier = newest_before(&self.strict_responses, sent);
                let earlier = earlier.filter(|earlier| earlier.version > certain);
                let floor = earlier.map_or(certain, |earlier| earlier.version);
                add(Rule::Strict, floor, earlier);
            }
            Requirement::Session { floor, .. } => add(Rule::Session, floor.max(included), None),
            Requirement::OwnWrite { floor, .. } => add(Rule::OwnWrite, floor.max(included), None),
        }
        let purges = self.purges.get(&observation.origin);
        if let Some(purge) =
            purges.and_then(|all| all.iter().rev().find(|purge| purge.received_ns < sent))
        {
            add(Rule::Purged, self.history.certain_before(purge.sent_ns), None);
        }
        floors
    }

    /// Returns how long before the request the oldest commit returned that the response did not
    /// show.
    fn lag_ns(&self, observation: &Observation, version: u64) -> Ns {
        if observation.outcome == Outcome::Stale {
            return 0;
        }
        let hidden = self.history.iter().rev().take_while(|state| state.version > version);
        let returned = hidden.filter_map(crate::history::KeyState::returned_ns).min();
        returned.map_or(0, |returned| observation.sent_ns.saturating_sub(returned))
    }

    fn remember(&mut self, observation: &Observation, version: u64) {
        if observation.form.is_copy() {
            return;
        }
        let Observation { origin, sent_ns, received_ns, reader, .. } = *observation;
        let response = PriorResponse { version, sent_ns, received_ns, reader };
        if observation.requirement == Requirement::Strict {
            insert(&mut self.strict_responses, response);
        }
        // Point 1 is of one collection of one instance.
        if matches!(origin, Origin::Instance(_)) && observation.form != Form::SnapshotOther {
            insert(self.prior_responses.entry(origin).or_default(), response);
        }
    }

    /// Discards data that cannot matter for requests sent at `horizon` or later.
    pub fn prune_before(&mut self, horizon: Ns, terms: &ContractTerms) {
        // Besides the bounds, an `Age` of a second or two must be checkable.
        let reach = terms.copy_bound_ns().saturating_add(3 * SECOND);
        self.history.prune_before(horizon.saturating_sub(reach));
        let instances = self.prior_responses.values_mut();
        for prior_responses in instances.chain([&mut self.strict_responses]) {
            while prior_responses.get(1).is_some_and(|second| second.received_ns < horizon) {
                prior_responses.pop_front();
            }
        }
        for purges in self.purges.values_mut() {
            while purges.get(1).is_some_and(|second| second.received_ns < horizon) {
                purges.pop_front();
            }
        }
    }

    /// Returns the remembered purges.
    pub fn purges(&self) -> impl Iterator<Item = &Purge> {
        self.purges.values().flatten()
    }
}

/// Returns the newest of these responses that was received before a request was sent.
fn newest_before(responses: &VecDeque<PriorResponse>, sent_ns: Ns) -> Option<PriorResponse> {
    let before = responses.partition_point(|response| response.received_ns < sent_ns);
    before.checked_sub(1).and_then(|last| responses.get(last)).copied()
}

/// Inserts a response, in order of receipt and version, unless an earlier one is as new.
fn insert(responses: &mut VecDeque<PriorResponse>, new: PriorResponse) {
    let at = responses.partition_point(|other| other.received_ns <= new.received_ns);
    let earlier = at.checked_sub(1).and_then(|last| responses.get(last));
    if earlier.is_some_and(|earlier| earlier.version >= new.version) {
        return;
    }
    // Responses received later with an older version add nothing.
    while responses.get(at).is_some_and(|later| later.version <= new.version) {
        responses.remove(at);
    }
    responses.insert(at, new);
}
