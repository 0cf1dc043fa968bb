//! Remains of killed supervisors: groups named after them, and the processes in them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotrow_diagnose::cgroup::{self, Hierarchy};
use hotrow_diagnose::process;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroup::{Group, candidates};

/// Prefix of every supervisor's folder.
const PREFIX: &str = "hotrow-lab-";
/// Suffix of the generator's group, beside the supervisor's folder.
pub(super) const GENERATOR_SUFFIX: &str = "-generator";
/// Time limit for killing the processes of one dead supervisor.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// Polling interval for that.
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns a supervisor's folder name: `hotrow-lab-PID-START-NAMESPACE`. Process ids are reused,
/// and other namespaces have ids of their own.
pub(super) fn label(pid: u32) -> Option<String> {
    let began_ticks = process::stat(Path::new("/proc"), pid).ok()?.began_ticks;
    Some(format!("{PREFIX}{pid}-{began_ticks}-{}", namespace()?))
}

/// Returns the hierarchies of this process as they were before it was moved into a generator's
/// group.
pub(super) fn hierarchies() -> io::Result<Vec<Hierarchy>> {
    let mut found = cgroup::hierarchies(Path::new("/"))?;
    for hierarchy in &mut found {
        hierarchy.own = outside(&hierarchy.own);
    }
    Ok(found)
}

fn outside(own: &Path) -> PathBuf {
    let name = own.file_name().unwrap_or_default().to_string_lossy();
    match own.parent() {
        Some(parent) if name.starts_with(PREFIX) && name.ends_with(GENERATOR_SUFFIX) => {
            parent.to_owned()
        }
        _ => own.to_owned(),
    }
}

/// Kills and removes the remains of dead supervisors.
pub(super) fn clear() {
    let Ok(hierarchies) = hierarchies() else { return };
    for candidate in candidates(&hierarchies).0 {
        for (name, group) in Group::below(candidate.version, &candidate.parent) {
            let supervisor = name.strip_suffix(GENERATOR_SUFFIX).unwrap_or(&name);
            if !namespace().is_some_and(|namespace| is_dead(supervisor, &namespace)) {
                continue;
            }
            if supervisor == name {
                end(&group);
            } else {
                // Its process, a lab, may be alive, and is not the supervisor's to kill.
                group.remove_if_empty();
            }
        }
    }
}

/// Returns whether a folder belongs to a dead supervisor of this namespace.
fn is_dead(name: &str, namespace: &str) -> bool {
    let mut parts = name.strip_prefix(PREFIX).unwrap_or_default().split('-');
    let (Some(pid), Some(began), Some(there), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let (Ok(pid), Ok(began)) = (pid.parse::<u32>(), began.parse::<u64>()) else { return false };
    let lives = |stat: process::Stat| stat.began_ticks == began && !stat.ended();
    there == namespace && !process::stat(Path::new("/proc"), pid).is_ok_and(lives)
}

/// Returns the number of this process's PID namespace.
fn namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(link.to_str()?.trim_start_matches("pid:[").trim_end_matches(']').to_owned())
}

fn end(base: &Group) {
    let until = Instant::now() + KILL_WAIT;
    let children = base.children();
    loop {
        let mut living = false;
        for group in &children {
            let processes = group.processes();
            living |= !processes.is_empty();
            if !group.kill() {
                processes.iter().for_each(|pid| kill(*pid));
            }
        }
        if !living || Instant::now() > until {
            break;
        }
        std::thread::sleep(KILL_POLL_INTERVAL);
    }
    base.remove();
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        && let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
    {
        // It may have ended already.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generators_group_is_not_taken_for_the_labs_own() {
        for (own, expected) in [
            ("/cg/user/hotrow-lab-1-2-3-generator", "/cg/user"),
            ("/cg/user/hotrow-lab-1-2-3", "/cg/user/hotrow-lab-1-2-3"),
            ("/cg/my-generator", "/cg/my-generator"),
            ("/", "/"),
        ] {
            assert_eq!(outside(Path::new(own)), Path::new(expected));
        }
    }

    #[test]
    fn only_dead_supervisors_of_this_namespace_are_cleared() {
        let ours = label(std::process::id()).unwrap();
        let namespace = namespace().unwrap();
        assert!(!is_dead(&ours, &namespace), "{ours} lives");
        let began_later =
            format!("{PREFIX}{}-18446744073709551615-{namespace}", std::process::id());
        assert!(is_dead(&began_later, &namespace), "the id was used again");
        assert!(!is_dead(&began_later, "1"), "another namespace");
        for name in [
            "",
            "user.slice",
            "hotrow-lab-",
            "hotrow-lab-x-1-2",
            "hotrow-lab-1-2",
            "hotrow-lab-1-2-3-4",
        ] {
            assert!(!is_dead(name, &namespace), "{name}");
        }
    }
}
