//! The limits of this machine and this process, read once.
//!
//! Reference `diagnosis`: Formulas of `hotrow doctor`
//!
//! Behind the formulas that it prints:
//!
//! - connections: 4 KiB of memory and two pages of `tcp_mem` each; page cache in `inactive_file`
//!   counts as left; 64 open files in reserve
//! - new connections: all may have to be reopened within 1 s; the accept queue
//!   (`net.core.somaxconn`) and three quarters of the SYN backlog hold the arrivals of a stall of
//!   0.1 s. A port is in TIME_WAIT for 60 s, or 1 s with `tcp_tw_reuse` = 1 and `tcp_timestamps`
//! - requests: 5.3 µs of CPU time, as a [cached read](benchmarks.md), of the online or allowed CPUs
//!   or the cgroup's quota
//! - threads: 40 KiB of memory, 2,068 KiB of address space (`RLIMIT_AS`), four memory maps
//!   (`vm.max_map_count`; in C two); 300 ids in reserve

use crate::probe::cpu::{self, CpuStat, LoadAverage};
use crate::probe::group::{self, Groups};
use crate::probe::limits::{self, FileNr, ProcessLimits};
use crate::probe::memory::{self, Memory};
use crate::probe::network::{self, Conntrack};
use crate::probe::ports::{self, Ports};
use crate::probe::status::{self, Status};
use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, Root};

/// Most processes examined to count a user's threads.
const PROCESSES_MAX: usize = 100_000;

