//! Limits on threads: what the kernel tells, which limit refused a thread, and whether a thread per request can work at all.
//!
//! Every one of them shows as the same error, EAGAIN, so the error tells nothing: the kernel's own counts do. Reading
//! order: [`Evidence`], [`Evidence::limit`] (after a refusal), [`Evidence::predict`] (before one).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hotrow_diagnose::probe::group::{Controller, Groups, Held};
use hotrow_diagnose::probe::status;
use hotrow_diagnose::root::Root;
use rustix::process::{Resource, geteuid, getrlimit};
use serde::{Deserialize, Serialize};

use super::{STACK_BYTES, raw};

/// Memory maps that a thread of C takes: its stack, and the guard page below. [`maps_per_thread`] measures it.
pub const MAPS_PER_THREAD: u64 = 2;
/// Threads with which that is measured.
const THREADS_MEASURED: u64 = 16;
/// Memory that a thread which has ended but is not joined keeps resident: the upper pages of its stack.
pub const RESIDENT_PER_THREAD_BYTES: u64 = 20 << 10;
/// Address space of a thread: its stack and a guard page.
const SPACE_PER_THREAD_BYTES: u64 = STACK_BYTES as u64 + 4096;
/// What the process may map for its heaps while it runs: an arena reserves 64 MiB, and the harness allows two.
const SPACE_OF_HEAPS_BYTES: u64 = 256 << 20;
/// Closer than this to RLIMIT_AS is at it: the reserve is given back before the counts are read.
const SPACE_SLACK_BYTES: u64 = RESERVE_BYTES as u64 + 4 * SPACE_PER_THREAD_BYTES;
/// Closer than this to a limit is at the limit: other processes come and go while the counts are read.
const SLACK: u64 = 64;
/// What a run holds in reserve and gives back when a thread is refused, so that there is memory to say why; in bytes.
pub(super) const RESERVE_BYTES: usize = 2 << 20;
/// Share of the machine's threads, or of its memory, that is left to others.
const LEFT_TO_OTHERS: f64 = 0.1;

/// What the kernel told about threads and memory at one moment. What it does not tell is none, or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What the refused call said; empty without one.
    pub error: String,
    /// Memory maps of the process (`/proc/self/maps`).
    pub maps: u64,
    /// `vm.max_map_count`.
    pub maps_max: u64,
    /// Threads of the process that live.
    pub threads: u64,
    /// Threads of the machine (`/proc/loadavg`).
    pub tasks: u64,
    /// `kernel.threads-max`.
    pub threads_max: u64,
    /// `kernel.pid_max`.
    pub pid_max: u64,
    /// Threads in a control group of the process, and its `pids.max`: of the own group and all above it, that with the least left.
    pub group: Option<(u64, u64)>,
    /// The file of that limit.
    #[serde(default)]
    pub group_file: Option<PathBuf>,
    /// How often that group, and the process's own, refused a thread (`pids.events`).
    pub group_refusals: u64,
    /// Address space of the process, in bytes.
    pub space_bytes: u64,
    /// RLIMIT_AS, in bytes.
    pub space_max_bytes: Option<u64>,
    /// RLIMIT_NPROC; none when it does not bind this user.
    pub user_threads_max: Option<u64>,
    /// Memory that could be had without swapping, in bytes: of the machine, or of a control group that leaves less.
    pub memory_available_bytes: u64,
    /// All memory of the same, in bytes.
    pub memory_bytes: u64,
    /// The file of the control group's limit, where that leaves less than the machine has.
    #[serde(default)]
    pub memory_file: Option<PathBuf>,
}

/// A limit on threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// `vm.max_map_count`: memory maps of one process.
    Maps,
    /// `pids.max` of the control group.
    GroupPids,
    /// `kernel.threads-max`: threads of the machine.
    ThreadsMax,
    /// `kernel.pid_max`: ids of the machine.
    PidMax,
    /// RLIMIT_AS: address space of the process.
    AddressSpace,
    /// RLIMIT_NPROC: threads of the user.
    UserThreads,
    /// Memory.
    Memory,
    /// None that could be seen.
    Unknown,
}

