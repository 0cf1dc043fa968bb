//! The result for people: as text for a terminal, and as an HTML page with curves.

use hotrow_diagnose::rules::finding::Finding;
use hotrow_lab::capacity::usl::Uncertain;
use hotrow_lab::report::document::{Block, Cell, Column, Document, Table};
use hotrow_lab::report::numbers::{cores, micros, number, percent};
use hotrow_lab::report::plot::{Axis, Line, Lines, Plot, Scale, Unit};
use hotrow_load::record::Known;

use super::measured::Measured;
use super::report::{Closed, Report, Sought};
use crate::load::text::{counted, known};

/// Findings that are shown, the most certain ones.
const FINDINGS_MAX: usize = 3;

pub(super) fn text(report: &Report) -> String {
    hotrow_lab::report::text::render(&document(report, None))
}

pub(super) fn html(report: &Report, command: &str) -> String {
    hotrow_lab::report::html::render(&document(report, Some(command)))
}

fn document(report: &Report, command: Option<&str>) -> Document {
    let mut blocks = vec![Block::Answer(report.answer())];
    match &report.result {
        Sought::Open(open) => {
            blocks.extend(open.noise(&report.steps).into_iter().chain(open.doubt()).map(Block::Warning))
        }
        Sought::Closed(closed) => {
            blocks.push(Block::Text(closed.law()));
            blocks.extend(law(closed).map(Block::Table));
        }
    }
    if let Some(demanded) = report.at_least
        && report.confirmed_rps().is_none_or(|confirmed| confirmed < demanded)
    {
        blocks.push(Block::Warning(format!("At least {} requests/s were demanded: MISSED.", number(demanded))));
    }
    blocks.extend(limit(report));
    blocks.extend([Block::Heading("What to do next, in this order".to_owned()), Block::Table(next(report))]);
    blocks.extend([Block::Heading("Steps".to_owned()), Block::Table(steps(&report.steps))]);
    blocks.extend(plots(report).into_iter().map(|lines| Block::Plot(Plot::Lines(lines))));
    if let Some(command) = command {
        blocks.extend([Block::Heading("Command".to_owned()), Block::Code(command.to_owned())]);
    }
    Document { title: format!("Capacity of {}", report.url), subtitle: subtitle(report), blocks }
}

fn subtitle(report: &Report) -> String {
    let how = match &report.result {
        Sought::Open(open) => {
            format!("open loop, {} arrivals, {}", open.arrivals, counted(report.connections, "connection"))
        }
        Sought::Closed(_) => format!("closed loop, up to {}", counted(report.connections, "connection")),
    };
    let threads = counted(report.threads, "thread");
    format!(
        "{how}, {threads}; {} in {:.0} s; watched: {}",
        counted(report.steps.len(), "step"),
        report.took_s,
        report.watched
    )
}

/// What limited it, where it was at its limit.
fn limit(report: &Report) -> Vec<Block> {
    let at = report.at_limit.and_then(|at| report.steps.get(at));
    let heading = match at.map(|step| (step.rate_rps, step.connections)) {
        Some((Some(rate), _)) => format!("What limited it at {} requests/s", number(rate)),
        Some((None, connections)) => format!("What limited it with {}", counted(connections, "connection")),
        None => "What limited it".to_owned(),
    };
    let mut blocks = vec![Block::Heading(heading)];
    if report.findings().is_empty() {
        blocks.push(Block::Text("Nothing was seen of the machine in a step that is at the limit.".to_owned()));
        return blocks;
    }
    blocks.push(Block::Text("A suspicion with its evidence, not yet tested by a perturbation.".to_owned()));
    if !report.local {
        let words =
            "The target is not on this machine: only what TCP and timing show was seen, and this machine's own CPUs.";
        blocks.push(Block::Warning(words.to_owned()));
    }
    for finding in report.findings().iter().take(FINDINGS_MAX) {
        blocks.push(Block::Subheading(format!("{} ({} sure)", finding.class.words(), percent(finding.confidence))));
        blocks.push(Block::List(reasons(finding)));
    }
    blocks
}

fn reasons(finding: &Finding) -> Vec<String> {
    let change = format!("to move it: {}", finding.counterfactual);
    finding.evidence.iter().cloned().chain([change]).collect()
}

fn next(report: &Report) -> Table {
    let row = |advice: &super::next::Advice| {
        vec![Cell::plain(advice.what), Cell::plain(advice.state.words()), Cell::plain(advice.words.clone())]
    };
    Table {
        columns: ["Look at", "", "What to do"].map(Column::words).to_vec(),
        rows: report.next.iter().map(row).collect(),
        ..Table::default()
    }
}

