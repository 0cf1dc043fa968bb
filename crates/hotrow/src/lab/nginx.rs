//! `hotrow lab nginx`.

use clap::Args;

use super::LabError;
use crate::cli::Exit;

/// Arguments of `lab nginx`.
#[derive(Debug, Args)]
pub(super) struct NginxArgs {}

pub(super) fn run(_: &NginxArgs) -> Result<Exit, LabError> {
    Err(LabError::Unfinished("nginx"))
}
