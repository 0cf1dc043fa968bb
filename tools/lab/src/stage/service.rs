//! One process under the supervisor, with all its descendants.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use hotrow_diagnose::process::{self, Stat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::allocation::Allocation;
use super::launch::{self, LaunchOrder};
use super::log::Log;
use super::message::Usage;
use super::{Command, LOG_BYTES_MAX};

/// Environment variable inherited by all descendants; identifies orphans if no cgroup lists them.
const MARK: &str = "HOTROW_LAB_PROCESS";
/// Time limit for the rest of the output after the end of a process.
const OUTPUT_WAIT: Duration = Duration::from_millis(200);

/// A started process.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) pid: u32,
    pub(super) allocation: Allocation,
    handle: OwnedFd,
    child: Child,
    log: Log,
    mark: String,
    /// Known members, by id and start time.
    known: HashSet<(u32, u64)>,
    /// CPU time of the process itself and of its reaped orphans.
    reaped_cpu: Duration,
    status: Option<ExitStatus>,
    ended: Option<Usage>,
}

/// Returns all descendants of this process, the supervisor.
pub(super) fn descendants() -> Vec<Stat> {
    let all = process::all(Path::new("/proc")).unwrap_or_default();
    process::descendants(&all, std::process::id()).into_iter().cloned().collect()
}

