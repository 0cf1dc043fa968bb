//! The human-readable result: text for a terminal, and an HTML page with plots.

use hotrow_diagnose::rules::finding::Finding;
use hotrow_load::objective::Objective;
use hotrow_load::stats::CensoredNs;
use hotrow_report::document::{Block, Cell, Column, Document, Table};
use hotrow_report::numbers::{cores, micros, number, percent};
use hotrow_report::plot::Plot;
use hotrow_trial::capacity::usl::Uncertain;

use super::plots;
use super::report::{ClosedResult, Report, SearchResult};
use super::step_result::StepResult;
use hotrow_load::format::{counted, known};

/// Findings shown besides the named one, the most certain first.
const FINDINGS_MAX: usize = 2;

pub(super) fn text(report: &Report) -> String {
    hotrow_report::text::render(&document(report, None))
}

pub(super) fn html(report: &Report, command: &str) -> String {
    hotrow_report::html::render(&document(report, Some(command)))
}

fn document(report: &Report, command: Option<&str>) -> Document {
    // Terminal and Markdown omit drawings, and headings that contain only drawings.
    let mut blocks = vec![Block::Answer(report.answer())];
    match &report.result {
        SearchResult::Open(open) => {
            let warnings = open.noise(&report.steps).into_iter().chain(open.confirmation_warning());
            blocks.extend(warnings.map(Block::Warning));
            blocks.extend(open.errors_assumed.then(|| {
                Block::Text(format!(
                    "No objective bounds the errors, so {} was added to them.",
                    Objective::FEW_ERRORS
                ))
            }));
        }
        SearchResult::Closed(closed) => {
            blocks.extend(closed.noise().map(Block::Warning));
            blocks.push(Block::Text(closed.law()));
            blocks.extend(law(closed).map(Block::Table));
        }
    }
    if let Some(demanded) = report.at_least
        && report.confirmed_rps().is_none_or(|confirmed| confirmed < demanded)
    {
        blocks.push(Block::Warning(format!(
            "At least {} requests/s were demanded: MISSED.",
            number(demanded)
        )));
    }
    blocks.extend(plots::capacity(report).map(|drawn| Block::Plot(Plot::Marked(drawn))));
    blocks.extend(limit(report));
    blocks.extend([
        Block::Heading("What to do next, in this order".to_owned()),
        Block::Table(advice_table(report)),
    ]);
    if command.is_some() {
        let over = if matches!(report.result, SearchResult::Open(_)) {
            "Over the rate"
        } else {
            "Over connections"
        };
        blocks.push(Block::Heading(over.to_owned()));
    }
    blocks.extend(plots::others(report).into_iter().map(|drawn| Block::Plot(Plot::Marked(drawn))));
    blocks.extend([Block::Heading("Steps".to_owned()), Block::Table(steps(&report.steps))]);
    if let Some(command) = command {
        blocks.extend([Block::Heading("Command".to_owned()), Block::Code(command.to_owned())]);
    }
    Document { title: format!("Capacity of {}", report.url), subtitle: subtitle(report), blocks }
}

fn subtitle(report: &Report) -> String {
    let how = match &report.result {
        SearchResult::Open(open) => {
            format!(
                "open loop, {} arrivals, {}",
                // The name of a person, in a sentence.
                if open.arrivals == "poisson" { "Poisson" } else { open.arrivals },
                counted(report.connections, "connection")
            )
        }
        SearchResult::Closed(_) => {
            format!("closed loop, up to {}", counted(report.connections, "connection"))
        }
    };
    let threads = counted(report.threads, "thread");
    format!(
        "{}; {how}, {threads}; {} in {:.0} s; watched: {}",
        report.measured_on,
        counted(report.steps.len(), "step"),
        report.took_s,
        report.watched
    )
}

/// Describes the limit at the decisive step.
fn limit(report: &Report) -> Vec<Block> {
    let at = report.at_limit.and_then(|at| report.steps.get(at));
    let heading = match at.map(|step| (step.rate_rps, step.connections)) {
        Some((Some(rate), _)) => format!("What limited it at {} requests/s", number(rate)),
        Some((None, connections)) => {
            format!("What limited it with {}", counted(connections, "connection"))
        }
        None => "What limited it".to_owned(),
    };
    let mut blocks = vec![Block::Heading(heading)];
    if report.findings().is_empty() {
        blocks.push(Block::Text("The machine was not observed in a step at the limit.".to_owned()));
        return blocks;
    }
    if !report.local {
        let words = "The target is not on this machine: only TCP, timing and this machine's own \
            CPUs were observed.";
        blocks.push(Block::Warning(words.to_owned()));
    }
    blocks.extend(report.diagnosis.blocks("without --no-confirm, a longer --time"));
    let named = report.diagnosis.finding().map(|finding| finding.class);
    let standing = report.diagnosis.standing();
    for finding in standing.iter().filter(|finding| Some(finding.class) != named).take(FINDINGS_MAX)
    {
        let words = format!(
            "also suspected: {} ({} sure)",
            finding.class.words(),
            percent(finding.confidence)
        );
        blocks.extend([Block::Subheading(words), Block::List(reasons(finding))]);
    }
    blocks
}

