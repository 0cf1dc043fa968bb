//! Carries an experiment out: set-ups in an interleaved order, each started, checked, warmed up, measured and ended.
//!
//! Reading order: here (the whole run), [`order`], [`store`] (what is kept, and when), `standing` (a set-up that stands), `ready`,
//! `front` (nginx and the relay), `answers` (is it right? what did it count?), `measure` (one measurement), `looking` (what limits
//! it?), `metrics`, `figures`, `remarks`.

mod answers;
mod figures;
mod front;
mod looking;
mod measure;
mod metrics;
pub mod order;
mod ready;
mod remarks;
mod standing;
pub mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hotrow_load::outcome::Outcome;

use crate::experiment::{Experiment, Planned};
use crate::nginx::{self, NginxError};
use crate::results::{Measurement, Results};
use crate::stage::{Stage, StageError};
use measure::{Subject, empty, measure};
use order::{Step, order};
use ready::NotReady;
use standing::{Ground, NotStanding, Standing, stopped};
use store::{Store, StoreError};

/// How a run is carried out.
pub struct Options {
    /// The program `hotrow`, for `{hotrow}`, the supervisor and the relay.
    pub hotrow: PathBuf,
    /// Repeats the order and the ids.
    pub seed: u64,
    /// Ends the run early when it is set.
    pub stop: Arc<AtomicBool>,
    /// The generator's verdict in words.
    pub verdict: fn(&Outcome) -> String,
    /// What a reader must know from the beginning.
    pub remarks: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All that was planned was tried.
    Complete {
        /// Measurements that do not count.
        failed: usize,
    },
    /// The user broke it off.
    Interrupted,
}

/// What a run is about, for who watches.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A set-up is being started, for this round, from 0.
    Starting {
        /// Its name.
        setup: &'a str,
        /// The round.
        round: u32,
    },
    /// A row is being measured.
    Measuring {
        /// Its id.
        row: &'a str,
        /// The round.
        round: u32,
    },
    /// A measurement was made, or came to nothing.
    Measured {
        /// What it came to.
        measurement: &'a Measurement,
        /// Measurements until now.
        done: usize,
        /// Measurements in all.
        planned: usize,
    },
}

/// Why a run cannot go on. What was measured before is kept.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing is left to be measured: every set-up needs a variable that is not set.
    #[error("nothing can be measured: {0}")]
    Nothing(String),
    /// nginx is missing.
    #[error(transparent)]
    Nginx(#[from] NginxError),
    /// Results cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The supervisor failed.
    #[error(transparent)]
    Stage(#[from] StageError),
}

/// Measures what `results` do not have yet, and keeps it in `store` after each measurement. When it ends early, results say so.
///
/// # Errors
/// When it cannot go on. Failures of single set-ups and measurements are in the results.
pub fn run(
    experiment: &Experiment,
    results: &mut Results,
    store: &Store,
    options: &Options,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Result<Ended, RunError> {
    let left_out = remarks::LeftOut::of(experiment, &|name| std::env::var_os(name).is_some());
    let wanted: Vec<&Planned> = experiment.rows.iter().filter(|planned| !left_out.contains(planned)).collect();
    if wanted.is_empty() {
        return Err(RunError::Nothing(left_out.words(experiment).join(" ")));
    }
    results.rows = wanted.iter().map(|planned| planned.row.clone()).collect();
    results.experiment.compare.retain(|pair| {
        let there = |id: &String| wanted.iter().any(|planned| planned.row.id == *id);
        there(&pair.row) && there(&pair.with)
    });
    if wanted.iter().any(|planned| experiment.setups[planned.setup].proxy.is_some()) {
        let (_, version) = nginx::find()?;
        program(results, "nginx", version);
    }
    let supervisor = [options.hotrow.to_string_lossy().into_owned(), "lab".to_owned(), "supervise".to_owned()];
    let stage = Stage::open(&supervisor)?;
    let ground = Ground {
        experiment,
        folder: store.folder(),
        hotrow: &options.hotrow,
        stop: &options.stop,
        prepared: BTreeSet::new(),
    };
    let mut fixed = options.remarks.clone();
    fixed.extend(remarks::fixed(experiment, &stage, left_out.words(experiment)));
    if remarks::limited(experiment) {
        results.host.cpu_limits = Some(stage.limits().words.clone());
    }
    let mut under_way = UnderWay {
        wanted,
        results,
        store,
        options,
        watch,
        stage,
        ground,
        fixed,
        left: BTreeSet::new(),
        broken: BTreeMap::new(),
    };
    under_way.all()
}

fn program(results: &mut Results, name: &str, version: String) {
    results.host.programs.retain(|(known, _)| known != name);
    results.host.programs.push((name.to_owned(), version));
}

/// A run under way.
struct UnderWay<'a> {
    wanted: Vec<&'a Planned>,
    results: &'a mut Results,
    store: &'a Store,
    options: &'a Options,
    watch: &'a mut dyn FnMut(&Progress<'_>),
    stage: Stage,
    ground: Ground<'a>,
    /// Remarks that hold from the beginning.
    fixed: Vec<String>,
    /// What was left behind by services, in words.
    left: BTreeSet<String>,
    /// Set-ups that could not be started, and why: they are not tried again.
    broken: BTreeMap<usize, String>,
}