/// Signals a known process, and no other one that reuses its id.
pub(super) fn signal(seen: &Stat, signal: Signal) {
    let Some(pid) = i32::try_from(seen.pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // From here on the handle refers to one process; verify that it is the known one.
    if process::stat(Path::new("/proc"), seen.pid)
        .is_ok_and(|now| now.began_ticks == seen.began_ticks)
    {
        // It may have ended in between.
        let _ = pidfd_send_signal(handle, signal);
    }
}

impl Service {
    /// Starts it; `id` is unique under this supervisor.
    pub(super) fn start(
        command: &Command,
        id: u32,
        allocation: Allocation,
    ) -> Result<Self, (String, Allocation)> {
        match Self::launch(command, id, &allocation) {
            Ok((child, handle, log)) => Ok(Self {
                pid: child.id(),
                allocation,
                handle,
                child,
                log,
                mark: mark(id),
                known: HashSet::new(),
                reaped_cpu: Duration::ZERO,
                status: None,
                ended: None,
            }),
            Err(why) => Err((why, allocation)),
        }
    }

    fn launch(
        command: &Command,
        id: u32,
        allocation: &Allocation,
    ) -> Result<(Child, OwnedFd, Log), String> {
        if !command.dir.is_dir() {
            return Err(format!("its folder {} does not exist", command.dir.display()));
        }
        let unwritable = |error: io::Error| {
            format!("its log {} cannot be written: {error}", command.log.display())
        };
        let (from, to) = io::pipe().map_err(unwritable)?;
        let log = Log::open(&command.log, from, LOG_BYTES_MAX).map_err(unwritable)?;
        let mut env = command.env.clone();
        env.push((MARK.to_owned(), mark(id)));
        let order = LaunchOrder {
            argv: command.argv.clone(),
            env,
            dir: command.dir.clone(),
            procs_files: allocation.procs_files(),
            cpus: allocation.cpus.clone(),
            parent: std::process::id(),
        };
        let mut child = launch::launch(&order, to)?;
        // It was not reaped yet, so the id is still its own.
        let handle = Pid::from_child(&child);
        match pidfd_open(handle, PidfdFlags::empty()) {
            Ok(handle) => Ok((child, handle, log)),
            Err(error) => {
                // No other code knows of it, so it must end here.
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("cannot get a handle for it: {error}"))
            }
        }
    }

    /// Returns a handle that becomes readable when the process ends.
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.handle.as_fd()
    }

    pub(super) fn runs(&self) -> bool {
        self.status.is_none()
    }

    /// Returns whether it has ended, with all its descendants.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn request_end(&self, signal: Signal) {
        if self.runs() {
            // It may have ended in between.
            let _ = pidfd_send_signal(&self.handle, signal);
        }
    }

    /// Returns its members among `descendants`, itself and unreaped ones included.
    pub(super) fn members(&mut self, descendants: &[Stat]) -> Vec<Stat> {
        let listed: HashSet<u32> = self.allocation.processes().into_iter().collect();
        let own = |stat: &Stat| {
            listed.contains(&stat.pid)
                || [stat.pid, stat.group, stat.session].contains(&self.pid)
                || self.known.contains(&(stat.pid, stat.began_ticks))
                || (!self.allocation.lists() && is_marked(stat.pid, &self.mark))
        };
        let mut members: HashMap<u32, &Stat> = HashMap::new();
        for stat in descendants.iter().filter(|stat| own(stat)) {
            members.insert(stat.pid, stat);
            members.extend(
                process::descendants(descendants, stat.pid)
                    .into_iter()
                    .map(|stat| (stat.pid, stat)),
            );
        }
        self.known = members.values().map(|stat| (stat.pid, stat.began_ticks)).collect();
        members.into_values().cloned().collect()
    }

    /// Returns its living members without itself.
    pub(super) fn living_descendants(&mut self, descendants: &[Stat]) -> Vec<Stat> {
        let mut members = self.members(descendants);
        members.retain(|stat| stat.pid != self.pid && !stat.ended());
        members
    }

    /// Reaps an ended member. Returns whether that happened here.
    pub(super) fn reap_member(&mut self, dead: &Stat) -> bool {
        self.reaped_cpu += dead.cpu + dead.children_cpu;
        if dead.pid != self.pid || self.status.is_some() {
            return false;
        }
        match self.child.try_wait() {
            Ok(Some(status)) => self.status = Some(status),
            // It has ended, so it can be reaped; on an error the next scan retries.
            Ok(None) | Err(_) => return false,
        }
        true
    }

    /// Returns how it ended, with its last output.
    pub(super) fn exited(&mut self) -> Option<String> {
        let status = self.status?;
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => format!("ended: {status}"),
        };
        self.log.settle(OUTPUT_WAIT);
        Some(match self.log.last_lines() {
            empty if empty.is_empty() => format!("{how}; it printed nothing"),
            lines => format!("{how}; its last lines:\n{lines}"),
        })
    }

    pub(super) fn usage(&mut self) -> Usage {
        if let Some(usage) = self.ended {
            return usage;
        }
        let counted = self.allocation.cpu_stat();
        let members = match counted.usage {
            Some(_) => self
                .allocation
                .processes()
                .iter()
                .filter_map(|pid| process::stat(Path::new("/proc"), *pid).ok())
                .collect(),
            None => self.members(&descendants()),
        };
        let living = members.iter().filter(|stat| stat.pid != self.pid && !stat.ended()).count();
        let pages: u64 = members.iter().map(|stat| stat.rss_pages).sum();
        let added_up = || {
            self.reaped_cpu
                + members.iter().map(|stat| stat.cpu + stat.children_cpu).sum::<Duration>()
        };
        Usage {
            cpu: counted.usage.unwrap_or_else(added_up),
            rss_bytes: pages.saturating_mul(rustix::param::page_size() as u64),
            periods: counted.periods,
            throttled_periods: counted.throttled_periods,
            left_children: if self.runs() { 0 } else { u32::try_from(living).unwrap_or(u32::MAX) },
        }
    }

    /// Returns whether its CPU time is summed from living processes that must be sampled.
    pub(super) fn needs_sampling(&self) -> bool {
        !self.has_ended() && self.allocation.cpu_stat().usage.is_none()
    }

    /// Marks it as ended, keeping its usage.
    pub(super) fn finish(&mut self, left_children: u32) {
        self.ended = Some(Usage { left_children, ..self.usage() });
        self.log.settle(OUTPUT_WAIT);
    }
}

fn mark(id: u32) -> String {
    format!("{}-{id}", std::process::id())
}

fn is_marked(pid: u32, mark: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let wanted = format!("{MARK}={mark}");
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}
