//! All sockets of a network namespace. This process's own are requested from the kernel by netlink,
//! without those in TIME_WAIT: a client that reopens connections leaves tens of thousands of them,
//! and a line of text for each costs more than the rest of a survey. Without an answer, and for
//! other namespaces, `/proc` is read.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
    sockopt,
};

use crate::probe::inet_diag::{self, DiagQuery, DumpStatus, Family};
use crate::probe::ports;
use crate::probe::sockets::{self, SOCKETS_MAX, Socket, SocketState};
use crate::root::{ProbeError, ProbeErrorKind, Root};
use crate::samples::Occupancy;

/// Most parts of a reply that are read, of about 30 connections or 250 sockets each; they include
/// those of other processes.
const PARTS_MAX: usize = 4096;
/// Longest wait for the kernel's reply.
const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);
/// The kernel's parts are at most 32 KiB (net/netlink/af_netlink.c).
const PART_BYTES_MAX: usize = 64 << 10;
/// Errno values are smaller (MAX_ERRNO in include/linux/err.h).
const ERRNO_END: i32 = 4096;
/// Share of the ports that TIME_WAIT sockets could take if all had one address, from which they are
/// counted one by one.
const PORTS_MATTER: f64 = 0.9;

/// The sockets of a namespace.
pub(super) struct SocketTable {
    pub(super) sockets: Vec<Socket>,
    /// True if sockets in TIME_WAIT are included.
    with_time_wait: bool,
}

impl SocketTable {
    /// Reads the sockets of this process's own namespace.
    pub(super) fn own(root: &Root, probe_errors: &mut Vec<ProbeError>) -> Self {
        let asked =
            if *root == Root::machine() { query_sockets(DiagQuery::Sockets).ok() } else { None };
        match asked {
            Some(sockets) => Self { sockets, with_time_wait: false },
            None => Self::read(root, "proc/net", probe_errors),
        }
    }

    /// Reads the sockets in the files below `folder`, the `net` of some process.
    pub(super) fn read(root: &Root, folder: &str, probe_errors: &mut Vec<ProbeError>) -> Self {
        let mut all = Vec::new();
        for file in ["tcp", "tcp6"] {
            match root.parse(&format!("{folder}/{file}"), sockets::parse) {
                Ok(found) => all.extend(found),
                // Without IPv6 there is no second file.
                Err(why) if why.why == ProbeErrorKind::Missing && file == "tcp6" => {}
                Err(why) => probe_errors.push(why),
            }
        }
        Self { sockets: all, with_time_wait: true }
    }

    /// Returns the ports of the outgoing range taken towards the busiest address. `time_wait` is
    /// the number of sockets in TIME_WAIT. They take ports too, and are counted where they could
    /// take nearly all.
    pub(super) fn fullest_ports(&self, root: &Root, time_wait: u64) -> Option<Occupancy> {
        let ports = ports::read(root).ok()?;
        let range = ports.first..=ports.last;
        let mut taken: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        let mut take = |sockets: &[Socket]| {
            for socket in sockets
                .iter()
                .filter(|of| of.state != SocketState::Listening && range.contains(&of.local.port()))
            {
                *taken.entry(socket.peer).or_default() += 1;
            }
            taken.values().copied().max().unwrap_or(0)
        };
        let mut used = take(&self.sockets);
        let could_be = used.saturating_add(time_wait);
        if !self.with_time_wait && could_be as f64 >= PORTS_MATTER * ports.count() as f64 {
            used = take(&query_sockets(DiagQuery::TimeWait).ok()?);
        }
        Some(Occupancy { used, most: ports.count() })
    }
}

/// Queries this namespace's sockets of both families, of which a machine may lack one.
pub(super) fn query_sockets(wanted: DiagQuery) -> io::Result<Vec<Socket>> {
    let mut all = Vec::new();
    let mut add = |socket| {
        if all.len() < SOCKETS_MAX {
            all.push(socket);
        }
    };
    dump(Family::V4, wanted, |part| inet_diag::parse_sockets(part, &mut add))?;
    match dump(Family::V6, wanted, |part| inet_diag::parse_sockets(part, &mut add)) {
        Ok(()) | Err(Errno::NOENT | Errno::AFNOSUPPORT) => Ok(all),
        Err(error) => Err(error),
    }
}

/// Sends a request to the kernel and passes each part of the reply to `each`.
pub(super) fn dump(
    family: Family,
    wanted: DiagQuery,
    mut each: impl FnMut(&[u8]) -> DumpStatus,
) -> io::Result<()> {
    let socket: OwnedFd = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WITHIN))?;
    sendto(
        &socket,
        &inet_diag::request(family, wanted),
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )?;
    let mut buffer = vec![0; PART_BYTES_MAX];
    for _ in 0..PARTS_MAX {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        match each(&buffer[..length]) {
            DumpStatus::More => {}
            DumpStatus::Done => break,
            // An invalid reply carries no errno.
            DumpStatus::Refused(error) if (1..ERRNO_END).contains(&error) => {
                return Err(Errno::from_raw_os_error(error));
            }
            DumpStatus::Refused(_) => return Err(Errno::PROTO),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
