//! `hotrow lab reference`.

use clap::Args;

use super::LabError;
use crate::cli::Exit;

/// Arguments of `lab reference`.
#[derive(Debug, Args)]
pub(super) struct ReferenceArgs {}

pub(super) fn run(_: &ReferenceArgs) -> Result<Exit, LabError> {
    Err(LabError::Unfinished("reference"))
}
