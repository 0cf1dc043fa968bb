//! A run: set-up, writes and reads, end of writes, comparison with the database, report.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::admin::{Admin, Observed, Purger};
use crate::checker::{Checker, SWEEP_EVERY};
use crate::converge::{ConvergenceResult, converge};
use crate::copy_reader::{COPY_READERS, CopyReader, ProbedRedis};
use crate::counterexample::{Names, render};
use crate::database::DatabaseError;
use crate::family::Family;
use crate::follow_reader::{self, ProbedStream};
use crate::follower::FollowerCounts;
use crate::http::{Client, REQUEST_ERRORS};
use crate::ledger::Ledger;
use crate::near_cache::NearCacheCounts;
use crate::observation::Origin;
use crate::plan::{Plan, SET_KEYS};
use crate::random::Random;
use crate::reader::{Common, FailureCounts, Reader, ReaderTarget};
use crate::report::{FollowerReport, NearCacheReport, Report, ReportedTarget, RunEnd, Writes};
use crate::rules::ContractTerms;
use crate::run_error::RunError;
use crate::setup::{self, PreparedTables, ProbedTarget};
use crate::shared_state::{SharedState, lock};
use crate::writer::{WriteCounts, WriterThread, families};

/// Time after a violation in which further reads are collected.
const AFTERMATH: Duration = Duration::from_secs(1);
/// Interval of progress calls.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the first write.
    pub elapsed: Duration,
    /// Checked reads.
    pub reads: u64,
    /// Reads near a change.
    pub near_a_change: u64,
    /// Keys changed by commits.
    pub changes: u64,
    /// Violations found.
    pub violations: u64,
}

