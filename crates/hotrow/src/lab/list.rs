//! `hotrow lab list`.

use std::path::Path;

use clap::Args;
use hotrow_lab::experiment::shipped::SHIPPED;
use hotrow_lab::experiment::{Experiment, Overrides};

use super::{LabError, tell};
use crate::cli::Exit;

/// Arguments of `lab list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print the file of this experiment, to be changed and run as one's own
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(super) fn run(args: &ListArgs) -> Result<Exit, LabError> {
    if let Some(name) = &args.name {
        let shipped = super::run::shipped(name)?;
        tell(shipped.text.trim_end())?;
        return Ok(Exit::Fine);
    }
    let width = SHIPPED.iter().map(|shipped| shipped.name.len()).max().unwrap_or(0);
    for shipped in SHIPPED {
        let experiment =
            Experiment::parse(shipped.name, shipped.name, shipped.text, Path::new("."), &Overrides::default())?;
        let (setups, rows) = (experiment.setups.len(), experiment.rows.len());
        let title = &experiment.about.title;
        tell(&format!("{:<width$}  {title} ({setups} set-ups, {rows} rows)", shipped.name))?;
    }
    Ok(Exit::Fine)
}
