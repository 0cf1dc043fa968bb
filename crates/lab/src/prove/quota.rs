//! The target's share of CPU, made smaller for a trial and put back.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use hotrow_diagnose::probe::group::{Controller, Groups};
use hotrow_diagnose::root::Root;
use rustix::io::Errno;

/// The smallest quota that the kernel takes, in µs.
const QUOTA_US_MIN: u64 = 1_000;

/// What must be put back. Clones share it, so that whoever hears of the end can put it back too. Its lock is held while a file is written:
/// what it says is what the file holds.
#[derive(Clone, Debug, Default)]
pub struct Undo(Arc<Mutex<Changed>>);

#[derive(Debug, Default)]
struct Changed {
    /// A file, and what it held.
    before: Option<(PathBuf, String)>,
    /// Nothing more is changed: the process ends.
    ends: bool,
}

/// A smaller quota, until it is dropped.
pub(super) struct Smaller(Undo);

impl Undo {
    /// Puts back what was changed, if anything is, and lets nothing be changed from now on. What cannot be put back is told on stderr.
    pub fn end(&self) {
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changed.ends = true;
        changed.put_back_or_tell();
    }
}

impl Changed {
    /// What must be done by hand when it could not be; it stays noted then.
    fn put_back(&mut self) -> Result<(), String> {
        let Some((file, text)) = self.before.take() else { return Ok(()) };
        let nowhere = |error: &io::Error| {
            error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::NODEV)
        };
        match fs::write(&file, &text) {
            // Where the group is gone meanwhile, so is its quota.
            Err(error) if !nowhere(&error) => {
                let told = format!("{}: must be set back to {} ({error})", file.display(), text.trim());
                self.before = Some((file, text));
                Err(told)
            }
            _ => Ok(()),
        }
    }

    fn put_back_or_tell(&mut self) {
        if let Err(told) = self.put_back() {
            // Where nobody can be told either, nothing is left to do.
            let _ = writeln!(io::stderr(), "{told}");
        }
    }
}

impl Smaller {
    /// Writes the quota times `part`.
    ///
    /// # Errors
    /// When the file cannot be read or written, or holds no quota that can be made smaller; when an earlier one could not be put back, or the
    /// process ends.
    pub(super) fn make(file: &Path, part: f64, undo: &Undo) -> io::Result<Self> {
        let mut changed = undo.0.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.ends || changed.before.is_some() {
            return Err(io::Error::other("what was changed before is not put back, or all ends"));
        }
        let before = fs::read_to_string(file)?;
        let smaller =
            smaller(&before, part).ok_or_else(|| io::Error::other(format!("{:?} is no quota", before.trim())))?;
        // Noted first: whatever happens in between, what is put back is what was there.
        changed.before = Some((file.to_owned(), before));
        let written = fs::write(file, smaller);
        drop(changed);
        let made = Self(undo.clone());
        written.map(|()| made)
    }
}

impl Drop for Smaller {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).put_back_or_tell();
    }
}

/// The file that holds a group's quota, where it may be written and does not hold this process too.
pub(super) fn file(group: &Path) -> Option<PathBuf> {
    let file = ["cpu.max", "cpu.cfs_quota_us"].map(|name| group.join(name)).into_iter().find(|file| file.exists())?;
    let groups = Groups::of(&Root::machine(), "self").ok()?;
    let (own, _) = groups.folder(Controller::Cpu)?;
    let writable = fs::OpenOptions::new().write(true).open(&file).is_ok();
    (!concerns(&file, own) && writable).then_some(file)
}

/// Whether the quota in a file holds what is in the group `own`: its group is that one, or one above it.
fn concerns(file: &Path, own: &Path) -> bool {
    file.parent().is_none_or(|group| own.starts_with(group))
}

/// `50000 100000` (v2) or `50000` (v1), with the first number times `part`.
fn smaller(text: &str, part: f64) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let quota = (quota as f64 * part) as u64;
    let rest: Vec<&str> = words.collect();
    (quota >= QUOTA_US_MIN)
        .then(|| [quota.to_string().as_str()].iter().chain(&rest).copied().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_quota_is_made_smaller_and_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.max");
        for (before, during) in [("50000 100000\n", "40000 100000"), ("50000\n", "40000")] {
            fs::write(&file, before).unwrap();
            let undo = Undo::default();
            let made = Smaller::make(&file, 0.8, &undo).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), during);
            drop(made);
            assert_eq!(fs::read_to_string(&file).unwrap(), before);
            // Put back already by whoever heard of the end: nothing is written twice.
            let made = Smaller::make(&file, 0.8, &undo).unwrap();
            undo.end();
            fs::write(&file, "70000").unwrap();
            drop(made);
            assert_eq!(fs::read_to_string(&file).unwrap(), "70000");
            // Whoever heard of the end does not look again.
            assert!(Smaller::make(&file, 0.8, &undo).is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), "70000");
        }
        for none in ["max 100000", "-1", "", "1000"] {
            fs::write(&file, none).unwrap();
            assert!(Smaller::make(&file, 0.8, &Undo::default()).is_err(), "{none}");
            assert_eq!(fs::read_to_string(&file).unwrap(), none);
        }
    }

    /// A second signal comes while the file is being written: what it puts back is not written over.
    #[test]
    fn an_end_waits_for_the_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.max");
        for _ in 0..200 {
            fs::write(&file, "50000 100000").unwrap();
            let (undo, both) = (Undo::default(), Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    undo.end();
                });
                both.wait();
                // Not dropped: the process ends without unwinding.
                std::mem::forget(Smaller::make(&file, 0.8, &undo));
            });
            assert_eq!(fs::read_to_string(&file).unwrap(), "50000 100000");
        }
    }

    #[test]
    fn what_cannot_be_put_back_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.max");
        fs::write(&file, "50000 100000\n").unwrap();
        let undo = Undo::default();
        let made = Smaller::make(&file, 0.8, &undo).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let told = undo.0.lock().unwrap().put_back().unwrap_err();
        assert!(told.starts_with(&format!("{}: must be set back to 50000 100000 (", file.display())), "{told}");
        // A further trial would take what is left of the quota for the whole.
        assert!(Smaller::make(&file, 0.8, &undo).is_err());
        fs::remove_dir(&file).unwrap();
        drop(made);
        assert!(undo.0.lock().unwrap().before.is_none(), "the group is gone");
    }

    #[test]
    fn a_group_that_holds_this_process_is_left_alone() {
        let of = |own: &str| concerns(Path::new("/sys/fs/cgroup/a/b/cpu.max"), Path::new(own));
        assert!(of("/sys/fs/cgroup/a/b") && of("/sys/fs/cgroup/a/b/c"));
        assert!(!of("/sys/fs/cgroup/a") && !of("/sys/fs/cgroup/a/bc") && !of("/sys/fs/cgroup/other"));
    }
}
