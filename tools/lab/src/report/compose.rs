//! The report of an experiment: question, answer, tables, method.

use super::answer::Answer;
use super::compare::machine;
use super::labels::label;
use super::sections::sections;
use super::summary::{RowState, Summary};
use super::{answer, busy, goals, latency, phases, rates, tiers};
use hotrow_report::document::{Block, Document};
use hotrow_report::numbers::{bytes, date, grouped, number, percent};
use hotrow_results::{Results, Row};

/// Returns the whole report.
pub fn document(results: &Results) -> Document {
    let summary = Summary::of(results);
    let about = &results.experiment;
    let title = if about.title.trim().is_empty() { &about.name } else { &about.title };
    let mut blocks = opening(&summary);
    blocks.extend(goals::blocks(&summary));
    let sections = sections(&summary);
    blocks.extend(rates::blocks(&summary, &sections));
    if !sections.is_empty() {
        blocks.extend(latency::blocks(&sections));
        blocks.extend(phases::blocks(&sections));
        blocks.extend(tiers::blocks(&summary, &sections));
    }
    blocks.extend(failures(&summary));
    blocks.extend(method(&summary));
    Document {
        title: title.clone(),
        subtitle: format!(
            "Experiment {}; {}; {}",
            about.name,
            date(results.began_unix_s),
            machine(&results.host)
        ),
        blocks,
    }
}

fn opening(summary: &Summary<'_>) -> Vec<Block> {
    let about = &summary.results.experiment;
    let mut blocks: Vec<Block> =
        busy::warning(summary.results).into_iter().map(Block::Warning).collect();
    if !about.question.trim().is_empty() {
        blocks.push(Block::Question(about.question.clone()));
    }
    let mut answers = about.compare.iter().map(|compare| answer::answer(compare, summary));
    let Answer { statement, caveats } = answers.next().unwrap_or_else(|| Answer {
        statement: answer::without_question(summary),
        caveats: String::new(),
    });
    blocks.push(Block::Answer(statement));
    if !caveats.is_empty() {
        blocks.push(Block::Text(caveats));
    }
    let further: Vec<String> =
        answers.map(|a| format!("{} {}", a.statement, a.caveats).trim_end().to_owned()).collect();
    if !further.is_empty() {
        blocks.push(Block::List(further));
    }
    blocks.extend(warnings(summary).into_iter().map(Block::Warning));
    if !about.note.trim().is_empty() {
        blocks.push(Block::Note(about.note.clone()));
    }
    blocks
}

fn warnings(summary: &Summary<'_>) -> Vec<String> {
    let results = summary.results;
    let mut warnings = Vec::new();
    if !results.complete {
        warnings.push(format!(
            "this run is not complete: {} of {} measurements were made. The figures cover only \
             those.",
            results.measurements.len(),
            results.rows.len().saturating_mul(results.rounds as usize)
        ));
    }
    let failed = summary.rows.iter().filter(|row| matches!(row.state, RowState::Failed(_))).count();
    if failed > 0 {
        let rows = if failed == 1 { "1 row".to_owned() } else { format!("{failed} rows") };
        warnings.push(format!("{rows} of {} failed; the reasons are below.", summary.rows.len()));
    }
    let limited = summary.rows.iter().filter(|row| row.generator_limited()).count();
    if limited > 0 {
        let rows = if limited == 1 { "1 row".to_owned() } else { format!("{limited} rows") };
        warnings.push(format!(
            "in {rows} the generator was the limit: these rates are lower bounds, marked with ≥."
        ));
    }
    warnings
}

fn failures(summary: &Summary<'_>) -> Vec<Block> {
    let all: Vec<&Row> = summary.rows.iter().map(|row| row.row).collect();
    let mut reasons = Vec::new();
    for row in &summary.rows {
        let RowState::Failed(rounds) = &row.state else { continue };
        let name = label(row.row, &all);
        reasons.extend(
            rounds
                .iter()
                .map(|(round, why)| format!("{name}, round {}: {why}", u64::from(*round) + 1)),
        );
    }
    if reasons.is_empty() {
        return Vec::new();
    }
    vec![
        Block::Heading("Failures".to_owned()),
        Block::Text(
            "A row with a failed measurement has no figure, even if other rounds succeeded."
                .to_owned(),
        ),
        Block::List(reasons),
    ]
}

/// Returns the CPU cost of observing the machine.
fn observer_cost(results: &Results) -> Option<String> {
    let taken = results
        .measurements
        .iter()
        .filter_map(|m| Some((m.observer_cpu_s?, m.load.as_ref()?.window_s)));
    let (cpu_s, window_s) = taken.fold((0.0, 0.0), |(cpu, window), (c, w)| (cpu + c, window + w));
    (window_s > 0.0).then(|| format!("took {} of one CPU", percent(cpu_s / window_s)))
}

fn method(summary: &Summary<'_>) -> Vec<Block> {
    let results = summary.results;
    let host = &results.host;
    let mut facts = vec![
        ("Processor".to_owned(), format!("{}, {} online", host.cpu, host.cpus)),
        ("Memory".to_owned(), bytes(host.memory_bytes as f64)),
        ("Kernel".to_owned(), host.kernel.clone()),
        ("Hotrow".to_owned(), results.version.clone()),
    ];
    facts.extend(host.programs.iter().cloned());
    facts.push((
        "CPU limits".to_owned(),
        host.cpu_limits.clone().unwrap_or_else(|| "none".to_owned()),
    ));
    facts.extend(host.cpu_weights.clone().map(|weights| ("CPU weights".to_owned(), weights)));
    facts.extend(busy::others(results).map(|used| ("Other processes".to_owned(), used)));
    let length = results.duration_s.map_or_else(String::new, |s| format!(", {} s each", number(s)));
    facts.push((
        "Rounds".to_owned(),
        format!("{} of {}{length}", summary.rounds_begun(), results.rounds),
    ));
    facts.push(("Measurements".to_owned(), grouped(results.measurements.len() as f64)));
    facts
        .extend(observer_cost(results).map(|cost| ("Observation of the machine".to_owned(), cost)));
    let mut blocks = vec![
        Block::Heading("Method".to_owned()),
        Block::Facts(facts),
        Block::Code(results.command.clone()),
    ];
    if !results.warnings.is_empty() {
        blocks.push(Block::Subheading("Warnings".to_owned()));
        blocks.push(Block::List(results.warnings.clone()));
    }
    blocks.push(Block::Text(format!("Raw data: {} beside this report.", hotrow_results::FILE)));
    blocks
}