fn steps(steps: &[Measured]) -> Table {
    let time = |value: Option<Known>| value.map_or_else(Cell::none, |value| Cell::plain(known(value)));
    let row = |step: &Measured| {
        vec![
            step.rate_rps.map_or_else(Cell::none, |rate| Cell::plain(number(rate))),
            Cell::plain(step.connections.to_string()),
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
    let [figures, words] = [Column::figures, Column::words];
    Table {
        columns: vec![
            figures("asked/s"),
            figures("connections"),
            figures("for"),
            words("step"),
            words("verdict"),
            figures("answered/s"),
            figures("p50"),
            figures("p99"),
            figures("failed"),
            figures("CPUs busy"),
            figures("service's CPUs"),
            figures("generator"),
            words("suspicion"),
        ],
        rows: steps.iter().map(row).collect(),
        foot: vec![
            "p50, p99: latency from the time at which a request was due (in a closed loop: sent).".to_owned(),
            "CPUs busy: of this machine. Generator: the share of a CPU that its busiest thread used.".to_owned(),
        ],
        ..Table::default()
    }
}

/// The law's numbers with their intervals.
fn law(closed: &Closed) -> Option<Table> {
    let fit = closed.fit.as_ref()?;
    let row = |name: &str, what: &str, value: Uncertain| {
        let ends = format!("{:.3e} to {:.3e}", value.low, value.high);
        vec![Cell::plain(name), Cell::plain(what), Cell::plain(format!("{:.4e}", value.value)), Cell::plain(ends)]
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

/// The capacity curve, latency, and use of resources, over the rate that was asked for or over connections.
fn plots(report: &Report) -> Vec<Lines> {
    let (name, scale) = match report.result {
        Sought::Open(_) => ("requests/s asked for", Scale::Log),
        Sought::Closed(_) => ("connections", Scale::Log),
    };
    let x = |step: &Measured| step.rate_rps.unwrap_or(step.connections as f64);
    let line = |label: &str, of: &dyn Fn(&Measured) -> Option<f64>| {
        let mut points: Vec<(f64, f64)> = report.steps.iter().filter_map(|step| Some((x(step), of(step)?))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line { label: label.to_owned(), points }
    };
    let plot = |title: &str, y: &str, y_scale, unit, lines: Vec<Line>| Lines {
        title: title.to_owned(),
        description: format!("{title} over {name}, one point for each step."),
        x: Axis { name: name.to_owned(), scale, unit: Unit::Number },
        y: Axis { name: y.to_owned(), scale: y_scale, unit },
        lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    };
    let us = |value: Option<Known>| value.map(|value| value.ns() as f64 / 1e3);
    let mut rates = vec![line("answered as expected", &|step| Some(step.answered_rps))];
    if let Sought::Closed(Closed { fit: Some(fit), levels, .. }) = &report.result {
        let points = levels.iter().map(|level| level.connections as f64).map(|n| (n, fit.law.rate_rps(n))).collect();
        rates.push(Line { label: "scalability law".to_owned(), points });
    }
    let plots = vec![
        plot("Capacity", "requests/s", Scale::Linear, Unit::Number, rates),
        plot(
            "Latency",
            "latency",
            Scale::Log,
            Unit::Micros,
            vec![line("p50", &|s| us(s.p50)), line("p99", &|s| us(s.p99))],
        ),
        plot(
            "Use of CPUs",
            "share",
            Scale::Linear,
            Unit::Share,
            vec![
                line("all CPUs", &|step| step.cpu_busy),
                line("generator's busiest thread", &|s| Some(s.generator_share)),
            ],
        ),
    ];
    plots.into_iter().filter(|plot| !plot.lines.is_empty()).collect()
}

/// One line of progress.
pub(super) fn progress(step: &Measured) -> String {
    let asked =
        step.rate_rps.map_or_else(|| counted(step.connections, "connection"), |rate| format!("{}/s", number(rate)));
    let p99 = step.p99.map_or_else(|| "–".to_owned(), |p99| micros(p99.ns() as f64 / 1e3));
    let suspicion = step.suspicion().map_or("", |class| class.words());
    format!(
        "{asked:>16}  {:<11} {:<9} {:>9} answered/s  p99 {p99:>8}  {suspicion}",
        step.purpose,
        step.verdict,
        number(step.answered_rps)
    )
}
