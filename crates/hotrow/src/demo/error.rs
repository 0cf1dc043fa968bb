//! Why there is no demonstration.

use crate::config::ConfigError;
use crate::serve::ServeError;

/// Failure of the demonstration.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The temporary folder could not be created.
    #[error("the temporary folder {folder}: {cause}; set TMPDIR to a folder with 100 MB to spare")]
    Folder {
        /// The folder, or its parent.
        folder: String,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The database could not be written.
    #[error(
        "the demonstration's database could not be written: {0}; set TMPDIR to a folder with 100 \
         MB to spare"
    )]
    Database(#[from] rusqlite::Error),
    /// A signal arrived before it was ready.
    #[error("interrupted")]
    Interrupted,
    /// The demonstration's own configuration is not valid on this machine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Serving failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}
