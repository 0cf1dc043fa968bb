//! Files that are taken over while the process runs: certificates, grants, keys of tokens.
//!
//! A change is noticed by the state that the file system keeps of a file. Files that belong
//! together are replaced one by one, so they are read when none has changed for one interval. What
//! does not fit is refused, and read again when a file changes again.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};

/// Interval of looking at the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// Files that are taken over together.
pub trait Watched: Send + Sync + 'static {
    /// Returns the files as they are now.
    fn stamps(&self) -> Stamps;

    /// Returns the files as they were when they were read last.
    fn taken(&self) -> Stamps;

    /// Called at each look, before the files are compared.
    fn look(&self) {}

    /// Reads the files, which are as in `now`, and takes them over or logs why not.
    fn reload(&self, now: Stamps);
}

/// State of files, by which a change is noticed without reading them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps(Box<[Option<Stamp>]>);

/// Device, inode, size and time of the last change.
type Stamp = (u64, u64, u64, i64, i64);

impl Stamps {
    /// Returns the state of these files now.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let stamp = |path: &Path| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.dev(), file.ino(), file.size(), file.ctime(), file.ctime_nsec()))
        };
        Self(paths.into_iter().map(stamp).collect())
    }
}

/// Files as they were at the last look.
#[derive(Clone, Debug)]
pub struct Watch {
    seen: Stamps,
}

impl Watch {
    /// Begins with the files as they were read.
    pub fn new(taken: Stamps) -> Self {
        Self { seen: taken }
    }

    /// Returns whether the files differ from `taken`, which was read last, and did not change since
    /// the last look.
    pub(crate) fn is_due(&mut self, taken: &Stamps, now: &Stamps) -> bool {
        let is_still = std::mem::replace(&mut self.seen, now.clone()) == *now;
        is_still && now != taken
    }

    /// Looks at the files once.
    pub fn look(&mut self, files: &impl Watched) {
        files.look();
        let now = files.stamps();
        if self.is_due(&files.taken(), &now) {
            files.reload(now);
        }
    }
}

/// Starts the thread that looks at the files until everything must end.
///
/// # Errors
/// The system has no thread left.
pub fn start(
    name: &'static str,
    files: Arc<impl Watched>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    supervisor.spawn_until_end(name, shutdown, move |shutdown| {
        let mut watch = Watch::new(files.taken());
        while shutdown.pause(INTERVAL) {
            supervisor::turn();
            watch.look(&*files);
        }
        Ok(())
    })
}

/// Reads a file of at most `bytes_max` bytes. `None`: it is larger.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    // One byte more shows that the file is too large.
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= bytes_max).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_when_they_have_been_still_for_one_look() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let stamps = || Stamps::of(paths.iter().map(|path| &**path));
        std::fs::write(&paths[0], "1").unwrap();
        let taken = stamps();
        let mut watch = Watch::new(taken.clone());
        assert!(!watch.is_due(&taken, &stamps()), "unchanged");
        std::fs::write(&paths[0], "22").unwrap();
        assert!(!watch.is_due(&taken, &stamps()), "just changed");
        std::fs::write(&paths[1], "3").unwrap();
        assert!(!watch.is_due(&taken, &stamps()), "another has just appeared");
        assert!(watch.is_due(&taken, &stamps()) && watch.is_due(&taken, &stamps()));
        let taken = stamps();
        assert!(!watch.is_due(&taken, &stamps()), "taken over");
        std::fs::remove_file(&paths[1]).unwrap();
        assert!(!watch.is_due(&taken, &stamps()));
        assert!(watch.is_due(&taken, &stamps()), "a missing file is a change too");
    }

    #[test]
    fn large_files_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert!(read(&path, 3).is_err());
        std::fs::write(&path, "123").unwrap();
        assert_eq!((read(&path, 3).unwrap(), read(&path, 2).unwrap()), (Some(b"123".into()), None));
    }
}
