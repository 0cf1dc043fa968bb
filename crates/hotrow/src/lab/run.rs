//! `hotrow lab run`.

use clap::Args;

use super::LabError;
use crate::cli::Exit;

/// Arguments of `lab run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {}

pub(super) fn run(_: &RunArgs) -> Result<Exit, LabError> {
    Err(LabError::Unfinished("run"))
}
