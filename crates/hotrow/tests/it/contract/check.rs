//! Check of a finished run: its histories, purges and observations go through the checker of
//! `hotrow verify`, key by key.

use std::collections::BTreeMap;

use hotrow_verify::counterexample::{Evidence, Names, render};
use hotrow_verify::history::{History, KeyState, Ns};
use hotrow_verify::observation::{Observation, Purge};
use hotrow_verify::rules::{ContractTerms, KeyChecker, RULES, Rule, Violation};
use serde_json::{Value, json};

use crate::contract::engine::Engine;
use crate::contract::run::{Plan, Trial};

/// Result of a check.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// All violations, in the order of receipt.
    pub(crate) violations: Vec<Violation>,
    /// Number of observations that each rule applied to.
    applied: BTreeMap<Rule, u64>,
    /// Longest time from a commit's return to the sending of a request whose answer did not show
    /// it.
    pub(crate) worst_lag_ns: Ns,
}

impl Report {
    /// Returns the number of observations that each rule applied to, as JSON.
    pub(crate) fn rules_applied(&self) -> Value {
        self.applied.iter().map(|(rule, count)| (rule.name().to_owned(), json!(count))).collect()
    }

    /// Asserts that each rule applied to some observation. [`Trial::converged`] checks point 4.
    pub(crate) fn assert_all_rules_applied(&self) {
        // Convergence is judged at the end, and not all runs push changes.
        let others = |rule: &Rule| {
            !matches!(rule, Rule::Convergent | Rule::Copied | Rule::Followed | Rule::Snapshot)
        };
        for rule in RULES.into_iter().filter(others) {
            assert!(self.applied.contains_key(&rule), "{rule:?} had nothing to judge");
        }
    }
}

impl<E: Engine> Trial<E> {
    /// Checks all observations.
    pub(crate) fn check(&self, terms: &ContractTerms) -> Report {
        let mut by_key: BTreeMap<u32, Vec<&Observation>> = BTreeMap::new();
        for observation in &self.observations {
            by_key.entry(observation.key).or_default().push(observation);
        }
        let mut report = Report::default();
        for (key, mut observations) in by_key {
            let mut checker = KeyChecker::new(History::starting(Plan::has_first_row(key)));
            let mut later = self.histories[key as usize].iter().skip(1).peekable();
            self.purges_of(key).into_iter().for_each(|purge| checker.purge(purge));
            observations.sort_by_key(|observation| observation.received_ns);
            for observation in observations {
                // The checker searches from the newest state: with all of them, long runs would
                // take minutes.
                while let Some(state) = later.next_if(|state| may_matter(state, observation)) {
                    checker.history.push(*state);
                }
                let result = checker.check(observation, terms);
                report.violations.extend(result.violations);
                for rule in result.applied {
                    *report.applied.entry(rule).or_default() += 1;
                }
                report.worst_lag_ns = report.worst_lag_ns.max(result.lag_ns);
            }
        }
        report.violations.sort_by_key(|violation| violation.observation.received_ns);
        report
    }

    /// Formats a violation with the events around it.
    pub(crate) fn explain(&self, violation: &Violation) -> String {
        let key = violation.observation.key;
        let reads = self.observations.iter().filter(|observation| observation.key == key);
        let evidence = Evidence {
            violation: violation.clone(),
            states: self.histories[key as usize].iter().copied().collect(),
            reads: reads.cloned().collect(),
            purges: self.purges_of(key),
        };
        let instances = (0..self.servers.len()).map(|id| format!("instance {id}")).collect();
        render(&evidence, &Names { key: key.to_string(), instances, ..Names::default() })
    }

    /// Returns the number of observations within `near` of a change of their key.
    pub(crate) fn reads_near_changes(&self, near: Ns) -> usize {
        let is_near = |read: &&Observation| {
            let history = &self.histories[read.key as usize];
            history.changed_near(read.sent_ns, read.received_ns, near)
        };
        self.observations.iter().filter(is_near).count()
    }

    /// Returns the purges that include the key, in order of completion.
    fn purges_of(&self, key: u32) -> Vec<Purge> {
        let of_key = self.purges.iter().filter(|purge| purge.includes(key));
        let mut purges: Vec<Purge> = of_key.copied().collect();
        purges.sort_by_key(|purge| purge.received_ns);
        purges
    }
}

/// Returns whether the check of an observation can depend on a state: if its COMMIT was sent before
/// the answer was received, or if it lies before a position of the request or the answer.
fn may_matter(state: &KeyState, observation: &Observation) -> bool {
    let requirement = observation.requirement;
    let positions = [observation.position, requirement.position(), requirement.followed()];
    let newest = positions.into_iter().flatten().map(|position| position.at).max();
    state.may_be_seen_by(observation.received_ns) || state.log.map(|log| log.from) <= newest
}
