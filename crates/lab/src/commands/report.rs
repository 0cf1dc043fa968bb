//! `hotrow-lab report`.

use std::path::PathBuf;

use clap::Args;

use super::LabError;
use hotrow_cli::exit::Exit;

/// Arguments of `lab report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folder of a run
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &ReportArgs) -> Result<Exit, LabError> {
    let written = hotrow_lab::report::write(&args.dir)?;
    super::print(&format!(
        "{}\n\n{}\n{}",
        written.answer,
        written.html.display(),
        written.markdown.display()
    ))?;
    Ok(Exit::Fine)
}
