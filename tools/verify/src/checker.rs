//! Checker: takes the readers' observations in the order of their receipt, checks them against the
//! rules, counts, and keeps the evidence of the first violation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::counterexample::Evidence;
use crate::history::Ns;
use crate::ledger::{KeyEntry, Ledger, READS_KEPT};
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Requirement};
use crate::rules::{ContractTerms, Rule, Snapshot, SnapshotPart, Violation};

/// Interval of checks.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_millis(20);
/// Delay between receipt and check, by which earlier responses and commits are recorded too. A
/// response recorded still later is checked correctly, but others may be checked too leniently.
const LAG: Duration = Duration::from_millis(100);
/// Distance from a change within which a read counts as near it.
const NEAR_NS: Ns = 10_000_000;
/// Interval of pruning.
const PRUNE_EVERY: Duration = Duration::from_millis(500);
/// Reads of the key after a violation that belong to its counterexample.
const READS_AFTER: usize = 12;

/// Counts of reads, per key of each response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// All reads.
    pub reads: u64,
    /// Reads within 10 ms of a change of their key.
    pub near_a_change: u64,
    /// Counts by form of the request.
    pub forms: BTreeMap<Form, u64>,
    /// Counts by `Hotrow-Cache`.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Counts by instance and balancer.
    pub origins: BTreeMap<Origin, u64>,
    /// Reads with `no-cache`.
    pub no_cache: u64,
    /// Reads with the token of an earlier response.
    pub sessions: u64,
    /// Reads with the position of a commit.
    pub own_writes: u64,
    /// Strict reads.
    pub strict: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Snapshots of two collections.
    pub snapshots_across: u64,
    /// 404 responses.
    pub absent: u64,
    /// Refusals by status.
    pub refused: BTreeMap<u16, u64>,
    /// 400 responses to positions.
    pub positions_refused: u64,
    /// Rows of unknown version.
    pub unknown_versions: u64,
    /// Responses to which each rule applied.
    pub applied: BTreeMap<Rule, u64>,
    /// Violations by rule; a response counts once.
    pub violations: BTreeMap<Rule, u64>,
    /// Longest time from the return of a commit to the sending of a request whose response did not
    /// show it, in nanoseconds; responses marked stale do not count.
    pub worst_lag_ns: Ns,
    /// The same of copies of near caches.
    pub worst_copy_lag_ns: Ns,
}

/// The checker of a run.
pub(crate) struct Checker {
    ledger: Arc<Ledger>,
    terms: ContractTerms,
    pub(crate) counts: ReadCounts,
    waiting: Vec<Observation>,
    forgot: Nanos,
    pub(crate) evidence: Option<Evidence>,
    followed: usize,
}

impl Checker {
    pub(crate) fn new(ledger: Arc<Ledger>, terms: ContractTerms) -> Self {
        let counts = ReadCounts::default();
        Self {
            ledger,
            terms,
            counts,
            waiting: Vec::new(),
            forgot: Nanos::ZERO,
            evidence: None,
            followed: 0,
        }
    }

    /// Returns the terms by which it checks.
    pub(crate) fn terms(&self) -> ContractTerms {
        self.terms
    }

    /// Checks due observations.
    pub(crate) fn sweep(&mut self) {
        self.check_until(Nanos::now().before(LAG).0);
        if Nanos::now().since(self.forgot) > PRUNE_EVERY {
            self.forgot = Nanos::now();
            let horizon = self.ledger.horizon(LAG, &self.waiting);
            for key in self.ledger.ids() {
                self.ledger.with(key, |entry| entry.checker.prune_before(horizon, &self.terms));
            }
        }
    }

    /// Joins a reader whose stop flag is set. It may wait until its last observations are taken.
    pub(crate) fn join(&mut self, reader: JoinHandle<()>) -> std::thread::Result<()> {
        while !reader.is_finished() {
            std::thread::sleep(SWEEP_EVERY);
            self.sweep();
        }
        reader.join()
    }

    /// Checks all observations, after the last reader has stopped.
    pub(crate) fn finish(&mut self) {
        self.check_until(Ns::MAX);
    }

    /// Returns whether the first violation was found, with the reads after it.
    pub(crate) fn has_counterexample(&self) -> bool {
        self.evidence.is_some() && self.followed >= READS_AFTER
    }

    fn check_until(&mut self, until: Ns) {
        self.ledger.take(&mut self.waiting);
        // Stable, and nearly sorted already.
        self.waiting.sort_by_key(|observation| observation.received_ns);
        let due = self.waiting.partition_point(|observation| observation.received_ns <= until);
        let later = self.waiting.split_off(due);
        let due = std::mem::replace(&mut self.waiting, later);
        let is_of_one = |a: &Observation, b: &Observation| {
            a.form.is_snapshot() && (a.reader, a.sent_ns) == (b.reader, b.sent_ns)
        };
        for response in due.chunk_by(is_of_one) {
            response.iter().for_each(|observation| self.check(observation.clone()));
            self.check_snapshot(response);
        }
    }

