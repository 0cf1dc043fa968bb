//! Point 4: writes have stopped; `max_staleness` later, every key of every target equals the database, read directly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::ask::Ask;
use crate::board::Board;
use crate::database::Writer;
use crate::history::Fate;
use crate::judge::Judge;
use crate::ledger::Ledger;
use crate::observation::{Form, Observation, Outcome, Seen, Wish};
use crate::plan::Plan;
use crate::reader::Reader;
use crate::rules::{Rule, Violation};

/// How long the database and the targets may be away.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two attempts.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// Keys of one batch.
const BATCH_KEYS: usize = 100;
/// Of so many keys, one is also read alone.
const SINGLE_ONE_IN: usize = 7;
/// Times that everything is read again because the database changed meanwhile.
const ROUNDS_MAX: usize = 3;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Converged {
    /// So many answers were compared with the database; violations are counted by rule.
    Checked {
        /// How many.
        answers: u64,
    },
    /// Why not.
    NotChecked(String),
    /// The database is not as it was written: somebody else writes there, or it lost a commit. Nothing follows for the
    /// service.
    Foreign {
        /// The first such key.
        key: u32,
    },
}

/// Compares, while readers go on.
pub(crate) fn converge(
    plan: &Plan,
    direct: &mut dyn Writer,
    ledger: &Ledger,
    reader: &mut Reader,
    judge: &mut Judge,
    stop: &AtomicBool,
) -> Converged {
    let due = Instant::now() + plan.max_staleness;
    while Instant::now() <= due && !stop.load(Ordering::Relaxed) {
        judge.sweep();
        Board::sleep_until((Instant::now() + TRY_EVERY).min(due), || false);
    }
    let mut compare = Compare { plan, ledger, reader, judge, stop, end: Instant::now() + PATIENCE, answers: 0 };
    for _ in 0..ROUNDS_MAX {
        let before = match compare.rows(direct) {
            Ok(rows) => rows,
            Err(what) => return Converged::NotChecked(what),
        };
        if let Some(key) = compare.first_foreign(&before) {
            return Converged::Foreign { key };
        }
        let different = match compare.all(&before) {
            Ok(different) => different,
            Err(what) => return Converged::NotChecked(what),
        };
        match compare.rows(direct) {
            // A commit of unknown outcome came after all; its readers have time until `max_staleness` is over again.
            Ok(after) if after != before => {
                std::thread::sleep(plan.max_staleness);
            }
            Ok(_) => {
                different.into_iter().for_each(|violation| compare.judge.violated(violation));
                return Converged::Checked { answers: compare.answers };
            }
            Err(what) => return Converged::NotChecked(what),
        }
    }
    Converged::NotChecked("the database went on changing".to_owned())
}

struct Compare<'a> {
    plan: &'a Plan,
    ledger: &'a Ledger,
    reader: &'a mut Reader,
    judge: &'a mut Judge,
    stop: &'a AtomicBool,
    end: Instant,
    answers: u64,
}

impl Compare<'_> {
    fn is_over(&self) -> bool {
        Instant::now() > self.end || self.stop.load(Ordering::Relaxed)
    }

    fn rows(&mut self, direct: &mut dyn Writer) -> Result<BTreeMap<u32, u64>, String> {
        loop {
            match direct.rows() {
                Ok(rows) => return Ok(rows.versions),
                Err(fault) if self.is_over() => return Err(format!("the database cannot be read: {fault}")),
                Err(_) => {
                    self.judge.sweep();
                    std::thread::sleep(TRY_EVERY);
                }
            }
        }
    }

    /// A key whose row is neither what was committed last nor what may have been.
    fn first_foreign(&self, rows: &BTreeMap<u32, u64>) -> Option<u32> {
        let is_ours = |key: &u32| {
            let row = rows.get(key).copied();
            let ours = self.ledger.with(*key, |book| {
                let history = &book.judge.history;
                let certain = history.last_certain().map_or(0, |state| state.version);
                let possible =
                    history.iter().filter(|s| s.version == certain || s.version > certain && s.fate == Fate::Unknown);
                possible.into_iter().any(|state| if state.present { row == Some(state.version) } else { row.is_none() })
            });
            ours == Some(true)
        };
        self.ledger.keys().find(|key| !is_ours(key))
    }

    /// Reads every key of every target; what differs.
    fn all(&mut self, rows: &BTreeMap<u32, u64>) -> Result<Vec<Violation>, String> {
        let mut different = Vec::new();
        let keys: Vec<u32> = self.ledger.keys().collect();
        let batch = BATCH_KEYS.min(self.plan.batch_ids_max).max(1);
        let batches = keys.chunks(batch).map(|keys| {
            let keys = keys.iter().map(|key| (*key, Wish::Any)).collect();
            Ask { form: Form::BatchGet, keys, known: None }
        });
        let asks: Vec<Ask> = batches.chain(keys.iter().step_by(SINGLE_ONE_IN).map(|key| Ask::plain(*key))).collect();
        for place in 0..self.plan.instances.len() + self.plan.balancers.len() {
            for ask in &asks {
                for observation in self.answer(place, ask)? {
                    self.answers += 1;
                    let expected = rows.get(&observation.key).map_or(Seen::Absent, |version| Seen::Version(*version));
                    if observation.seen != expected {
                        let floor =
                            rows.get(&observation.key).copied().unwrap_or_else(|| self.absence(observation.key));
                        different.push(Violation { rule: Rule::Convergent, observation, floor, earlier: None });
                    }
                }
            }
        }
        Ok(different)
    }

    fn absence(&self, key: u32) -> u64 {
        self.ledger.with(key, |book| book.judge.history.last().version).unwrap_or(0)
    }

    /// An answer that is neither a refusal nor marked stale; those waive the point as long as they last.
    fn answer(&mut self, place: usize, ask: &Ask) -> Result<Vec<Observation>, String> {
        loop {
            self.judge.sweep();
            let answered = self.reader.ask(place, ask).unwrap_or_default();
            let plain = |o: &Observation| o.outcome != Outcome::Stale && !matches!(o.seen, Seen::Refused(_));
            if !answered.is_empty() && answered.iter().all(plain) {
                return Ok(answered);
            }
            if self.is_over() {
                return Err("a target gave no unmarked answer".to_owned());
            }
            std::thread::sleep(TRY_EVERY);
        }
    }
}
