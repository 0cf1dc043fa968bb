//! The root folder of probes (the machine, or a copy of its files in a test), and probe errors.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most bytes read of one file, the length of a list of 100,000 sockets. The rest is ignored.
pub const READ_BYTES_MAX: u64 = 16 << 20;
/// Initial buffer size: each smaller read costs a system call.
pub(crate) const READ_BYTES_FIRST: usize = 4096;
/// Longest excerpt of an invalid file in messages, in characters.
const QUOTED_CHARS_MAX: usize = 60;

/// The folder that contains `proc` and `sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    folder: PathBuf,
}

/// A probe that failed, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{why}", place(file))]
pub struct ProbeError {
    /// The file, relative to the root folder; empty for a database.
    pub file: String,
    /// The reason.
    pub why: ProbeErrorKind,
}

/// Reasons for a failed probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeErrorKind {
    /// The file does not exist: another kernel or configuration, a container that hides it, or no
    /// Linux.
    Missing,
    /// This user may not read it.
    PermissionDenied,
    /// The system reported another error.
    Unreadable(io::ErrorKind),
    /// Its content is invalid; the beginning of it.
    Malformed(String),
    /// There are more items than are examined.
    TooMany {
        /// Examined items.
        seen: usize,
        /// All items.
        all: usize,
    },
    /// The database behind the service did not answer; its error.
    Database(String),
}

/// A value, or the reason why it could not be read.
pub type ProbeResult<T> = Result<T, ProbeError>;

/// Returns the beginning of a message about a file.
fn place(file: &str) -> String {
    if file.is_empty() { String::new() } else { format!("/{file}: ") }
}

impl fmt::Display for ProbeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing if cfg!(target_os = "linux") => f.write_str("there is no such file here"),
            Self::Missing => f.write_str("there is no such file here, because this is not Linux"),
            Self::PermissionDenied => f.write_str("this user may not read it"),
            Self::Unreadable(kind) => write!(f, "it cannot be read: {kind}"),
            Self::TooMany { seen, all } => write!(f, "only {seen} of {all} are observed"),
            Self::Database(error) => write!(f, "the database could not be asked: {error}"),
            Self::Malformed(text) => write!(f, "its content is invalid: {text:?}"),
        }
    }
}

impl ProbeErrorKind {
    /// Classifies a system error.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match error.kind() {
            // A directory in the place of a file, or a process that ended during the read: the file
            // does not exist.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            kind => Self::Unreadable(kind),
        }
    }

    /// Creates the error of an invalid file.
    #[must_use]
    pub fn malformed(text: &str) -> Self {
        Self::Malformed(text.trim().chars().take(QUOTED_CHARS_MAX).collect())
    }
}

impl Root {
    /// Returns the root of this machine.
    #[must_use]
    pub fn machine() -> Self {
        Self::at("/")
    }

    /// Returns the root of a copy of a machine's files.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a file; `file` begins with `proc/` or `sys/`.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Reads a file, at most [`READ_BYTES_MAX`] up to a whole line. Process names may contain any
    /// bytes: invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// Fails when it cannot be read.
    pub fn read(&self, file: &str) -> ProbeResult<String> {
        let probe_error = |error: &io::Error| ProbeError {
            file: file.to_owned(),
            why: ProbeErrorKind::of(error),
        };
        let opened = File::open(self.path(file)).map_err(|e| probe_error(&e))?;
        let mut bytes = Vec::with_capacity(READ_BYTES_FIRST);
        opened.take(READ_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| probe_error(&e))?;
        if bytes.len() as u64 == READ_BYTES_MAX {
            bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// Fails when it cannot be read or parsed.
    pub fn parse<T>(&self, file: &str, parser: impl FnOnce(&str) -> Option<T>) -> ProbeResult<T> {
        let text = self.read(file)?;
        parser(&text).ok_or_else(|| ProbeError {
            file: file.to_owned(),
            why: ProbeErrorKind::malformed(&text),
        })
    }

    /// Reads a file with a single value, as most in `proc/sys`.
    ///
    /// # Errors
    /// Fails when it cannot be read, or has other content.
    pub fn value<T: FromStr>(&self, file: &str) -> ProbeResult<T> {
        self.parse(file, |text| text.trim().parse().ok())
    }
}

/// Returns a value, or the reason why it could not be read.
pub(crate) fn read_value<T>(seen: &ProbeResult<T>) -> ProbeResult<&T> {
    seen.as_ref().map_err(ProbeError::clone)
}

/// The same for values that a kernel may lack: `None` then.
pub(crate) fn read_optional<T>(seen: &ProbeResult<T>) -> ProbeResult<Option<&T>> {
    match seen {
        Ok(value) => Ok(Some(value)),
        Err(ProbeError { why: ProbeErrorKind::Missing, .. }) => Ok(None),
        Err(probe_error) => Err(probe_error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_malformed_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        std::fs::create_dir_all(folder.path().join("proc/sys")).unwrap();
        std::fs::write(folder.path().join("proc/sys/a"), "42\n").unwrap();
        std::fs::write(folder.path().join("proc/sys/b"), b"\xffx".repeat(100)).unwrap();
        assert_eq!(root.value::<u64>("proc/sys/a"), Ok(42));
        assert_eq!(root.value::<u64>("proc/sys/c").unwrap_err().why, ProbeErrorKind::Missing);
        assert_eq!(root.value::<u64>("proc/sys/a/c").unwrap_err().why, ProbeErrorKind::Missing);
        assert!(matches!(
            root.value::<u64>("proc/sys").unwrap_err().why,
            ProbeErrorKind::Unreadable(_)
        ));
        let malformed = root.value::<u64>("proc/sys/b").unwrap_err();
        assert!(
            matches!(
                &malformed.why,
                ProbeErrorKind::Malformed(text) if text.chars().count() == QUOTED_CHARS_MAX
            ),
            "{malformed}"
        );
        assert!(
            root.value::<u64>("proc/sys/c")
                .unwrap_err()
                .to_string()
                .starts_with("/proc/sys/c: there is no such")
        );
        let forbidden = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(ProbeErrorKind::of(&forbidden), ProbeErrorKind::PermissionDenied);
    }

    #[test]
    fn a_file_without_end_is_cut_at_a_line() {
        let root = Root::machine();
        if root.path("dev/zero").exists() {
            assert_eq!(root.read("dev/zero"), Ok(String::new()), "no line feed, so no whole line");
        }
    }
}