    /// Checks a response as a whole, if it is a snapshot.
    fn check_snapshot(&mut self, response: &[Observation]) {
        if !response.iter().all(|part| part.form.is_snapshot()) {
            return;
        }
        let part = |observation: &Observation| {
            let history = |entry: &mut KeyEntry| entry.checker.history.clone();
            let history = self.ledger.with(observation.key, history)?;
            Some(SnapshotPart { observation: observation.clone(), history })
        };
        let Some(snapshot) = Snapshot::new(response.iter().filter_map(part).collect()) else {
            return;
        };
        let is_across = response.iter().any(|part| part.form == Form::SnapshotOther);
        self.counts.snapshots += 1;
        self.counts.snapshots_across += u64::from(is_across);
        *self.counts.applied.entry(Rule::Snapshot).or_default() += 1;
        if let Some(violation) = snapshot.check() {
            self.violated(violation);
        }
    }

    fn check(&mut self, observation: Observation) {
        let (terms, ledger) = (self.terms, self.ledger.clone());
        let judged = ledger.with(observation.key, |entry| {
            let near = entry.checker.history.changed_near(
                observation.sent_ns,
                observation.received_ns,
                NEAR_NS,
            );
            let result = entry.checker.check(&observation, &terms);
            (near, result)
        });
        let Some((near, result)) = judged else { return };
        self.count(&observation, near);
        for rule in result.applied {
            *self.counts.applied.entry(rule).or_default() += 1;
        }
        let worst = match observation.form {
            Form::Copy => &mut self.counts.worst_copy_lag_ns,
            // Bound by what was sent to the follower, not by time.
            Form::FollowedCopy => &mut 0,
            _ => &mut self.counts.worst_lag_ns,
        };
        *worst = (*worst).max(result.lag_ns);
        self.follow(&observation);
        let key = observation.key;
        ledger.with(key, |entry| {
            if entry.reads.len() == READS_KEPT {
                entry.reads.pop_front();
            }
            entry.reads.push_back(observation);
        });
        // A response counts once, by the first rule that it violates.
        result.violations.into_iter().take(1).for_each(|violation| self.violated(violation));
    }

    /// Records a violation; the first is kept with all that is known about its key.
    pub(crate) fn violated(&mut self, violation: Violation) {
        *self.counts.violations.entry(violation.rule).or_default() += 1;
        if self.evidence.is_none() {
            self.evidence = self.ledger.with(violation.observation.key, |entry| Evidence {
                states: entry.checker.history.iter().copied().collect(),
                reads: entry.reads.iter().cloned().collect(),
                purges: entry.checker.purges().copied().collect(),
                violation,
            });
        }
    }

    /// Adds reads and writes after the violation.
    fn follow(&mut self, observation: &Observation) {
        let Some(evidence) = &mut self.evidence else { return };
        if evidence.violation.observation.key != observation.key || self.followed >= READS_AFTER {
            return;
        }
        self.followed += 1;
        evidence.reads.push(observation.clone());
        let known = evidence.states.first().map_or(0, |state| state.version);
        let states = self.ledger.with(observation.key, |entry| {
            entry.checker.history.iter().copied().collect::<Vec<_>>()
        });
        for state in states.into_iter().flatten().filter(|state| state.version >= known) {
            match evidence.states.iter_mut().find(|old| old.version == state.version) {
                Some(old) => *old = state,
                None => evidence.states.push(state),
            }
        }
    }

    fn count(&mut self, observation: &Observation, near: bool) {
        let counts = &mut self.counts;
        counts.reads += 1;
        counts.near_a_change += u64::from(near);
        *counts.forms.entry(observation.form).or_default() += 1;
        *counts.outcomes.entry(observation.outcome).or_default() += 1;
        *counts.origins.entry(observation.origin).or_default() += 1;
        match observation.requirement {
            Requirement::Any | Requirement::Followed { .. } => {}
            Requirement::NoCache => counts.no_cache += 1,
            Requirement::Session { .. } => counts.sessions += 1,
            Requirement::OwnWrite { .. } => counts.own_writes += 1,
            Requirement::Strict => counts.strict += 1,
        }
        match observation.seen {
            Claim::Absent => counts.absent += 1,
            Claim::Refused(status) => *counts.refused.entry(status).or_default() += 1,
            Claim::PositionRefused => counts.positions_refused += 1,
            Claim::UnknownVersion => counts.unknown_versions += 1,
            Claim::Version(_) | Claim::Invalid(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::INBOX_MAX;

    #[test]
    fn a_reader_that_submits_more_than_its_inbox_takes_is_joined() {
        let ledger = Arc::new(Ledger::new(Vec::new(), Vec::new(), 1));
        let terms = ContractTerms { max_staleness_ns: 0, tokens: None };
        let mut checker = Checker::new(Arc::clone(&ledger), terms);
        let observation = Observation {
            key: 1,
            reader: 0,
            origin: Origin::Instance(0),
            sent_ns: 0,
            received_ns: 0,
            form: Form::FollowedCopy,
            requirement: Requirement::Any,
            seen: Claim::Absent,
            outcome: Outcome::None,
            age_s: None,
            position: None,
        };
        let reader = std::thread::spawn(move || {
            ledger.submit(0, vec![observation.clone(); INBOX_MAX + 1]);
            ledger.submit(0, vec![observation]);
        });
        assert!(checker.join(reader).is_ok());
    }
}
