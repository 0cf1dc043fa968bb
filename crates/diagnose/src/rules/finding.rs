//! What a rule finds.

/// Kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// All CPUs are busy.
    AllCpus,
    /// One thread is, while CPUs are idle.
    OneThread,
    /// The cgroup's share of CPU is used up.
    Throttled,
    /// The hypervisor gives the CPUs to others.
    Steal,
    /// A link carries what it can.
    Bandwidth,
    /// Packets are lost or thrown away.
    PacketLoss,
    /// A disk.
    Disk,
    /// Memory: reclaim or swapping.
    Memory,
    /// The service waits for something else.
    External,
    /// Too few requests are under way to keep it busy.
    TooFewConnections,
    /// Requests wait for workers that wait.
    TooFewWorkers,
    /// Connections come faster than they are accepted.
    AcceptQueue,
    /// Open files of a process.
    OpenFiles,
    /// Local ports.
    Ports,
    /// A table of the kernel is full.
    KernelTable,
    /// One thing at a time: a lock, while CPUs are idle.
    Lock,
    /// Another process takes the CPUs.
    Competitor,
    /// The load generator.
    Generator,
    /// What stands in front of the service.
    Proxy,
    /// Nothing was at its limit.
    NoneFound,
}

/// A suspicion, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What limits.
    pub class: Class,
    /// How sure that is, 0 to 1.
    pub confidence: f64,
    /// What it was seen by, in words and numbers.
    pub evidence: Vec<String>,
    /// What to change by how much, so that the limit moves; if it does not, the finding was wrong.
    pub counterfactual: String,
}

impl Class {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::AllCpus => "CPU: all of them are busy",
            Self::OneThread => "CPU: one thread is busy, the others are not",
            Self::Throttled => "CPU: the cgroup's share is used up",
            Self::Steal => "CPU: the hypervisor takes it",
            Self::Bandwidth => "network: bandwidth",
            Self::PacketLoss => "network: packets are lost",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::External => "external: the service waits for something else",
            Self::TooFewConnections => "too few connections",
            Self::TooFewWorkers => "too few workers",
            Self::AcceptQueue => "accept queue",
            Self::OpenFiles => "open files",
            Self::Ports => "local ports",
            Self::KernelTable => "a table of the kernel",
            Self::Lock => "a lock: threads wait for each other",
            Self::Competitor => "CPU: another process takes it",
            Self::Generator => "the load generator",
            Self::Proxy => "the proxy in front",
            Self::NoneFound => "no limit was found",
        }
    }
}

/// A confidence that grows from 0.5 at `from` to 0.95 at `full` and stays there.
pub(super) fn confidence(value: f64, from: f64, full: f64) -> f64 {
    let part = if full > from { ((value - from) / (full - from)).clamp(0.0, 1.0) } else { 1.0 };
    0.5 + 0.45 * part
}

/// A share in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A number with one digit after the point, or none where it says nothing.
pub(super) fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}
