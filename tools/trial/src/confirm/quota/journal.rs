//! Record of a reduced quota on disk, so that the next start restores it when this process is
//! killed. It lies in a folder of this user alone: those who can write it choose a file
//! that is written with this user's rights.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use hotrow_diagnose::process;

/// Longest record that is read, in bytes.
const RECORD_BYTES_MAX: u64 = 64 * 1024;
/// Files that hold a quota, of cgroups v2 and v1.
const QUOTA_FILES: [&str; 2] = ["cpu.max", "cpu.cfs_quota_us"];

/// The record of one process.
#[derive(Debug)]
pub(super) struct Journal {
    record: PathBuf,
}

/// Returns the folder of records: below `XDG_RUNTIME_DIR`, or below `/run` for root. It is created
/// for this user alone; `None` where that is not possible.
pub(super) fn folder() -> Option<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let base = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .or_else(|| root.then(|| PathBuf::from("/run")))
        .filter(|base| base.is_absolute())?;
    let folder = base.join("hotrow");
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
        _ => {}
    }
    let found = fs::symlink_metadata(&folder).ok()?;
    let own = found.is_dir()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0;
    own.then_some(folder)
}

impl Journal {
    /// Records the content of `file` before and during the change.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(super) fn write(
        folder: &Path,
        file: &Path,
        before: &str,
        during: &str,
    ) -> io::Result<Self> {
        let own = process::stat(Path::new("/proc"), std::process::id())?;
        let record = folder.join(format!("quota-{}-{}", own.pid, own.began_ticks));
        let lines = [&file.display().to_string(), before.trim(), during.trim()].join("\n");
        fs::write(&record, lines)?;
        Ok(Self { record })
    }

    /// Removes the record: the quota is restored.
    pub(super) fn remove(self) {
        // A record that stays has no effect: the file no longer has the reduced content.
        let _ = fs::remove_file(self.record);
    }
}

/// Restores what ended processes left reduced. Returns a message for each quota.
pub(super) fn recover(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let left = names.filter(|name| {
        let ids = name.strip_prefix("quota-").and_then(|ids| ids.split_once('-'));
        let ids =
            ids.and_then(|(pid, began)| Some((pid.parse().ok()?, began.parse::<u64>().ok()?)));
        ids.is_some_and(|(pid, began)| !is_running(pid, began))
    });
    left.filter_map(|name| {
        let record = folder.join(name);
        let restored = restore(&record);
        let _ = fs::remove_file(&record);
        restored
    })
    .collect()
}

fn is_running(pid: u32, began_ticks: u64) -> bool {
    process::stat(Path::new("/proc"), pid).is_ok_and(|stat| stat.began_ticks == began_ticks)
}

/// Restores one quota, unless it was changed since.
fn restore(record: &Path) -> Option<String> {
    let short = fs::metadata(record).is_ok_and(|found| found.len() <= RECORD_BYTES_MAX);
    let text = fs::read_to_string(record).ok().filter(|_| short)?;
    let [file, before, during] = text.lines().collect::<Vec<_>>().try_into().ok()?;
    let file = Path::new(file);
    let quota = file.file_name().is_some_and(|name| QUOTA_FILES.iter().any(|quota| name == *quota));
    let now = fs::read_to_string(file).ok().filter(|_| quota)?;
    if now.trim() != during {
        return None;
    }
    Some(match fs::write(file, before) {
        Ok(()) => format!(
            "{} is {before} again: an earlier run was killed while it was {during}",
            file.display()
        ),
        Err(error) => format!("{}: must be set back to {before} ({error})", file.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that ended: its id is above the kernel's largest.
    const ENDED: &str = "quota-4194305-1";

    #[test]
    fn a_killed_process_leaves_a_record_that_the_next_start_uses() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.max");
        fs::write(&file, "40000 100000\n").unwrap();
        let journal =
            Journal::write(folder.path(), &file, "50000 100000\n", "40000 100000").unwrap();
        assert!(recover(folder.path()).is_empty(), "its process runs");
        fs::rename(&journal.record, folder.path().join(ENDED)).unwrap();
        let messages = recover(folder.path());
        assert!(messages.len() == 1 && messages[0].contains("50000 100000 again"), "{messages:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "50000 100000");
        assert!(recover(folder.path()).is_empty(), "once");
    }

    #[test]
    fn only_quotas_that_are_still_reduced_are_restored() {
        let folder = tempfile::tempdir().unwrap();
        let [quota, other] = ["cpu.max", "passwd"].map(|name| folder.path().join(name));
        fs::write(&quota, "70000 100000").unwrap();
        fs::write(&other, "4").unwrap();
        let record = |file: &Path| format!("{}\n5\n4", file.display());
        for text in [record(&quota), record(&other), "garbage".to_owned(), String::new()] {
            fs::write(folder.path().join(ENDED), text).unwrap();
            assert!(recover(folder.path()).is_empty());
            assert!(!folder.path().join(ENDED).exists(), "tried once");
        }
        assert_eq!(fs::read_to_string(&quota).unwrap(), "70000 100000");
        assert_eq!(fs::read_to_string(&other).unwrap(), "4");
    }
}
