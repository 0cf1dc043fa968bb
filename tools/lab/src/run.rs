//! The run of an experiment: deployments in an interleaved order, each started, checked, warmed up,
//! measured and stopped.
//!
//! Reading order: this file (the whole run), [`order`], [`extent`], [`store`] (files of a run),
//! `deployment` (a running deployment), `ready`, `proxy` (nginx and the relay), `answers` (checks
//! of responses and counts), `measure` (one measurement), `events` (instances that end and start),
//! `snapshot` (their counts), `phases` (figures of both), `cpu_sample` (CPU time), `observe` (the
//! bottleneck), `metrics`, `figures`, `skipped`, `warnings`.

mod answers;
mod cpu_sample;
mod deployment;
mod events;
pub mod extent;
mod figures;
mod instance;
mod measure;
mod metrics;
mod observe;
pub mod order;
mod phases;
mod proxy;
mod reach;
mod ready;
mod rendered;
mod skipped;
mod snapshot;
mod start_error;
pub mod store;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hotrow_load::outcome::Outcome;

use crate::experiment::{Experiment, Planned, ProxyKind};
use crate::stage::{Stage, StageError};
use deployment::{Deployment, RunContext};
use extent::{MeasuredRow, RunExtent};
use hotrow_proxies::haproxy::{self, HaproxyError};
use hotrow_proxies::nginx::{self, NginxError};
use hotrow_results::{Measurement, Results};
use measure::{Subject, empty, measure};
use order::{MeasurementStep, order};
use ready::{ReadyError, stopped};
use skipped::Skipped;
use start_error::StartError;
use store::{Store, StoreError};

