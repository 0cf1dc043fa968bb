//! Raised kernel limits for a run, restored afterwards.

use std::path::Path;

use super::limits::{Evidence, MAPS_PER_THREAD};
use super::undo::Undo;

/// Threads and maps for the rest of the machine and of the process.
const ROOM: u64 = 10_000;

/// Raised limits; dropping it restores them.
#[derive(Debug)]
pub(super) struct Raised(Undo);

impl Raised {
    /// Raises the limits that a thread per request needs, below `sys` (`/proc/sys`). Sufficient
    /// ones stay.
    ///
    /// # Errors
    /// The limit that cannot be raised, and why; limits raised before are restored.
    pub(super) fn new(
        sys: &Path,
        now: &Evidence,
        requests: u64,
        undo: &Undo,
    ) -> Result<Self, String> {
        let raised = Self(undo.clone());
        let wanted = [
            ("vm/max_map_count", now.maps_max, MAPS_PER_THREAD * requests + ROOM),
            // Only sleeping threads live on, but the kernel may delay the end of others.
            ("kernel/threads-max", now.threads_max, now.tasks + requests + ROOM),
            ("kernel/pid_max", now.pid_max, now.tasks + requests + ROOM),
        ];
        for (name, is, wanted) in wanted {
            if is > 0 && is < wanted {
                undo.raise(&sys.join(name), wanted).map_err(|error| {
                    format!(
                        "{} cannot be raised from {is} to {wanted}: {error}",
                        name.replace('/', ".")
                    )
                })?;
            }
        }
        Ok(raised)
    }

    /// Sets `vm.max_map_count` alone, below `sys`, so that a run reaches this limit.
    ///
    /// # Errors
    /// The limit cannot be set, and why.
    pub(super) fn maps(sys: &Path, maps_max: u64, undo: &Undo) -> Result<Self, String> {
        let raised = Self(undo.clone());
        undo.raise(&sys.join("vm/max_map_count"), maps_max)
            .map_err(|error| format!("vm.max_map_count cannot be set to {maps_max}: {error}"))?;
        Ok(raised)
    }

    /// Describes the raised limits for the report.
    pub(super) fn words(&self) -> Option<String> {
        let names: Vec<String> = self
            .0
            .raised()
            .iter()
            .map(|(file, was)| format!("{} (was {})", file.display(), was.trim()))
            .collect();
        (!names.is_empty()).then(|| {
            format!("Set for a thread per request and restored after it: {}.", names.join(", "))
        })
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.0.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_limits_are_restored() {
        let (sys, undo) = (tempfile::tempdir().unwrap(), Undo::default());
        let file = |name: &str| sys.path().join(name);
        for (folder, name, value) in
            [("vm", "max_map_count", "65530\n"), ("kernel", "threads-max", "192730\n")]
        {
            std::fs::create_dir_all(file(folder)).unwrap();
            std::fs::write(file(folder).join(name), value).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
        let now =
            Evidence { maps_max: 65_530, threads_max: 192_730, tasks: 100, ..Evidence::default() };
        let raised = Raised::new(sys.path(), &now, 100_000, &undo).unwrap();
        assert_eq!(
            (read("vm/max_map_count").as_str(), read("kernel/threads-max").as_str()),
            ("210000", "192730\n")
        );
        assert!(raised.words().unwrap().contains("max_map_count (was 65530)"));
        drop(raised);
        assert_eq!(read("vm/max_map_count"), "65530\n");
        // The second cannot be raised: the first is restored.
        let now = Evidence { pid_max: 32_768, ..now };
        let refused = Raised::new(sys.path(), &now, 100_000, &undo).unwrap_err();
        assert!(
            refused.starts_with("kernel.pid_max cannot be raised from 32768 to 110100: "),
            "{refused}"
        );
        assert_eq!(read("vm/max_map_count"), "65530\n");
        drop(Raised::maps(sys.path(), 100_000, &undo).unwrap());
        assert_eq!(read("vm/max_map_count"), "65530\n");
        let set = Raised::maps(sys.path(), 100_000, &undo).unwrap();
        assert_eq!(read("vm/max_map_count"), "100000");
        drop(set);
        assert!(Raised::maps(&sys.path().join("none"), 100_000, &undo).is_err());
        let enough = Evidence { maps_max: 500_000, ..Evidence::default() };
        assert_eq!(Raised::new(sys.path(), &enough, 100_000, &undo).unwrap().words(), None);
    }
}
