//! The temporary folder: private, locked while its process lives, and removed when it ends. The
//! next demonstration removes the folder of a killed one.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::error::DemoError;
use hotrow_cli::signals::OnAbort;

const PREFIX: &str = "hotrow-demo-";
const LOCK: &str = "lock";
/// Grace period of a folder without a lock file, which its process may be about to lock.
const LOCK_DELAY_MAX: Duration = Duration::from_mins(1);
/// Folder names tried before creation fails.
const NAMES_TRIED_MAX: u32 = 100;
/// Most stale folders that one start removes.
const SWEPT_MAX: usize = 100;

/// Folder that is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct DemoFolder {
    path: PathBuf,
    on_abort: OnAbort,
    /// Held, never read: the kernel releases the lock with the process, however it ends.
    _lock: File,
}

impl DemoFolder {
    /// Creates a folder in `parent`, after removing those of dead processes.
    pub(super) fn create(parent: &Path, on_abort: &OnAbort) -> Result<Self, DemoError> {
        sweep(parent);
        let failed = |cause| DemoError::Folder { folder: parent.display().to_string(), cause };
        let path = new_folder(parent).map_err(failed)?;
        on_abort.remove_folder(Some(&path));
        match lock(&path) {
            Ok(lock) => Ok(Self { path, on_abort: on_abort.clone(), _lock: lock }),
            Err(e) => {
                let _ = std::fs::remove_dir_all(&path);
                on_abort.remove_folder(None);
                Err(failed(e))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(
                folder = %self.path.display(),
                "the temporary folder could not be removed: {e}; remove it by hand"
            );
        }
        self.on_abort.remove_folder(None);
    }
}

/// Creates a folder that did not exist before, readable for this user only.
fn new_folder(parent: &Path) -> io::Result<PathBuf> {
    let pid = std::process::id();
    for n in 0..NAMES_TRIED_MAX {
        let path = parent.join(format!("{PREFIX}{pid}-{n}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{NAMES_TRIED_MAX} folders {PREFIX}{pid}-* exist already"),
    ))
}

fn lock(folder: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

/// Removes folders whose process is gone. A folder that cannot be removed does not stop the start.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let ours = entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(PREFIX));
    for entry in ours.take(SWEPT_MAX) {
        if is_stale(&entry.path()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn is_stale(folder: &Path) -> bool {
    // Not through a symbolic link: other users may write into the shared temporary folder.
    let Ok(about) = std::fs::symlink_metadata(folder) else { return false };
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
        return false;
    }
    match OpenOptions::new().write(true).open(folder.join(LOCK)) {
        Ok(lock) => match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let age =
                about.modified().ok().and_then(|made| SystemTime::now().duration_since(made).ok());
            age.is_some_and(|age| age > LOCK_DELAY_MAX)
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_removed_with_its_value() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = DemoFolder::create(parent.path(), &OnAbort::default()).expect("created");
        let path = folder.path().to_path_buf();
        std::fs::write(path.join("products.db"), b"x").expect("writable");
        let mode = std::fs::metadata(&path).expect("exists").mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn only_folders_of_dead_processes_are_removed() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let make = |name: &str| {
            let path = parent.path().join(name);
            std::fs::create_dir(&path).expect("creatable");
            path
        };
        let dead = make("hotrow-demo-1-0");
        drop(lock(&dead).expect("lockable"));
        let old = make("hotrow-demo-1-1");
        let long_ago = SystemTime::now() - LOCK_DELAY_MAX * 2;
        File::open(&old).and_then(|f| f.set_modified(long_ago)).expect("dates can be set");
        let in_the_making = make("hotrow-demo-1-2");
        let other = make("another-demo");
        std::os::unix::fs::symlink(&other, parent.path().join("hotrow-demo-1-3"))
            .expect("linkable");
        let alive = DemoFolder::create(parent.path(), &OnAbort::default()).expect("created");
        assert!(!dead.exists() && !old.exists());
        assert!(in_the_making.exists() && other.exists() && alive.path().exists());
        sweep(parent.path());
        assert!(alive.path().exists(), "its lock is held");
    }

    #[test]
    fn a_parent_that_does_not_exist_is_named() {
        let e = DemoFolder::create(Path::new("/nonexistent-folder"), &OnAbort::default())
            .expect_err("no such parent");
        assert!(
            e.to_string().contains("/nonexistent-folder") && e.to_string().contains("TMPDIR"),
            "{e}"
        );
    }
}
