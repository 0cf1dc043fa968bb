//! `hotrow lab report`.

use clap::Args;

use super::LabError;
use crate::cli::Exit;

/// Arguments of `lab report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {}

pub(super) fn run(_: &ReportArgs) -> Result<Exit, LabError> {
    Err(LabError::Unfinished("report"))
}
