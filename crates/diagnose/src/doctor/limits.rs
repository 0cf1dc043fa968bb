//! The limits of this machine and this process, read once.

use crate::probe::conntrack::{self, Conntrack};
use crate::probe::cpu::{self, CpuStat};
use crate::probe::cpuinfo;
use crate::probe::files::{self, FileNr};
use crate::probe::group::{self, Groups};
use crate::probe::limits::{self as process, ProcessLimits};
use crate::probe::loadavg::{self, Load};
use crate::probe::memory::{self, Memory};
use crate::probe::ports::{self, Ports};
use crate::probe::status::{self, Status};
use crate::root::{Root, Seen, Unseen, Why};

/// Most processes that are looked at to count a user's threads.
const PROCESSES_MAX: usize = 100_000;

/// Everything that the doctor looks at; each value, or why it could not be seen.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Size of a page of memory, in bytes.
    pub page_bytes: u64,
    /// Limits of this process, which it hands on to what it starts.
    pub process: Seen<ProcessLimits>,
    /// Who this process is.
    pub status: Seen<Status>,
    /// Whether its namespace of users is the machine's own: else its root and its capabilities are no exemptions.
    pub own_users: Seen<bool>,
    /// Memory maps of this process.
    pub own_maps: Seen<u64>,
    /// Threads of this user, in all processes that can be seen.
    pub user_threads: Seen<u64>,
    /// `fs.nr_open`: highest RLIMIT_NOFILE that can be set.
    pub nr_open: Seen<u64>,
    /// Open files of the machine, and `fs.file-max`.
    pub files: Seen<FileNr>,
    /// `net.core.somaxconn`: longest accept queue.
    pub somaxconn: Seen<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`: half-open connections of a listener.
    pub syn_backlog: Seen<u64>,
    /// `net.ipv4.tcp_syncookies`: 0 off, 1 when the queue is full, 2 always.
    pub syncookies: Seen<u64>,
    /// Local ports.
    pub ports: Seen<Ports>,
    /// `net.ipv4.tcp_tw_reuse`: 0 off, 1 on, 2 on the loopback only.
    pub tw_reuse: Seen<u64>,
    /// `net.ipv4.tcp_timestamps`: 0 off.
    pub timestamps: Seen<u64>,
    /// `net.ipv4.tcp_rmem`: least, first and largest receive buffer, in bytes.
    pub tcp_rmem: Seen<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: the same for sending.
    pub tcp_wmem: Seen<[u64; 3]>,
    /// `net.ipv4.tcp_mem`: pages of all TCP buffers: no pressure, pressure, most.
    pub tcp_mem: Seen<[u64; 3]>,
    /// The firewall's table.
    pub conntrack: Seen<Conntrack>,
    /// `kernel.threads-max`.
    pub threads_max: Seen<u64>,
    /// `kernel.pid_max`.
    pub pid_max: Seen<u64>,
    /// `vm.max_map_count`.
    pub max_map_count: Seen<u64>,
    /// `vm.overcommit_memory`: 0 by a guess, 1 always, 2 never.
    pub overcommit: Seen<u64>,
    /// Load and threads of the machine.
    pub load: Seen<Load>,
    /// Memory.
    pub memory: Seen<Memory>,
    /// What the cgroups of this process hold.
    pub groups: Seen<group::Limits>,
    /// CPUs that are online.
    pub cpus: Seen<u64>,
    /// What the CPUs did since the machine began.
    pub cpu_times: Seen<CpuStat>,
    /// How the first CPU's frequency is governed.
    pub governor: Seen<String>,
    /// `always [madvise] never`.
    pub huge_pages: Seen<String>,
    /// Where the time comes from.
    pub clock_source: Seen<String>,
    /// Where it could come from.
    pub clock_sources: Seen<String>,
    /// Whether this is a virtual machine.
    pub hypervisor: Seen<bool>,
}

impl Limits {
    /// Reads them all. The page size is the system's to know, not the files'.
    #[must_use]
    pub fn read(root: &Root, page_bytes: u64) -> Self {
        let text = |file: &str| root.read(file).map(|text| text.trim().to_owned());
        let ipv4 = |name: &str| format!("proc/sys/net/ipv4/{name}");
        let clock = |name: &str| format!("sys/devices/system/clocksource/clocksource0/{name}_clocksource");
        let status = root.parse(status::OWN_FILE, status::parse);
        Self {
            page_bytes,
            process: root.parse(process::OWN_FILE, process::parse),
            own_users: root.parse(status::OWN_USERS_FILE, |text| Some(status::is_first_namespace(text))),
            own_maps: root.parse("proc/self/maps", |text| Some(text.lines().count() as u64)),
            user_threads: status.clone().and_then(|status| user_threads(root, status.user)),
            status,
            nr_open: root.value("proc/sys/fs/nr_open"),
            files: root.parse(files::FILE, files::parse),
            somaxconn: root.value("proc/sys/net/core/somaxconn"),
            syn_backlog: root.value(&ipv4("tcp_max_syn_backlog")),
            syncookies: root.value(&ipv4("tcp_syncookies")),
            ports: ports::read(root),
            tw_reuse: root.value(&ipv4("tcp_tw_reuse")),
            timestamps: root.value(&ipv4("tcp_timestamps")),
            tcp_rmem: root.parse(&ipv4("tcp_rmem"), three),
            tcp_wmem: root.parse(&ipv4("tcp_wmem"), three),
            tcp_mem: root.parse(&ipv4("tcp_mem"), three),
            conntrack: conntrack::read(root),
            threads_max: root.value("proc/sys/kernel/threads-max"),
            pid_max: root.value("proc/sys/kernel/pid_max"),
            max_map_count: root.value("proc/sys/vm/max_map_count"),
            overcommit: root.value("proc/sys/vm/overcommit_memory"),
            load: root.parse(loadavg::FILE, loadavg::parse),
            memory: root.parse(memory::FILE, memory::parse),
            groups: Groups::of(root, "self").map(|groups| groups.limits()),
            cpus: root.parse("sys/devices/system/cpu/online", status::parse_list),
            cpu_times: root.parse(cpu::FILE, cpu::parse),
            governor: text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            huge_pages: text("sys/kernel/mm/transparent_hugepage/enabled"),
            clock_source: text(&clock("current")),
            clock_sources: text(&clock("available")),
            hypervisor: root.parse(cpuinfo::FILE, |text| Some(is_virtual(text))),
        }
    }
}

impl Limits {
    /// Whether this process is among those that a limit does not hold. A kernel without user namespaces has no others.
    pub(super) fn exempt(&self, privileged: impl Fn(&Status) -> bool) -> bool {
        let root_elsewhere = self.own_users.as_ref().is_ok_and(|own| !own);
        !root_elsewhere && self.status.as_ref().is_ok_and(privileged)
    }
}

/// Threads of a user. Where `/proc` hides other processes, those that can be seen.
fn user_threads(root: &Root, user: u32) -> Seen<u64> {
    let unseen = |error: &std::io::Error| Unseen { file: "proc".to_owned(), why: Why::of(error) };
    let entries = std::fs::read_dir(root.path("proc")).map_err(|error| unseen(&error))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_pid = |pid: u32| root.parse(&format!("proc/{pid}/status"), status::parse).ok();
    Ok(pids.take(PROCESSES_MAX).filter_map(of_pid).filter(|s| s.user == user).map(|s| s.threads).sum())
}

fn three(text: &str) -> Option<[u64; 3]> {
    let words: Vec<u64> = text.split_ascii_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    words.try_into().ok()
}

/// x86 processors show the bit that every hypervisor sets.
fn is_virtual(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")
}
