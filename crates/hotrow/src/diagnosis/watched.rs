//! Whose processes are looked at while a target is loaded, and the options that choose them.

use std::path::{Path, PathBuf};

use clap::Args;
use hotrow_diagnose::samples::Role;
use hotrow_diagnose::{cgroup, listeners, process};
use hotrow_lab::watch::Watch;
use hotrow_load::target::Address;

const PROC: &str = "/proc";
/// Where cgroups lie, for a path that is not absolute.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Who is watched.
#[derive(Debug, Default, Args)]
pub struct WatchArgs {
    /// Watch this process, and those that descend from it; may be repeated
    #[arg(long, value_name = "PID", group = "watched")]
    pid: Vec<u32>,
    /// Watch the process that listens on this port of this machine [default: the URL's, where that is this machine]
    #[arg(long, value_name = "PORT", group = "watched")]
    port: Option<u16>,
    /// Watch the processes of this cgroup
    #[arg(long, value_name = "PATH", group = "watched")]
    cgroup: Option<PathBuf>,
}

/// Finds the processes that the arguments name, or that listen where the requests go.
///
/// # Errors
/// What was named and is not there, in words.
pub fn watch(args: &WatchArgs, address: &Address) -> Result<Watch, String> {
    let here = address.is_local();
    let (pids, words) = chosen(args, address, here)?;
    let services: Vec<(u32, Role)> = pids.into_iter().map(|pid| (pid, Role::Service)).collect();
    Ok(Watch::new(&services, here, words))
}

fn chosen(args: &WatchArgs, address: &Address, here: bool) -> Result<(Vec<u32>, String), String> {
    let proc = Path::new(PROC);
    let listener = |port| listeners::on_port(proc, port);
    let named = |found: listeners::Listener| (vec![found.pid], format!("process {} ({})", found.pid, found.name));
    if !args.pid.is_empty() {
        return match args.pid.iter().find(|pid| process::stat(proc, **pid).is_err()) {
            Some(pid) => Err(format!("--pid {pid}: there is no such process, or it may not be seen")),
            None if let Some(pid) = args.pid.iter().find(|pid| is_of_kernel(proc, **pid)) => {
                Err(format!("--pid {pid}: it is a thread of the kernel, which serves no requests"))
            }
            None => {
                let pids: Vec<String> = args.pid.iter().map(u32::to_string).collect();
                Ok((args.pid.clone(), format!("process {}", pids.join(", "))))
            }
        };
    }
    if let Some(port) = args.port {
        let nobody = || format!("--port {port}: nobody listens there, or whoever does may not be seen; try as root");
        return listener(port).map(named).ok_or_else(nobody);
    }
    if let Some(group) = &args.cgroup {
        let folder = if group.is_absolute() { group.clone() } else { PathBuf::from(CGROUPS).join(group) };
        let pids = cgroup::processes(&folder)
            .map_err(|e| format!("--cgroup {} is no cgroup: its cgroup.procs: {e}", folder.display()))?;
        return match pids.as_slice() {
            [] => Err(format!("--cgroup {}: no process is in it", folder.display())),
            [_] => Ok((pids, format!("the process of the group {}", folder.display()))),
            _ => Ok((pids.clone(), format!("{} processes of the group {}", pids.len(), folder.display()))),
        };
    }
    Ok(match address {
        Address::Tcp(address) if here => match listener(address.port()) {
            Some(found) => named(found),
            None => (Vec::new(), format!("the machine; who listens on port {} may not be seen", address.port())),
        },
        Address::Unix(_) => (Vec::new(), "the machine; --pid names the process behind the socket".to_owned()),
        Address::Tcp(_) => (Vec::new(), "only what TCP and timing show: the target is not on this machine".to_owned()),
    })
}

fn is_of_kernel(proc: &Path, pid: u32) -> bool {
    std::fs::read_to_string(proc.join(format!("{pid}/stat"))).is_ok_and(|stat| has_kernel_flag(&stat))
}

/// By the ninth field of `/proc/PID/stat` (proc_pid_stat(5)); the name before it may hold anything.
fn has_kernel_flag(stat: &str) -> bool {
    /// `PF_KTHREAD` in include/linux/sched.h.
    const KERNEL_THREAD: u32 = 0x0020_0000;
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6)?.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_kernel_are_known_by_their_flag() {
        assert!(has_kernel_flag("14 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0"));
        assert!(!has_kernel_flag("15 (a) 1 2 3 4 5 6) S 1 15 15 0 -1 4194560 0 0"));
        assert!(!has_kernel_flag("") && !has_kernel_flag("1 (a) S x"));
        assert!(!is_of_kernel(Path::new(PROC), std::process::id()));
    }
}
