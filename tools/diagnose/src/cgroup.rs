//! Control groups: the cgroup file systems visible to this process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The interface version of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// A hierarchy and this process's position in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its interface.
    pub version: Version,
    /// Controllers available to this process's group, such as `cpu` and `memory`.
    pub controllers: Vec<String>,
    /// Mount point.
    pub mount: PathBuf,
    /// Folder of this process's group, within `mount`.
    pub own: PathBuf,
    /// True if it is mounted read-only.
    pub read_only: bool,
}

/// The counters of `cpu.stat` for a group and its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// CPU time, user and system; absent here in v1.
    pub usage: Option<Duration>,
    /// Periods in which the group was runnable under a limit.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
}

/// Returns the hierarchies in which this process's group is visible. `root` is `/`, or in tests a
/// copy of the relevant files (`proc/self/mountinfo`, `proc/self/cgroup`, the mounts).
///
/// # Errors
/// Fails when the kernel's lists cannot be read; without cgroups the result is empty.
pub fn hierarchies(root: &Path) -> io::Result<Vec<Hierarchy>> {
    hierarchies_of(root, "self")
}

/// The same for another process id, as far as its groups lie within this process's mounts.
///
/// # Errors
/// Fails when the kernel's lists cannot be read: the process has ended, or is hidden.
pub fn hierarchies_of(root: &Path, process: &str) -> io::Result<Vec<Hierarchy>> {
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo"))?;
    let groups = std::fs::read_to_string(root.join("proc").join(process).join("cgroup"))?;
    let mut found: Vec<Hierarchy> =
        mounts.lines().filter_map(|line| hierarchy(line, &groups)).collect();
    for hierarchy in &mut found {
        // Absolute paths of the machine lie below `root` in a test's copy.
        for folder in [&mut hierarchy.mount, &mut hierarchy.own] {
            *folder = root.join(folder.strip_prefix("/").unwrap_or(folder));
        }
        if hierarchy.version == Version::V2 {
            let controllers = std::fs::read_to_string(hierarchy.own.join("cgroup.controllers"))
                .unwrap_or_default();
            hierarchy.controllers =
                controllers.split_ascii_whitespace().map(str::to_owned).collect();
        }
    }
    Ok(found)
}

/// Returns the counters of a group.
///
/// # Errors
/// Fails when its file cannot be read.
pub fn cpu_stat(group: &Path) -> io::Result<CpuStat> {
    Ok(parse_cpu_stat(&std::fs::read_to_string(group.join("cpu.stat"))?))
}

/// Returns the processes of a group, without those of its descendants.
///
/// # Errors
/// Fails when its file cannot be read.
pub fn processes(group: &Path) -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string(group.join("cgroup.procs"))?;
    // The kernel shows a process of another PID namespace as 0.
    Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect())
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - cgroup source rw,cpu` (proc_pid_mountinfo(5)).
fn hierarchy(line: &str, groups: &str) -> Option<Hierarchy> {
    let (mount, system) = line.split_once(" - ")?;
    let (mount, system): (Vec<&str>, Vec<&str>) =
        (mount.split(' ').collect(), system.split(' ').collect());
    let version = match *system.first()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let (root, point, options) = (unescape(mount.get(3)?), unescape(mount.get(4)?), *mount.get(5)?);
    let super_options: Vec<&str> = system.get(2)?.split(',').collect();
    // v1 lists its controllers among the file system's options.
    let (controllers, group) =
        groups.lines().find_map(|line| membership(line, version, &super_options))?;
    // A container may mount a part of the hierarchy; what lies outside is invisible.
    let below = Path::new(group).strip_prefix(&root).ok()?;
    if below.components().any(|part| part == std::path::Component::ParentDir) {
        return None;
    }
    let mount = PathBuf::from(point);
    let read_only =
        options.split(',').chain(super_options.iter().copied()).any(|option| option == "ro");
    Some(Hierarchy { version, controllers, own: mount.join(below), mount, read_only })
}

/// Parses `4:cpu,cpuacct:/a/b` of v1 or `0::/a/b` of v2: controllers and path, if it belongs to
/// that mount.
fn membership<'a>(
    line: &'a str,
    version: Version,
    super_options: &[&str],
) -> Option<(Vec<String>, &'a str)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    let controllers: Vec<&str> = controllers.split(',').filter(|name| !name.is_empty()).collect();
    let here = match version {
        Version::V1 => {
            !controllers.is_empty() && controllers.iter().all(|name| super_options.contains(name))
        }
        Version::V2 => controllers.is_empty(),
    };
    here.then(|| (controllers.into_iter().map(str::to_owned).collect(), group))
}

/// Decodes blanks and backslashes, which are written as three octal digits.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

fn parse_cpu_stat(text: &str) -> CpuStat {
    let value = |name: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs
            .find(|(field, _)| *field == name)
            .and_then(|(_, value)| value.trim().parse::<u64>().ok())
    };
    CpuStat {
        usage: value("usage_usec").map(Duration::from_micros),
        periods: value("nr_periods").unwrap_or_default(),
        throttled_periods: value("nr_throttled").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
