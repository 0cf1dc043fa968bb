//! Validation of an experiment file: every rule; all violations are reported at once.

mod deployments;
mod loads;
mod rows;
mod services;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use super::file::File;
use super::{Experiment, ExperimentError, Fault, Overrides, Problem, ROUNDS_MAX, read, values};
use crate::results::{Compare, ExperimentInfo};

const ROUNDS_DEFAULT: u32 = 5;
const DURATION_DEFAULT: Duration = Duration::from_secs(5);
const WARMUP_DEFAULT: Duration = Duration::from_secs(1);
/// Measured time with `--quick`.
const QUICK_DURATION: Duration = Duration::from_millis(300);
/// The same with a fault, during which an instance must start.
const QUICK_FAULT_DURATION: Duration = Duration::from_secs(3);
const QUICK_WARMUP: Duration = Duration::from_millis(100);
const QUICK_REQUESTS: u64 = 200;

/// Defaults for loads: `[run]` with the command line's overrides.
struct Defaults {
    rounds: u32,
    duration: Option<Duration>,
    requests: Option<u64>,
    warmup: Duration,
    overrides: Overrides,
}

/// Collected problems.
struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    fn refuse(&self, path: impl Into<String>, what: impl Into<String>) {
        self.0.borrow_mut().push(Problem { line: None, path: path.into(), what: what.into() });
    }

    /// Returns the value, or records the problem.
    fn take<T>(&self, path: impl Into<String>, value: Result<T, String>) -> Option<T> {
        value.map_err(|what| self.refuse(path, what)).ok()
    }

    /// Returns an optional value; an invalid one is recorded and counts as absent.
    fn take_optional<T>(
        &self,
        path: impl Into<String>,
        text: Option<&String>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        text.and_then(|text| self.take(path, read(text)))
    }
}

pub(super) fn resolve(
    name: &str,
    file: &str,
    text: &str,
    folder: &Path,
    overrides: &Overrides,
) -> Result<Experiment, ExperimentError> {
    let (raw, unknown) =
        read::read(text).map_err(|problems| ExperimentError { file: file.to_owned(), problems })?;
    let problems = Problems(RefCell::new(unknown));
    let defaults = defaults(&raw, overrides, &problems);
    let services = services::services(&raw, &problems);
    let deployments = deployments::deployments(&raw, folder, &problems);
    let loads = loads::loads(&raw, folder, &defaults, &problems);
    let rows = rows::rows(&raw, &deployments, &loads, overrides, &problems);
    let compare = compare(&raw, &rows, &problems);
    for (what, value) in [("title", &raw.title), ("question", &raw.question)] {
        if value.trim().is_empty() {
            problems.refuse(what, "must not be empty; the report begins with it");
        }
    }
    let problems = problems.0.into_inner();
    if !problems.is_empty() {
        return Err(ExperimentError { file: file.to_owned(), problems });
    }
    let info = ExperimentInfo {
        name: name.to_owned(),
        title: raw.title,
        question: raw.question,
        note: raw.note,
        compare,
        published_source: raw.published_source,
    };
    let here = folder.to_owned();
    Ok(Experiment {
        info,
        here,
        rounds: defaults.rounds,
        services,
        deployments,
        loads,
        rows: rows.planned,
    })
}

fn defaults(raw: &File, overrides: &Overrides, problems: &Problems) -> Defaults {
    let run = &raw.run;
    let duration =
        problems.take_optional("run.duration", run.duration.as_ref(), values::positive_duration);
    let warmup = problems.take_optional("run.warmup", run.warmup.as_ref(), values::duration);
    if run.requests == Some(0) {
        problems.refuse("run.requests", "must be above zero");
    }
    let rounds = overrides.rounds.or(run.rounds).unwrap_or(ROUNDS_DEFAULT);
    if !(1..=ROUNDS_MAX).contains(&rounds) {
        problems.refuse("run.rounds", format!("must be between 1 and {ROUNDS_MAX}, not {rounds}"));
    }
    Defaults {
        rounds: if overrides.quick { overrides.rounds.unwrap_or(1) } else { rounds },
        duration: duration.or(run.requests.is_none().then_some(DURATION_DEFAULT)),
        requests: run.requests,
        warmup: warmup.unwrap_or(WARMUP_DEFAULT),
        overrides: overrides.clone(),
    }
}

/// Returns the comparisons between existing rows; others are refused.
fn compare(raw: &File, rows: &rows::Rows, problems: &Problems) -> Vec<Compare> {
    let mut valid = Vec::new();
    for (i, pair) in raw.compare.iter().enumerate() {
        for (key, id) in [("row", &pair.row), ("with", &pair.with)] {
            if !rows.all.contains(id) {
                problems.refuse(
                    format!("compare[{i}].{key}"),
                    format!(
                        "there is no row {id:?}; a row is DEPLOYMENT/LOAD/CONNECTIONS, as in {:?}",
                        rows.example()
                    ),
                );
            }
        }
        let faults = raw.loads.iter().any(|load| load.fault.is_some());
        let named = |figure: &&String| {
            raw.services.values().flat_map(|s| &s.figures).any(|f| f.name == **figure)
                || (faults && Fault::FIGURES.contains(&figure.as_str()))
        };
        if let Some(unknown) = pair.figure.as_ref().filter(|figure| !named(figure)) {
            let rule = format!("{unknown:?} is not the name of any [[services.NAME.figures]]");
            problems.refuse(format!("compare[{i}].figure"), rule);
        }
        let measured = |id: &String| rows.planned.iter().any(|planned| planned.row.id == *id);
        if measured(&pair.row) && measured(&pair.with) {
            let (row, with, claim) = (pair.row.clone(), pair.with.clone(), pair.claim.clone());
            valid.push(Compare { row, with, claim, figure: pair.figure.clone() });
        }
    }
    valid
}