/// Executes a plan. `stop` ends it early; `progress` is called about once per second.
///
/// # Errors
/// The reason it could not start.
pub fn run(
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, RunError> {
    let mut direct = plan.database.writer(&plan.tables)?;
    let prepared = setup::prepare(plan, &mut *direct)?;
    let known = setup::targets(plan, &plan.schema)?;
    let redis = setup::redis_targets(plan, &plan.schema)?;
    let streams = setup::streams(plan, &known);
    // Earlier writes must be visible everywhere from here on.
    SharedState::sleep_until(Instant::now() + plan.max_staleness, || stop.load(Ordering::Relaxed));
    let mut running = Running::start(plan, prepared, known, redis, streams)?;
    let mut problems = Vec::new();
    let end = running.watch(plan.duration, plan.keep_going, stop, progress);
    running.shared.stop_writers();
    for writer in running.writers.drain(..) {
        match writer.join() {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => problems.push(format!("a writer failed: {fault}")),
            Err(_) => problems.push("a writer panicked; this is a bug in Hotrow".to_owned()),
        }
    }
    let convergence = if end == RunEnd::Complete {
        let mut reader = running.reader(plan.readers);
        converge(plan, &mut *direct, &running.ledger, &mut reader, &mut running.checker, stop)
    } else {
        ConvergenceResult::NotChecked("the run ended before".to_owned())
    };
    if !running.redis.is_empty() && end == RunEnd::Complete {
        // At the end, each copy must have the last version of its record.
        running.check_for(Duration::from_nanos(running.checker.terms().copy_bound_ns()), stop);
    }
    running.shared.stop_readers();
    for thread in running.others.drain(..) {
        if running.checker.join(thread).is_err() {
            problems.push("a reader panicked; this is a bug in Hotrow".to_owned());
        }
    }
    running.checker.finish();
    Ok(running.report(plan, end, convergence, problems))
}

/// Creates the plan's table if missing, and gives every key its first state: an instance may refuse
/// to start without the table, and where columns have no types it infers the key type from the
/// rows.
///
/// # Errors
/// The database's error, or foreign rows.
pub fn create_table(plan: &Plan) -> Result<(), RunError> {
    let mut direct = plan.database.writer(&plan.tables)?;
    setup::prepare(plan, &mut *direct).map(|_| ())
}

/// A run in progress.
struct Running {
    began: Instant,
    ledger: Arc<Ledger>,
    shared: Arc<SharedState>,
    checker: Checker,
    writes: Arc<WriteCounts>,
    purges: Arc<AtomicU64>,
    losses: Arc<FailureCounts>,
    writers: Vec<JoinHandle<Result<(), DatabaseError>>>,
    /// Readers and the purging thread.
    others: Vec<JoinHandle<()>>,
    common: Common,
    known: Vec<ProbedTarget>,
    redis: Vec<ProbedRedis>,
    near_cache_counts: Arc<Mutex<NearCacheCounts>>,
    streams: Vec<ProbedStream>,
    follower_counts: Arc<Mutex<FollowerCounts>>,
    names: Names,
    seed: u64,
    timeout: Duration,
    /// Time between two requests of a reader, at least.
    read_interval: Duration,
    admins: Vec<Admin>,
    observed_before: Vec<Result<Observed, String>>,
}

impl Running {
    fn start(
        plan: &Plan,
        prepared: PreparedTables,
        known: Vec<ProbedTarget>,
        redis: Vec<ProbedRedis>,
        streams: Vec<ProbedStream>,
    ) -> Result<Self, RunError> {
        // One more inbox, for the comparison at the end.
        let readers = plan.readers + 1 + COPY_READERS + follow_reader::count(&streams);
        let PreparedTables { first_version, keys, values } = prepared;
        let ledger = Arc::new(Ledger::new(keys, values, usize::from(readers)));
        let shared = Arc::new(SharedState::default());
        let losses = Arc::new(FailureCounts::default());
        let max_staleness_ns = u64::try_from(plan.max_staleness.as_nanos()).unwrap_or(u64::MAX);
        let checker =
            Checker::new(ledger.clone(), ContractTerms { max_staleness_ns, tokens: None });
        let batch_ids_max = plan.batch_ids_max;
        let (board_too, losses_too) = (shared.clone(), losses.clone());
        let common = Common {
            ledger: ledger.clone(),
            shared: board_too,
            losses: losses_too,
            schema: plan.schema.clone(),
            batch_ids_max,
        };
        let urls = |targets: &[crate::http::Target]| {
            targets.iter().map(|target| target.url.clone()).collect()
        };
        let names = Names {
            instances: urls(&plan.instances),
            balancers: urls(&plan.balancers),
            first_version,
            key: String::new(),
            beside: String::new(),
        };
        let mut admins = admins(plan);
        let observed_before = admins.iter_mut().map(Admin::observe).collect();
        let mut running = Self {
            began: Instant::now(),
            ledger,
            shared,
            checker,
            writes: Arc::default(),
            purges: Arc::default(),
            losses,
            writers: Vec::new(),
            others: Vec::new(),
            common,
            known,
            redis,
            near_cache_counts: Arc::default(),
            streams,
            follower_counts: Arc::default(),
            names,
            seed: plan.seed,
            timeout: plan.timeout,
            read_interval: plan.read_rate.map_or(Duration::ZERO, |rate| {
                Duration::from_secs_f64(f64::from(plan.readers) / rate)
            }),
            admins,
            observed_before,
        };
        let started = running.start_threads(plan);
        if started.is_err() {
            running.shared.stop_writers();
            running.shared.stop_readers();
        }
        started.map(|()| running)
    }

    fn start_threads(&mut self, plan: &Plan) -> Result<(), RunError> {
        for id in 0..plan.writers {
            let keys: Vec<u32> = self
                .ledger
                .keys()
                .filter(|key| (key - 1) / SET_KEYS % u32::from(plan.writers) == u32::from(id))
                .collect();
            if keys.is_empty() {
                continue;
            }
            let families = self.families(plan, &keys);
            let thread = WriterThread {
                writer: plan.database.writer(&plan.tables)?,
                ledger: self.ledger.clone(),
                shared: self.shared.clone(),
                counts: self.writes.clone(),
                random: Random::new(plan.seed, u64::from(id)),
                schema: plan.schema.clone(),
                keys,
                families,
                interval: Duration::from_secs_f64(f64::from(plan.writers) / plan.rate),
                position: 0,
            };
            self.writers.push(named(format!("writer-{id}")).spawn(move || thread.run())?);
        }
        for id in 0..plan.readers {
            let reader = self.reader(id);
            self.others.push(named(format!("reader-{id}")).spawn(move || reader.run())?);
        }
        for at in 0..if self.redis.is_empty() { 0 } else { COPY_READERS } {
            let id = plan.readers + 1 + at;
            let reader = CopyReader::new(
                id,
                self.common.clone(),
                &self.redis,
                self.timeout,
                Random::new(self.seed, 1 << 33 | u64::from(id)),
                Arc::clone(&self.near_cache_counts),
            );
            self.others.push(named(format!("copy-reader-{at}")).spawn(move || reader.run())?);
        }
        for follower in follow_reader::followers(
            &self.streams,
            plan.readers + 1 + COPY_READERS,
            &self.common,
            self.timeout,
            self.seed,
            &self.follower_counts,
        ) {
            self.others.push(named("follower".to_owned()).spawn(move || follower.run())?);
        }
        let admins = admins(plan);
        if !admins.is_empty() {
            let purger = Purger {
                admins,
                ledger: self.ledger.clone(),
                shared: self.shared.clone(),
                schema: plan.schema.clone(),
                random: Random::new(plan.seed, u64::MAX),
                purges: self.purges.clone(),
            };
            self.others.push(named("purger".to_owned()).spawn(move || purger.run())?);
        }
        Ok(())
    }

    /// Returns the families of a writer's keys, whose first contents become known.
    fn families(&self, plan: &Plan, keys: &[u32]) -> Vec<Family> {
        if plan.schema.is_plain() {
            return Vec::new();
        }
        let (schema, version) = (&plan.schema, self.names.first_version);
        let families =
            families(keys, |keys| Family::beginning(keys, schema, version, setup::has_first_row));
        for state in families.iter().flat_map(|family| family.states(version, schema)) {
            if let Some(content) = &state.content {
                self.ledger.staged(state.key, content, state.version, state.value);
            }
        }
        families
    }

    fn reader(&self, id: u16) -> Reader {
        let reader_target = |known: &ProbedTarget| {
            ReaderTarget::new(
                known.origin,
                Client::new(known.target.clone(), self.timeout),
                known.capabilities,
            )
        };
        let targets = self.known.iter().map(reader_target).collect();
        let random = Random::new(self.seed, 1 << 32 | u64::from(id));
        Reader::new(id, self.common.clone(), targets, self.read_interval, random)
    }

    /// Checks until the time is up, a violation was found or a writer failed.
    fn watch(
        &mut self,
        duration: Duration,
        keep_going: bool,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> RunEnd {
        let (mut reported, mut broken) = (Instant::now(), None);
        loop {
            std::thread::sleep(SWEEP_EVERY);
            self.checker.sweep();
            if reported.elapsed() >= PROGRESS_EVERY {
                reported = Instant::now();
                progress(&self.progress());
            }
            if self.checker.evidence.is_some() && !keep_going {
                let since = *broken.get_or_insert_with(Instant::now);
                if self.checker.has_counterexample() || since.elapsed() > AFTERMATH {
                    return RunEnd::Violation;
                }
            }
            if stop.load(Ordering::Relaxed) {
                return RunEnd::Interrupted;
            }
            if self.writers.iter().any(JoinHandle::is_finished) {
                return RunEnd::WriterFailed;
            }
            if self.began.elapsed() >= duration {
                return RunEnd::Complete;
            }
        }
    }

    /// Checks for this time, while readers go on.
    fn check_for(&mut self, time: Duration, stop: &AtomicBool) {
        let end = Instant::now() + time;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(SWEEP_EVERY);
            self.checker.sweep();
        }
    }

    fn progress(&self) -> Progress {
        let counts = &self.checker.counts;
        Progress {
            elapsed: self.began.elapsed(),
            reads: counts.reads,
            near_a_change: counts.near_a_change,
            changes: self.writes.changes.load(Ordering::Relaxed),
            violations: counts.violations.values().sum(),
        }
    }

    fn report(
        mut self,
        plan: &Plan,
        end: RunEnd,
        convergence: ConvergenceResult,
        mut problems: Vec<String>,
    ) -> Report {
        let mut observed = Vec::new();
        for (admin, before) in self.admins.iter_mut().zip(&self.observed_before) {
            let during = before.clone().and_then(|before| Ok(admin.observe()?.since(&before)));
            observed
                .push(during.map_err(|what| problems.push(format!("an admin API: {what}"))).ok());
        }
        let count =
            |of: fn(&Observed) -> u64| observed.iter().map(|o| o.as_ref().map(of)).collect();
        let feed_of = |observed: &Option<Observed>| observed.as_ref().map(|o| o.feed.clone());
        let evidence = self.checker.evidence.take();
        let counterexample = evidence.as_ref().map(|evidence| {
            let key = plan.schema.shown(evidence.violation.observation.key);
            let beside = evidence.violation.beside.map(|other| plan.schema.shown(other.key));
            let beside = beside.unwrap_or_default();
            render(evidence, &Names { key, beside, ..self.names.clone() })
        });
        let target = |known: &ProbedTarget| ReportedTarget {
            url: known.target.url.clone(),
            is_balancer: matches!(known.origin, Origin::Balancer(_)),
            capabilities: known.capabilities,
        };
        let near_caches = NearCacheReport {
            targets: self
                .redis
                .iter()
                .map(|probed| (probed.target.url.clone(), probed.no_broadcast.clone()))
                .collect(),
            counts: *lock(&self.near_cache_counts),
        };
        let end =
            if evidence.is_some() && end == RunEnd::Complete { RunEnd::Violation } else { end };
        Report {
            end,
            took: self.began.elapsed(),
            writes: Writes::of(&self.writes),
            reads: self.checker.counts.clone(),
            purges: self.purges.load(Ordering::Relaxed),
            unanswered: REQUEST_ERRORS
                .iter()
                .map(|lost| (lost.name(), self.losses.get(*lost)))
                .collect(),
            targets: self.known.iter().map(target).collect(),
            skipped: plan.skip.clone(),
            near_caches,
            followers: FollowerReport {
                targets: self
                    .streams
                    .iter()
                    .map(|probed| (probed.target.url.clone(), probed.not_followed.clone()))
                    .collect(),
                counts: *lock(&self.follower_counts),
            },
            feed_losses: count(|observed| observed.losses),
            standby_reads: count(|observed| observed.standby_reads),
            feeds: observed.iter().map(feed_of).collect(),
            convergence,
            log_went_back: self.shared.has_log_gone_back(),
            first_rule: evidence.map(|evidence| evidence.violation.rule),
            counterexample,
            problems,
        }
    }
}

fn admins(plan: &Plan) -> Vec<Admin> {
    let admin =
        |(at, target)| Admin::new(Origin::Instance(at as u16), target, plan.admin_token.clone());
    // A plan has at most `plan::TARGETS_MAX` of them.
    plan.admins.iter().enumerate().map(admin).collect()
}

fn named(name: String) -> std::thread::Builder {
    std::thread::Builder::new().name(name)
}
