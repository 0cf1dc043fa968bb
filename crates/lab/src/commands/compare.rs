//! `hotrow-lab compare`.

use std::path::PathBuf;

use clap::Args;
use hotrow_lab::report::{self, ReportError};

use super::LabError;
use hotrow_cli::exit::Exit;

/// Arguments of `lab compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Folder of the base run
    #[arg(value_name = "DIR_A")]
    a: PathBuf,
    /// Folder of the run to compare with it
    #[arg(value_name = "DIR_B")]
    b: PathBuf,
    /// Also write the comparison as an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: &CompareArgs) -> Result<Exit, LabError> {
    let document = report::compare::document(&report::read(&args.a)?, &report::read(&args.b)?)?;
    let printed = super::print(hotrow_report::text::render(&document).trim_end());
    if let Some(file) = &args.html {
        hotrow_report::file::replace(file, &hotrow_report::html::render(&document))
            .map_err(ReportError::from)?;
    }
    printed?;
    Ok(Exit::Fine)
}