impl Evidence {
    /// What the kernel tells now. Maps are counted in a buffer on the stack, for near the limit there may be no memory.
    #[must_use]
    pub fn now(error: &str) -> Self {
        // First what changes while thousands of maps are counted: threads that end give memory back.
        let machine = Self::of_machine();
        let maps = count_lines(Path::new("/proc/self/maps"));
        Self { error: error.to_owned(), maps, ..machine }
    }

    /// The same without the maps, which take milliseconds to count when there are thousands.
    #[must_use]
    pub fn of_machine() -> Self {
        let number = |path: &str| text(path).trim().parse().unwrap_or_default();
        let (status, memory) = (text("/proc/self/status"), text("/proc/meminfo"));
        let evidence = Self {
            error: String::new(),
            maps: 0,
            maps_max: number("/proc/sys/vm/max_map_count"),
            threads: field(&status, "Threads:").unwrap_or_default(),
            tasks: tasks(&text("/proc/loadavg")).unwrap_or_default(),
            threads_max: number("/proc/sys/kernel/threads-max"),
            pid_max: number("/proc/sys/kernel/pid_max"),
            group: None,
            group_file: None,
            group_refusals: 0,
            space_bytes: field(&status, "VmSize:").unwrap_or_default() * 1024,
            space_max_bytes: getrlimit(Resource::As).current,
            // The kernel does not hold root to it (or who has CAP_SYS_RESOURCE), but for the root of a user namespace.
            user_threads_max: if exempt() { None } else { getrlimit(Resource::Nproc).current },
            memory_available_bytes: field(&memory, "MemAvailable:").unwrap_or_default() * 1024,
            memory_bytes: field(&memory, "MemTotal:").unwrap_or_default() * 1024,
            memory_file: None,
        };
        match Groups::of(&Root::machine(), "self") {
            Ok(groups) => evidence.held_by(&groups),
            // What has no groups is not held by any.
            Err(_) => evidence,
        }
    }

    /// The same within control groups.
    fn held_by(mut self, groups: &Groups) -> Self {
        let limits = groups.limits();
        self.group_refusals = groups.counters().pids_refusals;
        if let Some(Held { limit, used, file }) = limits.pids {
            // Kernels before 6.11 count a refusal in the group that asked, later ones in the group that refused.
            let own = groups.folder(Controller::Pids).map(|(own, _)| own);
            if file.parent() != own {
                let events = std::fs::read_to_string(file.with_file_name("pids.events")).unwrap_or_default();
                self.group_refusals += field(&events, "max ").unwrap_or_default();
            }
            self.group = Some((used, limit));
            self.group_file = Some(file);
        }
        if let Some(held) = limits.memory.filter(|held| held.left() < self.memory_available_bytes) {
            self.memory_available_bytes = held.left();
            self.memory_bytes = held.limit;
            self.memory_file = Some(held.file);
        }
        self
    }

    /// Which limit refused a thread. `refusals_before` are those of the group before the run.
    #[must_use]
    pub fn limit(&self, refusals_before: u64) -> Limit {
        let full = |count: u64, most: u64| most > 0 && count + SLACK >= most;
        let group_full = self.group.is_some_and(|(count, most)| count >= most);
        if self.group_refusals > refusals_before || group_full {
            Limit::GroupPids
        } else if self.maps_max > 0 && self.maps + 2 * MAPS_PER_THREAD >= self.maps_max {
            Limit::Maps
        } else if self.space_max_bytes.is_some_and(|most| self.space_bytes + SPACE_SLACK_BYTES >= most) {
            Limit::AddressSpace
        } else if full(self.tasks, self.threads_max) {
            Limit::ThreadsMax
        } else if full(self.tasks, self.pid_max) {
            Limit::PidMax
        } else if self.user_threads_max.is_some_and(|most| full(self.threads, most)) {
            Limit::UserThreads
        } else if self.memory_available_bytes < (self.memory_bytes as f64 * LEFT_TO_OTHERS) as u64 {
            Limit::Memory
        } else {
            Limit::Unknown
        }
    }

    /// Whether one more thread would take what others on this machine need: then a run stops by itself.
    #[must_use]
    pub fn crowded(&self) -> Option<Limit> {
        let share = 1.0 - LEFT_TO_OTHERS;
        let crowded = |most: u64| most > 0 && self.tasks as f64 > most as f64 * share;
        if crowded(self.threads_max) {
            Some(Limit::ThreadsMax)
        } else if crowded(self.pid_max) {
            Some(Limit::PidMax)
        } else if self.memory_available_bytes < (self.memory_bytes as f64 * LEFT_TO_OTHERS) as u64 {
            Some(Limit::Memory)
        } else {
            None
        }
    }

