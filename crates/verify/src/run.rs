//! A run: set up, write and read, stop writing, compare with the database, report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::admin::{Admin, Purger};
use crate::ask::Shape;
use crate::board::Board;
use crate::converge::{Converged, converge};
use crate::database::Fault;
use crate::http::{Client, LOSSES};
use crate::judge::Judge;
use crate::ledger::Ledger;
use crate::observation::Origin;
use crate::plan::Plan;
use crate::random::Random;
use crate::reader::{Common, LossCounts, Place, Reader};
use crate::report::{End, Report, Writes};
use crate::rules::Terms;
use crate::setup::{self, Known, Prepared};
use crate::story::{Names, tell};
use crate::writer::{WriteCounts, WriterThread};

/// Between two rounds of judging.
const SWEEP_EVERY: Duration = Duration::from_millis(20);
/// How long after a violation what follows is still waited for.
const AFTERMATH: Duration = Duration::from_secs(1);
/// Between two calls of the progress function.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Why a run did not come to a report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The database cannot be written or read.
    #[error("the database: {0}")]
    Database(#[from] Fault),
    /// There is no such table.
    #[error("the table {name} cannot be read: {what}; --create creates it if there is none")]
    NoTable {
        /// Its name.
        name: String,
        /// What the database said.
        what: String,
    },
    /// The table is somebody's.
    #[error(
        "the table {name} has {rows} rows that are not this checker's; it needs a table set aside for it, whose rows it \
         overwrites and deletes. --adopt says that those rows may stay and that the checker's keys may be overwritten"
    )]
    Foreign {
        /// Its name.
        name: String,
        /// How many.
        rows: u64,
    },
    /// A target does not serve the collection as it must.
    #[error("{url}: {what}")]
    Target {
        /// Which.
        url: String,
        /// Why.
        what: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// What is known while a run lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Since writing began.
    pub elapsed: Duration,
    /// Reads judged.
    pub reads: u64,
    /// Those near a change.
    pub near_a_change: u64,
    /// Keys changed by commits.
    pub changes: u64,
    /// Violations found.
    pub violations: u64,
}

