//! `hotrow-lab list`.

use std::path::Path;

use clap::Args;
use hotrow_lab::experiment::shipped::SHIPPED;
use hotrow_lab::experiment::{Experiment, Overrides};

use super::{LabError, print};
use hotrow_cli::exit::Exit;

/// Arguments of `lab list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the file of this experiment, as a base for your own
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(crate) fn run(args: &ListArgs) -> Result<Exit, LabError> {
    if let Some(name) = &args.name {
        let shipped = super::run::shipped(name)?;
        print(shipped.text.trim_end())?;
        return Ok(Exit::Fine);
    }
    let width = SHIPPED.iter().map(|shipped| shipped.name.len()).max().unwrap_or(0);
    for shipped in SHIPPED {
        let experiment = Experiment::parse(
            shipped.name,
            shipped.name,
            shipped.text,
            Path::new("."),
            &Overrides::default(),
        )?;
        let deployments = experiment.deployments.len();
        let rows = experiment.rows.len();
        let title = &experiment.info.title;
        print(&format!(
            "{:<width$}  {title} ({deployments} deployments, {rows} rows)",
            shipped.name
        ))?;
    }
    Ok(Exit::Fine)
}
