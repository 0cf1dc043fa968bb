//! Reports of an experiment's results.
//!
//! Reading order: [`compose`] (the report, part by part), `summary` (figures per row), `answer`
//! (the answer in a sentence), `goals`, `bounds` (rates that are bounds), `busy` (CPU that others
//! used), `sections` and `labels` (grouping and naming of rows), `rates`, `latency`, `tiers`,
//! `phases`, `verdict`, `limit` (the parts), [`document`] and [`plot`] (content without layout),
//! [`markdown`], [`html`], [`text`] and `svg` (renderers); [`compare`] (two runs).
//!
//! Reference `report`: Figures
//!
//! - **Requests/s**: expected responses, median over the rounds with its 95 % interval. `≥`: the
//!   generator was the bottleneck, so the rate is a lower bound.
//! - **Ratio**: to the first row of the group (same load, connections, keep-alive and rate), paired
//!   by round. `≥`, `≤`: one rate is a bound. *Not known*: both are.
//! - **Latency**: `≥` marks a lower bound: requests without the expected response are behind it.
//! - **Service, Proxy, Database, Generator**: CPU time per request in µs, by which rows with the
//!   same requested rate are compared.
//! - **Published**: figures from other machines. Compare the ratios, not the rates.
//! - **`FAILED`**: a measurement had a lost, wrong or late response, or did not happen.
//! - **Goals**: *reached* or *missed* if the whole interval, or range of the rounds, is on that
//!   side of the bound; otherwise *uncertain*.
//! - **`…` instead of `–`**: fewer than five rounds; least and largest value, not an interval.
//! - *The machine was busy*: other processes left less CPU than the limits of the deployment
//!   together.
//!
//! Reference `report`: Statistics
//!
//! - Ratios are formed within rounds, so a slow round cancels. Intervals: bootstrap over the
//!   rounds.
//! - *Faster* or *slower* requires the whole interval beyond 1 by at least 0.5 %. Fewer than five
//!   rounds give an uncertain answer.
//! - Two runs have no common rounds: the Mann-Whitney test must also find a difference (p below
//!   0.05).
//!
//! Reference `report`: # Reports of `hotrow lab`
//!
//! How to read [a report](lab/README.md).

mod answer;
mod bottleneck;
mod bounds;
mod busy;
pub mod compare;
pub mod compose;
mod goals;
mod labels;
pub mod latency;
mod phases;
mod rates;
mod sections;
mod summary;
mod tiers;
mod verdict;

use std::fs::File;
use std::io::Read;

use hotrow_report::file::replace;
use std::path::Path;

use hotrow_results::report_files::{
    HTML_FILE, MARKDOWN_FILE, RESULTS_BYTES_MAX, ReportError, WrittenReport,
};
use hotrow_results::{self as results, Results};

/// Writes `report.md` and `report.html` beside the results of a run, atomically.
///
/// # Errors
/// Unreadable results, and reports that cannot be written.
pub fn write(dir: &Path) -> Result<WrittenReport, ReportError> {
    let results = read(dir)?;
    let document = compose::document(&results);
    let (markdown, html) = (dir.join(MARKDOWN_FILE), dir.join(HTML_FILE));
    replace(&markdown, &hotrow_report::markdown::render(&document))?;
    replace(&html, &hotrow_report::html::render(&document))?;
    let answer = document.blocks.iter().find_map(|block| match block {
        hotrow_report::document::Block::Answer(text) => Some(text.clone()),
        _ => None,
    });
    let busy = busy::warning(&results);
    let summary = summary::Summary::of(&results);
    let judged = goals::judged(&summary);
    let goals = judged.iter().map(goals::JudgedGoal::line).collect();
    let missed = judged.iter().filter(|goal| goal.verdict == goals::GoalVerdict::Missed);
    let goals_missed = missed.count();
    let answer = answer.unwrap_or_default();
    Ok(WrittenReport { markdown, html, answer, busy, goals, goals_missed })
}

/// Reads the results of a run from its folder.
///
/// # Errors
/// A missing or too large file, or one of another schema.
pub fn read(dir: &Path) -> Result<Results, ReportError> {
    let path = dir.join(results::FILE);
    let unreadable = |why| ReportError::Unreadable { path: path.clone(), why };
    let malformed = |why| ReportError::Malformed { path: path.clone(), why };
    let mut text = String::new();
    let file = File::open(&path).map_err(unreadable)?;
    file.take(RESULTS_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > RESULTS_BYTES_MAX {
        return Err(ReportError::TooLong(path));
    }
    // The schema first: with another one, a missing field would be misleading.
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(results::SCHEMA) => {
            serde_json::from_value(value).map_err(|e| malformed(e.to_string()))
        }
        Some(other) => Err(malformed(format!("its schema is {other:?}"))),
        None => Err(malformed("it has no schema".to_owned())),
    }
}

#[cfg(test)]
mod tests;
