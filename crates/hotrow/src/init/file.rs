//! Writing of the output file as a whole: it is complete or absent, whatever ends the process.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is a file of that name.
    #[error("{} exists; name another file with --output, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// The path names something that is not a file.
    #[error("{} is not a regular file, so it is not replaced", .0.display())]
    NotAFile(PathBuf),
    /// The system refuses.
    #[error("{path} cannot be written: {error}")]
    System {
        /// The file.
        path: String,
        /// The cause.
        error: io::Error,
    },
}

/// File that will be written, checked before the work whose result it gets.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    /// The file to replace.
    replaced: Option<Metadata>,
}

impl Target {
    /// Checks that the file may be written.
    ///
    /// # Errors
    /// The file exists, and `force` is not set.
    pub(super) fn open(path: &Path, force: bool) -> Result<Self, WriteError> {
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), replaced: None });
            }
            Err(error) => return Err(system(path, error)),
        };
        if !force {
            return Err(WriteError::Exists(path.to_owned()));
        }
        if !found.is_file() {
            return Err(WriteError::NotAFile(path.to_owned()));
        }
        // A link stays, and its file is replaced.
        let path = fs::canonicalize(path).map_err(|error| system(path, error))?;
        Ok(Self { path, replaced: Some(found) })
    }

    /// Writes the file under another name, and then gives it its own. A replaced file keeps its
    /// owner and its mode.
    ///
    /// # Errors
    /// The system refuses, or another process has created the file since.
    pub(super) fn write(&self, text: &str) -> Result<(), WriteError> {
        let draft = self.draft();
        let written = self.write_as(&draft, text);
        if written.is_err() {
            // The error that is reported is the first one.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    fn write_as(&self, draft: &Path, text: &str) -> Result<(), WriteError> {
        let failed = |error| system(&self.path, error);
        let mut file = File::create_new(draft).map_err(failed)?;
        if let Some(replaced) = &self.replaced {
            chown(draft, Some(replaced.uid()), Some(replaced.gid())).map_err(failed)?;
            file.set_permissions(replaced.permissions()).map_err(failed)?;
        }
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        if self.replaced.is_some() {
            return fs::rename(draft, &self.path).map_err(failed);
        }
        match renameat_with(CWD, draft, CWD, &self.path, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::EXIST) => Err(WriteError::Exists(self.path.clone())),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// Returns a name beside the file that no other process uses.
    fn draft(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.{}.new", std::process::id()))
    }
}

fn system(path: &Path, error: io::Error) -> WriteError {
    WriteError::System { path: path.display().to_string(), error }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_only_by_force_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        let first = Target::open(&path, false).unwrap();
        let second = Target::open(&path, false).unwrap();
        first.write("one").unwrap();
        assert!(matches!(second.write("two"), Err(WriteError::Exists(_))), "created since");
        assert!(matches!(Target::open(&path, false), Err(WriteError::Exists(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Target::open(&link, true).unwrap().write("three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["a.toml", "link.toml"], "no draft is left");
    }

    #[test]
    fn what_is_no_file_is_not_replaced_and_errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Target::open(folder.path(), true), Err(WriteError::NotAFile(_))));
        assert!(matches!(Target::open(Path::new("/dev/null"), true), Err(WriteError::NotAFile(_))));
        let missing = folder.path().join("no/a.toml");
        let error = Target::open(&missing, false).unwrap().write("x").unwrap_err().to_string();
        assert!(error.contains("no/a.toml cannot be written"), "{error}");
    }
}
