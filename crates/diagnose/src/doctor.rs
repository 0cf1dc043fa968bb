//! Does this machine allow what is wanted of it? [`examine`] is a pure function from the [`Limits`] that were read and
//! a [`Goal`] to verdicts: each limit's value, what it allows by which formula, and how it is raised.
//!
//! Reading order: [`goal`], [`limits`] (reading), [`verdict`], then the rules: `connections`, [`rate`], [`threads`],
//! [`memory`], `machine`; [`startup`] (what `serve` and `load` say before they begin).

mod connections;
pub mod goal;
pub mod limits;
mod machine;
pub mod memory;
pub mod rate;
pub mod startup;
pub mod threads;
pub mod verdict;

use self::goal::Goal;
use self::limits::Limits;
use self::verdict::{Enough, Unit, Verdict};
use crate::root::{Seen, Unseen, Why};

/// One limit's rule. `Ok(None)`: it does not apply here.
type Rule = fn(&Limits, &Goal) -> Seen<Option<Verdict>>;

/// Judges every limit; the worst first: what gives way, by how much; what could not be seen; what is tight; the rest; what
/// concerns clients only.
#[must_use]
pub fn examine(limits: &Limits, goal: &Goal) -> Vec<Verdict> {
    let rules = [connections::RULES, rate::RULES, threads::RULES, memory::RULES, machine::RULES].concat();
    let mut verdicts: Vec<Verdict> =
        rules.into_iter().filter_map(|(name, rule)| judged(name, rule, limits, goal)).collect();
    verdicts.sort_by(|one, other| one.enough.cmp(&other.enough).then(one.margin().total_cmp(&other.margin())));
    verdicts
}

fn judged(name: &'static str, rule: Rule, limits: &Limits, goal: &Goal) -> Option<Verdict> {
    rule(limits, goal).unwrap_or_else(|unseen| Some(Verdict::unseen(name, &unseen)))
}

/// Of all limits on one thing, the one that gives way first. None when no limit on it is known.
#[must_use]
pub fn first_to_give_way(verdicts: &[Verdict], unit: Unit) -> Option<&Verdict> {
    let counted = verdicts.iter().filter(|verdict| verdict.enough != Enough::Client);
    let known = counted.filter(|v| v.allows.is_some_and(|allows| allows.unit == unit && allows.most.is_some()));
    known.min_by(|one, other| one.margin().total_cmp(&other.margin()))
}

/// Whether everything that could be seen is enough for the goal.
#[must_use]
pub fn suffices(verdicts: &[Verdict]) -> bool {
    verdicts.iter().all(|verdict| verdict.enough != Enough::No)
}

/// A value that was read, or why it was not.
fn see<T>(seen: &Seen<T>) -> Seen<&T> {
    seen.as_ref().map_err(Unseen::clone)
}

/// The same for what a kernel may lack: none then.
fn see_if_there<T>(seen: &Seen<T>) -> Seen<Option<&T>> {
    match seen {
        Ok(value) => Ok(Some(value)),
        Err(Unseen { why: Why::Missing, .. }) => Ok(None),
        Err(unseen) => Err(unseen.clone()),
    }
}

#[cfg(test)]
mod tests;
