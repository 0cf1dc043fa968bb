//! CPU time per tier and bottleneck of each row, shares of the backends, cache outcomes, further
//! figures.

use super::sections::Section;
use super::summary::{RowState, RowSummary, Summary};
use super::{bottleneck, verdict};
use hotrow_report::document::{Block, Cell, Column, Table};
use hotrow_report::numbers::{bytes, cores, grouped, number, percent};
use hotrow_results::{Backend, TierKind};

/// Distance of a backend's share from its weight that is marked: more than chance and rounding.
const SHARE_OFF: f64 = 0.02;
/// Note under the table if only CPU time is known.
const CPU_TIME_ALONE: &str = "Bottlenecks are judged from CPU time alone. If it is not the CPU, \
                              requests wait for a free connection (try more), a lock, a disk, the \
                              network or another system.";
/// Note under the table of evidence.
const SUSPICIONS: &str = "From the round with the median rate of those that agree. These are \
                          hypotheses: each is confirmed by changing the named resource, and \
                          refuted if the rate then stays.";

pub(super) fn blocks(summary: &Summary<'_>, sections: &[Section<'_>]) -> Vec<Block> {
    let mut blocks = vec![Block::Heading("CPU and bottleneck of each row".to_owned())];
    for section in sections {
        if !section.title.is_empty() {
            blocks.push(Block::Subheading(section.title.clone()));
        }
        blocks.push(Block::Table(cpu(summary, section)));
    }
    let seen = seen(summary, sections);
    if seen.rows.is_empty() {
        blocks.push(Block::Text(CPU_TIME_ALONE.to_owned()));
    } else {
        blocks.push(Block::Subheading("Evidence for the limits".to_owned()));
        blocks.push(Block::Table(seen));
    }
    let tables = [
        ("Shares of the backends", backends(sections)),
        ("Answers by cache outcome", cache(sections)),
        ("Further figures", figures(sections)),
    ];
    for (heading, table) in tables {
        if !table.rows.is_empty() {
            blocks.extend([Block::Heading(heading.to_owned()), Block::Table(table)]);
        }
    }
    blocks
}

fn cpu(summary: &Summary<'_>, section: &Section<'_>) -> Table {
    let all = [TierKind::Service, TierKind::Proxy, TierKind::Database, TierKind::Generator];
    let seen = |kind: &TierKind| {
        section.rows().any(|row| row.median(|run| run.cpu_us_per_request(*kind)).is_some())
    };
    let parts: Vec<TierKind> = all.into_iter().filter(seen).collect();
    let mut columns = vec![Column::words("Deployment")];
    columns.extend(
        parts.iter().map(|kind| Column::figures(&capitalised(bottleneck::tier_name(*kind)))),
    );
    columns.extend([
        Column::figures("Cores used"),
        Column::figures("Memory"),
        Column::words("Limited by"),
    ]);
    let row = |row: &RowSummary<'_>| {
        let figure = |value: Option<f64>, format: fn(f64) -> String| {
            value.map_or_else(Cell::none, |v| Cell::plain(format(v)))
        };
        let mut cells = vec![Cell::plain(section.label(row.row))];
        cells.extend(
            parts
                .iter()
                .map(|kind| figure(row.median(|run| run.cpu_us_per_request(*kind)), number)),
        );
        cells.push(figure(row.median(|run| run.cores(summary.results.host.cpus)), cores));
        cells.push(figure(row.median(|run| memory(run.of)), bytes));
        cells.push(match (&row.state, verdict::of(row, summary.results.host.cpus)) {
            (RowState::Failed(_), _) => Cell::failed(),
            (_, Some(found)) => Cell { detail: found.agreement, ..Cell::plain(found.words) },
            (_, None) => Cell::none(),
        });
        cells
    };
    let explained = "CPU time in µs per request, of the kernel's work too, per tier; medians over \
                     the rounds. Memory: of services, proxy and database at the end.";
    Table {
        caption: String::new(),
        columns,
        rows: section.rows().map(row).collect(),
        groups: section.breaks(),
        foot: vec![explained.to_owned()],
    }
}

/// Returns the table of evidence and remedies.
fn seen(summary: &Summary<'_>, sections: &[Section<'_>]) -> Table {
    let mut rows = Vec::new();
    for (section, row) in
        sections.iter().flat_map(|section| section.rows().map(move |row| (section, row)))
    {
        let found = verdict::of(row, summary.results.host.cpus);
        let Some((found, seen)) = found.and_then(|found| Some((found.short, found.seen?))) else {
            continue;
        };
        rows.push(vec![
            Cell::plain(full_label(section, row)),
            Cell::plain(found),
            Cell::plain(seen.evidence.join("; ")),
            Cell::plain(seen.counterfactual.clone()),
        ]);
    }
    let columns = ["Deployment", "Limited by", "Evidence", "Remedy"].map(Column::words).into();
    Table {
        caption: String::new(),
        columns,
        rows,
        groups: Vec::new(),
        foot: vec![SUSPICIONS.to_owned()],
    }
}

