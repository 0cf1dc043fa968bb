//! `hotrow lab list`.

use clap::Args;

use super::LabError;
use crate::cli::Exit;

/// Arguments of `lab list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {}

pub(super) fn run(_: &ListArgs) -> Result<Exit, LabError> {
    Err(LabError::Unfinished("list"))
}
