//! The figures as Markdown and as JSON.

use std::fmt::Write as _;

use hotrow_cache::miniature::FACTORS;

use crate::accuracy::{Cell, RATES, mean};
use crate::cost::Cost;

/// Largest mean error in points at rates of 0.01 and more, and below.
const ERROR_MAX: f64 = 1.5;
const ERROR_LOW_RATE_MAX: f64 = 2.5;
const LOW_RATE: f64 = 0.01;

/// What was measured.
pub enum Report {
    Accuracy(Vec<Cell>),
    Cost(Vec<Cost>),
}

/// A goal and the figure.
struct Goal {
    name: String,
    figure: f64,
    most: f64,
}

impl Report {
    pub fn of_accuracy(cells: Vec<Cell>) -> Self {
        Self::Accuracy(cells)
    }

    pub fn of_cost(costs: Vec<Cost>) -> Self {
        Self::Cost(costs)
    }

    fn goals(&self) -> Vec<Goal> {
        let Self::Accuracy(cells) = self else { return Vec::new() };
        let goal = |rate: f64, is_shown: bool| {
            let errors: Vec<f64> = cells
                .iter()
                .flat_map(|cell| cell.rows.iter().map(move |row| (cell, row)))
                .filter(|(_, row)| row.rate == rate && !(is_shown && row.is_refused))
                .flat_map(|(cell, row)| cell.errors(row))
                .collect();
            let which = if is_shown { "where the product predicts" } else { "everywhere" };
            let most = if rate >= LOW_RATE { ERROR_MAX } else { ERROR_LOW_RATE_MAX };
            let name = format!("mean error at rate {rate:.4}, {which}, points");
            (!errors.is_empty()).then(|| Goal { name, figure: mean(&errors), most })
        };
        RATES.iter().flat_map(|rate| [goal(*rate, true), goal(*rate, false)]).flatten().collect()
    }

    /// Returns whether the goals are reached where the product predicts.
    pub fn is_reached(&self) -> bool {
        let shown = |goal: &Goal| !goal.name.contains("everywhere");
        self.goals().iter().filter(|goal| shown(goal)).all(|goal| goal.figure <= goal.most)
    }

    // Writing to a string cannot fail.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Accuracy(cells) => accuracy(cells, &mut out),
            Self::Cost(costs) => {
                out.push_str("| one thread | ns |\n|---|---|\n");
                for Cost { name, ns } in costs {
                    let _ = writeln!(out, "| {name} | {ns:.2} |");
                }
            }
        }
        let goals = self.goals();
        if !goals.is_empty() {
            out.push_str("\n| goal | figure | at most | |\n|---|---|---|---|\n");
        }
        for Goal { name, figure, most } in goals {
            let reached = if figure <= most { "reached" } else { "**missed**" };
            let _ = writeln!(out, "| {name} | {figure:.2} | {most} | {reached} |");
        }
        out
    }

    /// Returns one JSON object. Names contain nothing that JSON must escape.
    pub fn json(&self) -> String {
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        let numbers = |values: &[f64]| list(values.iter().map(|v| format!("{v:.5}")).collect());
        let items = match self {
            Self::Cost(costs) => costs
                .iter()
                .map(|Cost { name, ns }| format!("{{\"name\":\"{name}\",\"ns\":{ns:.3}}}"))
                .collect(),
            Self::Accuracy(cells) => cells
                .iter()
                .map(|cell| {
                    let rows = cell.rows.iter().map(|row| {
                        format!(
                            "{{\"rate\":{:.6},\"keys\":{},\"is_refused\":{},\"memory_bytes\":{},\
                             \"coverage\":{:.4},\"predicted\":{}}}",
                            row.rate,
                            row.keys,
                            row.is_refused,
                            row.memory_bytes,
                            cell.coverage(row),
                            list(row.predicted.iter().map(|p| numbers(p)).collect())
                        )
                    });
                    format!(
                        "{{\"workload\":\"{}\",\"percent\":{},\"capacity_bytes\":{},\
                         \"entries\":{},\"actual\":{},\"rows\":{}}}\n",
                        cell.workload,
                        cell.percent,
                        cell.capacity_bytes,
                        cell.entries,
                        numbers(&cell.actual),
                        list(rows.collect())
                    )
                })
                .collect(),
        };
        let goal = |goal: &Goal| {
            let Goal { name, figure, most } = goal;
            format!("{{\"name\":\"{name}\",\"figure\":{figure:.4},\"at_most\":{most}}}")
        };
        let goals = list(self.goals().iter().map(goal).collect());
        let factors = numbers(&FACTORS);
        format!(
            "{{\"schema\":\"hotrow-bench-curve/1\",\"factors\":{factors},\"rows\":{},\
             \"aims\":{goals}}}\n",
            list(items)
        )
    }
}

fn accuracy(cells: &[Cell], out: &mut String) {
    out.push_str(
        "Hit ratio in %; errors in points, over the capacities up to the bytes of all entries and \
         over the sets of sampled keys. *Italic*: the product says that it does not know, because \
         its smallest copy would have fewer than 1,000 entries. Too few lookups: fewer than 4,096 \
         in the sample.\n\n\
         | workload, capacity | entries | actual at ¼ · 1 · 2 · 8 | rate | keys | mean error | \
         largest | bias | in the interval | memory |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for cell in cells {
        for row in &cell.rows {
            let errors = cell.errors(row);
            let [quarter, .., eight] = cell.actual.map(|ratio| 100.0 * ratio);
            let [current, double] = [cell.actual[3], cell.actual[5]].map(|ratio| 100.0 * ratio);
            if errors.is_empty() {
                let _ = writeln!(
                    out,
                    "| {} {} % | {} | {quarter:.1} · {current:.1} · {double:.1} · {eight:.1} | \
                     {:.4} | {} | too few lookups | | | | |",
                    cell.workload, cell.percent, cell.entries, row.rate, row.keys,
                );
                continue;
            }
            let error = match row.is_refused {
                true => format!("*{:.2}*", mean(&errors)),
                false => format!("{:.2}", mean(&errors)),
            };
            let _ = writeln!(
                out,
                "| {} {} % | {} | {quarter:.1} · {current:.1} · {double:.1} · {eight:.1} | {:.4} \
                 | {} | {error} | {:.2} | {:+.2} | {:.0} % | {} kB |",
                cell.workload,
                cell.percent,
                cell.entries,
                row.rate,
                row.keys,
                errors.iter().fold(0.0, |most: f64, error| most.max(*error)),
                cell.bias(row),
                100.0 * cell.coverage(row),
                row.memory_bytes / 1000,
            );
        }
    }
}
