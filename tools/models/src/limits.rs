//! Limits on threads: kernel counters, the limit that refused a thread, and a prediction whether a
//! thread per request can work.
//!
//! Every limit causes the same error, EAGAIN; only the kernel's counters distinguish them. Reading
//! order: [`Evidence`], [`Evidence::limit`] (after a refusal), [`Evidence::predict`] (before one).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hotrow_diagnose::probe::group::{Controller, GroupLimit, Groups};
use hotrow_diagnose::probe::status;
use hotrow_diagnose::root::Root;
use rustix::process::{Resource, geteuid, getrlimit};
use serde::{Deserialize, Serialize};

use super::raw::{self, STACK_BYTES};

/// Memory maps of a C thread: its stack and the guard page below. [`maps_per_thread`] measures it.
pub const MAPS_PER_THREAD: u64 = 2;
/// Threads for that measurement.
const THREADS_MEASURED: u64 = 16;
/// Resident memory of a thread that has ended but is not joined: the upper pages of its stack.
pub const RESIDENT_PER_THREAD_BYTES: u64 = 20 << 10;
/// Address space of a thread: its stack and a guard page.
const SPACE_PER_THREAD_BYTES: u64 = STACK_BYTES as u64 + 4096;
/// Address space for heaps: an arena reserves 64 MiB, and the harness allows two.
const SPACE_OF_HEAPS_BYTES: u64 = 256 << 20;
/// Distance from RLIMIT_AS that counts as the limit: the reserve is released before the counters
/// are read.
const SPACE_SLACK_BYTES: u64 = RESERVE_BYTES as u64 + 4 * SPACE_PER_THREAD_BYTES;
/// Distance from a limit that counts as the limit: other processes start and end while the counters
/// are read.
const SLACK: u64 = 64;
/// Reserve that a run releases when a thread is refused, to have memory for the report; in bytes.
pub(super) const RESERVE_BYTES: usize = 2 << 20;
/// Share of the machine's threads or memory left to other processes.
const LEFT_TO_OTHERS: f64 = 0.1;

/// Kernel counters of threads and memory at one moment. Unreported ones are `None` or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Error of the refused call; empty without one.
    pub error: String,
    /// Memory maps of the process (`/proc/self/maps`).
    pub maps: u64,
    /// `vm.max_map_count`.
    pub maps_max: u64,
    /// Live threads of the process.
    pub threads: u64,
    /// Threads of the machine (`/proc/loadavg`).
    pub tasks: u64,
    /// `kernel.threads-max`.
    pub threads_max: u64,
    /// `kernel.pid_max`.
    pub pid_max: u64,
    /// Threads in a control group of the process and its `pids.max`: of its own group and those
    /// above, the one with the least room.
    pub group: Option<(u64, u64)>,
    /// The file of that limit.
    #[serde(default)]
    pub group_file: Option<PathBuf>,
    /// Refusals of that group and of the process's own (`pids.events`).
    pub group_refusals: u64,
    /// Address space of the process, in bytes.
    pub space_bytes: u64,
    /// RLIMIT_AS, in bytes.
    pub space_max_bytes: Option<u64>,
    /// RLIMIT_NPROC; `None` if it does not apply to this user.
    pub user_threads_max: Option<u64>,
    /// Memory available without swapping, in bytes: of the machine, or of a control group with
    /// less.
    pub memory_available_bytes: u64,
    /// Total memory of the same, in bytes.
    pub memory_bytes: u64,
    /// File of the control group's limit, if that leaves less than the machine.
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
    /// No limit was visible.
    Unknown,
}

impl Evidence {
    /// Reads the counters. Maps are counted in a stack buffer, because near the limit there may be
    /// no memory.
    #[must_use]
    pub fn now(error: &str) -> Self {
        // First the counters that change while thousands of maps are counted: ending threads
        // release memory.
        let machine = Self::of_machine();
        let maps = count_lines(Path::new("/proc/self/maps"));
        Self { error: error.to_owned(), maps, ..machine }
    }

