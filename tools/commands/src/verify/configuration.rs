//! The configuration file of the service, as the `hotrow` beside this program describes it: the
//! checker has no parser of its own that could read the file in another way.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hotrow_cli::described::Described;
use hotrow_cli::version;

/// Name of the program that knows configuration files.
const PROGRAM: &str = "hotrow";

/// Reason why a configuration is not known.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// `hotrow` has said on standard error what is wrong.
    #[error("{0} cannot be used")]
    Refused(PathBuf),
    /// The program cannot be started.
    #[error("{}, which reads the configuration, cannot be started: {error}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The program is another version.
    #[error("{} does not belong to this program: {error}", program.display())]
    Foreign {
        /// The program.
        program: PathBuf,
        /// What is wrong with its answer.
        error: serde_json::Error,
    },
}

/// Reads a configuration file.
///
/// # Errors
/// Returns why it is not known.
pub(super) fn read(file: &Path) -> Result<Described, ConfigurationError> {
    let own = std::env::current_exe()
        .map_err(|error| ConfigurationError::Start { program: PROGRAM.into(), error })?;
    let program = own.with_file_name(PROGRAM);
    let output = Command::new(&program)
        .args(["describe", "--config"])
        .arg(file)
        .env(version::STARTED_BY, version::identity())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return Err(ConfigurationError::Start { program, error }),
    };
    if !output.status.success() {
        return Err(ConfigurationError::Refused(file.to_owned()));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| ConfigurationError::Foreign { program, error })
}