/// Options of a run.
pub struct RunOptions {
    /// This program, for `{hotrow_lab}`, the supervisor and the relay.
    pub program: PathBuf,
    /// The program of the server, for `{hotrow}`.
    pub hotrow: PathBuf,
    /// Seed of the order and the ids.
    pub seed: u64,
    /// Flag that ends the run early.
    pub stop: Arc<AtomicBool>,
    /// Formats the generator's verdict on itself.
    pub verdict: fn(&Outcome) -> String,
    /// Warnings known from the start.
    pub warnings: Vec<String>,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// Every planned measurement was attempted.
    Complete {
        /// Invalid measurements.
        failed: usize,
    },
    /// The user interrupted it.
    Interrupted,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// The run starts.
    Begun(&'a RunExtent),
    /// A deployment starts, in this round, from 0.
    Starting {
        /// Its name.
        deployment: &'a str,
        /// The round.
        round: u32,
    },
    /// A measurement starts.
    Measuring {
        /// Its id.
        row: &'a str,
        /// The round.
        round: u32,
    },
    /// A measurement has ended, valid or not.
    Measured {
        /// The measurement.
        measurement: &'a Measurement,
        /// Measurements so far.
        done: usize,
        /// Planned measurements.
        planned: usize,
    },
}

/// Reason a run cannot continue. Earlier measurements are kept.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing can be measured, because required variables are not set.
    #[error("nothing can be measured: {0}")]
    Nothing(String),
    /// nginx is missing.
    #[error(transparent)]
    Nginx(#[from] NginxError),
    /// HAProxy is missing.
    #[error(transparent)]
    Haproxy(#[from] HaproxyError),
    /// The results cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The supervisor failed.
    #[error(transparent)]
    Stage(#[from] StageError),
}

/// Makes the measurements missing in `results`, and stores the results after each. If it ends
/// early, the results record it.
///
/// # Errors
/// The run cannot continue. Failures of single deployments and measurements are in the results.
pub fn run(
    experiment: &Experiment,
    results: &mut Results,
    store: &Store,
    options: &RunOptions,
    on_progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<RunOutcome, RunError> {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let skipped = Skipped::of(experiment, &is_set, &skipped::succeeds);
    let wanted: Vec<&Planned> =
        experiment.rows.iter().filter(|planned| !skipped.contains(planned)).collect();
    if wanted.is_empty() {
        return Err(RunError::Nothing(skipped.words(experiment).join(" ")));
    }
    results.rows = wanted.iter().map(|planned| planned.row.clone()).collect();
    results.experiment.compare.retain(|pair| {
        let exists = |id: &String| wanted.iter().any(|planned| planned.row.id == *id);
        exists(&pair.row) && exists(&pair.with)
    });
    let in_use = |kind| {
        let proxies = wanted.iter().map(|of| &experiment.deployments[of.deployment].proxy);
        proxies.flatten().any(|proxy| proxy.kind == kind)
    };
    if in_use(ProxyKind::Nginx) {
        let (_, version) = nginx::find()?;
        program(results, "nginx", version);
    }
    if in_use(ProxyKind::Haproxy) {
        let (_, version) = haproxy::find()?;
        program(results, "HAProxy", version);
    }
    let supervisor = [options.program.to_string_lossy().into_owned(), "supervise".to_owned()];
    let mut stage = Stage::open(&supervisor)?;
    let weights = stage.weigh(std::process::id())?;
    let context = RunContext {
        experiment,
        folder: store.folder(),
        program: &options.program,
        hotrow: &options.hotrow,
        stop: &options.stop,
        prepared: BTreeSet::new(),
    };
    let mut fixed = options.warnings.clone();
    fixed.extend(warnings::fixed(experiment, &stage, skipped.words(experiment)));
    fixed.extend(weights.warning);
    results.host.cpu_weights = Some(weights.words);
    if warnings::limited(experiment) {
        results.host.cpu_limits = Some(stage.limits().words.clone());
    }
    let mut state = RunState {
        wanted,
        results,
        store,
        options,
        on_progress,
        stage,
        context,
        fixed,
        left: BTreeSet::new(),
        broken: BTreeMap::new(),
    };
    state.all()
}

fn program(results: &mut Results, name: &str, version: String) {
    results.host.programs.retain(|(known, _)| known != name);
    results.host.programs.push((name.to_owned(), version));
}

/// State of a run.
struct RunState<'a> {
    wanted: Vec<&'a Planned>,
    results: &'a mut Results,
    store: &'a Store,
    options: &'a RunOptions,
    on_progress: &'a mut dyn FnMut(&Progress<'_>),
    stage: Stage,
    context: RunContext<'a>,
    /// Warnings known from the start.
    fixed: Vec<String>,
    /// Descriptions of processes that services left behind.
    left: BTreeSet<String>,
    /// Deployments that failed to start, with the reason; they are not retried.
    broken: BTreeMap<usize, String>,
}

impl<'a> RunState<'a> {
    fn all(&mut self) -> Result<RunOutcome, RunError> {
        let deployments: BTreeSet<usize> =
            self.wanted.iter().map(|planned| planned.deployment).collect();
        let deployments: Vec<usize> = deployments.into_iter().collect();
        // An interrupted run may have left incompletely prepared databases.
        self.remove_data();
        // A disk that cannot store the results must be found before the first measurement.
        self.save(false)?;
        let extent = RunExtent::of(self.context.experiment, &self.to_do());
        (self.on_progress)(&Progress::Begun(&extent));
        for step in order(self.context.experiment.rounds, &deployments, self.options.seed) {
            if !self.step(step)? {
                self.save(false)?;
                return Ok(RunOutcome::Interrupted);
            }
        }
        self.save(true)?;
        self.remove_data();
        let failed = self
            .results
            .measurements
            .iter()
            .filter(|measurement| measurement.failed.is_some())
            .count();
        Ok(RunOutcome::Complete { failed })
    }

    /// Returns the measurements that are missing in the results.
    fn to_do(&self) -> Vec<MeasuredRow> {
        let known: BTreeSet<(u32, &str)> =
            self.results.measurements.iter().map(|m| (m.round, m.row.as_str())).collect();
        let mut rows = Vec::new();
        for round in 0..self.context.experiment.rounds {
            let missing =
                self.wanted.iter().filter(|row| !known.contains(&(round, row.row.id.as_str())));
            rows.extend(missing.map(|row| MeasuredRow {
                round,
                deployment: row.deployment,
                load: row.load,
            }));
        }
        rows
    }

    /// Removes prepared databases. If that fails, preparing them again reports the reason.
    fn remove_data(&self) {
        let _ = std::fs::remove_dir_all(self.store.folder().join("data"));
    }

    /// Runs one deployment in one round; returns false if interrupted.
    fn step(&mut self, step: MeasurementStep) -> Result<bool, RunError> {
        let known = |planned: &Planned| {
            self.results
                .measurements
                .iter()
                .any(|m| m.round == step.round && m.row == planned.row.id)
        };
        let rows: Vec<&Planned> = self
            .wanted
            .iter()
            .copied()
            .filter(|planned| planned.deployment == step.deployment && !known(planned))
            .collect();
        if rows.is_empty() {
            return Ok(true);
        }
        if stopped(self.context.stop) {
            return Ok(false);
        }
        if let Some(why) = self.broken.get(&step.deployment).cloned() {
            let why = format!("not retried: {why}");
            return self.fail(&rows, step.round, &why).map(|()| true);
        }
        let spec = &self.context.experiment.deployments[step.deployment];
        (self.on_progress)(&Progress::Starting { deployment: &spec.name, round: step.round });
        let mut missing = &rows[..];
        while !missing.is_empty() {
            match Deployment::start(&mut self.context, &mut self.stage, spec) {
                Ok(mut deployment) => {
                    let measured = self.measure_all(missing, step, &mut deployment);
                    let left = deployment.end(&mut self.stage);
                    let measured = measured?;
                    self.left.extend(left?);
                    match measured {
                        Some(measured) => missing = &missing[measured..],
                        None => return Ok(false),
                    }
                }
                Err(StartError::Interrupted | StartError::ReadyError(ReadyError::Interrupted)) => {
                    return Ok(false);
                }
                Err(StartError::Stage(
                    error @ (StageError::SupervisorGone(_) | StageError::NoSupervisor { .. }),
                )) => return Err(error.into()),
                Err(why) => {
                    self.broken.insert(step.deployment, why.to_string());
                    return self.fail(missing, step.round, &why.to_string()).map(|()| true);
                }
            }
        }
        Ok(true)
    }

    /// Checks and measures the rows of a running deployment; returns how many, or `None` if
    /// interrupted. It ends after a row whose events left other instances running than before: the
    /// next one needs a new start.
    fn measure_all(
        &mut self,
        rows: &[&'a Planned],
        step: MeasurementStep,
        deployment: &mut Deployment,
    ) -> Result<Option<usize>, RunError> {
        let experiment = self.context.experiment;
        let spec = &experiment.deployments[step.deployment];
        let running = deployment.running();
        // All deployments of a round get the same ids.
        let seed = self.options.seed.wrapping_add(u64::from(step.round));
        for (index, planned) in rows.iter().enumerate() {
            if stopped(self.context.stop) {
                return Ok(None);
            }
            let load = &experiment.loads[planned.load];
            let Some(service) = experiment.services.get(&spec.service) else { continue };
            (self.on_progress)(&Progress::Measuring { row: &planned.row.id, round: step.round });
            let checked = if load.cold { Ok(()) } else { answers::check(load, deployment, seed) };
            if let Err(why) = checked {
                let first_exited = deployment.first_exited(&mut self.stage);
                self.fail(&[planned], step.round, &first_exited.unwrap_or(why))?;
                continue;
            }
            let verdict = self.options.verdict;
            let subject = Subject {
                context: &self.context,
                spec,
                service,
                planned,
                load,
                round: step.round,
                seed,
                verdict,
            };
            let Some(measurement) =
                measure(&subject, deployment, &mut self.stage, &self.options.stop)
            else {
                return Ok(None);
            };
            self.add(measurement)?;
            if deployment.running() != running {
                return Ok(Some(index + 1));
            }
        }
        Ok(Some(rows.len()))
    }

    /// Records that rows could not be measured.
    fn fail(&mut self, rows: &[&Planned], round: u32, why: &str) -> Result<(), RunError> {
        for planned in rows {
            self.add(Measurement {
                failed: Some(why.to_owned()),
                ..empty(&planned.row.id, round)
            })?;
        }
        Ok(())
    }

    fn add(&mut self, measurement: Measurement) -> Result<(), RunError> {
        self.results.measurements.push(measurement);
        self.save(false)?;
        let planned = self.wanted.len() * self.context.experiment.rounds as usize;
        let done = self.results.measurements.len();
        if let Some(measurement) = self.results.measurements.last() {
            (self.on_progress)(&Progress::Measured { measurement, done, planned });
        }
        Ok(())
    }

    fn save(&mut self, complete: bool) -> Result<(), RunError> {
        self.results.complete = complete;
        self.results.warnings = warnings::all(&self.fixed, &self.left, self.results);
        Ok(self.store.save(self.results)?)
    }
}
