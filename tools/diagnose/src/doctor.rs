//! Comparison of this machine's limits with a goal. [`evaluate`] is a pure function from
//! [`Limits`] and a [`Goal`] to verdicts: each limit's value, the formula for what it allows, and
//! how to raise it.
//!
//! Reading order: [`Goal`], [`limits`] (reading), [`limit_verdict`], then the rules: `connections`,
//! [`rate`], [`threads`], [`memory`], `machine`; [`startup`] (warnings of `serve` and `load` at
//! their start).

mod connections;
pub mod limit_verdict;
pub mod limits;
mod machine;
pub mod memory;
pub mod rate;
pub mod startup;
pub mod threads;

use self::limit_verdict::{LimitVerdict, Sufficiency, Unit};
use self::limits::Limits;
use crate::root::{ProbeError, ProbeErrorKind, ProbeResult};

/// The rule of one limit. `Ok(None)`: it does not apply here.
type Rule = fn(&Limits, &Goal) -> ProbeResult<Option<LimitVerdict>>;

/// Evaluates every limit. Sorted by severity: limits reached below the goal (lowest margin first),
/// unreadable, tight, sufficient, and relevant to clients only.
#[must_use]
pub fn evaluate(limits: &Limits, goal: &Goal) -> Vec<LimitVerdict> {
    let rules =
        [connections::RULES, rate::RULES, threads::RULES, memory::RULES, machine::RULES].concat();
    let mut verdicts: Vec<LimitVerdict> = rules
        .into_iter()
        .filter_map(|(name, rule)| evaluate_rule(name, rule, limits, goal))
        .collect();
    verdicts.sort_by(|one, other| {
        one.enough.cmp(&other.enough).then(one.margin().total_cmp(&other.margin()))
    });
    verdicts
}

fn evaluate_rule(
    name: &'static str,
    rule: Rule,
    limits: &Limits,
    goal: &Goal,
) -> Option<LimitVerdict> {
    rule(limits, goal)
        .unwrap_or_else(|probe_error| Some(LimitVerdict::unreadable(name, &probe_error)))
}

/// Returns the limit with the lowest value for a unit; `None` when none is known.
#[must_use]
pub fn first_limit_reached(verdicts: &[LimitVerdict], unit: Unit) -> Option<&LimitVerdict> {
    let counted = verdicts.iter().filter(|verdict| verdict.enough != Sufficiency::Client);
    let known = counted
        .filter(|v| v.allows.is_some_and(|allows| allows.unit == unit && allows.max.is_some()));
    known.min_by(|one, other| one.margin().total_cmp(&other.margin()))
}

/// Returns whether every readable limit suffices for the goal.
#[must_use]
pub fn suffices(verdicts: &[LimitVerdict]) -> bool {
    verdicts.iter().all(|verdict| verdict.enough != Sufficiency::No)
}

/// Returns a value, or the reason why it could not be read.
fn read_value<T>(seen: &ProbeResult<T>) -> ProbeResult<&T> {
    seen.as_ref().map_err(ProbeError::clone)
}

/// The same for values that a kernel may lack: `None` then.
fn read_optional<T>(seen: &ProbeResult<T>) -> ProbeResult<Option<&T>> {
    match seen {
        Ok(value) => Ok(Some(value)),
        Err(ProbeError { why: ProbeErrorKind::Missing, .. }) => Ok(None),
        Err(probe_error) => Err(probe_error.clone()),
    }
}

/// Default number of open connections: what is commonly called many.
pub const CONNECTIONS_DEFAULT: u64 = 10_000;
/// Default number of threads: the size of a service with one thread per request.
pub const THREADS_DEFAULT: u64 = 1_000;
/// Default requests per second.
pub const RATE_DEFAULT: f64 = 10_000.0;
/// Time within which all connections may have to be reopened, in s: after a restart, a failover, or
/// at a test's start.
pub const RECONNECT_S: f64 = 1.0;

/// The goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Concurrently open connections; this machine holds one end of each.
    pub connections: u64,
    /// Threads of one process.
    pub threads: u64,
    /// Requests per second.
    pub rate: f64,
    /// True if a connection carries many requests; otherwise each request opens one.
    pub keepalive: bool,
    /// True if this machine opens the connections, as a load generator or a proxy does; otherwise
    /// it accepts them.
    pub client: bool,
}

impl Default for Goal {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_DEFAULT,
            threads: THREADS_DEFAULT,
            rate: RATE_DEFAULT,
            keepalive: true,
            client: false,
        }
    }
}

impl Goal {
    /// Returns the connections opened per second in the worst case.
    #[must_use]
    pub fn opened_per_s(&self) -> f64 {
        let reconnect = self.connections as f64 / RECONNECT_S;
        if self.keepalive { reconnect } else { reconnect.max(self.rate) }
    }
}

#[cfg(test)]
mod tests;
