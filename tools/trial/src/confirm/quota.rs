//! The target's CPU quota, reduced for a trial and restored: at the trial's end, by signal
//! handling, and after a kill at the next start.

mod journal;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use hotrow_diagnose::probe::group::{Controller, Groups};
use hotrow_diagnose::root::Root;
use rustix::io::Errno;

use self::journal::Journal;

/// Smallest quota that the kernel accepts, in µs.
const QUOTA_US_MIN: u64 = 1_000;

/// Quota to restore. Clones share it, so that signal handling can restore it too. Its lock is held
/// during each write of the file, so it always matches the file.
#[derive(Clone, Debug, Default)]
pub struct QuotaRestore(Arc<Mutex<QuotaState>>);

#[derive(Debug, Default)]
struct QuotaState {
    /// The file and its former content.
    before: Option<(PathBuf, String)>,
    /// Its record for the next start; none where no folder is this user's alone.
    journal: Option<Journal>,
    /// True if the process is ending; nothing more is changed.
    ending: bool,
}

/// A reduced quota, restored when dropped.
pub(super) struct ReducedQuota(QuotaRestore);

impl QuotaRestore {
    /// Restores the quota and prevents further changes. A failure is reported on stderr.
    pub fn end(&self) {
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changed.ending = true;
        changed.restore_or_report();
    }

    /// Restores the quotas that killed processes left reduced. Returns a message for each.
    pub fn recover() -> Vec<String> {
        journal::folder().map_or_else(Vec::new, |folder| journal::recover(&folder))
    }
}

impl QuotaState {
    /// Restores the quota. On failure it stays recorded and the error states the manual remedy.
    fn restore(&mut self) -> Result<(), String> {
        let Some((file, text)) = self.before.take() else { return Ok(()) };
        let nowhere = |error: &io::Error| {
            error.kind() == io::ErrorKind::NotFound
                || Errno::from_io_error(error) == Some(Errno::NODEV)
        };
        match fs::write(&file, &text) {
            // A removed group needs no restoring.
            Err(error) if !nowhere(&error) => {
                let message =
                    format!("{}: must be set back to {} ({error})", file.display(), text.trim());
                self.before = Some((file, text));
                Err(message)
            }
            _ => {
                self.journal.take().into_iter().for_each(Journal::remove);
                Ok(())
            }
        }
    }

    fn restore_or_report(&mut self) {
        if let Err(message) = self.restore() {
            // A failure of stderr leaves no other channel.
            let _ = writeln!(io::stderr(), "{message}");
        }
    }
}

impl ReducedQuota {
    /// Multiplies the quota by `part`.
    ///
    /// # Errors
    /// The file cannot be read or written or has no quota that can be reduced; an earlier one was
    /// not restored; or the process is ending.
    pub(super) fn make(file: &Path, part: f64, restore: &QuotaRestore) -> io::Result<Self> {
        let mut changed = restore.0.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.ending || changed.before.is_some() {
            return Err(io::Error::other(
                "an earlier quota is not restored, or the process is ending",
            ));
        }
        let before = fs::read_to_string(file)?;
        let reduced = reduced(&before, part)
            .ok_or_else(|| io::Error::other(format!("{:?} is not a quota", before.trim())))?;
        // Recorded before the write, so that a restore always writes the former content.
        changed.journal = match journal::folder() {
            Some(folder) => Some(Journal::write(&folder, file, &before, &reduced)?),
            None => None,
        };
        changed.before = Some((file.to_owned(), before));
        let written = fs::write(file, reduced);
        drop(changed);
        let made = Self(restore.clone());
        written.map(|()| made)
    }
}

impl Drop for ReducedQuota {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).restore_or_report();
    }
}

