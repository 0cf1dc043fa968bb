//! Progress of tests, on the display or in lines.

use hotrow_load::outcome::{Outcome, RunEnd};
use hotrow_trial::confirm::{TrialEvent, TrialRun};

use crate::tui::ProgressDisplay;
use crate::tui::view::{StepRow, Tone};
use hotrow_cli::output::print_line;
use hotrow_trial::format::counted;

pub(crate) fn show(shown: &ProgressDisplay, event: &TrialEvent<'_>) {
    match event {
        TrialEvent::Started(trial) => {
            shown.trial(|| step(trial), &trial.config);
            if shown.lines() {
                print_line(std::io::stderr(), &format!("test {}", step(trial)));
            }
        }
        TrialEvent::Second(second, record) => shown.second(second, record),
        TrialEvent::Ended(trial, outcome) if outcome.end == RunEnd::Complete => {
            shown.step_done(|| row(trial, outcome))
        }
        TrialEvent::Ended(..) => {}
    }
}

/// Returns the number and the subject of a trial.
fn step(trial: &TrialRun) -> String {
    format!("{} of “{}”: {}", trial.number, trial.suspicion.words(), trial.words)
}

fn row(trial: &TrialRun, outcome: &Outcome) -> StepRow {
    StepRow {
        target: counted(trial.config.connections, "conn"),
        purpose: "test",
        verdict: "",
        tone: Tone::Neutral,
        answered_rps: outcome.throughput_rps(),
        p99: outcome.total.latency.quantile(0.99),
        suspicion: trial.words.clone(),
    }
}