fn reasons(finding: &Finding) -> Vec<String> {
    let change = format!("to move it: {}", finding.counterfactual);
    finding.evidence.iter().cloned().chain([change]).collect()
}

fn advice_table(report: &Report) -> Table {
    let row = |advice: &super::advice::Advice| {
        vec![
            Cell::plain(advice.topic),
            Cell::plain(advice.status.words()),
            Cell::plain(advice.text.clone()),
        ]
    };
    Table {
        columns: vec![
            Column::words("Look at"),
            Column::words("Status"),
            Column::words("What to do"),
        ],
        rows: report.next.iter().map(row).collect(),
        ..Table::default()
    }
}

fn steps(steps: &[StepResult]) -> Table {
    let time = |value: Option<CensoredNs>| {
        value.map_or_else(Cell::none, |value| Cell::plain(known(value)))
    };
    let row = |step: &StepResult| {
        // The constant columns are shown once above the table.
        let target = step.rate_rps.map_or_else(|| step.connections.to_string(), number);
        vec![
            Cell::plain(target),
            Cell::plain(format!("{:.1} s", step.length.as_secs_f64())),
            Cell::plain(step.purpose),
            Cell::plain(step.verdict),
            Cell::plain(number(step.answered_rps)),
            time(step.p50),
            time(step.p99),
            Cell::plain(percent(step.failed_share)),
            step.cpu_busy.map_or_else(Cell::none, |busy| Cell::plain(percent(busy))),
            step.service_cpus.map_or_else(Cell::none, |used| Cell::plain(cores(used))),
            Cell::plain(percent(step.generator_share)),
            step.suspicion().map_or_else(Cell::none, |class| Cell::plain(class.words())),
        ]
    };
    let open = steps.first().is_none_or(|step| step.rate_rps.is_some());
    let [figures, words] = [Column::figures, Column::words];
    Table {
        columns: vec![
            figures(if open { "target/s" } else { "connections" }),
            figures("for"),
            words("step"),
            words("verdict"),
            figures("answered/s"),
            figures("p50"),
            figures("p99"),
            figures("failed"),
            figures("machine"),
            figures("service"),
            figures("generator"),
            words("suspicion"),
        ],
        rows: steps.iter().map(row).collect(),
        foot: vec![
            "p50, p99: latency from the time at which a request was due (in a closed loop: sent)."
                .to_owned(),
            "Machine: the share of all its CPUs that were busy. Service: CPUs that it used. \
             Generator: the share of a CPU that its busiest thread used."
                .to_owned(),
        ],
        ..Table::default()
    }
}

/// Returns the parameters of the scalability law with their intervals.
fn law(closed: &ClosedResult) -> Option<Table> {
    let fit = closed.fit.as_ref()?;
    let row = |name: &str, what: &str, value: Uncertain| {
        let ends = format!("{} to {}", number(value.low), number(value.high));
        vec![
            Cell::plain(name),
            Cell::plain(what),
            Cell::plain(number(value.value)),
            Cell::plain(ends),
        ]
    };
    Some(Table {
        columns: vec![
            Column::words(""),
            Column::words("what it is"),
            Column::figures("fit"),
            Column::words("95 % of refits"),
        ],
        rows: vec![
            row("λ", "requests/s of one connection", fit.lambda_rps),
            row("σ", "waiting in line (contention)", fit.sigma),
            row("κ", "agreeing in pairs (coherency)", fit.kappa),
        ],
        foot: vec!["Refits draw each number of connections again from its own rounds.".to_owned()],
        ..Table::default()
    })
}

/// Returns one line of progress.
pub(super) fn progress(step: &StepResult) -> String {
    let target = step.rate_rps.map_or_else(
        || counted(step.connections, "connection"),
        |rate| format!("{}/s", number(rate)),
    );
    let p99 = step.p99.map_or_else(|| "–".to_owned(), |p99| micros(p99.ns() as f64 / 1e3));
    let suspicion = step.suspicion().map_or("", |class| class.words());
    format!(
        "{target:>16}  {:<11} {:<9} {:>9} answered/s  p99 {p99:>8}  {suspicion}",
        step.purpose,
        step.verdict,
        number(step.answered_rps)
    )
}