/// The inputs of the doctor; each a value, or the reason why it could not be read.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory page size, in bytes.
    pub page_bytes: u64,
    /// Limits of this process, inherited by the programs that it starts.
    pub process: ProbeResult<ProcessLimits>,
    /// Identity of this process.
    pub status: ProbeResult<Status>,
    /// True if its user namespace is the machine's own: in others, root and capabilities do not
    /// exempt from limits.
    pub own_users: ProbeResult<bool>,
    /// Memory maps of this process.
    pub own_maps: ProbeResult<u64>,
    /// Threads of this user in all visible processes.
    pub user_threads: ProbeResult<u64>,
    /// `fs.nr_open`: highest RLIMIT_NOFILE that can be set.
    pub nr_open: ProbeResult<u64>,
    /// Open files of the machine, and `fs.file-max`.
    pub files: ProbeResult<FileNr>,
    /// `net.core.somaxconn`: longest accept queue.
    pub somaxconn: ProbeResult<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`: half-open connections of a listener.
    pub syn_backlog: ProbeResult<u64>,
    /// `net.ipv4.tcp_syncookies`: 0 off, 1 when the queue is full, 2 always.
    pub syncookies: ProbeResult<u64>,
    /// Local ports.
    pub ports: ProbeResult<Ports>,
    /// `net.ipv4.tcp_tw_reuse`: 0 off, 1 on, 2 on the loopback only.
    pub tw_reuse: ProbeResult<u64>,
    /// `net.ipv4.tcp_timestamps`: 0 off.
    pub timestamps: ProbeResult<u64>,
    /// `net.ipv4.tcp_rmem`: smallest, initial and largest receive buffer, in bytes.
    pub tcp_rmem: ProbeResult<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: the same for send buffers.
    pub tcp_wmem: ProbeResult<[u64; 3]>,
    /// `net.ipv4.tcp_mem`: pages of all TCP buffers: no pressure, pressure, maximum.
    pub tcp_mem: ProbeResult<[u64; 3]>,
    /// The firewall's connection table.
    pub conntrack: ProbeResult<Conntrack>,
    /// `kernel.threads-max`.
    pub threads_max: ProbeResult<u64>,
    /// `kernel.pid_max`.
    pub pid_max: ProbeResult<u64>,
    /// `vm.max_map_count`.
    pub max_map_count: ProbeResult<u64>,
    /// `vm.overcommit_memory`: 0 heuristic, 1 always, 2 never.
    pub overcommit: ProbeResult<u64>,
    /// Load and threads of the machine.
    pub load: ProbeResult<LoadAverage>,
    /// Memory.
    pub memory: ProbeResult<Memory>,
    /// Limits of this process's cgroups.
    pub groups: ProbeResult<group::Limits>,
    /// Online CPUs.
    pub cpus: ProbeResult<u64>,
    /// CPU times since boot.
    pub cpu_times: ProbeResult<CpuStat>,
    /// Frequency governor of the first CPU.
    pub governor: ProbeResult<String>,
    /// `always [madvise] never`.
    pub huge_pages: ProbeResult<String>,
    /// The current clock source.
    pub clock_source: ProbeResult<String>,
    /// The available clock sources.
    pub clock_sources: ProbeResult<String>,
    /// True if this is a virtual machine.
    pub hypervisor: ProbeResult<bool>,
}

impl Limits {
    /// Reads all limits. The caller provides the page size, which no file contains.
    #[must_use]
    pub fn read(root: &Root, page_bytes: u64) -> Self {
        let text = |file: &str| root.read(file).map(|text| text.trim().to_owned());
        let ipv4 = |name: &str| format!("proc/sys/net/ipv4/{name}");
        let clock =
            |name: &str| format!("sys/devices/system/clocksource/clocksource0/{name}_clocksource");
        let status = root.parse(status::OWN_FILE, status::parse);
        Self {
            page_bytes,
            process: root.parse(limits::OWN_FILE, limits::parse),
            own_users: root
                .parse(status::OWN_USERS_FILE, |text| Some(status::is_first_namespace(text))),
            own_maps: root.parse("proc/self/maps", |text| Some(text.lines().count() as u64)),
            user_threads: status.clone().and_then(|status| user_threads(root, status.user)),
            status,
            nr_open: root.value("proc/sys/fs/nr_open"),
            files: root.parse(limits::FILES_FILE, limits::parse_files),
            somaxconn: root.value("proc/sys/net/core/somaxconn"),
            syn_backlog: root.value(&ipv4("tcp_max_syn_backlog")),
            syncookies: root.value(&ipv4("tcp_syncookies")),
            ports: ports::read(root),
            tw_reuse: root.value(&ipv4("tcp_tw_reuse")),
            timestamps: root.value(&ipv4("tcp_timestamps")),
            tcp_rmem: root.parse(&ipv4("tcp_rmem"), three),
            tcp_wmem: root.parse(&ipv4("tcp_wmem"), three),
            tcp_mem: root.parse(&ipv4("tcp_mem"), three),
            conntrack: network::read_conntrack(root),
            threads_max: root.value("proc/sys/kernel/threads-max"),
            pid_max: root.value("proc/sys/kernel/pid_max"),
            max_map_count: root.value("proc/sys/vm/max_map_count"),
            overcommit: root.value("proc/sys/vm/overcommit_memory"),
            load: root.parse(cpu::LOADAVG_FILE, cpu::parse_load),
            memory: root.parse(memory::MEMINFO_FILE, memory::parse_meminfo),
            groups: Groups::of(root, "self").map(|groups| groups.limits()),
            cpus: root.parse("sys/devices/system/cpu/online", status::parse_list),
            cpu_times: root.parse(cpu::FILE, cpu::parse),
            governor: text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            huge_pages: text("sys/kernel/mm/transparent_hugepage/enabled"),
            clock_source: text(&clock("current")),
            clock_sources: text(&clock("available")),
            hypervisor: root.parse(cpu::CPUINFO_FILE, |text| Some(is_virtual(text))),
        }
    }
}

impl Limits {
    /// Returns whether this process is exempt from a limit. A kernel without user namespaces has
    /// only the first one.
    pub(super) fn exempt(&self, privileged: impl Fn(&Status) -> bool) -> bool {
        let root_elsewhere = self.own_users.as_ref().is_ok_and(|own| !own);
        !root_elsewhere && self.status.as_ref().is_ok_and(privileged)
    }
}

/// Counts the threads of a user, among the processes that `/proc` shows.
fn user_threads(root: &Root, user: u32) -> ProbeResult<u64> {
    let probe_error = |error: &std::io::Error| ProbeError {
        file: "proc".to_owned(),
        why: ProbeErrorKind::of(error),
    };
    let entries = std::fs::read_dir(root.path("proc")).map_err(|error| probe_error(&error))?;
    let pids =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_pid = |pid: u32| root.parse(&format!("proc/{pid}/status"), status::parse).ok();
    Ok(pids
        .take(PROCESSES_MAX)
        .filter_map(of_pid)
        .filter(|s| s.user == user)
        .map(|s| s.threads)
        .sum())
}

fn three(text: &str) -> Option<[u64; 3]> {
    let words: Vec<u64> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    words.try_into().ok()
}

/// x86 processors show a flag that every hypervisor sets.
fn is_virtual(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")
}
