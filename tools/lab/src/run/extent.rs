//! Extent of a run before it starts: rounds, lengths of its measurements, estimated duration. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use hotrow_load::plan::StopCondition;

use crate::experiment::{Experiment, Load, duration_text};

/// Assumed time to start and end a deployment.
const DEPLOYMENT_TIME: Duration = Duration::from_millis(1500);
/// Assumed time to check the responses of a row, and to observe the machine.
const ROW_TIME: Duration = Duration::from_millis(300);
/// Assumed rate where a number of requests ends a measurement, in requests per second.
const ASSUMED_RPS: f64 = 500.0;

/// Extent of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunExtent {
    /// Measurements to make.
    pub measurements: usize,
    /// Rounds and the lengths of a measurement: "5 rounds of 3 s".
    pub words: String,
    /// Estimated duration of the whole run.
    pub estimate: Duration,
}

impl RunExtent {
    /// Returns the extent of measuring these rows, each a deployment and a load of the experiment
    /// by index, once per entry.
    pub(super) fn of(experiment: &Experiment, rows: &[MeasuredRow]) -> Self {
        let starts: BTreeSet<(u32, usize)> =
            rows.iter().map(|row| (row.round, row.deployment)).collect();
        let measuring: Duration = rows.iter().map(|row| time(&experiment.loads[row.load])).sum();
        Self {
            measurements: rows.len(),
            words: words(experiment),
            estimate: measuring + DEPLOYMENT_TIME * u32::try_from(starts.len()).unwrap_or(u32::MAX),
        }
    }
}

/// A measurement to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredRow {
    pub(super) round: u32,
    pub(super) deployment: usize,
    pub(super) load: usize,
}

/// Returns the rounds and the lengths of measurements of an experiment: "5 rounds of 3 s".
pub fn words(experiment: &Experiment) -> String {
    let mut lengths: Vec<String> = Vec::new();
    for planned in &experiment.rows {
        let length = length_words(experiment.loads[planned.load].stop_condition);
        if !lengths.contains(&length) {
            lengths.push(length);
        }
    }
    let rounds = match experiment.rounds {
        1 => "1 round".to_owned(),
        n => format!("{n} rounds"),
    };
    format!("{rounds} of {}", lengths.join(" or "))
}

fn length_words(stop: StopCondition) -> String {
    let requests = |n: u64| if n == 1 { "1 request".to_owned() } else { format!("{n} requests") };
    match (stop.duration, stop.requests) {
        (Some(duration), None) => duration_text(duration),
        (None, Some(n)) => requests(n),
        (Some(duration), Some(n)) => {
            format!("at most {} or {}", duration_text(duration), requests(n))
        }
        (None, None) => "no length".to_owned(),
    }
}

/// Returns the assumed time of one measurement with its check and warm-up.
fn time(load: &Load) -> Duration {
    let StopCondition { duration, requests } = load.stop_condition;
    let rps = load.rate.map_or(ASSUMED_RPS, hotrow_load::plan::Rate::mean);
    let by_requests = requests.map(|n| {
        // The longest duration of a load is far below the largest of the type.
        Duration::try_from_secs_f64(n as f64 / rps).unwrap_or(Duration::MAX / 1_000_000)
    });
    let measured = match (duration, by_requests) {
        (Some(duration), Some(by_requests)) => duration.min(by_requests),
        (duration, by_requests) => duration.or(by_requests).unwrap_or_default(),
    };
    ROW_TIME + load.warmup + measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Overrides;

    const FILE: &str = r#"
title = "a"
question = "b"
[run]
rounds = 3
duration = "4s"
warmup = "200ms"
[services.app]
command = ["x"]
[[deployments]]
name = "one"
service = "app"
[[deployments]]
name = "two"
service = "app"
[[loads]]
name = "timed"
path = "/"
connections = [1, 6]
[[loads]]
name = "counted"
path = "/"
connections = [1]
requests = 2000
deployments = ["one"]
"#;

    fn extent(overrides: &Overrides) -> RunExtent {
        let folder = std::path::Path::new("/");
        let experiment = Experiment::parse("x", "x.toml", FILE, folder, overrides).unwrap();
        let of = |round| {
            move |row: &crate::experiment::Planned| MeasuredRow {
                round,
                deployment: row.deployment,
                load: row.load,
            }
        };
        let rows: Vec<MeasuredRow> = (0..experiment.rounds)
            .flat_map(|round| experiment.rows.iter().map(of(round)).collect::<Vec<_>>())
            .collect();
        RunExtent::of(&experiment, &rows)
    }

    #[test]
    fn the_extent_is_known_before_the_run() {
        let found = extent(&Overrides::default());
        assert_eq!(found.words, "3 rounds of 4 s or 2000 requests");
        assert_eq!(found.measurements, 15);
        // Per round: four measurements of 4.5 s, one of 2000/500 + 0.5 s, two starts of 1.5 s.
        assert_eq!(found.estimate, Duration::from_millis(3 * (4 * 4500 + 4500 + 3000)));
    }

    #[test]
    fn a_quick_run_has_its_own_extent() {
        let found = extent(&Overrides { quick: true, ..Overrides::default() });
        assert_eq!(found.words, "1 round of 300 ms or 200 requests");
        let found = extent(&Overrides { quick: true, rounds: Some(2), ..Overrides::default() });
        assert_eq!(
            (found.words.as_str(), found.measurements),
            ("2 rounds of 300 ms or 200 requests", 10)
        );
        let found = extent(&Overrides { duration_s: Some(0.5), ..Overrides::default() });
        assert_eq!(found.words, "3 rounds of 500 ms");
    }
}
