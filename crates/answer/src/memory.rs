//! Memory of the process and its limit: of its control groups, else of the machine.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Returns the resident memory, from /proc/self/statm (pages); `None` without /proc.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Returns the address space that this process may still map, in bytes (`ulimit -v`); `None`
/// without a limit.
pub(crate) fn address_space_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    Some(limit.saturating_sub(mapped_bytes().unwrap_or_default()))
}

/// Returns the address space in use, from /proc/self/statm.
fn mapped_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Resident bytes per byte of `cache.capacity` with a full cache: entries, allocator, and the rest
/// of the process.
const FULL_CACHE: f64 = 1.3;

/// Returns whether a cache of that capacity exceeds the limit as soon as it is full.
pub fn exceeds_when_full(capacity_bytes: u64, memory_share: f64, limit_bytes: u64) -> bool {
    capacity_bytes as f64 * FULL_CACHE > memory_share * limit_bytes as f64
}

/// Returns the least limit that applies to this process; `None` where nothing can be read.
pub fn limit_bytes() -> Option<u64> {
    least_limit(&|path| std::fs::read_to_string(path).ok())
}

/// Reads a file of /proc or /sys.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Returns the least of the limits of the control group and its ancestors (version 2 and 1), and of
/// the machine's memory.
fn least_limit(read: Read<'_>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| mem_total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(|line| {
        // "0::/path" in version 2, "4:memory:/path" in version 1.
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        match controllers {
            "" if number == "0" => {
                least_above(read, Path::new("/sys/fs/cgroup"), path, "memory.max")
            }
            _ if controllers.split(',').any(|name| name == "memory") => {
                least_above(read, Path::new("/sys/fs/cgroup/memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    // "No limit" is "max" in version 2 and a number beyond all memory in version 1.
    of_groups.chain(machine).min()
}

/// Returns the least number in `file` of the group and its ancestors. In a container the group's
/// path may be invisible; the mount's top is then the container's own group.
fn least_above(read: Read<'_>, mount: &Path, group: &str, file: &str) -> Option<u64> {
    let group = mount.join(group.trim_start_matches('/'));
    let limits = group.ancestors().take_while(|folder| folder.starts_with(mount));
    limits.filter_map(|folder| read(&folder.join(file))?.trim().parse().ok()).min()
}

/// Parses `MemTotal:       16384 kB`.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the limit on a system with these files.
    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let of = |path: &Path| {
            files
                .iter()
                .find(|(name, _)| Path::new(name) == path)
                .map(|(_, text)| (*text).to_owned())
        };
        least_limit(&of)
    }

    const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 10 kB\n");

    #[test]
    fn the_least_of_the_groups_and_the_machine_applies() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[MACHINE]), Some(1_024_000));
        let own = ("/proc/self/cgroup", "0::/a.slice/b.scope\n");
        let files = [
            MACHINE,
            own,
            ("/sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n"),
            ("/sys/fs/cgroup/a.slice/memory.max", "500000\n"),
        ];
        assert_eq!(limit(&files), Some(500_000), "of the group above");
        let files = [MACHINE, own, ("/sys/fs/cgroup/a.slice/b.scope/memory.max", "5000000\n")];
        assert_eq!(limit(&files), Some(1_024_000), "more than there is");
        let files =
            [MACHINE, ("/proc/self/cgroup", "0::/../../x\n"), ("/sys/fs/cgroup/memory.max", "7\n")];
        assert_eq!(limit(&files), Some(7), "in a container");
    }

    #[test]
    fn version_1_is_supported() {
        let groups = ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/c0ffee\n0::/\n");
        let unlimited = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit(&[MACHINE, groups, unlimited]), Some(1_024_000));
        let limited = ("/sys/fs/cgroup/memory/docker/c0ffee/memory.limit_in_bytes", "300000\n");
        assert_eq!(limit(&[MACHINE, groups, unlimited, limited]), Some(300_000));
    }

    #[test]
    fn a_limit_of_1_5_times_the_capacity_is_just_too_low_for_a_full_cache() {
        assert!(exceeds_when_full(1000, 0.85, 1500));
        assert!(!exceeds_when_full(1000, 0.85, 1600));
        assert!(!exceeds_when_full(1000, 0.99, 1500));
    }

    #[test]
    fn invalid_limits_are_ignored() {
        let files = [("/proc/meminfo", "MemTotal: many kB"), ("/proc/self/cgroup", "0::\nx\n:\n")];
        assert_eq!(limit(&files), None);
        assert!(resident_bytes().unwrap() > 1 << 20, "this process itself");
        assert!(limit_bytes().unwrap() > 1 << 20);
        assert!(mapped_bytes().unwrap() >= resident_bytes().unwrap());
        assert_eq!(address_space_left().is_some(), getrlimit(Resource::As).current.is_some());
    }
}
