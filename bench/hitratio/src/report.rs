//! The tables, as Markdown or JSON.

use crate::measure::{Cell, Figure, Results};
use crate::published::{self, Row};

/// Points that our policy may be below the published "tuned" column.
const TOLERANCE_POINTS: f64 = 0.5;

fn rule(columns: usize) -> String {
    format!("|---|{}", "---|".repeat(columns))
}

fn line(cell: &Cell, value: impl Fn(&Figure) -> String) -> String {
    let figures: Vec<String> = cell.figures.iter().map(value).collect();
    format!(
        "| {} {} % ({}) | {} |",
        cell.trace,
        cell.percent,
        cell.capacity_entries,
        figures.join(" | ")
    )
}

/// Prints hit ratios, the published ones, cost and bytes.
pub fn markdown(results: &Results) {
    let columns = results.names.join(" | ");
    println!("Hit ratio in %; published figures in brackets where there are some.\n");
    println!(
        "| trace, capacity | OPT | {columns} | published: moka | Caffeine | foyer S3-FIFO | SIEVE |"
    );
    println!("{}", rule(results.names.len() + 5));
    for cell in &results.cells {
        let known = published::find(&cell.trace, cell.percent);
        let figures: Vec<String> = results
            .names
            .iter()
            .zip(&cell.figures)
            .map(|(name, figure)| {
                beside(figure.hit_percent, known.and_then(|row| published_for(row, name)))
            })
            .collect();
        let others = known.map_or_else(
            || "– | – | – | –".to_owned(),
            |row| {
                format!(
                    "{:.1} | {:.1} | {:.1} | {:.1}",
                    row.moka, row.caffeine, row.s3fifo, row.sieve
                )
            },
        );
        println!(
            "| {} {} % ({}) | {} | {} | {others} |",
            cell.trace,
            cell.percent,
            cell.capacity_entries,
            beside(cell.opt_percent, known.map(|row| row.opt)),
            figures.join(" | ")
        );
    }
    verdicts(results);
    println!(
        "\nThread CPU time per get-or-insert, in ns.\n\n| trace, capacity | {columns} |\n{}",
        rule(results.names.len())
    );
    results
        .cells
        .iter()
        .for_each(|cell| println!("{}", line(cell, |f| format!("{:.0}", f.cost_ns))));
    println!(
        "\nHeap bytes per entry, key and 4-byte value included.\n\n\
         | trace, capacity | {columns} |\n{}",
        rule(results.names.len())
    );
    results
        .cells
        .iter()
        .for_each(|cell| println!("{}", line(cell, |f| format!("{:.0}", f.entry_bytes))));
}

fn published_for(row: &Row, name: &str) -> Option<f64> {
    match name {
        "LRU" => Some(row.lru),
        "quick_cache" => Some(row.quick),
        "quick_cache tuned" => Some(row.tuned),
        _ => None,
    }
}

fn beside(measured: f64, published: Option<f64>) -> String {
    published
        .map_or_else(|| format!("{measured:.1}"), |figure| format!("{measured:.1} [{figure:.1}]"))
}

/// Prints per candidate the worst cell against the published "tuned" column, and the mean over all
/// cells.
fn verdicts(results: &Results) {
    println!(
        "\nAgainst the published \"tuned\" column (at most {TOLERANCE_POINTS} points below it in \
         every cell):\n"
    );
    for (at, name) in results.names.iter().enumerate() {
        let worst = results
            .cells
            .iter()
            .filter_map(|cell| {
                Some((
                    cell,
                    cell.figures[at].hit_percent
                        - published::find(&cell.trace, cell.percent)?.tuned,
                ))
            })
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let mean = results.cells.iter().map(|cell| cell.figures[at].hit_percent).sum::<f64>()
            / results.cells.len() as f64;
        if let Some((cell, points)) = worst {
            let verdict = if points >= -TOLERANCE_POINTS { "reached" } else { "not reached" };
            println!(
                "- {name}: {verdict}; worst {points:+.2} at {} {} %; mean of all cells {mean:.2}",
                cell.trace, cell.percent
            );
        }
    }
}

/// Prints one JSON object.
pub fn json(results: &Results) {
    let cells: Vec<String> = results
        .cells
        .iter()
        .map(|cell| {
            let figures: Vec<String> = results
                .names
                .iter()
                .zip(&cell.figures)
                .map(|(name, f)| {
                    format!(
                        "{{\"policy\":\"{name}\",\"hit_percent\":{:.3},\"cost_ns\":{:.1},\
                         \"entry_bytes\":{:.1}}}",
                        f.hit_percent, f.cost_ns, f.entry_bytes
                    )
                })
                .collect();
            let tuned = published::find(&cell.trace, cell.percent)
                .map_or_else(|| "null".to_owned(), |row| row.tuned.to_string());
            format!(
                concat!(
                    r#"{{"trace":"{}","percent":{},"capacity_entries":{},"opt_percent":{:.3},"#,
                    r#""published_tuned_percent":{},"figures":[{}]}}"#
                ),
                cell.trace,
                cell.percent,
                cell.capacity_entries,
                cell.opt_percent,
                tuned,
                figures.join(",")
            )
        })
        .collect();
    println!(r#"{{"schema":"hotrow-bench-hitratio/1","cells":[{}]}}"#, cells.join(","));
}
