//! Output files of a run. They are opened before it, and lines are written whole, so that a killed
//! process leaves whole lines.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that accepts lines until its first failure.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
    failed: Option<io::Error>,
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be written: {why}")]
pub struct OutputError {
    /// The file.
    path: PathBuf,
    /// The reason.
    why: String,
}

/// Writes a result on standard output. A closed pipe is no error; a full disk is.
pub fn print(mut out: impl Write, text: &str) -> Result<(), OutputError> {
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(OutputError { path: "standard output".into(), why: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// Writes a line. A closed pipe is no reason to fail.
pub fn print_line(mut out: impl Write, line: &str) {
    let _ = writeln!(out, "{line}");
}

impl OutputFile {
    /// Creates or truncates a file.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let file = File::create(path)
            .map_err(|e| OutputError { path: path.to_owned(), why: e.to_string() })?;
        Ok(Self { path: path.to_owned(), file, failed: None })
    }

    /// Returns whether both are the same regular file.
    pub fn is_same(&self, other: &Self) -> bool {
        let identity = |file: &File| {
            let found = file.metadata().ok().filter(|m| m.file_type().is_file());
            found.map(|m| (m.dev(), m.ino()))
        };
        let mine = identity(&self.file);
        mine.is_some() && mine == identity(&other.file)
    }

    /// Writes, unless an earlier write failed: a gap in the middle would look like a complete file.
    pub fn write(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(text.as_bytes()).err();
        }
    }

    /// Flushes everything to storage.
    pub fn finish(self) -> Result<(), OutputError> {
        let done = match self.failed {
            Some(error) => Err(error),
            // Some file systems report a lack of space only here. Pipes and terminals cannot be
            // synchronized.
            None if self.file.metadata().is_ok_and(|m| m.file_type().is_file()) => {
                self.file.sync_all()
            }
            None => Ok(()),
        };
        done.map_err(|e| OutputError { path: self.path, why: e.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_kept_and_nothing_follows_it() {
        let mut full = OutputFile::create(Path::new("/dev/full")).unwrap();
        full.write("a");
        full.write("b");
        let error = full.finish().unwrap_err().to_string();
        assert!(error.contains("/dev/full cannot be written: No space left"), "{error}");
        let error = OutputFile::create(Path::new("/nonexistent/file")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/file cannot be written: No such file"), "{error}");
    }

    #[test]
    fn a_result_is_lost_on_a_full_disk_but_not_in_a_closed_pipe() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = print(full, "a").unwrap_err().to_string();
        assert!(error.contains("standard output cannot be written: No space left"), "{error}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert!(print(writer, "a").is_ok());
    }

    #[test]
    fn two_names_of_one_file_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let a = folder.path().join("a");
        let b = folder.path().join("b");
        let first = OutputFile::create(&a).unwrap();
        std::fs::hard_link(&a, &b).unwrap();
        assert!(first.is_same(&OutputFile::create(&b).unwrap()));
        assert!(!first.is_same(&OutputFile::create(&folder.path().join("c")).unwrap()));
        let null = || OutputFile::create(Path::new("/dev/null")).unwrap();
        assert!(!null().is_same(&null()));
    }
}
