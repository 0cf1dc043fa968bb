//! `hotrow lab …`: starts the program `hotrow-lab` with the same arguments, as git and cargo do
//! with their extensions. A server that faces the network carries no laboratory.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

/// Name of the program.
const PROGRAM: &str = "hotrow-lab";

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// Arguments of hotrow-lab; see hotrow-lab --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    arguments: Vec<OsString>,
}

/// `hotrow-lab` cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// It is not installed.
    #[error(
        "the program hotrow-lab is not installed: it is neither beside this program nor on the \
         path; install it, or build it with cargo build --release -p hotrow-lab"
    )]
    Missing,
    /// The system refuses to start it.
    #[error("{program} cannot be started: {error}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Replaces this process by `hotrow-lab`: the one beside this program, else the one on the path.
/// Returns only when that fails.
#[must_use]
pub fn lab(args: &LabArgs) -> LabError {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let program = beside.filter(|file| file.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&args.arguments).exec();
    if error.kind() == io::ErrorKind::NotFound {
        return LabError::Missing;
    }
    LabError::Start { program, error }
}
