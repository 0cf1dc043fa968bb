//! `hotrow lab compare`.

use std::path::PathBuf;

use clap::Args;
use hotrow_lab::report;

use super::LabError;
use crate::cli::Exit;

/// Arguments of `lab compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Folder of the run that is compared with
    #[arg(value_name = "DIR_A")]
    a: PathBuf,
    /// Folder of the run that is compared
    #[arg(value_name = "DIR_B")]
    b: PathBuf,
    /// Write the comparison as an HTML page too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &CompareArgs) -> Result<Exit, LabError> {
    let document = report::compare::document(&report::read(&args.a)?, &report::read(&args.b)?)?;
    let told = super::tell(report::text::render(&document).trim_end());
    if let Some(file) = &args.html {
        report::replace(file, &report::html::render(&document))?;
    }
    told?;
    Ok(Exit::Fine)
}
