//! Files of reports.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A report cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be written: {error}")]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub error: io::Error,
}

/// Writes a file atomically.
///
/// # Errors
/// An unwritable folder, or a full disk.
pub fn replace(path: &Path, text: &str) -> Result<(), WriteError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, path)).map_err(|error| {
        // A partial file is useless; a failure to remove it changes nothing.
        let _ = fs::remove_file(&new);
        WriteError { path: path.to_owned(), error }
    })
}
