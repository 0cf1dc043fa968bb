//! `hotrow lab compare`.

use clap::Args;

use super::LabError;
use crate::cli::Exit;

/// Arguments of `lab compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {}

pub(super) fn run(_: &CompareArgs) -> Result<Exit, LabError> {
    Err(LabError::Unfinished("compare"))
}
