//! Goals of an experiment, with what was measured.

use hotrow_measure::statistics::Estimate;

use super::answer::with_unit;
use super::labels::label;
use super::summary::Summary;
use hotrow_report::document::{Block, Cell, CellStyle, Column, Table};
use hotrow_results::{Goal, Row};

/// What a measurement says about a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoalVerdict {
    /// Even the worst end of its interval reaches it.
    Reached,
    /// The interval has the bound in it.
    Uncertain,
    /// Even the best end of its interval misses it.
    Missed,
    /// The row has no such figure.
    Unknown,
}

impl GoalVerdict {
    fn of(goal: &Goal, measured: Option<&Estimate>) -> Self {
        let Some(measured) = measured else { return Self::Unknown };
        let reaches = |value: f64| {
            goal.at_most.is_none_or(|most| value <= most)
                && goal.at_least.is_none_or(|least| value >= least)
        };
        match (reaches(measured.low), reaches(measured.high)) {
            (true, true) => Self::Reached,
            (false, false) => Self::Missed,
            _ => Self::Uncertain,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Uncertain => "uncertain",
            Self::Missed => "missed",
            Self::Unknown => "not known",
        }
    }
}

/// A goal and what was measured.
pub(super) struct JudgedGoal<'a> {
    goal: &'a Goal,
    measured: Option<Estimate>,
    unit: String,
    pub(super) verdict: GoalVerdict,
}

impl JudgedGoal<'_> {
    fn bound(&self) -> String {
        let value = self.goal.at_most.or(self.goal.at_least).unwrap_or_default();
        let sign = if self.goal.at_most.is_some() { "≤" } else { "≥" };
        format!("{sign} {}", with_unit(value, &self.unit))
    }

    /// Returns the goal in a line.
    pub(super) fn line(&self) -> String {
        let measured = self
            .measured
            .map_or_else(|| "nothing".to_owned(), |of| with_unit(of.median, &self.unit));
        format!(
            "{}: {measured}, goal {}: {}",
            self.goal.claim.trim(),
            self.bound(),
            self.verdict.words()
        )
    }
}

/// Judges all goals.
pub(super) fn judged<'a>(summary: &Summary<'a>) -> Vec<JudgedGoal<'a>> {
    let judge = |goal: &'a Goal| {
        let row = summary.row(&goal.row);
        let measured =
            row.and_then(|row| row.estimate(|run| Some(run.figure_named(&goal.figure)?.0)));
        let unit = row.and_then(|row| {
            row.runs().iter().find_map(|run| Some(run.figure_named(&goal.figure)?.1.to_owned()))
        });
        let verdict = GoalVerdict::of(goal, measured.as_ref());
        JudgedGoal { goal, measured, unit: unit.unwrap_or_default(), verdict }
    };
    summary.results.experiment.goals.iter().map(judge).collect()
}

/// Returns the table of all goals; nothing without any.
pub(super) fn blocks(summary: &Summary<'_>) -> Vec<Block> {
    let judged = judged(summary);
    if judged.is_empty() {
        return Vec::new();
    }
    let all: Vec<&Row> = summary.rows.iter().map(|row| row.row).collect();
    let row = |of: &JudgedGoal<'_>| {
        let name = summary.row(&of.goal.row).map(|row| label(row.row, &all));
        let measured = of.measured.map_or_else(Cell::none, |measured| {
            let ends = if measured.low == measured.high {
                String::new()
            } else {
                let end = |value| with_unit(value, &of.unit);
                format!("{} – {}", end(measured.low), end(measured.high))
            };
            Cell::strong(with_unit(measured.median, &of.unit), ends)
        });
        let style = match of.verdict {
            GoalVerdict::Missed => CellStyle::Bad,
            GoalVerdict::Reached => CellStyle::Strong,
            GoalVerdict::Uncertain | GoalVerdict::Unknown => CellStyle::Quiet,
        };
        vec![
            Cell::plain(of.goal.claim.trim()),
            Cell::plain(name.unwrap_or_else(|| of.goal.row.clone())),
            measured,
            Cell::plain(of.bound()),
            Cell { style, ..Cell::plain(of.verdict.words()) },
        ]
    };
    let columns = vec![
        Column::words("Goal"),
        Column::words("Deployment"),
        Column::figures("Measured"),
        Column::figures("Bound"),
        Column::words("Verdict"),
    ];
    let foot = "Reached or missed with the whole interval, or range of the rounds; otherwise \
                uncertain.";
    vec![
        Block::Heading("Goals".to_owned()),
        Block::Table(Table {
            caption: String::new(),
            columns,
            rows: judged.iter().map(row).collect(),
            groups: Vec::new(),
            foot: vec![foot.to_owned()],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use super::*;
    use crate::report::compose;
    use hotrow_report::markdown;

    const FIGURE: &str = "read again, instance 2 killed";

    /// Returns a report with a goal of at most 1.2, from the figure of each round.
    fn report(values: &[f64]) -> (String, GoalVerdict) {
        let mut results = fixture::results(values.len() as u32);
        let row = "direct/date/6".to_owned();
        for measurement in results.measurements.iter_mut().filter(|m| m.row == row) {
            let value = values[measurement.round as usize];
            measurement.figures = vec![(FIGURE.to_owned(), value, "of 1/N".to_owned())];
        }
        results.experiment.goals = vec![Goal {
            row,
            figure: FIGURE.to_owned(),
            claim: "Keys read again".to_owned(),
            at_most: Some(1.2),
            at_least: None,
        }];
        let verdict = judged(&Summary::of(&results))[0].verdict;
        (markdown::render(&compose::document(&results)), verdict)
    }

    #[test]
    fn a_goal_is_judged_by_all_rounds() {
        let (text, verdict) = report(&[1.0, 1.1, 1.05]);
        assert_eq!(verdict, GoalVerdict::Reached);
        for words in ["## Goals", "Keys read again", "1.05 of 1/N", "≤ 1.2", "reached"] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
        assert_eq!(report(&[1.0, 1.3, 1.1]).1, GoalVerdict::Uncertain);
        assert_eq!(report(&[1.3, 1.4, 1.5]).1, GoalVerdict::Missed);
        assert_eq!(report(&[f64::NAN]).1, GoalVerdict::Unknown);
    }
}
