//! One sample of the machine.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

pub use super::endpoints::EndpointSample;
use crate::probe::group::GroupStats;
use crate::probe::{cpu, disk, interface, limits, memory, network, pressure, task, tcp};
use crate::root::ProbeResult;

/// One sample of the machine; each part is a value, or the reason why it could not be read.
/// Counters are cumulative.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time of the sample.
    pub at: Nanos,
    /// CPU times.
    pub cpu: ProbeResult<cpu::CpuStat>,
    /// CPU pressure.
    pub cpu_pressure: ProbeResult<pressure::Pressure>,
    /// Memory pressure.
    pub memory_pressure: ProbeResult<pressure::Pressure>,
    /// I/O pressure.
    pub io_pressure: ProbeResult<pressure::Pressure>,
    /// Load and threads.
    pub load: ProbeResult<cpu::LoadAverage>,
    /// Memory.
    pub memory: ProbeResult<memory::Memory>,
    /// Page faults, reclaim and swapping.
    pub vmstat: ProbeResult<memory::VmStat>,
    /// Disks.
    pub disks: ProbeResult<Vec<disk::Disk>>,
    /// Network interfaces.
    pub interfaces: ProbeResult<Vec<interface::Interface>>,
    /// TCP segments and connections.
    pub segments: ProbeResult<tcp::Segments>,
    /// TCP errors.
    pub tcp_errors: ProbeResult<tcp::TcpErrors>,
    /// Segments and errors of the watched processes' other network namespaces.
    pub other_namespaces: Vec<(ProbeResult<tcp::Segments>, ProbeResult<tcp::TcpErrors>)>,
    /// TCP sockets.
    pub sockets: ProbeResult<network::Sockstat>,
    /// Incoming packets.
    pub softnet: ProbeResult<network::Softnet>,
    /// Entries of the firewall's table.
    pub conntrack: ProbeResult<u64>,
    /// Open files of the machine.
    pub files: ProbeResult<limits::FileNr>,
    /// The watched processes.
    pub processes: Vec<ProcessSample>,
    /// Values that only [`Sampler::sample_endpoint`] reads.
    pub end: Option<EndpointSample>,
}

/// The sample of a watched process.
#[derive(Clone, Debug)]
pub struct ProcessSample {
    /// Its id.
    pub pid: u32,
    /// Its threads.
    pub tasks: ProbeResult<Vec<task::Task>>,
    /// CPU time of all its threads, ended ones included, in ticks of 10 ms.
    pub cpu: ProbeResult<Duration>,
    /// Counters of its cgroups.
    pub group: Option<GroupStats>,
}
