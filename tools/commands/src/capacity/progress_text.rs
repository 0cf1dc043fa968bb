//! Progress texts of a search: the purpose of a step, and the knowledge before it. Pure.

use hotrow_report::numbers::number;
use hotrow_trial::capacity::closed::{self, Level};
use hotrow_trial::capacity::search::{Purpose, SearchOutcome, Trial};

use super::report::SearchResult;
use super::step_result::StepResult;
use crate::tui::view::{StepRow, Tone};
use hotrow_load::format::counted;

/// Returns the display row of a completed step.
pub(super) fn row(step: &StepResult) -> StepRow {
    StepRow {
        target: step.rate_rps.map_or_else(
            || counted(step.connections, "conn"),
            |rate| format!("{}/s", number(rate)),
        ),
        purpose: step.purpose,
        verdict: step.verdict,
        tone: Tone::of_verdict(step.verdict),
        answered_rps: step.answered_rps,
        p99: step.p99,
        suspicion: step.suspicion().map_or_else(String::new, |class| class.words().to_owned()),
    }
}

/// Describes the result of the search.
pub(super) fn known(result: &SearchResult) -> String {
    match result {
        SearchResult::Open(open) => interval(&open.found),
        SearchResult::Closed(closed) => best(&closed.levels),
    }
}

/// Describes the next open-loop step and its purpose.
pub(super) fn trial(trial: &Trial) -> String {
    let why = match trial.purpose {
        Purpose::Climb => "climb: does a higher rate hold too?",
        Purpose::Fall => "fall: the first rate was too high",
        Purpose::Bisect => "bisect: between a rate that was kept and one that was not",
        Purpose::Confirm => "plateau: does the lower end hold for long?",
        Purpose::SecondLook => "second look: is the upper end missed for long?",
    };
    format!("{}/s, {why}", number(trial.rate_rps))
}

/// Describes the interval found so far.
pub(super) fn interval(found: &SearchOutcome) -> String {
    let neither = found.kept.zip(found.refuted).is_some_and(|(kept, top)| !kept.firm && !top.firm);
    let firm = |firm: bool| if firm || neither { "" } else { " (not confirmed yet)" };
    let kept =
        found.kept.map(|kept| format!("kept {}/s{}", number(kept.rate_rps), firm(kept.firm)));
    let missed = found.refuted.map(|top| {
        let how = if top.generator { "the generator's limit at" } else { "missed" };
        format!("{how} {}/s{}", number(top.rate_rps), firm(top.firm))
    });
    match (kept, missed) {
        (None, None) => "nothing is known yet".to_owned(),
        (kept, missed) => {
            let both = kept.into_iter().chain(missed).collect::<Vec<_>>().join(", ");
            if neither { format!("{both} (neither confirmed yet)") } else { both }
        }
    }
}

/// Describes the next closed-loop step.
pub(super) fn level(connections: usize, levels: &[Level], rounds: usize) -> String {
    let measured = levels
        .iter()
        .find(|level| level.connections == connections)
        .map_or(0, |l| l.rates_rps.len());
    let round = (measured + 1).min(rounds.max(1));
    format!("{}, round {round} of {}", counted(connections, "connection"), rounds.max(1))
}

/// Describes the best number of connections so far.
pub(super) fn best(levels: &[Level]) -> String {
    closed::knee(levels).map_or_else(
        || "nothing is known yet".to_owned(),
        |(connections, rate)| {
            format!(
                "most until now: {}/s from {}",
                number(rate),
                counted(connections, "connection")
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use hotrow_trial::capacity::search::{Bound, Noise, SearchEnd};

    use super::*;

    #[test]
    fn known_results_state_their_uncertainty() {
        let bound = |rate_rps, firm, generator| Some(Bound { rate_rps, firm, generator });
        let text_of = |kept, refuted| {
            interval(&SearchOutcome {
                kept,
                refuted,
                end: SearchEnd::TimeUp,
                noise: Noise::default(),
            })
        };
        assert_eq!(text_of(None, None), "nothing is known yet");
        assert_eq!(
            text_of(bound(1600.0, true, false), bound(3200.0, false, false)),
            "kept 1,600/s, missed 3,200/s (not confirmed yet)"
        );
        let both = text_of(bound(1600.0, false, false), bound(3200.0, false, false));
        assert_eq!(both, "kept 1,600/s, missed 3,200/s (neither confirmed yet)");
        assert_eq!(text_of(None, bound(100.0, true, true)), "the generator's limit at 100/s");
        let level = |connections, rates: &[f64]| Level { connections, rates_rps: rates.to_vec() };
        let levels = [level(1, &[900.0, 1000.0]), level(2, &[2000.0])];
        assert_eq!(best(&levels), "most until now: 2,000/s from 2 connections");
        assert_eq!(super::level(2, &levels, 3), "2 connections, round 2 of 3");
        assert_eq!(best(&[]), "nothing is known yet");
    }
}
