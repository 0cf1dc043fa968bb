//! The result of a rule.

/// Classes of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitClass {
    /// All CPUs are busy.
    AllCpus,
    /// One thread is busy while CPUs are idle.
    OneThread,
    /// The cgroup's CPU quota is used up.
    Throttled,
    /// The hypervisor gives the CPUs to other machines.
    Steal,
    /// A link is at its capacity.
    Bandwidth,
    /// Packets are lost or dropped.
    PacketLoss,
    /// A disk.
    Disk,
    /// Memory: reclaim or swapping.
    Memory,
    /// The service waits for another system.
    External,
    /// Too few requests are in flight to keep it busy.
    TooFewConnections,
    /// Requests wait for blocked workers.
    TooFewWorkers,
    /// Connections arrive faster than they are accepted.
    AcceptQueue,
    /// Open files of a process.
    OpenFiles,
    /// Local ports.
    Ports,
    /// A table of the kernel is full.
    KernelTable,
    /// Serialization: a lock, while CPUs are idle.
    Lock,
    /// Another process uses the CPUs.
    Competitor,
    /// The load generator.
    Generator,
    /// A proxy in front of the service.
    Proxy,
    /// Requests are refused or fail.
    Failures,
    /// Nothing was at its limit.
    NoneFound,
}

/// A hypothesis with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The suspected limit.
    pub class: LimitClass,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// The observations, with numbers.
    pub evidence: Vec<String>,
    /// The change that would move the limit, and by how much; if it does not, the finding was
    /// wrong.
    pub counterfactual: String,
}

impl LimitClass {
    /// Returns the class as text.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::AllCpus => "CPU: all of them are busy",
            Self::OneThread => "CPU: one thread is busy, the others are not",
            Self::Throttled => "CPU: the cgroup's quota is used up",
            Self::Steal => "CPU: the hypervisor takes it",
            Self::Bandwidth => "network: bandwidth",
            Self::PacketLoss => "network: packets are lost",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::External => "external: the service waits for another system",
            Self::TooFewConnections => "too few connections",
            Self::TooFewWorkers => "too few workers",
            Self::AcceptQueue => "accept queue",
            Self::OpenFiles => "open files",
            Self::Ports => "local ports",
            Self::KernelTable => "a kernel table",
            Self::Lock => "a lock: threads wait for each other",
            Self::Competitor => "CPU: another process uses it",
            Self::Generator => "the load generator",
            Self::Proxy => "the proxy in front",
            Self::Failures => "failures: requests are refused or fail",
            Self::NoneFound => "no limit was found",
        }
    }
}

/// Smaller gains are no reason for a change.
const GAIN_MIN: f64 = 1.15;

/// Returns a confidence that grows from 0.5 at `from` to 0.95 at `full` and stays there.
pub(super) fn confidence(value: f64, from: f64, full: f64) -> f64 {
    let part = if full > from { ((value - from) / (full - from)).clamp(0.0, 1.0) } else { 1.0 };
    0.5 + 0.45 * part
}

/// Formats a possible gain; nothing where it is too small to be advice.
pub(super) fn up_to(times: f64) -> String {
    if times >= GAIN_MIN { format!(", up to {times:.1} times the rate") } else { String::new() }
}

/// Formats a share in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats a number below 10 with one decimal, others without.
pub(super) fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}
