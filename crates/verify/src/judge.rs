//! The judge: takes what readers hand in, in the order of its receipt, holds it against the rules, counts, and keeps the
//! evidence of the first violation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::history::Ns;
use crate::ledger::{Ledger, READS_KEPT};
use crate::observation::{Form, Observation, Origin, Outcome, Seen, Wish};
use crate::rules::{Rule, Terms, Violation};
use crate::story::Evidence;

/// How long after its receipt an answer is judged: by then, what was received or committed before is noted too. An answer
/// that was noted later still would not be judged wrongly; another might be judged too mildly.
const LAG: Duration = Duration::from_millis(100);
/// A read counts as near a change within this time.
const NEAR_NS: Ns = 10_000_000;
/// Between two rounds of forgetting.
const FORGET_EVERY: Duration = Duration::from_millis(500);
/// Reads of the key after a violation that belong to its story.
const READS_AFTER: usize = 12;

/// What was read, counted per key of each answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// All.
    pub reads: u64,
    /// Those within 10 ms of a change of their key.
    pub near_a_change: u64,
    /// By form of the request.
    pub forms: BTreeMap<Form, u64>,
    /// By `Hotrow-Cache`.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// By instance and balancer.
    pub origins: BTreeMap<Origin, u64>,
    /// With `no-cache`.
    pub no_cache: u64,
    /// With the token of an earlier answer.
    pub sessions: u64,
    /// With the position of a commit.
    pub own_writes: u64,
    /// 404s.
    pub absent: u64,
    /// Refusals by status.
    pub refused: BTreeMap<u16, u64>,
    /// 400s for positions.
    pub positions_refused: u64,
    /// Rows whose version could not be told.
    pub untold: u64,
    /// Per rule, the answers on which it had something to say.
    pub applied: BTreeMap<Rule, u64>,
    /// Violations by rule; one answer counts once.
    pub violations: BTreeMap<Rule, u64>,
    /// The longest time from a commit's return to the sending of a request whose answer still did not show it, in
    /// nanoseconds; answers marked stale do not count.
    pub worst_lag_ns: Ns,
}

/// The judge.
pub(crate) struct Judge {
    ledger: Arc<Ledger>,
    terms: Terms,
    pub(crate) counts: ReadCounts,
    waiting: Vec<Observation>,
    forgot: Nanos,
    pub(crate) evidence: Option<Evidence>,
    followed: usize,
}

impl Judge {
    pub(crate) fn new(ledger: Arc<Ledger>, terms: Terms) -> Self {
        let counts = ReadCounts::default();
        Self { ledger, terms, counts, waiting: Vec::new(), forgot: Nanos::ZERO, evidence: None, followed: 0 }
    }

    /// Judges what is due.
    pub(crate) fn sweep(&mut self) {
        self.judge_until(Nanos::now().before(LAG).0);
        if Nanos::now().since(self.forgot) > FORGET_EVERY {
            self.forgot = Nanos::now();
            let horizon = self.ledger.horizon(LAG, &self.waiting);
            for key in self.ledger.keys() {
                self.ledger.with(key, |book| book.judge.forget_before(horizon, &self.terms));
            }
        }
    }

    /// Judges all that was handed in: nobody reads any more.
    pub(crate) fn finish(&mut self) {
        self.judge_until(Ns::MAX);
    }

    /// Whether the first violation was found, with what followed.
    pub(crate) fn has_story(&self) -> bool {
        self.evidence.is_some() && self.followed >= READS_AFTER
    }

    fn judge_until(&mut self, until: Ns) {
        self.ledger.take(&mut self.waiting);
        // Stable, and nearly sorted already.
        self.waiting.sort_by_key(|observation| observation.received_ns);
        let due = self.waiting.partition_point(|observation| observation.received_ns <= until);
        let later = self.waiting.split_off(due);
        for observation in std::mem::replace(&mut self.waiting, later) {
            self.judge(observation);
        }
    }

    fn judge(&mut self, observation: Observation) {
        let (terms, ledger) = (self.terms, self.ledger.clone());
        let judged = ledger.with(observation.key, |book| {
            let near = book.judge.history.changed_near(observation.sent_ns, observation.received_ns, NEAR_NS);
            let judgement = book.judge.judge(&observation, &terms);
            (near, judgement)
        });
        let Some((near, judgement)) = judged else { return };
        self.count(&observation, near);
        for rule in judgement.applied {
            *self.counts.applied.entry(rule).or_default() += 1;
        }
        self.counts.worst_lag_ns = self.counts.worst_lag_ns.max(judgement.lag_ns);
        self.follow(&observation);
        let key = observation.key;
        ledger.with(key, |book| {
            if book.reads.len() == READS_KEPT {
                book.reads.pop_front();
            }
            book.reads.push_back(observation);
        });
        judgement.violation.into_iter().for_each(|violation| self.violated(violation));
    }

    /// Notes a violation; the first is kept with all that is known about its key.
    pub(crate) fn violated(&mut self, violation: Violation) {
        *self.counts.violations.entry(violation.rule).or_default() += 1;
        if self.evidence.is_none() {
            self.evidence = self.ledger.with(violation.observation.key, |book| Evidence {
                states: book.judge.history.iter().copied().collect(),
                reads: book.reads.iter().cloned().collect(),
                purges: book.judge.purges().copied().collect(),
                violation,
            });
        }
    }

    /// Adds what was read and written after the violation.
    fn follow(&mut self, observation: &Observation) {
        let Some(evidence) = &mut self.evidence else { return };
        if evidence.violation.observation.key != observation.key || self.followed >= READS_AFTER {
            return;
        }
        self.followed += 1;
        evidence.reads.push(observation.clone());
        let known = evidence.states.first().map_or(0, |state| state.version);
        let states = self.ledger.with(observation.key, |book| book.judge.history.iter().copied().collect::<Vec<_>>());
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
        match observation.wish {
            Wish::Any => {}
            Wish::NoCache => counts.no_cache += 1,
            Wish::Session { .. } => counts.sessions += 1,
            Wish::OwnWrite { .. } => counts.own_writes += 1,
        }
        match observation.seen {
            Seen::Absent => counts.absent += 1,
            Seen::Refused(status) => *counts.refused.entry(status).or_default() += 1,
            Seen::PositionRefused => counts.positions_refused += 1,
            Seen::SomeRow => counts.untold += 1,
            Seen::Version(_) | Seen::Invented(_) => {}
        }
    }
}
