//! How the tests of a suspicion go, for whoever looks on: on the display, or in lines.

use hotrow_lab::prove::{Told, Trial};
use hotrow_load::outcome::{End, Outcome};

use crate::cli::tell;
use crate::load::text::counted;
use crate::screen::Shown;
use crate::screen::view::{StepRow, Tone};

/// Tells what is shown of them.
pub(crate) fn show(shown: &Shown, told: &Told<'_>) {
    match told {
        Told::Begins(trial) => {
            shown.trial(|| step(trial), &trial.config);
            if shown.lines() {
                tell(std::io::stderr(), &format!("test {}", step(trial)));
            }
        }
        Told::Second(second, record) => shown.second(second, record),
        Told::Ended(trial, outcome) if outcome.end == End::Complete => shown.step_done(|| row(trial, outcome)),
        Told::Ended(..) => {}
    }
}

/// Which one it is, and of what.
fn step(trial: &Trial) -> String {
    format!("{} of “{}”: {}", trial.number, trial.suspicion.words(), trial.words)
}

fn row(trial: &Trial, outcome: &Outcome) -> StepRow {
    StepRow {
        asked: counted(trial.config.connections, "conn"),
        purpose: "test",
        verdict: "",
        tone: Tone::Neutral,
        answered_rps: outcome.throughput_rps(),
        p99: outcome.total.latency.quantile(0.99),
        suspicion: trial.words.clone(),
    }
}