    /// Reads the counters without the maps, which take milliseconds when there are thousands.
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
            // The kernel does not apply it to root or CAP_SYS_RESOURCE, except for the root of a
            // user namespace.
            user_threads_max: if is_exempt_from_nproc() {
                None
            } else {
                getrlimit(Resource::Nproc).current
            },
            memory_available_bytes: field(&memory, "MemAvailable:").unwrap_or_default() * 1024,
            memory_bytes: field(&memory, "MemTotal:").unwrap_or_default() * 1024,
            memory_file: None,
        };
        match Groups::of(&Root::machine(), "self") {
            Ok(groups) => evidence.within_groups(&groups),
            // Without control groups there is no group limit.
            Err(_) => evidence,
        }
    }

    /// Adds the limits of control groups.
    fn within_groups(mut self, groups: &Groups) -> Self {
        let limits = groups.limits();
        self.group_refusals = groups.counters().pids_refusals;
        if let Some(GroupLimit { limit, used, file }) = limits.pids {
            // Kernels before 6.11 count a refusal in the requesting group, later ones in the
            // refusing group.
            let own = groups.folder(Controller::Pids).map(|(own, _)| own);
            if file.parent() != own {
                let events =
                    std::fs::read_to_string(file.with_file_name("pids.events")).unwrap_or_default();
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

    /// Returns the limit that refused a thread. `refusals_before` is the group's count before the
    /// run.
    pub fn limit(&self, refusals_before: u64) -> Limit {
        let full = |count: u64, most: u64| most > 0 && count + SLACK >= most;
        let group_full = self.group.is_some_and(|(count, most)| count >= most);
        if self.group_refusals > refusals_before || group_full {
            Limit::GroupPids
        } else if self.maps_max > 0 && self.maps + 2 * MAPS_PER_THREAD >= self.maps_max {
            Limit::Maps
        } else if self
            .space_max_bytes
            .is_some_and(|most| self.space_bytes + SPACE_SLACK_BYTES >= most)
        {
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

    /// Returns a limit that one more thread would exhaust for other processes; the run then stops
    /// by itself.
    pub fn exhausted_for_others(&self) -> Option<Limit> {
        let share = 1.0 - LEFT_TO_OTHERS;
        let exhausted_for_others = |most: u64| most > 0 && self.tasks as f64 > most as f64 * share;
        if exhausted_for_others(self.threads_max) {
            Some(Limit::ThreadsMax)
        } else if exhausted_for_others(self.pid_max) {
            Some(Limit::PidMax)
        } else if self.memory_available_bytes < (self.memory_bytes as f64 * LEFT_TO_OTHERS) as u64 {
            Some(Limit::Memory)
        } else {
            None
        }
    }

    /// Predicts whether a thread per request can work, from the free resources and each thread's
    /// maps ([`maps_per_thread`]).
    ///
    /// # Errors
    /// The first limit that it would reach, with the formula in a sentence.
    pub fn predict(&self, requests: u64, maps_each: u64) -> Result<(), (Limit, String)> {
        let maps = self.maps + maps_each * requests;
        if self.maps_max > 0 && maps > self.maps_max {
            let fit = self.maps_max.saturating_sub(self.maps) / maps_each.max(1);
            let why = format!(
                "{} memory maps + {maps_each} for each of {requests} threads = {maps}, and \
                 vm.max_map_count is {}: it would end at about {fit} threads",
                self.maps, self.maps_max
            );
            return Err((Limit::Maps, why));
        }
        let space = self.space_bytes + SPACE_OF_HEAPS_BYTES + SPACE_PER_THREAD_BYTES * requests;
        if let Some(most) = self.space_max_bytes.filter(|most| space > *most) {
            let why = format!(
                "{} bytes of address space + {SPACE_OF_HEAPS_BYTES} for heaps + \
                 {SPACE_PER_THREAD_BYTES} for each of {requests} threads = {space}, and RLIMIT_AS \
                 is {most}",
                self.space_bytes
            );
            return Err((Limit::AddressSpace, why));
        }
        let (memory, most) =
            (RESIDENT_PER_THREAD_BYTES * requests, self.memory_available_bytes / 2);
        if memory > most {
            let why = format!(
                "{RESIDENT_PER_THREAD_BYTES} bytes for each of {requests} threads = {memory}, more \
                 than half of the {} bytes of memory that are available{}",
                self.memory_available_bytes,
                self.whose_memory()
            );
            return Err((Limit::Memory, why));
        }
        self.predict_ids(requests)
    }

    /// Predicts from simultaneous threads: those whose requests sleep, because the others end
    /// before the next start.
    fn predict_ids(&self, requests: u64) -> Result<(), (Limit, String)> {
        let asleep = super::work::Expected::of(requests, super::work::Scale::FULL).sleeps;
        let group = self.pids_max();
        let rooms = [
            (Limit::GroupPids, group.as_str(), self.group.map(|(count, most)| (most, count))),
            (Limit::ThreadsMax, "kernel.threads-max", Some((self.threads_max, self.tasks))),
            (Limit::PidMax, "kernel.pid_max", Some((self.pid_max, self.tasks))),
            (
                Limit::UserThreads,
                "RLIMIT_NPROC",
                self.user_threads_max.map(|most| (most, self.threads)),
            ),
        ];
        for (limit, name, room) in rooms {
            if let Some((most, used)) =
                room.filter(|(most, used)| *most > 0 && used + asleep > *most)
            {
                let why = format!(
                    "{used} existing threads + {asleep} requests that may sleep at once = {}, and \
                     {name} is {most}",
                    used + asleep
                );
                return Err((limit, why));
            }
        }
        Ok(())
    }

    /// Returns the evidence for a limit as a sentence.
    pub fn sentence(&self, limit: Limit) -> String {
        match limit {
            Limit::Maps => {
                format!(
                    "the process had {} memory maps, and vm.max_map_count is {}",
                    self.maps, self.maps_max
                )
            }
            Limit::GroupPids => {
                let (count, most) = self.group.unwrap_or_default();
                format!(
                    "the control group had {count} threads, {} is {most}, and a thread was refused \
                     {} times",
                    self.pids_max(),
                    self.group_refusals
                )
            }
            Limit::ThreadsMax => {
                format!(
                    "the machine had {} threads, and kernel.threads-max is {}",
                    self.tasks, self.threads_max
                )
            }
            Limit::PidMax => format!(
                "the machine had {} threads, and kernel.pid_max is {}",
                self.tasks, self.pid_max
            ),
            Limit::AddressSpace => {
                let most = self.space_max_bytes.unwrap_or_default();
                format!(
                    "the process had mapped {} bytes of address space, and RLIMIT_AS is {most}",
                    self.space_bytes
                )
            }
            Limit::UserThreads => {
                let most = self.user_threads_max.unwrap_or_default();
                format!(
                    "the process alone had {} threads, and RLIMIT_NPROC of its user is {most}",
                    self.threads
                )
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

    /// Returns a remedy that lets a thread per request finish.
    pub fn remedy(&self, limit: Limit, requests: u64) -> String {
        // Maps of the program, its libraries and its heaps.
        const MAPS_OF_PROGRAM: u64 = 1_000;
        match limit {
            Limit::Maps => {
                let number = MAPS_PER_THREAD * requests + MAPS_OF_PROGRAM;
                format!(
                    "sysctl vm.max_map_count={number} (or --raise-limits, which sets it for the \
                     run)"
                )
            }
            Limit::GroupPids => format!("{} at {requests} more than it has now", self.pids_max()),
            Limit::ThreadsMax => {
                format!("sysctl kernel.threads-max={}", self.tasks + requests + SLACK)
            }
            Limit::PidMax => format!("sysctl kernel.pid_max={}", self.tasks + requests + SLACK),
            Limit::AddressSpace => {
                let bytes =
                    self.space_bytes + SPACE_OF_HEAPS_BYTES + SPACE_PER_THREAD_BYTES * requests;
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

    /// Returns the file of a group's limit on threads, if known.
    fn pids_max(&self) -> String {
        let file = self.group_file.as_ref().map(|file| file.display().to_string());
        file.unwrap_or_else(|| "pids.max of the control group".to_owned())
    }

    /// Returns the origin of a memory limit; empty for the machine's.
    fn whose_memory(&self) -> String {
        self.memory_file
            .as_ref()
            .map_or_else(String::new, |file| format!(" under {}", file.display()))
    }
}

/// Returns the memory maps of a C thread, measured once: 2, or 1 if the guard page has no map of
/// its own (glibc 2.42 and later on Linux 6.13 and later).
pub fn maps_per_thread() -> u64 {
    static EACH: OnceLock<u64> = OnceLock::new();
    let maps = || count_lines(Path::new("/proc/self/maps"));
    *EACH.get_or_init(|| {
        let before = maps();
        // If even so few threads fail, the prediction reports it from other counters.
        raw::hold_threads(THREADS_MEASURED, STACK_BYTES, maps)
            .map_or(MAPS_PER_THREAD, |then| each(before, then))
    })
}

/// Returns the maps per thread, rounded: other mappings may occur, and the kernel merges adjacent
/// ones.
fn each(before: u64, then: u64) -> u64 {
    ((then.saturating_sub(before) + THREADS_MEASURED / 2) / THREADS_MEASURED).max(1)
}

/// Returns whether the kernel exempts this user from RLIMIT_NPROC.
fn is_exempt_from_nproc() -> bool {
    let namespace = text(&format!("/{}", status::OWN_USERS_FILE));
    geteuid().is_root() && (namespace.is_empty() || status::is_first_namespace(&namespace))
}

/// Counts the lines of a file without allocating; 0 if it cannot be read.
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

/// Parses the number of a line such as `VmSize:  1234 kB`.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// Parses the number of all threads from `0.00 0.01 0.05 1/123 4567` (proc_loadavg(5)).
fn tasks(loadavg: &str) -> Option<u64> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
