//! What a supervisor that was killed left behind: groups that are named after it, and the processes in them.

use std::path::Path;
use std::time::{Duration, Instant};

use hotrow_diagnose::{cgroup, process};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroup::{Group, candidates};

/// Beginning of every supervisor's folder.
const PREFIX: &str = "hotrow-lab-";
/// Longest time for killing what one dead supervisor left.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// How often it is looked whether all are gone.
const KILL_LOOK: Duration = Duration::from_millis(5);

/// The folder's name of a supervisor: `hotrow-lab-PID-BEGAN-NAMESPACE`. Ids are used again, and another namespace has ids
/// of its own.
pub(super) fn label(pid: u32) -> Option<String> {
    let began_ticks = process::stat(Path::new("/proc"), pid).ok()?.began_ticks;
    Some(format!("{PREFIX}{pid}-{began_ticks}-{}", namespace()?))
}

/// Kills and removes what supervisors left that do not live any more.
pub(super) fn clear() {
    let Ok(hierarchies) = cgroup::hierarchies(Path::new("/")) else { return };
    for candidate in candidates(&hierarchies).0 {
        for (name, group) in Group::below(candidate.version, &candidate.parent) {
            if namespace().is_some_and(|namespace| is_dead(&name, &namespace)) {
                end(&group);
            }
        }
    }
}

/// Whether a folder is that of a supervisor of this namespace that has ended.
fn is_dead(name: &str, namespace: &str) -> bool {
    let mut parts = name.strip_prefix(PREFIX).unwrap_or_default().split('-');
    let (Some(pid), Some(began), Some(there), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let (Ok(pid), Ok(began)) = (pid.parse::<u32>(), began.parse::<u64>()) else { return false };
    let lives = |stat: process::Stat| stat.began_ticks == began && !stat.ended();
    there == namespace && !process::stat(Path::new("/proc"), pid).is_ok_and(lives)
}

/// The number of this process's PID namespace.
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
        std::thread::sleep(KILL_LOOK);
    }
    base.remove();
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        && let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
    {
        // It may be gone already.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dead_supervisors_of_this_namespace_are_cleared() {
        let ours = label(std::process::id()).unwrap();
        let namespace = namespace().unwrap();
        assert!(!is_dead(&ours, &namespace), "{ours} lives");
        let began_later = format!("{PREFIX}{}-18446744073709551615-{namespace}", std::process::id());
        assert!(is_dead(&began_later, &namespace), "the id was used again");
        assert!(!is_dead(&began_later, "1"), "another namespace");
        for name in ["", "user.slice", "hotrow-lab-", "hotrow-lab-x-1-2", "hotrow-lab-1-2", "hotrow-lab-1-2-3-4"] {
            assert!(!is_dead(name, &namespace), "{name}");
        }
    }
}