    /// Whether a thread for each of so many requests can work, from what is free before and what each maps ([`maps_per_thread`]):
    /// the limit in its way, and the formula.
    ///
    /// # Errors
    /// The first limit that it would meet, in a sentence.
    pub fn predict(&self, requests: u64, maps_each: u64) -> Result<(), (Limit, String)> {
        let maps = self.maps + maps_each * requests;
        if self.maps_max > 0 && maps > self.maps_max {
            let fit = self.maps_max.saturating_sub(self.maps) / maps_each.max(1);
            let why = format!(
                "{} memory maps + {maps_each} for each of {requests} threads = {maps}, and vm.max_map_count is {}: \
                 it would end at about {fit} threads",
                self.maps, self.maps_max
            );
            return Err((Limit::Maps, why));
        }
        let space = self.space_bytes + SPACE_OF_HEAPS_BYTES + SPACE_PER_THREAD_BYTES * requests;
        if let Some(most) = self.space_max_bytes.filter(|most| space > *most) {
            let why = format!(
                "{} bytes of address space + {SPACE_OF_HEAPS_BYTES} for heaps + {SPACE_PER_THREAD_BYTES} for each of {requests} \
                 threads = {space}, and RLIMIT_AS is {most}",
                self.space_bytes
            );
            return Err((Limit::AddressSpace, why));
        }
        let (memory, most) = (RESIDENT_PER_THREAD_BYTES * requests, self.memory_available_bytes / 2);
        if memory > most {
            let why = format!(
                "{RESIDENT_PER_THREAD_BYTES} bytes for each of {requests} threads = {memory}, more than half of the \
                 {} bytes of memory that are available{}",
                self.memory_available_bytes,
                self.whose_memory()
            );
            return Err((Limit::Memory, why));
        }
        self.predict_ids(requests)
    }

    /// Threads that live at the same time: those whose requests sleep, for the others are done before the next are started.
    fn predict_ids(&self, requests: u64) -> Result<(), (Limit, String)> {
        let asleep = super::work::Expected::of(requests, super::work::Scale::FULL).sleeps;
        let group = self.pids_max();
        let rooms = [
            (Limit::GroupPids, group.as_str(), self.group.map(|(count, most)| (most, count))),
            (Limit::ThreadsMax, "kernel.threads-max", Some((self.threads_max, self.tasks))),
            (Limit::PidMax, "kernel.pid_max", Some((self.pid_max, self.tasks))),
            (Limit::UserThreads, "RLIMIT_NPROC", self.user_threads_max.map(|most| (most, self.threads))),
        ];
        for (limit, name, room) in rooms {
            if let Some((most, used)) = room.filter(|(most, used)| *most > 0 && used + asleep > *most) {
                let why = format!(
                    "{used} threads that there are + {asleep} requests that may sleep at once = {}, and {name} is {most}",
                    used + asleep
                );
                return Err((limit, why));
            }
        }
        Ok(())
    }

    /// What the evidence says about a limit.
    #[must_use]
    pub fn sentence(&self, limit: Limit) -> String {
        match limit {
            Limit::Maps => {
                format!("the process had {} memory maps, and vm.max_map_count is {}", self.maps, self.maps_max)
            }
            Limit::GroupPids => {
                let (count, most) = self.group.unwrap_or_default();
                format!(
                    "the control group had {count} threads, {} is {most}, and a thread was refused {} times",
                    self.pids_max(),
                    self.group_refusals
                )
            }
            Limit::ThreadsMax => {
                format!("the machine had {} threads, and kernel.threads-max is {}", self.tasks, self.threads_max)
            }
            Limit::PidMax => format!("the machine had {} threads, and kernel.pid_max is {}", self.tasks, self.pid_max),
            Limit::AddressSpace => {
                let most = self.space_max_bytes.unwrap_or_default();
                format!("the process had mapped {} bytes of address space, and RLIMIT_AS is {most}", self.space_bytes)
            }
            Limit::UserThreads => {
                let most = self.user_threads_max.unwrap_or_default();
                format!("the process alone had {} threads, and RLIMIT_NPROC of its user is {most}", self.threads)
            }
            Limit::Memory => format!(
                "{} of {} bytes of memory were available{}, and a tenth is left to others",
                self.memory_available_bytes,
                self.memory_bytes,
                self.whose_memory()
            ),
            Limit::Unknown => format!(
                "no limit could be seen ({} maps of {}, {} threads of {} and of {})",
                self.maps, self.maps_max, self.tasks, self.threads_max, self.pid_max
            ),
        }
    }