/// Returns the file of a group's quota, if it is writable and the group does not contain this
/// process.
pub(super) fn file(group: &Path) -> Option<PathBuf> {
    let file = ["cpu.max", "cpu.cfs_quota_us"]
        .map(|name| group.join(name))
        .into_iter()
        .find(|file| file.exists())?;
    let groups = Groups::of(&Root::machine(), "self").ok()?;
    let (own, _) = groups.folder(Controller::Cpu)?;
    let writable = fs::OpenOptions::new().write(true).open(&file).is_ok();
    (!concerns(&file, own) && writable).then_some(file)
}

/// Returns whether the quota in a file applies to the group `own`: the same group or a descendant.
fn concerns(file: &Path, own: &Path) -> bool {
    file.parent().is_none_or(|group| own.starts_with(group))
}

/// Multiplies the first number of `50000 100000` (v2) or `50000` (v1) by `part`.
fn reduced(text: &str, part: f64) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let quota = (quota as f64 * part) as u64;
    let rest: Vec<&str> = words.collect();
    (quota >= QUOTA_US_MIN).then(|| {
        [quota.to_string().as_str()].iter().chain(&rest).copied().collect::<Vec<_>>().join(" ")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_quota_is_reduced_and_restored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.max");
        for (before, during) in [("50000 100000\n", "40000 100000"), ("50000\n", "40000")] {
            fs::write(&file, before).unwrap();
            let restore = QuotaRestore::default();
            let made = ReducedQuota::make(&file, 0.8, &restore).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), during);
            drop(made);
            assert_eq!(fs::read_to_string(&file).unwrap(), before);
            // Already restored by signal handling: nothing is written twice.
            let made = ReducedQuota::make(&file, 0.8, &restore).unwrap();
            restore.end();
            fs::write(&file, "70000").unwrap();
            drop(made);
            assert_eq!(fs::read_to_string(&file).unwrap(), "70000");
            // Signal handling does not look again.
            assert!(ReducedQuota::make(&file, 0.8, &restore).is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), "70000");
        }
        for none in ["max 100000", "-1", "", "1000"] {
            fs::write(&file, none).unwrap();
            assert!(ReducedQuota::make(&file, 0.8, &QuotaRestore::default()).is_err(), "{none}");
            assert_eq!(fs::read_to_string(&file).unwrap(), none);
        }
    }

    /// A second signal arrives during the write: its restore is not overwritten.
    #[test]
    fn a_restore_waits_for_the_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.max");
        for _ in 0..200 {
            fs::write(&file, "50000 100000").unwrap();
            let (restore, both) = (QuotaRestore::default(), Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    restore.end();
                });
                both.wait();
                // Not dropped: the process ends without unwinding.
                std::mem::forget(ReducedQuota::make(&file, 0.8, &restore));
            });
            assert_eq!(fs::read_to_string(&file).unwrap(), "50000 100000");
        }
    }

    #[test]
    fn a_failed_restore_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.max");
        fs::write(&file, "50000 100000\n").unwrap();
        let restore = QuotaRestore::default();
        let made = ReducedQuota::make(&file, 0.8, &restore).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let message = restore.0.lock().unwrap().restore().unwrap_err();
        assert!(
            message.starts_with(&format!("{}: must be set back to 50000 100000 (", file.display())),
            "{message}"
        );
        // A further trial would take the reduced quota for the original one.
        assert!(ReducedQuota::make(&file, 0.8, &restore).is_err());
        fs::remove_dir(&file).unwrap();
        drop(made);
        assert!(restore.0.lock().unwrap().before.is_none(), "the group is gone");
    }

    #[test]
    fn a_group_with_this_process_is_not_changed() {
        let of = |own: &str| concerns(Path::new("/sys/fs/cgroup/a/b/cpu.max"), Path::new(own));
        assert!(of("/sys/fs/cgroup/a/b") && of("/sys/fs/cgroup/a/b/c"));
        assert!(
            !of("/sys/fs/cgroup/a") && !of("/sys/fs/cgroup/a/bc") && !of("/sys/fs/cgroup/other")
        );
    }
}
