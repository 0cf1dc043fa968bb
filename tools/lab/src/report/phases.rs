//! What happened between the events of measurements: shares of the instances, and figures.

use super::sections::Section;
use super::summary::RowSummary;
use super::tiers::full_label;
use hotrow_report::document::{Block, Cell, Column, Table};
use hotrow_report::numbers::{bytes, number};
use hotrow_results::Phase;

/// Returns the table of all phases; nothing without any.
pub(super) fn blocks(sections: &[Section<'_>]) -> Vec<Block> {
    let all = || sections.iter().flat_map(|section| section.rows().map(move |row| (section, row)));
    let mut names: Vec<(&String, &String)> = Vec::new();
    for (name, _, unit) in all().flat_map(|(_, row)| phases(row)).flat_map(|phase| &phase.figures) {
        if !names.contains(&(name, unit)) {
            names.push((name, unit));
        }
    }
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for (section, row) in all() {
        let Some(first) = row.runs().first().filter(|run| !run.of.phases.is_empty()) else {
            continue;
        };
        groups.push(rows.len());
        for (at, phase) in first.of.phases.iter().enumerate() {
            let median = |value: &dyn Fn(&Phase) -> Option<f64>| {
                row.median(|run| value(run.of.phases.get(at)?))
            };
            let mut cells = vec![
                if at == 0 { Cell::plain(full_label(section, row)) } else { Cell::default() },
                Cell::plain(phase.name.clone()),
                Cell::plain(number(median(&|of| Some(of.seconds)).unwrap_or_default())),
                Cell::plain(phase.instances.to_string()),
                Cell::plain(shares(row, at)),
            ];
            cells.extend(names.iter().map(|(name, unit)| {
                let figure = |of: &Phase| {
                    let mut known = of.figures.iter();
                    known.find(|(n, _, u)| n == *name && u == *unit).map(|(_, value, _)| *value)
                };
                let format = if *unit == "B" { bytes } else { number };
                median(&figure).map_or_else(Cell::none, |value| Cell::plain(format(value)))
            }));
            rows.push(cells);
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let mut columns = vec![
        Column::words("Deployment"),
        Column::words("Phase"),
        Column::figures("Time, s"),
        Column::figures("Instances"),
        Column::words("Their shares, %"),
    ];
    columns.extend(names.iter().map(|(name, unit)| match unit.as_str() {
        "" | "B" => Column::figures(name),
        _ => Column::figures(&format!("{name}, {unit}")),
    }));
    groups.retain(|at| *at > 0);
    let foot = vec![
        "A phase ends with the next event. Medians over the rounds; shares of the requests over \
         all rounds, of the instances that run, in their order."
            .to_owned(),
    ];
    let table = Table { caption: String::new(), columns, rows, groups, foot };
    vec![Block::Heading("Before and after each event".to_owned()), Block::Table(table)]
}

fn phases<'a>(row: &RowSummary<'a>) -> impl Iterator<Item = &'a Phase> {
    row.runs().iter().flat_map(|run| &run.of.phases).collect::<Vec<_>>().into_iter()
}

/// Returns the shares of the instances in a phase: "20.1 · 19.9 · 60.0".
fn shares(row: &RowSummary<'_>, at: usize) -> String {
    let mut served: Vec<(&str, u64)> = Vec::new();
    let phases = row.runs().iter().filter_map(|run| run.of.phases.get(at));
    for backend in phases.flat_map(|phase| &phase.backends) {
        match served.iter_mut().find(|(name, _)| *name == backend.name) {
            Some((_, requests)) => *requests = requests.saturating_add(backend.requests),
            None => served.push((&backend.name, backend.requests)),
        }
    }
    let total = served.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
    if total == 0 {
        return "–".to_owned();
    }
    let share = |(_, n): &(&str, u64)| format!("{:.1}", 100.0 * *n as f64 / total as f64);
    served.iter().map(share).collect::<Vec<_>>().join(" · ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use crate::report::compose;
    use hotrow_report::markdown;
    use hotrow_results::{Backend, Phase};

    #[test]
    fn phases_have_shares_and_figures() {
        let mut results = fixture::results(1);
        let backend = |name: &str, requests| Backend { name: name.to_owned(), weight: 1, requests };
        let phase = |name: &str, backends: &[Backend], reads| Phase {
            name: name.to_owned(),
            seconds: 4.0,
            instances: backends.len() as u32,
            backends: backends.to_vec(),
            figures: vec![("keys read".to_owned(), reads, String::new())],
        };
        let (one, two) = (backend("app-1", 300), backend("app-2", 100));
        results.measurements[0].phases = vec![
            phase("before", &[one.clone(), two], 0.0),
            phase("instance 2 killed", &[one], 25.0),
        ];
        let text = markdown::render(&compose::document(&results));
        for words in [
            "Before and after each event",
            "75.0 · 25.0",
            "instance 2 killed",
            "100.0",
            "keys read",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
}
