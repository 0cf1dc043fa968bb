//! Validation of an experiment file: every rule; all violations are reported at once.

mod deployments;
mod loads;
mod rows;
mod services;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use super::file::File;
use super::{
    ConfigError, EVENT_FIGURES, Experiment, Load, Overrides, Problem, ROUNDS_MAX, read, values,
};
use hotrow_results::{Compare, ExperimentInfo, Goal};

const ROUNDS_DEFAULT: u32 = 5;
const DURATION_DEFAULT: Duration = Duration::from_secs(5);
const WARMUP_DEFAULT: Duration = Duration::from_secs(1);
/// Measured time with `--quick`.
const QUICK_DURATION: Duration = Duration::from_millis(300);
/// The same with events, during which an instance must start.
const QUICK_EVENTS_DURATION: Duration = Duration::from_secs(3);
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
) -> Result<Experiment, ConfigError> {
    let (raw, unknown) =
        read::read(text).map_err(|problems| ConfigError { file: file.to_owned(), problems })?;
    let problems = Problems(RefCell::new(unknown));
    let defaults = defaults(&raw, overrides, &problems);
    let services = services::services(&raw, &problems);
    let deployments = deployments::deployments(&raw, folder, &problems);
    let loads = loads::loads(&raw, folder, &defaults, &problems);
    let rows = rows::rows(&raw, &deployments, &loads, overrides, &problems);
    let compare = compare(&raw, &loads, &rows, &problems);
    let goals = goals(&raw, &loads, &rows, &problems);
    for (what, value) in [("title", &raw.title), ("question", &raw.question)] {
        if value.trim().is_empty() {
            problems.refuse(what, "must not be empty; the report begins with it");
        }
    }
    let problems = problems.0.into_inner();
    if !problems.is_empty() {
        return Err(ConfigError { file: file.to_owned(), problems });
    }
    let info = ExperimentInfo {
        name: name.to_owned(),
        title: raw.title,
        question: raw.question,
        note: raw.note,
        compare,
        goals,
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
fn compare(raw: &File, loads: &[Load], rows: &rows::Rows, problems: &Problems) -> Vec<Compare> {
    let mut valid = Vec::new();
    for (i, pair) in raw.compare.iter().enumerate() {
        for (key, id) in [("row", &pair.row), ("with", &pair.with)] {
            if !rows.all.contains(id) {
                problems.refuse(format!("compare[{i}].{key}"), rows.unknown(id));
            }
        }
        if let Some(unknown) = pair.figure.as_ref().filter(|name| !is_figure(raw, loads, name)) {
            let rule = unknown_figure(loads, unknown);
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

/// Returns the goals of existing rows; others are refused.
fn goals(raw: &File, loads: &[Load], rows: &rows::Rows, problems: &Problems) -> Vec<Goal> {
    let mut valid = Vec::new();
    for (i, goal) in raw.goals.iter().enumerate() {
        let at = |key: &str| format!("goals[{i}].{key}");
        if !rows.all.contains(&goal.row) {
            problems.refuse(at("row"), rows.unknown(&goal.row));
        }
        if !is_figure(raw, loads, &goal.figure) {
            problems.refuse(at("figure"), unknown_figure(loads, &goal.figure));
        }
        let bound = goal.at_most.or(goal.at_least);
        if goal.at_most.is_some() == goal.at_least.is_some()
            || bound.is_none_or(|bound| !bound.is_finite())
        {
            let what = "must have either at_most or at_least, a number";
            problems.refuse(format!("goals[{i}]"), what);
        }
        if rows.planned.iter().any(|planned| planned.row.id == goal.row) {
            valid.push(Goal {
                row: goal.row.clone(),
                figure: goal.figure.clone(),
                claim: goal.claim.clone(),
                at_most: goal.at_most,
                at_least: goal.at_least,
            });
        }
    }
    valid
}

/// Returns whether measurements can have a figure of this name.
fn is_figure(raw: &File, loads: &[Load], name: &str) -> bool {
    let mut events = loads.iter().flat_map(|load| &load.events).peekable();
    let of_events = events.peek().is_some() && EVENT_FIGURES.contains(&name);
    of_events
        || events.any(|event| event.read_again() == name)
        || raw.services.values().flat_map(|service| &service.figures).any(|of| of.name == name)
}

fn unknown_figure(loads: &[Load], name: &str) -> String {
    let of_events = loads.iter().flat_map(|load| &load.events);
    let known: String = of_events.map(|event| format!(", nor {:?}", event.read_again())).collect();
    format!("{name:?} is not the name of any [[services.NAME.figures]]{known}")
}
