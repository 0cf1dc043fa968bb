//! A kernel resource is exhausted: open files, ports, the firewall's table, TCP memory.

use super::finding::{Finding, LimitClass, confidence};
use crate::samples::{Occupancy, Samples};

/// Share from which a table is full.
const FULL_FROM: f64 = 0.95;
/// Share from which it certainly is.
const FULL: f64 = 0.995;

pub(super) fn open_files(samples: &Samples) -> Option<Finding> {
    let full = samples
        .processes
        .iter()
        .filter_map(|process| Some((process, process.files?, full(process.files)?)));
    let (process, files, share) = full.max_by(|(.., one), (.., other)| one.total_cmp(other))?;
    Some(Finding {
        class: LimitClass::OpenFiles,
        confidence: confidence(share, FULL_FROM, FULL),
        evidence: vec![format!(
            "process {} has {} of {} files open",
            process.pid, files.used, files.most
        )],
        counterfactual: format!(
            "prlimit --pid {} --nofile={} lets it open twice as many",
            process.pid,
            files.most.saturating_mul(2)
        ),
    })
}

pub(super) fn ports(samples: &Samples) -> Option<Finding> {
    let (ports, share) = (samples.ports?, full(samples.ports)?);
    let mut evidence =
        vec![format!("{} of {} local ports to one address are in use", ports.used, ports.most)];
    evidence.extend(samples.sockets.map(|sockets| {
        format!("{} connections have ended and keep theirs for 60 s", sockets.time_wait)
    }));
    Some(Finding {
        class: LimitClass::Ports,
        confidence: confidence(share, FULL_FROM, FULL),
        evidence,
        counterfactual:
            "connections that are kept, net.ipv4.tcp_tw_reuse=1, or a second address to connect to"
                .to_owned(),
    })
}

pub(super) fn conntrack(samples: &Samples) -> Option<Finding> {
    let (table, share) = (samples.conntrack?, full(samples.conntrack)?);
    Some(Finding {
        class: LimitClass::KernelTable,
        confidence: confidence(share, FULL_FROM, FULL),
        evidence: vec![format!(
            "the firewall tracks {} of at most {} connections",
            table.used, table.most
        )],
        counterfactual: format!(
            "sysctl -w net.netfilter.nf_conntrack_max={} ends the drops",
            table.most.saturating_mul(2)
        ),
    })
}

pub(super) fn tcp_memory(samples: &Samples) -> Option<Finding> {
    let aborted = samples.tcp_errors?.aborts_on_memory;
    (aborted > 0).then(|| Finding {
        class: LimitClass::KernelTable,
        confidence: 0.9,
        evidence: vec![format!(
            "{aborted} connections were aborted for lack of TCP memory (TCPAbortOnMemory)"
        )],
        counterfactual: "twice net.ipv4.tcp_mem, or smaller buffers (tcp_rmem, tcp_wmem), ends it"
            .to_owned(),
    })
}

fn full(level: Option<Occupancy>) -> Option<f64> {
    level?.share().filter(|share| *share >= FULL_FROM)
}
