//! A temporary cgroup that allows few threads.

use std::fs;
use std::path::{Path, PathBuf};

use hotrow_diagnose::probe::group::{Controller, Groups};
use hotrow_diagnose::root::Root;

/// Prefix of such groups; the rest is the doctor's process id.
const PREFIX: &str = "hotrow-doctor-";

/// The group; removed on drop.
pub(super) struct PidsGroup {
    pub(super) folder: PathBuf,
}

impl PidsGroup {
    /// Creates a group below this process's own. Returns the reason when permission or the
    /// delegated controller is missing.
    pub(super) fn new(most: u64) -> Result<Self, String> {
        let groups = Groups::of(&Root::machine(), "self").map_err(|unseen| unseen.to_string())?;
        let (own, _) =
            groups.folder(Controller::Pids).ok_or("no cgroup controller for pids is visible")?;
        clear(own);
        let folder = own.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder)
            .map_err(|error| format!("{} cannot be created: {error}", folder.display()))?;
        let group = Self { folder };
        let limit = group.folder.join("pids.max");
        if !limit.exists() {
            // v2: a group that contains processes delegates nothing.
            return Err(format!(
                "{} does not exist: the controller is not delegated",
                limit.display()
            ));
        }
        fs::write(&limit, most.to_string())
            .map_err(|error| format!("{} cannot be written: {error}", limit.display()))?;
        Ok(group)
    }

    /// Returns how many threads it refused.
    pub(super) fn refusals(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("pids.events")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("max ")?.trim().parse().ok())
    }
}

impl Drop for PidsGroup {
    fn drop(&mut self) {
        // If it is not empty yet, the next doctor removes it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes groups of killed doctors. Groups that still contain processes stay.
fn clear(own: &Path) {
    let Ok(entries) = fs::read_dir(own) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another doctor may have removed it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}
