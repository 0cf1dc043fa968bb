//! Where probes read: the machine itself, or a copy of its files in a test; and what could not be seen.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most that is read of one file, in bytes; a list of 100,000 sockets is as long. What lies beyond is left out.
pub const READ_BYTES_MAX: u64 = 16 << 20;
/// Room for most files at once: what is read in small parts costs a system call for each.
pub(crate) const READ_BYTES_FIRST: usize = 4096;
/// How much of a file that cannot be understood is repeated in messages, in characters.
const QUOTED_CHARS_MAX: usize = 60;

/// The folder below which `proc` and `sys` lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    folder: PathBuf,
}

/// A file that told nothing, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("/{file}: {why}")]
pub struct Unseen {
    /// The file, below the root folder.
    pub file: String,
    /// Why it told nothing.
    pub why: Why,
}

/// Why a file told nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is none: another kernel or configuration, a container that hides it, or no Linux.
    Missing,
    /// This user may not read it.
    Forbidden,
    /// The system refused for another reason.
    Unreadable(io::ErrorKind),
    /// It holds something else than it should; its beginning.
    Garbled(String),
    /// There are more of its kind than are looked at.
    TooMany {
        /// Those that are looked at.
        seen: usize,
        /// All.
        all: usize,
    },
}

/// A value, or why it could not be seen.
pub type Seen<T> = Result<T, Unseen>;

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing if cfg!(target_os = "linux") => f.write_str("there is no such file here"),
            Self::Missing => f.write_str("there is no such file here, for this is not Linux"),
            Self::Forbidden => f.write_str("this user may not read it"),
            Self::Unreadable(kind) => write!(f, "it cannot be read: {kind}"),
            Self::TooMany { seen, all } => write!(f, "only {seen} of {all} are looked at"),
            Self::Garbled(text) => write!(f, "it holds other than it should: {text:?}"),
        }
    }
}

impl Why {
    /// What an error of the system means here.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match error.kind() {
            // A directory in the place of a file, or a process that ended while it was read: neither is there.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            kind => Self::Unreadable(kind),
        }
    }

    /// A file whose content makes no sense.
    #[must_use]
    pub fn garbled(text: &str) -> Self {
        Self::Garbled(text.trim().chars().take(QUOTED_CHARS_MAX).collect())
    }
}

impl Root {
    /// The machine that this runs on.
    #[must_use]
    pub fn machine() -> Self {
        Self::at("/")
    }

    /// A copy of a machine's files.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a file lies; `file` begins with `proc/` or `sys/`.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The text of a file, at most [`READ_BYTES_MAX`] of it up to a whole line. Names of processes may hold any bytes:
    /// what is no UTF-8 is replaced.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, file: &str) -> Seen<String> {
        let unseen = |error: &io::Error| Unseen { file: file.to_owned(), why: Why::of(error) };
        let opened = File::open(self.path(file)).map_err(|e| unseen(&e))?;
        let mut bytes = Vec::with_capacity(READ_BYTES_FIRST);
        opened.take(READ_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| unseen(&e))?;
        if bytes.len() as u64 == READ_BYTES_MAX {
            bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What a parser makes of a file.
    ///
    /// # Errors
    /// When it cannot be read, or the parser makes nothing of it.
    pub fn parse<T>(&self, file: &str, parser: impl FnOnce(&str) -> Option<T>) -> Seen<T> {
        let text = self.read(file)?;
        parser(&text).ok_or_else(|| Unseen { file: file.to_owned(), why: Why::garbled(&text) })
    }

    /// A file that holds one value, as most of `proc/sys` do.
    ///
    /// # Errors
    /// When it cannot be read, or holds something else.
    pub fn value<T: FromStr>(&self, file: &str) -> Seen<T> {
        self.parse(file, |text| text.trim().parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_garbled_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        std::fs::create_dir_all(folder.path().join("proc/sys")).unwrap();
        std::fs::write(folder.path().join("proc/sys/a"), "42\n").unwrap();
        std::fs::write(folder.path().join("proc/sys/b"), b"\xffx".repeat(100)).unwrap();
        assert_eq!(root.value::<u64>("proc/sys/a"), Ok(42));
        assert_eq!(root.value::<u64>("proc/sys/c").unwrap_err().why, Why::Missing);
        assert_eq!(root.value::<u64>("proc/sys/a/c").unwrap_err().why, Why::Missing);
        assert!(matches!(root.value::<u64>("proc/sys").unwrap_err().why, Why::Unreadable(_)));
        let garbled = root.value::<u64>("proc/sys/b").unwrap_err();
        assert!(matches!(&garbled.why, Why::Garbled(text) if text.chars().count() == QUOTED_CHARS_MAX), "{garbled}");
        assert!(root.value::<u64>("proc/sys/c").unwrap_err().to_string().starts_with("/proc/sys/c: there is no such"));
        let forbidden = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(Why::of(&forbidden), Why::Forbidden);
    }

    #[test]
    fn a_file_without_end_is_cut_at_a_line() {
        let root = Root::machine();
        if root.path("dev/zero").exists() {
            assert_eq!(root.read("dev/zero"), Ok(String::new()), "no line feed, so no whole line");
        }
    }
}
