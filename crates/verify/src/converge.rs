//! Point 4, convergence: `max_staleness` after the last write, every key of every target equals the
//! database, read directly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::checker::Checker;
use crate::database::Writer;
use crate::history::WriteOutcome;
use crate::ledger::Ledger;
use crate::observation::{Claim, Form, Observation, Outcome, Requirement};
use crate::plan::Plan;
use crate::read_request::ReadRequest;
use crate::reader::Reader;
use crate::rules::{Rule, Violation};
use crate::shared_state::SharedState;

/// Time limit for an unreachable database or target.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Interval between two attempts.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// Keys per batch.
const BATCH_KEYS: usize = 100;
/// One of this many keys is also read alone.
const SINGLE_ONE_IN: usize = 7;
/// Repetitions of the comparison when the database changed during it.
const ROUNDS_MAX: usize = 3;

/// Result of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvergenceResult {
    /// Responses were compared with the database; violations are counted by rule.
    Checked {
        /// Number of responses.
        responses: u64,
    },
    /// The comparison was not possible, with the reason.
    NotChecked(String),
    /// The database differs from what was written: another program writes to the table, or it lost
    /// a commit. This says nothing about the service.
    Foreign {
        /// The first such key.
        key: u32,
    },
}

/// Compares while readers continue.
pub(crate) fn converge(
    plan: &Plan,
    direct: &mut dyn Writer,
    ledger: &Ledger,
    reader: &mut Reader,
    checker: &mut Checker,
    stop: &AtomicBool,
) -> ConvergenceResult {
    let due = Instant::now() + plan.max_staleness;
    while Instant::now() <= due && !stop.load(Ordering::Relaxed) {
        checker.sweep();
        SharedState::sleep_until((Instant::now() + TRY_EVERY).min(due), || false);
    }
    let mut compare = Compare {
        plan,
        ledger,
        reader,
        checker,
        stop,
        end: Instant::now() + WAIT_MAX,
        responses: 0,
    };
    for _ in 0..ROUNDS_MAX {
        let before = match compare.rows(direct) {
            Ok(rows) => rows,
            Err(what) => return ConvergenceResult::NotChecked(what),
        };
        if let Some(key) = compare.first_foreign(&before) {
            return ConvergenceResult::Foreign { key };
        }
        let different = match compare.all(&before) {
            Ok(different) => different,
            Err(what) => return ConvergenceResult::NotChecked(what),
        };
        match compare.rows(direct) {
            // A commit of unknown outcome happened after all; wait for `max_staleness` again.
            Ok(after) if after != before => {
                std::thread::sleep(plan.max_staleness);
            }
            Ok(_) => {
                different.into_iter().for_each(|violation| compare.checker.violated(violation));
                return ConvergenceResult::Checked { responses: compare.responses };
            }
            Err(what) => return ConvergenceResult::NotChecked(what),
        }
    }
    ConvergenceResult::NotChecked("the database kept changing".to_owned())
}

struct Compare<'a> {
    plan: &'a Plan,
    ledger: &'a Ledger,
    reader: &'a mut Reader,
    checker: &'a mut Checker,
    stop: &'a AtomicBool,
    end: Instant,
    responses: u64,
}

impl Compare<'_> {
    fn is_over(&self) -> bool {
        Instant::now() > self.end || self.stop.load(Ordering::Relaxed)
    }

    fn rows(&mut self, direct: &mut dyn Writer) -> Result<BTreeMap<u32, u64>, String> {
        loop {
            match direct.rows() {
                Ok(rows) => return Ok(rows.versions),
                Err(fault) if self.is_over() => {
                    return Err(format!("the database cannot be read: {fault}"));
                }
                Err(_) => {
                    self.checker.sweep();
                    std::thread::sleep(TRY_EVERY);
                }
            }
        }
    }

    /// Returns a key whose row is neither the last committed nor a possible one.
    fn first_foreign(&self, rows: &BTreeMap<u32, u64>) -> Option<u32> {
        let is_ours = |key: &u32| {
            let row = rows.get(key).copied();
            let ours = self.ledger.with(*key, |entry| {
                let history = &entry.checker.history;
                let certain = history.last_certain().map_or(0, |state| state.version);
                let possible = history.iter().filter(|s| {
                    s.version == certain
                        || s.version > certain && s.outcome == WriteOutcome::Unknown
                });
                possible.into_iter().any(|state| {
                    if state.present { row == Some(state.version) } else { row.is_none() }
                })
            });
            ours == Some(true)
        };
        self.ledger.keys().find(|key| !is_ours(key))
    }

    /// Reads every key of every target; returns the differences.
    fn all(&mut self, rows: &BTreeMap<u32, u64>) -> Result<Vec<Violation>, String> {
        let mut different = Vec::new();
        let keys: Vec<u32> = self.ledger.keys().collect();
        let batch = BATCH_KEYS.min(self.plan.batch_ids_max).max(1);
        let batches = keys.chunks(batch).map(|keys| {
            let keys = keys.iter().map(|key| (*key, Requirement::Any)).collect();
            ReadRequest { form: Form::BatchGet, keys, known: None }
        });
        let asks: Vec<ReadRequest> = batches
            .chain(keys.iter().step_by(SINGLE_ONE_IN).map(|key| ReadRequest::plain(*key)))
            .collect();
        for target_index in 0..self.plan.instances.len() + self.plan.balancers.len() {
            for ask in &asks {
                for observation in self.response(target_index, ask)? {
                    self.responses += 1;
                    let expected = rows
                        .get(&observation.key)
                        .map_or(Claim::Absent, |version| Claim::Version(*version));
                    if observation.seen != expected {
                        let floor = rows
                            .get(&observation.key)
                            .copied()
                            .unwrap_or_else(|| self.absence(observation.key));
                        different.push(Violation {
                            rule: Rule::Convergent,
                            observation,
                            floor,
                            earlier: None,
                        });
                    }
                }
            }
        }
        Ok(different)
    }

    fn absence(&self, key: u32) -> u64 {
        self.ledger.with(key, |entry| entry.checker.history.last().version).unwrap_or(0)
    }

    /// Repeats a read until the response is neither a refusal nor marked stale, because those waive
    /// the point.
    fn response(
        &mut self,
        target_index: usize,
        ask: &ReadRequest,
    ) -> Result<Vec<Observation>, String> {
        loop {
            self.checker.sweep();
            let observations = self.reader.ask(target_index, ask).unwrap_or_default();
            let plain = |o: &Observation| {
                o.outcome != Outcome::Stale && !matches!(o.seen, Claim::Refused(_))
            };
            if !observations.is_empty() && observations.iter().all(plain) {
                return Ok(observations);
            }
            if self.is_over() {
                return Err("a target gave only refusals or responses marked stale".to_owned());
            }
            std::thread::sleep(TRY_EVERY);
        }
    }
}
