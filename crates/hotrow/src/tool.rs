//! `hotrow load`, `hotrow verify` and their kin: the workshop is a program of its own, so that a
//! server which faces the network carries none of it. This program becomes the `hotrow-lab` of its
//! own folder, with the same arguments.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use hotrow_cli::{TOOLS, version};

/// Name of the program.
const PROGRAM: &str = "hotrow-lab";

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

/// Replaces this process by `hotrow-lab` if the arguments name a command of it. Returns only when
/// they do not, or when that fails.
pub fn start(arguments: &[OsString]) -> Option<ToolError> {
    let (name, rest) = arguments.get(1..)?.split_first()?;
    TOOLS.iter().find(|(tool, _)| name == tool)?;
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name(PROGRAM),
        Err(error) => return Some(ToolError::Start { program: PROGRAM.into(), error }),
    };
    let error = Command::new(&program)
        .args(Some(name).filter(|name| *name != "lab"))
        .args(rest)
        .env(version::STARTED_BY, version::identity())
        .exec();
    Some(match error.kind() {
        io::ErrorKind::NotFound => ToolError::Missing(program),
        _ => ToolError::Start { program, error },
    })
}