    /// What would let a thread for each of so many requests finish.
    #[must_use]
    pub fn remedy(&self, limit: Limit, requests: u64) -> String {
        // What is not the requests': the program, its libraries, its heaps.
        const MAPS_OF_PROGRAM: u64 = 1_000;
        match limit {
            Limit::Maps => {
                let number = MAPS_PER_THREAD * requests + MAPS_OF_PROGRAM;
                format!("sysctl vm.max_map_count={number} (or --raise-limits, which sets it for the run)")
            }
            Limit::GroupPids => format!("{} at {requests} more than it has now", self.pids_max()),
            Limit::ThreadsMax => format!("sysctl kernel.threads-max={}", self.tasks + requests + SLACK),
            Limit::PidMax => format!("sysctl kernel.pid_max={}", self.tasks + requests + SLACK),
            Limit::AddressSpace => {
                let bytes = self.space_bytes + SPACE_OF_HEAPS_BYTES + SPACE_PER_THREAD_BYTES * requests;
                format!("ulimit -v {}", bytes.div_ceil(1024))
            }
            Limit::UserThreads => format!("ulimit -u {}", self.threads + requests + SLACK),
            Limit::Memory => format!(
                "{} bytes of free memory{}, or fewer requests",
                RESIDENT_PER_THREAD_BYTES * requests * 2,
                self.whose_memory()
            ),
            Limit::Unknown => "fewer requests".to_owned(),
        }
    }

    /// The limit on threads of a group, by its file where that is known.
    fn pids_max(&self) -> String {
        let file = self.group_file.as_ref().map(|file| file.display().to_string());
        file.unwrap_or_else(|| "pids.max of the control group".to_owned())
    }

    /// Nothing for the machine's.
    fn whose_memory(&self) -> String {
        self.memory_file.as_ref().map_or_else(String::new, |file| format!(" under {}", file.display()))
    }
}

/// Memory maps that a thread of C takes here, measured once: 2, or 1 where the guard is none of its own (glibc 2.42 and later on
/// Linux 6.13 and later).
pub fn maps_per_thread() -> u64 {
    static EACH: OnceLock<u64> = OnceLock::new();
    let maps = || count_lines(Path::new("/proc/self/maps"));
    *EACH.get_or_init(|| {
        let before = maps();
        // Where not even so few can be had, the prediction will say so from other counts.
        raw::together(THREADS_MEASURED, STACK_BYTES, maps).map_or(MAPS_PER_THREAD, |then| each(before, then))
    })
}

/// To the nearest whole number, for something else may be mapped too; neighbours that the kernel joins count as one.
fn each(before: u64, then: u64) -> u64 {
    ((then.saturating_sub(before) + THREADS_MEASURED / 2) / THREADS_MEASURED).max(1)
}

/// Whether the kernel does not hold this user to RLIMIT_NPROC.
fn exempt() -> bool {
    let namespace = text(&format!("/{}", status::OWN_USERS_FILE));
    geteuid().is_root() && (namespace.is_empty() || status::is_first_namespace(&namespace))
}

/// Lines of a file, counted without taking memory; 0 when it cannot be read.
fn count_lines(path: &Path) -> u64 {
    let mut buffer = [0_u8; 8192];
    let mut lines = 0;
    let Ok(mut file) = File::open(path) else { return 0 };
    while let Ok(read) = file.read(&mut buffer) {
        if read == 0 {
            break;
        }
        lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    lines
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The number of a line like `VmSize:  1234 kB`.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// `0.00 0.01 0.05 1/123 4567`: the second number of the fourth word is that of all threads (proc_loadavg(5)).
fn tasks(loadavg: &str) -> Option<u64> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
