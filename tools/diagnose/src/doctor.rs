//! Comparison of this machine's limits with a goal. [`evaluate`] is a pure function from
//! [`Limits`] and a [`Goal`] to verdicts: each limit's value, the formula for what it allows, and
//! how to raise it.
//!
//! Reading order: [`goal`], [`limits`] (reading), [`limit_verdict`], then the rules: `connections`,
//! [`rate`], [`threads`], [`memory`], `machine`; [`startup`] (warnings of `serve` and `load` at
//! their start).

mod connections;
pub mod goal;
pub mod limit_verdict;
pub mod limits;
mod machine;
pub mod memory;
pub mod rate;
pub mod startup;
pub mod threads;

use self::goal::Goal;
use self::limit_verdict::{LimitVerdict, Rule, Sufficiency, Unit};
use self::limits::Limits;

/// Evaluates every limit. Sorted by severity: limits reached below the goal (lowest margin first),
/// unreadable, tight, sufficient, and relevant to clients only.
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
pub fn first_limit_reached(verdicts: &[LimitVerdict], unit: Unit) -> Option<&LimitVerdict> {
    let counted = verdicts.iter().filter(|verdict| verdict.enough != Sufficiency::Client);
    let known = counted
        .filter(|v| v.allows.is_some_and(|allows| allows.unit == unit && allows.max.is_some()));
    known.min_by(|one, other| one.margin().total_cmp(&other.margin()))
}

/// Returns whether every readable limit suffices for the goal.
pub fn suffices(verdicts: &[LimitVerdict]) -> bool {
    verdicts.iter().all(|verdict| verdict.enough != Sufficiency::No)
}

#[cfg(test)]
mod tests;