/// Carries out a plan. `stop` ends it early; `progress` is called about once a second.
///
/// # Errors
/// Why it could not begin.
pub fn run(plan: &Plan, stop: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Report, RunError> {
    let mut direct = plan.database.writer(&plan.table)?;
    let prepared = setup::prepare(plan, &mut *direct)?;
    let key_type = plan.table.key_type;
    let shape = Shape { collection: plan.collection.clone(), key: plan.table.key.clone(), key_type };
    let known = setup::targets(plan, &shape)?;
    // What was written before the run is due everywhere from here on.
    Board::sleep_until(Instant::now() + plan.max_staleness, || stop.load(Ordering::Relaxed));
    let mut running = Running::start(plan, prepared, known, shape)?;
    let mut trouble = Vec::new();
    let end = running.watch(plan.duration, plan.keep_going, stop, progress);
    running.board.stop_writers();
    for writer in running.writers.drain(..) {
        match writer.join() {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => trouble.push(format!("a writer gave up: {fault}")),
            Err(_) => trouble.push("a writer failed by a fault of its own".to_owned()),
        }
    }
    let converged = if end == End::Complete {
        let mut reader = running.reader(plan.readers);
        converge(plan, &mut *direct, &running.ledger, &mut reader, &mut running.judge, stop)
    } else {
        Converged::NotChecked("the run was ended before".to_owned())
    };
    running.board.stop_readers();
    for thread in running.others.drain(..) {
        if thread.join().is_err() {
            trouble.push("a reader failed by a fault of its own".to_owned());
        }
    }
    running.judge.finish();
    Ok(running.report(plan, end, converged, trouble))
}

/// Creates the plan's table if there is none, and gives every key its first state: an instance may refuse to start without
/// the table, and where columns have no types it learns the keys' type from what is there.
///
/// # Errors
/// What the database said, or that the table is somebody's.
pub fn create_table(plan: &Plan) -> Result<(), RunError> {
    let mut direct = plan.database.writer(&plan.table)?;
    setup::prepare(plan, &mut *direct).map(|_| ())
}

/// A run under way.
struct Running {
    began: Instant,
    ledger: Arc<Ledger>,
    board: Arc<Board>,
    judge: Judge,
    writes: Arc<WriteCounts>,
    purges: Arc<AtomicU64>,
    losses: Arc<LossCounts>,
    writers: Vec<JoinHandle<Result<(), Fault>>>,
    /// Readers and the purger.
    others: Vec<JoinHandle<()>>,
    common: Common,
    known: Vec<Known>,
    names: Names,
    seed: u64,
    timeout: Duration,
    admins: Vec<Admin>,
    losses_before: Vec<Result<u64, String>>,
}

impl Running {
    fn start(plan: &Plan, prepared: Prepared, known: Vec<Known>, shape: Shape) -> Result<Self, RunError> {
        // One inbox more, for the comparison at the end.
        let ledger = Arc::new(Ledger::new(prepared.histories, usize::from(plan.readers) + 1));
        let board = Arc::new(Board::default());
        let losses = Arc::new(LossCounts::default());
        let max_staleness_ns = u64::try_from(plan.max_staleness.as_nanos()).unwrap_or(u64::MAX);
        let judge = Judge::new(ledger.clone(), Terms { max_staleness_ns });
        let batch_ids_max = plan.batch_ids_max;
        let (board_too, losses_too) = (board.clone(), losses.clone());
        let common = Common {
            ledger: ledger.clone(),
            board: board_too,
            losses: losses_too,
            shape: shape.clone(),
            batch_ids_max,
        };
        let urls = |targets: &[crate::http::Target]| targets.iter().map(|target| target.url.clone()).collect();
        let names = Names {
            instances: urls(&plan.instances),
            balancers: urls(&plan.balancers),
            first_version: prepared.first_version,
            key: String::new(),
        };
        let mut admins = admins(plan);
        let losses_before = admins.iter_mut().map(Admin::losses).collect();
        let mut running = Self {
            began: Instant::now(),
            ledger,
            board,
            judge,
            writes: Arc::default(),
            purges: Arc::default(),
            losses,
            writers: Vec::new(),
            others: Vec::new(),
            common,
            known,
            names,
            seed: plan.seed,
            timeout: plan.timeout,
            admins,
            losses_before,
        };
        let started = running.start_threads(plan, shape);
        if started.is_err() {
            running.board.stop_writers();
            running.board.stop_readers();
        }
        started.map(|()| running)
    }

    fn start_threads(&mut self, plan: &Plan, shape: Shape) -> Result<(), RunError> {
        for id in 0..plan.writers {
            let thread = WriterThread {
                writer: plan.database.writer(&plan.table)?,
                ledger: self.ledger.clone(),
                board: self.board.clone(),
                counts: self.writes.clone(),
                random: Random::new(plan.seed, u64::from(id)),
                keys: self.ledger.keys().filter(|key| key % u32::from(plan.writers) == u32::from(id)).collect(),
                interval: Duration::from_secs_f64(f64::from(plan.writers) / plan.rate),
            };
            self.writers.push(named(format!("writer-{id}")).spawn(move || thread.run())?);
        }
        for id in 0..plan.readers {
            let reader = self.reader(id);
            self.others.push(named(format!("reader-{id}")).spawn(move || reader.run())?);
        }
        let admins = admins(plan);
        if !admins.is_empty() {
            let purger = Purger {
                admins,
                ledger: self.ledger.clone(),
                board: self.board.clone(),
                shape,
                random: Random::new(plan.seed, u64::MAX),
                purges: self.purges.clone(),
            };
            self.others.push(named("purger".to_owned()).spawn(move || purger.run())?);
        }
        Ok(())
    }

    fn reader(&self, id: u16) -> Reader {
        let place =
            |known: &Known| Place::new(known.origin, Client::new(known.target.clone(), self.timeout), known.granted);
        let random = Random::new(self.seed, 1 << 32 | u64::from(id));
        Reader::new(id, self.common.clone(), self.known.iter().map(place).collect(), random)
    }

    /// Judges until the time is over, a violation was found or a writer gave up.
    fn watch(
        &mut self,
        duration: Duration,
        keep_going: bool,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> End {
        let (mut told, mut broken) = (Instant::now(), None);
        loop {
            std::thread::sleep(SWEEP_EVERY);
            self.judge.sweep();
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                progress(&self.progress());
            }
            if self.judge.evidence.is_some() && !keep_going {
                let since = *broken.get_or_insert_with(Instant::now);
                if self.judge.has_story() || since.elapsed() > AFTERMATH {
                    return End::Violation;
                }
            }
            if stop.load(Ordering::Relaxed) {
                return End::Interrupted;
            }
            if self.writers.iter().any(JoinHandle::is_finished) {
                return End::WriterGone;
            }
            if self.began.elapsed() >= duration {
                return End::Complete;
            }
        }
    }

    fn progress(&self) -> Progress {
        let counts = &self.judge.counts;
        Progress {
            elapsed: self.began.elapsed(),
            reads: counts.reads,
            near_a_change: counts.near_a_change,
            changes: self.writes.changes.load(Ordering::Relaxed),
            violations: counts.violations.values().sum(),
        }
    }

    fn report(mut self, plan: &Plan, end: End, converged: Converged, mut trouble: Vec<String>) -> Report {
        let mut losses = Vec::new();
        for (admin, before) in self.admins.iter_mut().zip(&self.losses_before) {
            let counted = before.clone().and_then(|before| Ok(admin.losses()?.saturating_sub(before)));
            losses.push(counted.map_err(|what| trouble.push(format!("an admin API: {what}"))).ok());
        }
        let evidence = self.judge.evidence.take();
        let story = evidence.as_ref().map(|evidence| {
            let key = plan.table.key_type.text(evidence.violation.observation.key);
            tell(evidence, &Names { key, ..self.names.clone() })
        });
        let granted = |known: &Known| {
            let url = known.target.url.clone();
            (url, matches!(known.origin, Origin::Balancer(_)), known.granted)
        };
        let end = if evidence.is_some() && end == End::Complete { End::Violation } else { end };
        Report {
            end,
            took: self.began.elapsed(),
            writes: Writes::of(&self.writes),
            reads: self.judge.counts.clone(),
            purges: self.purges.load(Ordering::Relaxed),
            unanswered: LOSSES.iter().map(|lost| (lost.name(), self.losses.get(*lost))).collect(),
            granted: self.known.iter().map(granted).collect(),
            feed_losses: losses,
            converged,
            first_rule: evidence.map(|evidence| evidence.violation.rule),
            story,
            trouble,
        }
    }
}

fn admins(plan: &Plan) -> Vec<Admin> {
    let admin = |(at, target)| Admin::new(Origin::Instance(at as u16), target, plan.admin_token.clone());
    // A plan has at most `plan::TARGETS_MAX` of them.
    plan.admins.iter().enumerate().map(admin).collect()
}

fn named(name: String) -> std::thread::Builder {
    std::thread::Builder::new().name(name)
}