impl<'a> UnderWay<'a> {
    fn all(&mut self) -> Result<Ended, RunError> {
        let setups: BTreeSet<usize> = self.wanted.iter().map(|planned| planned.setup).collect();
        let setups: Vec<usize> = setups.into_iter().collect();
        // An interrupted run may have left databases that are half prepared.
        self.remove_data();
        // A disk that cannot hold the results should be known before the first measurement.
        self.keep(false)?;
        for step in order(self.ground.experiment.rounds, &setups, self.options.seed) {
            if !self.step(step)? {
                self.keep(false)?;
                return Ok(Ended::Interrupted);
            }
        }
        self.keep(true)?;
        self.remove_data();
        let failed = self.results.measurements.iter().filter(|measurement| measurement.failed.is_some()).count();
        Ok(Ended::Complete { failed })
    }

    /// Removes prepared databases. Where that fails, preparing them anew fails too, and says why.
    fn remove_data(&self) {
        let _ = std::fs::remove_dir_all(self.store.folder().join("data"));
    }

    /// One set-up in one round; false when the user broke it off.
    fn step(&mut self, step: Step) -> Result<bool, RunError> {
        let known = |planned: &Planned| {
            self.results.measurements.iter().any(|m| m.round == step.round && m.row == planned.row.id)
        };
        let rows: Vec<&Planned> =
            self.wanted.iter().copied().filter(|planned| planned.setup == step.setup && !known(planned)).collect();
        if rows.is_empty() {
            return Ok(true);
        }
        if stopped(self.ground.stop) {
            return Ok(false);
        }
        if let Some(why) = self.broken.get(&step.setup).cloned() {
            let why = format!("not tried again: {why}");
            return self.fail(&rows, step.round, &why).map(|()| true);
        }
        let setup = &self.ground.experiment.setups[step.setup];
        (self.watch)(&Progress::Starting { setup: &setup.name, round: step.round });
        match Standing::start(&mut self.ground, &mut self.stage, setup) {
            Ok(standing) => {
                let measured = self.measure_all(&rows, step, &standing);
                let left = standing.end(&mut self.stage);
                let goes_on = measured?;
                self.left.extend(left?);
                Ok(goes_on)
            }
            Err(NotStanding::Interrupted | NotStanding::NotReady(NotReady::Interrupted)) => Ok(false),
            Err(NotStanding::Stage(error @ (StageError::SupervisorGone(_) | StageError::NoSupervisor { .. }))) => {
                Err(error.into())
            }
            Err(why) => {
                self.broken.insert(step.setup, why.to_string());
                self.fail(&rows, step.round, &why.to_string()).map(|()| true)
            }
        }
    }

    /// Checks and measures the rows of a set-up that stands; false when the user broke it off.
    fn measure_all(&mut self, rows: &[&'a Planned], step: Step, standing: &Standing) -> Result<bool, RunError> {
        let experiment = self.ground.experiment;
        let setup = &experiment.setups[step.setup];
        // All set-ups of a round are asked for the same ids.
        let seed = self.options.seed.wrapping_add(u64::from(step.round));
        for planned in rows {
            if stopped(self.ground.stop) {
                return Ok(false);
            }
            let load = &experiment.loads[planned.load];
            let Some(service) = experiment.services.get(&setup.service) else { continue };
            (self.watch)(&Progress::Measuring { row: &planned.row.id, round: step.round });
            let checked = if load.cold { Ok(()) } else { answers::check(load, standing, seed) };
            if let Err(why) = checked {
                let fallen = standing.fallen(&mut self.stage);
                self.fail(&[planned], step.round, &fallen.unwrap_or(why))?;
                continue;
            }
            let verdict = self.options.verdict;
            let subject =
                Subject { ground: &self.ground, setup, service, planned, load, round: step.round, seed, verdict };
            let Some(measurement) = measure(&subject, standing, &mut self.stage, &self.options.stop) else {
                return Ok(false);
            };
            self.add(measurement)?;
        }
        Ok(true)
    }

    /// Notes that rows could not be measured.
    fn fail(&mut self, rows: &[&Planned], round: u32, why: &str) -> Result<(), RunError> {
        for planned in rows {
            self.add(Measurement { failed: Some(why.to_owned()), ..empty(&planned.row.id, round) })?;
        }
        Ok(())
    }

    fn add(&mut self, measurement: Measurement) -> Result<(), RunError> {
        self.results.measurements.push(measurement);
        self.keep(false)?;
        let planned = self.wanted.len() * self.ground.experiment.rounds as usize;
        let done = self.results.measurements.len();
        if let Some(measurement) = self.results.measurements.last() {
            (self.watch)(&Progress::Measured { measurement, done, planned });
        }
        Ok(())
    }

    fn keep(&mut self, complete: bool) -> Result<(), RunError> {
        self.results.complete = complete;
        self.results.remarks = remarks::all(&self.fixed, &self.left, self.results);
        Ok(self.store.keep(self.results)?)
    }
}
