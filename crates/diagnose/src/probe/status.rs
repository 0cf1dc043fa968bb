//! What one process is: `/proc/PID/status`.

use super::named;

/// This process's own.
pub const OWN_FILE: &str = "proc/self/status";
/// How the users of this process's namespace are those of the machine.
pub const OWN_USERS_FILE: &str = "proc/self/uid_map";
/// Bits of `CapEff` (include/uapi/linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
/// See [`CAP_SYS_ADMIN`].
const CAP_SYS_RESOURCE: u32 = 24;

/// A process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The user that it runs as (the real one: limits count by it).
    pub user: u32,
    /// Its threads.
    pub threads: u64,
    /// Its address space, in bytes; 0 of a kernel thread.
    pub address_space: u64,
    /// Its resident memory, in bytes; 0 of a kernel thread.
    pub resident: u64,
    /// What it is privileged to do, as bits.
    pub capabilities: u64,
    /// CPUs that it may use.
    pub cpus: Option<u64>,
}

/// How often a thread was taken from its CPU since it began; `/proc/PID/task/TID/status` has it for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Because it waited for something.
    pub waits: u64,
    /// Because another was to run.
    pub preempted: u64,
}

/// Reads a thread's switches.
#[must_use]
pub fn parse_switches(text: &str) -> Option<Switches> {
    let (waits, preempted) = (named(text, "voluntary_ctxt_switches")?, named(text, "nonvoluntary_ctxt_switches")?);
    Some(Switches { waits, preempted })
}

/// Reads the file's text.
#[must_use]
pub fn parse(text: &str) -> Option<Status> {
    let bytes = |name: &str| named::<u64>(text, name).and_then(|kib| kib.checked_mul(1024)).unwrap_or(0);
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
    /// Whether RLIMIT_NPROC does not hold it: the kernel exempts the user 0 and two capabilities (kernel/fork.c).
    #[must_use]
    pub fn may_exceed_processes(&self) -> bool {
        self.user == 0 || self.can(CAP_SYS_RESOURCE) || self.can(CAP_SYS_ADMIN)
    }

    /// Whether `fs.file-max` does not hold it (fs/file_table.c).
    #[must_use]
    pub fn may_exceed_file_max(&self) -> bool {
        self.can(CAP_SYS_ADMIN)
    }

    fn can(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }
}

/// Whether the text of `uid_map` is that of the machine's own namespace, in which all users are themselves. The root of another one
/// (a rootless container) is not exempt from limits, whatever its capabilities there (user_namespaces(7)).
#[must_use]
pub fn is_first_namespace(text: &str) -> bool {
    text.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// How many numbers a list like `0-3,8` names.
#[must_use]
pub fn parse_list(text: &str) -> Option<u64> {
    let part = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
        (u64::from(to) + 1).checked_sub(u64::from(from))
    };
    text.trim().split(',').map(part).sum()
}
