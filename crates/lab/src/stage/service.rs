//! One process under the supervisor, and all that descends from it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use hotrow_diagnose::process::{self, Stat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::launch::{self, Order};
use super::limiter::Place;
use super::log::Log;
use super::{Command, LOG_BYTES_MAX, Usage};

/// Variable that all descendants inherit: where no cgroup lists them, it tells whose an orphan is.
const MARK: &str = "HOTROW_LAB_PROCESS";
/// Longest wait, after the end of a process, for the rest of its output.
const OUTPUT_WAIT: Duration = Duration::from_millis(200);

/// A process that was started.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) pid: u32,
    pub(super) place: Place,
    handle: OwnedFd,
    child: Child,
    log: Log,
    mark: String,
    /// Who is known to be of it, by id and beginning.
    known: HashSet<(u32, u64)>,
    /// CPU time of orphans of it that the supervisor has waited for, and of itself.
    reaped_cpu: Duration,
    status: Option<ExitStatus>,
    ended: Option<Usage>,
}

/// All that descends from this process, the supervisor.
pub(super) fn offspring() -> Vec<Stat> {
    let all = process::all(Path::new("/proc")).unwrap_or_default();
    process::descendants(&all, std::process::id()).into_iter().cloned().collect()
}

/// Signals a process that was seen before, and no other that has its id now.
pub(super) fn signal(seen: &Stat, signal: Signal) {
    let Some(pid) = i32::try_from(seen.pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // From here on the handle stands for one process; is it the one that was seen?
    if process::stat(Path::new("/proc"), seen.pid).is_ok_and(|now| now.began_ticks == seen.began_ticks) {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(handle, signal);
    }
}

impl Service {
    /// Starts it; `id` is unique under this supervisor.
    pub(super) fn start(command: &Command, id: u32, place: Place) -> Result<Self, (String, Place)> {
        match Self::launch(command, id, &place) {
            Ok((child, handle, log)) => Ok(Self {
                pid: child.id(),
                place,
                handle,
                child,
                log,
                mark: mark(id),
                known: HashSet::new(),
                reaped_cpu: Duration::ZERO,
                status: None,
                ended: None,
            }),
            Err(why) => Err((why, place)),
        }
    }

    fn launch(command: &Command, id: u32, place: &Place) -> Result<(Child, OwnedFd, Log), String> {
        if !command.dir.is_dir() {
            return Err(format!("its folder {} does not exist", command.dir.display()));
        }
        let told = |error: io::Error| format!("its log {} cannot be written: {error}", command.log.display());
        let (from, to) = io::pipe().map_err(told)?;
        let log = Log::open(&command.log, from, LOG_BYTES_MAX).map_err(told)?;
        let mut env = command.env.clone();
        env.push((MARK.to_owned(), mark(id)));
        let order = Order {
            argv: command.argv.clone(),
            env,
            dir: command.dir.clone(),
            entrances: place.entrances(),
            cpus: place.cpus.clone(),
            parent: std::process::id(),
        };
        let mut child = launch::launch(&order, to)?;
        // Nobody has waited for it yet, so the id is still its own.
        let handle = Pid::from_child(&child);
        match pidfd_open(handle, PidfdFlags::empty()) {
            Ok(handle) => Ok((child, handle, log)),
            Err(error) => {
                // It is ours to end, for nobody else knows of it.
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("the system gives no handle for it: {error}"))
            }
        }
    }

    /// Becomes readable when the process ends.
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.handle.as_fd()
    }

    pub(super) fn runs(&self) -> bool {
        self.status.is_none()
    }

    /// Whether it is over, with all its descendants.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn ask_to_end(&self, signal: Signal) {
        if self.runs() {
            // It may have ended meanwhile.
            let _ = pidfd_send_signal(&self.handle, signal);
        }
    }

    /// Those of `offspring` that are of it, itself included; ended ones too, until they are waited for.
    pub(super) fn members(&mut self, offspring: &[Stat]) -> Vec<Stat> {
        let listed: HashSet<u32> = self.place.processes().into_iter().collect();
        let own = |stat: &Stat| {
            listed.contains(&stat.pid)
                || [stat.pid, stat.group, stat.session].contains(&self.pid)
                || self.known.contains(&(stat.pid, stat.began_ticks))
                || (!self.place.lists() && is_marked(stat.pid, &self.mark))
        };
        let mut members: HashMap<u32, &Stat> = HashMap::new();
        for stat in offspring.iter().filter(|stat| own(stat)) {
            members.insert(stat.pid, stat);
            members.extend(process::descendants(offspring, stat.pid).into_iter().map(|stat| (stat.pid, stat)));
        }
        self.known = members.values().map(|stat| (stat.pid, stat.began_ticks)).collect();
        members.into_values().cloned().collect()
    }

    /// Its members that live, without itself.
    pub(super) fn living_descendants(&mut self, offspring: &[Stat]) -> Vec<Stat> {
        let mut members = self.members(offspring);
        members.retain(|stat| stat.pid != self.pid && !stat.ended());
        members
    }

    /// One of it has ended, and is about to be waited for. `true` when that was done here.
    pub(super) fn bury(&mut self, dead: &Stat) -> bool {
        self.reaped_cpu += dead.cpu + dead.children_cpu;
        if dead.pid != self.pid || self.status.is_some() {
            return false;
        }
        match self.child.try_wait() {
            Ok(Some(status)) => self.status = Some(status),
            // It has ended, so it can be waited for; should the system think otherwise, it is asked again.
            Ok(None) | Err(_) => return false,
        }
        true
    }

    /// How it ended, with what it printed last.
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
        let counted = self.place.cpu_stat();
        let members = match counted.usage {
            Some(_) => {
                self.place.processes().iter().filter_map(|pid| process::stat(Path::new("/proc"), *pid).ok()).collect()
            }
            None => self.members(&offspring()),
        };
        let living = members.iter().filter(|stat| stat.pid != self.pid && !stat.ended()).count();
        let pages: u64 = members.iter().map(|stat| stat.rss_pages).sum();
        let added_up = || self.reaped_cpu + members.iter().map(|stat| stat.cpu + stat.children_cpu).sum::<Duration>();
        Usage {
            cpu: counted.usage.unwrap_or_else(added_up),
            rss_bytes: pages.saturating_mul(rustix::param::page_size() as u64),
            periods: counted.periods,
            throttled_periods: counted.throttled_periods,
            left_children: if self.runs() { 0 } else { u32::try_from(living).unwrap_or(u32::MAX) },
        }
    }

    /// Whether CPU time is added up from processes that must be seen while they live.
    pub(super) fn must_be_seen(&self) -> bool {
        !self.is_over() && self.place.cpu_stat().usage.is_none()
    }

    /// It is over: nothing of it lives. What it used stays known.
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
