//! A cgroup that allows few threads, for one climb; it goes when the climb is over.

use std::fs;
use std::path::{Path, PathBuf};

use hotrow_diagnose::probe::group::{Controller, Groups};
use hotrow_diagnose::root::Root;

/// Names of such groups begin so; the rest is the doctor's process id.
const PREFIX: &str = "hotrow-doctor-";

/// The group, while it is there.
pub(super) struct PidsGroup {
    pub(super) folder: PathBuf,
}

impl PidsGroup {
    /// Makes one below this process's own group. Without the right to, or where the controller is not handed down, it
    /// says why not.
    pub(super) fn new(most: u64) -> Result<Self, String> {
        let groups = Groups::of(&Root::machine(), "self").map_err(|unseen| unseen.to_string())?;
        let (own, _) = groups.folder(Controller::Pids).ok_or("no cgroup controller for pids can be seen")?;
        clear(own);
        let folder = own.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
        let group = Self { folder };
        let limit = group.folder.join("pids.max");
        if !limit.exists() {
            // v2: a group that holds processes hands nothing down.
            return Err(format!("{} is not there: the controller is not handed down", limit.display()));
        }
        fs::write(&limit, most.to_string())
            .map_err(|error| format!("{} cannot be written: {error}", limit.display()))?;
        Ok(group)
    }

    /// Times that it refused a thread.
    pub(super) fn refusals(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("pids.events")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("max ")?.trim().parse().ok())
    }
}

impl Drop for PidsGroup {
    fn drop(&mut self) {
        // Not empty yet, if the kernel is still at it: the next one clears it away.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes what doctors left that were killed. Groups that still hold something stay.
fn clear(own: &Path) {
    let Ok(entries) = fs::read_dir(own) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another doctor may have been quicker.
            let _ = fs::remove_dir(entry.path());
        }
    }
}
