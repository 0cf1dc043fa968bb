//! `hotrow-lab list`, `report` and `compare`: shipped experiments, and results of finished runs.

use std::path::{Path, PathBuf};

use clap::Args;
use hotrow_cli::Exit;
use hotrow_lab::experiment::{Experiment, Overrides, SHIPPED};
use hotrow_lab::report;
use hotrow_results::report_files::ReportError;

use super::{LabError, print};

/// Arguments of `lab list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the file of this experiment, as a base for your own
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(crate) fn list(args: &ListArgs) -> Result<Exit, LabError> {
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

/// Arguments of `lab report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folder of a run
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn report(args: &ReportArgs) -> Result<Exit, LabError> {
    let written = hotrow_lab::report::write(&args.dir)?;
    print(&written.summary())?;
    Ok(Exit::Fine)
}

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

pub(crate) fn compare(args: &CompareArgs) -> Result<Exit, LabError> {
    let document = report::compare::document(&report::read(&args.a)?, &report::read(&args.b)?)?;
    let printed = print(hotrow_report::text::render(&document).trim_end());
    if let Some(file) = &args.html {
        hotrow_report::file::replace(file, &hotrow_report::html::render(&document))
            .map_err(ReportError::from)?;
    }
    printed?;
    Ok(Exit::Fine)
}