fn memory(measurement: &hotrow_results::Measurement) -> Option<f64> {
    let resident = measurement
        .tiers
        .iter()
        .filter(|tier| tier.kind != TierKind::Generator)
        .map(|tier| tier.rss_bytes as f64);
    Some(resident.sum::<f64>()).filter(|bytes| *bytes > 0.0)
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn backends(sections: &[Section<'_>]) -> Table {
    let mut rows = Vec::new();
    let mut groups = Vec::new();
    for (section, row) in
        sections.iter().flat_map(|section| section.rows().map(move |row| (section, row)))
    {
        let served = served(row);
        let (total, weights) = served.iter().fold((0u64, 0u64), |(n, w), b| {
            (n.saturating_add(b.requests), w + u64::from(b.weight))
        });
        groups.push(rows.len());
        for (i, backend) in served.iter().enumerate() {
            let wanted = f64::from(backend.weight) / weights.max(1) as f64;
            let got = backend.requests as f64 / total.max(1) as f64;
            let off = (got - wanted).abs() > SHARE_OFF && total > 0;
            rows.push(vec![
                if i == 0 { Cell::plain(full_label(section, row)) } else { Cell::default() },
                Cell::plain(backend.name.clone()),
                Cell::plain(backend.weight.to_string()),
                Cell::plain(percent(wanted)),
                if off {
                    Cell { text: percent(got), detail: "off".to_owned(), ..Cell::default() }
                } else {
                    Cell::plain(percent(got))
                },
                Cell::plain(grouped(backend.requests as f64)),
            ]);
        }
    }
    let columns = vec![
        Column::words("Deployment"),
        Column::words("Backend"),
        Column::figures("Weight"),
        Column::figures("By weight"),
        Column::figures("Served"),
        Column::figures("Requests"),
    ];
    let foot = vec![format!(
        "All rounds together. Off: more than {} from the weight's share.",
        percent(SHARE_OFF)
    )];
    groups.retain(|at| *at > 0 && *at < rows.len());
    Table { caption: String::new(), columns, rows, groups, foot }
}

/// Returns the requests of each backend over all rounds.
fn served(row: &RowSummary<'_>) -> Vec<Backend> {
    let mut served: Vec<Backend> = Vec::new();
    for backend in row.runs().iter().flat_map(|run| &run.of.backends) {
        match served.iter_mut().find(|b| b.name == backend.name) {
            Some(known) => known.requests = known.requests.saturating_add(backend.requests),
            None => served.push(backend.clone()),
        }
    }
    served
}

fn cache(sections: &[Section<'_>]) -> Table {
    let all = || sections.iter().flat_map(|section| section.rows().map(move |row| (section, row)));
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in all().flat_map(|(_, row)| row.runs()).flat_map(|run| &run.of.cache) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut columns = vec![Column::words("Deployment")];
    columns.extend(names.iter().map(|name| Column::figures(name)));
    let row = |(section, row): (&Section<'_>, &RowSummary<'_>)| {
        let count = |name: &str| -> u64 {
            let counts =
                row.runs().iter().flat_map(|run| &run.of.cache).filter(|(of, _)| of == name);
            counts.fold(0, |sum, (_, n)| sum.saturating_add(*n))
        };
        let total: u64 = names.iter().fold(0, |sum, name| sum.saturating_add(count(name)));
        (total > 0).then(|| {
            let mut cells = vec![Cell::plain(full_label(section, row))];
            cells.extend(names.iter().map(|name| match count(name) {
                0 => Cell::none(),
                n => Cell {
                    detail: grouped(n as f64),
                    ..Cell::plain(percent(n as f64 / total as f64))
                },
            }));
            cells
        })
    };
    let foot = vec![
        "From the proxy's or the read server's response headers; all rounds together.".to_owned(),
    ];
    Table {
        caption: String::new(),
        columns,
        rows: all().filter_map(row).collect(),
        groups: Vec::new(),
        foot,
    }
}

fn figures(sections: &[Section<'_>]) -> Table {
    let all = || sections.iter().flat_map(|section| section.rows().map(move |row| (section, row)));
    let mut names: Vec<(&String, &String)> = Vec::new();
    for (name, _, unit) in all().flat_map(|(_, row)| row.runs()).flat_map(|run| &run.of.figures) {
        if !names.contains(&(name, unit)) {
            names.push((name, unit));
        }
    }
    let mut columns = vec![Column::words("Deployment")];
    let heading = |(name, unit): &(&String, &String)| match unit.as_str() {
        // Bytes have units of their own.
        "" | "B" => (*name).clone(),
        _ => format!("{name}, {unit}"),
    };
    columns.extend(names.iter().map(|of| Column::figures(&heading(of))));
    let row = |(section, row): (&Section<'_>, &RowSummary<'_>)| {
        let value = |(name, unit): &(&String, &String)| row.median(|run| run.figure(name, unit));
        let values: Vec<Option<f64>> = names.iter().map(value).collect();
        values.iter().any(Option::is_some).then(|| {
            let cells = values.into_iter().zip(&names).map(|(value, (_, unit))| {
                let format = if *unit == "B" { bytes } else { number };
                value.map_or_else(Cell::none, |value| Cell::plain(format(value)))
            });
            [Cell::plain(full_label(section, row))].into_iter().chain(cells).collect()
        })
    };
    let foot = vec!["Medians over the rounds.".to_owned()];
    Table {
        caption: String::new(),
        columns,
        rows: all().filter_map(row).collect(),
        groups: Vec::new(),
        foot,
    }
}

/// Returns a row's name for a table with rows of several sections.
pub(super) fn full_label(section: &Section<'_>, row: &RowSummary<'_>) -> String {
    let label = section.label(row.row);
    if section.title.is_empty() { label } else { format!("{label}, {}", row.row.load) }
}
