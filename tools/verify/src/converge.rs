//! Point 4, convergence: `max_staleness` after the last write, every key of every target equals the
//! database, read directly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::checker::Checker;
use crate::database::{Rows, StoredRow, TableRole, Writer};
use crate::history::WriteOutcome;
use crate::ledger::{FoundContent, Ledger};
use crate::observation::{Claim, Form, Observation, Outcome, Requirement};
use crate::plan::Plan;
use crate::read_request::ReadRequest;
use crate::reader::Reader;
use crate::record_schema::Content;
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

/// Rows of both tables.
#[derive(PartialEq, Eq)]
struct Stored {
    records: BTreeMap<u32, StoredRow>,
    children: BTreeMap<u32, StoredRow>,
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
        let versions = match compare.versions(&before) {
            Ok(versions) => versions,
            Err(key) => return ConvergenceResult::Foreign { key },
        };
        if let Some(key) = compare.first_foreign(&versions) {
            return ConvergenceResult::Foreign { key };
        }
        let different = match compare.all(&versions) {
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

    fn rows(&mut self, direct: &mut dyn Writer) -> Result<Stored, String> {
        loop {
            let children = match &self.plan.tables.children {
                Some(_) => direct.rows(TableRole::Children),
                None => Ok(Rows::default()),
            };
            let found = direct.rows(TableRole::Records).and_then(|rows| Ok((rows, children?)));
            match found {
                Ok((records, children)) => {
                    return Ok(Stored { records: records.rows, children: children.rows });
                }
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

    /// Returns the versions of the stored records and values.
    ///
    /// # Errors
    /// A key whose record is none that a writer wrote.
    fn versions(&self, stored: &Stored) -> Result<BTreeMap<u32, u64>, u32> {
        let mut children: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        for (id, row) in &stored.children {
            let parent = row.reference.unwrap_or_default();
            children.entry(parent).or_default().push((*id, row.version));
        }
        let mut versions = BTreeMap::new();
        for key in self.ledger.keys() {
            let Some(StoredRow { version, reference }) = stored.records.get(&key).copied() else {
                continue;
            };
            if self.plan.schema.is_plain() {
                versions.insert(key, version);
                continue;
            }
            let children = children.remove(&key).unwrap_or_default();
            let content = Content { version, value: reference, children };
            let FoundContent::Known(known) = self.ledger.find(key, &content) else {
                return Err(key);
            };
            versions.insert(key, known.version);
            versions.extend(known.value);
        }
        Ok(versions)
    }

    /// Returns a key or value whose state is neither the last committed nor a possible one.
    fn first_foreign(&self, versions: &BTreeMap<u32, u64>) -> Option<u32> {
        let is_ours = |id: &u32| {
            let row = versions.get(id).copied();
            let ours = self.ledger.with(*id, |entry| {
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
        self.ledger.ids().find(|id| !is_ours(id))
    }

    /// Reads every key and value of every target; returns the differences.
    fn all(&mut self, versions: &BTreeMap<u32, u64>) -> Result<Vec<Violation>, String> {
        let mut different = Vec::new();
        let keys: Vec<u32> = self.ledger.keys().collect();
        let values: Vec<u32> = self.ledger.ids().skip(keys.len()).collect();
        let batch = BATCH_KEYS.min(self.plan.batch_ids_max).max(1);
        let batches = |ids: &[u32], form| -> Vec<ReadRequest> {
            let ask = |ids: &[u32]| {
                let keys = ids.iter().map(|id| (*id, Requirement::Any)).collect();
                ReadRequest { form, keys, known: None }
            };
            ids.chunks(batch).map(ask).collect()
        };
        let mut asks = batches(&keys, Form::BatchGet);
        asks.extend(batches(&values, Form::AliasBatch));
        asks.extend(keys.iter().step_by(SINGLE_ONE_IN).map(|key| ReadRequest::plain(*key)));
        let by_value = |value: &u32| ReadRequest::by_value(*value);
        asks.extend(values.iter().step_by(SINGLE_ONE_IN).map(by_value));
        for target_index in 0..self.plan.instances.len() + self.plan.balancers.len() {
            for ask in &asks {
                for observation in self.response(target_index, ask)? {
                    self.responses += 1;
                    let expected = versions
                        .get(&observation.key)
                        .map_or(Claim::Absent, |version| Claim::Version(*version));
                    if observation.seen != expected {
                        let floor = versions
                            .get(&observation.key)
                            .copied()
                            .unwrap_or_else(|| self.absence(observation.key));
                        different.push(Violation {
                            rule: Rule::Convergent,
                            observation,
                            floor,
                            earlier: None,
                            beside: None,
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
