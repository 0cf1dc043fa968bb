//! `hotrow-lab limiter`: the rate limiter's vectors, expected and actual.

use clap::Args;
use hotrow_cli::Exit;
use hotrow_lab::limiter::{PUBLISHED_CALL_NS, Step, cost, run, vectors};
use hotrow_report::document::{Block, Cell, CellStyle, Column, Document, Table};
use hotrow_report::{markdown, text};

use super::{LabError, print};

/// Arguments of `lab limiter`.
#[derive(Debug, Args)]
pub(crate) struct LimiterArgs {
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn check(args: &LimiterArgs) -> Result<Exit, LabError> {
    let steps = run(&vectors()?)?;
    let document = document(&steps, cost());
    let rendered =
        if args.markdown { markdown::render(&document) } else { text::render(&document) };
    print(rendered.trim_end())?;
    Ok(if steps.iter().all(Step::is_right) { Exit::Fine } else { Exit::Failed })
}

fn document(steps: &[Step], cost_ns: f64) -> Document {
    let wrong = steps.iter().filter(|step| !step.is_right()).count();
    let answer = match wrong {
        0 => format!("All {} calls have the expected result.", steps.len()),
        wrong => format!("{wrong} of {} calls have another result than expected.", steps.len()),
    };
    let began = |at: usize| at == 0 || steps[at - 1].limiter != steps[at].limiter;
    let groups: Vec<usize> = (0..steps.len()).filter(|at| began(*at)).collect();
    let row = |(at, step): (usize, &Step)| {
        let style = if step.is_right() { CellStyle::Plain } else { CellStyle::Bad };
        vec![
            Cell::plain(if began(at) { step.limiter.as_str() } else { "" }),
            Cell::plain(format!("{} ms", step.at_ms)),
            Cell::plain(step.call.as_str()),
            Cell::plain(step.expected.as_str()),
            Cell { style, ..Cell::plain(step.actual.as_str()) },
        ]
    };
    let table = Table {
        columns: vec![
            Column::words("Limit"),
            Column::figures("At"),
            Column::words("Call"),
            Column::words("Expected"),
            Column::words("Actual"),
        ],
        rows: steps.iter().enumerate().map(row).collect(),
        groups: groups.into_iter().filter(|at| *at > 0).collect(),
        ..Table::default()
    };
    Document {
        title: "Rate limiter: published vectors on the server's limits, in virtual time".to_owned(),
        subtitle: String::new(),
        blocks: vec![
            Block::Answer(answer),
            Block::Table(table),
            Block::Text(format!(
                "A wait call that need not wait takes {cost_ns:.0} ns, lock included; published: \
                 {PUBLISHED_CALL_NS:.0} ns."
            )),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_stated_first_and_marked() {
        let steps = run(&vectors().unwrap()).unwrap();
        let fine = text::render(&document(&steps, 42.0));
        assert!(fine.contains(&format!("All {} calls", steps.len())), "{fine}");
        assert!(fine.contains("takes 42 ns"), "{fine}");
        let mut wrong = steps;
        wrong[1].actual = "7 ms".to_owned();
        let document = document(&wrong, 42.0);
        assert!(text::render(&document).contains("1 of "), "{document:?}");
        let Some(Block::Table(table)) = document.blocks.get(1) else { panic!("{document:?}") };
        let bad = |row: &Vec<Cell>| row.iter().any(|cell| cell.style == CellStyle::Bad);
        assert_eq!(table.rows.iter().filter(|row| bad(row)).count(), 1);
    }
}
