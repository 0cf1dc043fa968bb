//! `hotrow-lab policies`: hit ratios of cache policies on access traces.

use std::path::PathBuf;

use clap::Args;
use hotrow_cli::Exit;
use hotrow_lab::policies::{HitRatios, PERCENTS, names, replay};
use hotrow_replay::trace::Trace;
use hotrow_report::document::{Block, Cell, Column, Document, Table};
use hotrow_report::{markdown, text};

use super::{LabError, print};

/// Arguments of `lab policies`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PoliciesArgs {
    /// Traces: a whole number per line, or, in .xz, a big-endian 32-bit number per request
    #[arg(value_name = "FILE", required = true)]
    traces: Vec<PathBuf>,
    /// Capacities in % of a trace's different keys [default: 0.5,1,5,10,30,50]
    #[arg(long, value_name = "P,...", value_delimiter = ',', value_parser = percent)]
    percent: Vec<f64>,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
}

const EXAMPLES: &str = "Examples:
  hotrow-lab policies ids.txt
  hotrow-lab policies web12.trace.xz orm-busy.trace.xz --percent 1,10 --markdown";

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent.ok_or_else(|| "must be a number above 0 and at most 100".to_owned())
}

pub(crate) fn compare(args: &PoliciesArgs) -> Result<Exit, LabError> {
    let percents = if args.percent.is_empty() { &PERCENTS[..] } else { &args.percent };
    let mut blocks = Vec::new();
    for path in &args.traces {
        let trace = Trace::read(path).map_err(LabError::Trace)?;
        let ratios: Vec<HitRatios> =
            percents.iter().map(|percent| replay(&trace, *percent)).collect();
        blocks.extend(section(&trace, &ratios));
    }
    let document = Document {
        title: "Hit ratios of cache policies".to_owned(),
        subtitle: "Read-through, one thread; the bound is that of a policy that knows the future"
            .to_owned(),
        blocks,
    };
    let rendered =
        if args.markdown { markdown::render(&document) } else { text::render(&document) };
    print(rendered.trim_end())?;
    Ok(Exit::Fine)
}

/// Returns the heading and the table of a trace.
fn section(trace: &Trace, ratios: &[HitRatios]) -> [Block; 2] {
    let mut columns = vec![Column::words("Capacity"), Column::figures("Entries")];
    columns.extend(names().map(Column::figures));
    columns.push(Column::figures("Bound"));
    let row = |ratios: &HitRatios| {
        let figure = |percent: f64| Cell::plain(format!("{percent:.1} %"));
        let mut cells = vec![
            Cell::plain(format!("{} %", ratios.percent)),
            Cell::plain(ratios.entries.to_string()),
        ];
        cells.extend(ratios.hits_percent.iter().copied().map(figure));
        cells.push(figure(ratios.bound_percent));
        cells
    };
    let rows = ratios.iter().map(row).collect();
    let heading =
        format!("{}: {} requests, {} different keys", trace.name, trace.keys.len(), trace.unique);
    [Block::Heading(heading), Block::Table(Table { columns, rows, ..Table::default() })]
}
