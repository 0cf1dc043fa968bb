//! `hotrow load`, `hotrow verify` and their kin: the workshop is a program of its own, so that a
//! server which faces the network carries none of it. This program becomes the `hotrow-lab` of its
//! own folder, with the same arguments.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use hotrow_cli::version;

/// Name of the program.
const PROGRAM: &str = "hotrow-lab";

/// Arguments of a command of `hotrow-lab`.
#[derive(Debug, Args)]
pub struct ToolArgs {
    /// Arguments of the command; see its --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    arguments: Vec<OsString>,
}

/// `hotrow-lab` cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not there. One on the path may be another version: it is not looked for.
    #[error(
        "{} does not exist; install the package hotrow-lab, or build it: cargo build --release -p \
         hotrow-lab", .0.display()
    )]
    Missing(PathBuf),
    /// The system refuses to start it.
    #[error("{} cannot be started: {error}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Replaces this process by `hotrow-lab`, with `command` before the arguments. Returns only when
/// that fails.
pub fn start(command: Option<&str>, args: &ToolArgs) -> ToolError {
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name(PROGRAM),
        Err(error) => return ToolError::Start { program: PROGRAM.into(), error },
    };
    let error = Command::new(&program)
        .args(command)
        .args(&args.arguments)
        .env(version::STARTED_BY, version::identity())
        .exec();
    if error.kind() == io::ErrorKind::NotFound {
        return ToolError::Missing(program);
    }
    ToolError::Start { program, error }
}
