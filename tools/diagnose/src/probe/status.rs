//! Identity and privileges of a process: `/proc/PID/status`.

use super::named;

/// The file of this process.
pub const OWN_FILE: &str = "proc/self/status";
/// Mapping of this process's user namespace to the machine's users.
pub const OWN_USERS_FILE: &str = "proc/self/uid_map";
/// Bits of `CapEff` (include/uapi/linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
/// See [`CAP_SYS_ADMIN`].
const CAP_SYS_RESOURCE: u32 = 24;

/// A process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Real user id, by which limits count.
    pub user: u32,
    /// Its threads.
    pub threads: u64,
    /// Its address space, in bytes; 0 for a kernel thread.
    pub address_space: u64,
    /// Its resident memory, in bytes; 0 for a kernel thread.
    pub resident: u64,
    /// Effective capabilities, as bits.
    pub capabilities: u64,
    /// CPUs that it may use.
    pub cpus: Option<u64>,
}

/// Context switches of a thread since it began, from `/proc/PID/task/TID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Voluntary: it waited for something.
    pub waits: u64,
    /// Involuntary: another thread had to run.
    pub preempted: u64,
}

/// Parses a thread's context switches.
pub fn parse_switches(text: &str) -> Option<Switches> {
    let (waits, preempted) =
        (named(text, "voluntary_ctxt_switches")?, named(text, "nonvoluntary_ctxt_switches")?);
    Some(Switches { waits, preempted })
}

/// Parses the file.
pub fn parse(text: &str) -> Option<Status> {
    let bytes =
        |name: &str| named::<u64>(text, name).and_then(|kib| kib.checked_mul(1024)).unwrap_or(0);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some(Status {
        user: named(text, "Uid:")?,
        threads: named(text, "Threads:")?,
        address_space: bytes("VmSize:"),
        resident: bytes("VmRSS:"),
        capabilities: u64::from_str_radix(field("CapEff:")?, 16).ok()?,
        cpus: field("Cpus_allowed_list:").and_then(parse_list),
    })
}

impl Status {
    /// Returns whether it is exempt from RLIMIT_NPROC: user 0 and two capabilities are
    /// (kernel/fork.c).
    pub fn may_exceed_processes(&self) -> bool {
        self.user == 0 || self.can(CAP_SYS_RESOURCE) || self.can(CAP_SYS_ADMIN)
    }

    /// Returns whether it is exempt from `fs.file-max` (fs/file_table.c).
    pub fn may_exceed_file_max(&self) -> bool {
        self.can(CAP_SYS_ADMIN)
    }

    fn can(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }
}

/// Returns whether the text of `uid_map` is that of the machine's own namespace, in which every
/// user maps to itself. Root in another one (a rootless container) is not exempt from limits,
/// even with all capabilities there (user_namespaces(7)).
pub fn is_first_namespace(text: &str) -> bool {
    text.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns the count of numbers in a list such as `0-3,8`.
pub fn parse_list(text: &str) -> Option<u64> {
    let part = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
        (u64::from(to) + 1).checked_sub(u64::from(from))
    };
    text.trim().split(',').map(part).sum()
}
