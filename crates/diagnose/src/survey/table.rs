//! All sockets of a network namespace. Of this process's own the kernel is asked by netlink, without those in TIME_WAIT: a client that
//! opens connections anew leaves tens of thousands of them, and a line of text for each costs more than all the rest of a survey. Where
//! it does not answer, and for other namespaces, `/proc` is read.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with, sockopt};

use crate::probe::inet_diag::{self, Family, Part, Wanted};
use crate::probe::ports;
use crate::probe::sockets::{self, SOCKETS_MAX, Socket, State};
use crate::root::{Root, Unseen, Why};
use crate::samples::Level;

/// Most parts of an answer that are read, of some 30 connections or 250 sockets each: those of other processes are among them.
const PARTS_MAX: usize = 4096;
/// Longest wait for the kernel's answer.
const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);
/// The kernel's parts are 32 KiB at most (net/netlink/af_netlink.c).
const PART_BYTES_MAX: usize = 64 << 10;
/// Numbers of errors are smaller (MAX_ERRNO in include/linux/err.h).
const ERRNO_END: i32 = 4096;
/// From this share of the ports on, if all that are in TIME_WAIT were of one address, those are looked at one by one.
const PORTS_MATTER: f64 = 0.9;

/// The sockets of a namespace.
pub(super) struct Table {
    pub(super) sockets: Vec<Socket>,
    /// Whether those in TIME_WAIT are among them.
    with_time_wait: bool,
}

impl Table {
    /// Those of this process's own namespace.
    pub(super) fn own(root: &Root, unseen: &mut Vec<Unseen>) -> Self {
        let asked = if *root == Root::machine() { told(Wanted::Sockets).ok() } else { None };
        match asked {
            Some(sockets) => Self { sockets, with_time_wait: false },
            None => Self::read(root, "proc/net", unseen),
        }
    }

    /// Those in the files below `folder`, a `net` of some process.
    pub(super) fn read(root: &Root, folder: &str, unseen: &mut Vec<Unseen>) -> Self {
        let mut all = Vec::new();
        for file in ["tcp", "tcp6"] {
            match root.parse(&format!("{folder}/{file}"), sockets::parse) {
                Ok(found) => all.extend(found),
                // Without IPv6 there is no second one.
                Err(why) if why.why == Why::Missing && file == "tcp6" => {}
                Err(why) => unseen.push(why),
            }
        }
        Self { sockets: all, with_time_wait: true }
    }

    /// The address to which the most ports of the range for outgoing connections are taken. `time_wait`: how many sockets are in
    /// TIME_WAIT. They take ports too, and are counted where they could take nearly all.
    pub(super) fn fullest_ports(&self, root: &Root, time_wait: u64) -> Option<Level> {
        let ports = ports::read(root).ok()?;
        let range = ports.first..=ports.last;
        let mut taken: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        let mut take = |sockets: &[Socket]| {
            for socket in sockets.iter().filter(|of| of.state != State::Listening && range.contains(&of.local.port())) {
                *taken.entry(socket.peer).or_default() += 1;
            }
            taken.values().copied().max().unwrap_or(0)
        };
        let mut used = take(&self.sockets);
        let could_be = used.saturating_add(time_wait);
        if !self.with_time_wait && could_be as f64 >= PORTS_MATTER * ports.count() as f64 {
            used = take(&told(Wanted::TimeWait).ok()?);
        }
        Some(Level { used, most: ports.count() })
    }
}

/// What the kernel tells of this namespace's sockets: both families, of which a machine may have one.
pub(super) fn told(wanted: Wanted) -> io::Result<Vec<Socket>> {
    let mut all = Vec::new();
    let mut add = |socket| {
        if all.len() < SOCKETS_MAX {
            all.push(socket);
        }
    };
    ask(Family::V4, wanted, |part| inet_diag::parse_sockets(part, &mut add))?;
    match ask(Family::V6, wanted, |part| inet_diag::parse_sockets(part, &mut add)) {
        Ok(()) | Err(Errno::NOENT | Errno::AFNOSUPPORT) => Ok(all),
        Err(error) => Err(error),
    }
}

/// Asks the kernel, and hands out each part of its answer.
pub(super) fn ask(family: Family, wanted: Wanted, mut each: impl FnMut(&[u8]) -> Part) -> io::Result<()> {
    let socket: OwnedFd =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WITHIN))?;
    sendto(&socket, &inet_diag::question(family, wanted), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = vec![0; PART_BYTES_MAX];
    for _ in 0..PARTS_MAX {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        match each(&buffer[..length]) {
            Part::More => {}
            Part::Done => break,
            // What no kernel answers is no number of an error.
            Part::Refused(error) if (1..ERRNO_END).contains(&error) => return Err(Errno::from_raw_os_error(error)),
            Part::Refused(_) => return Err(Errno::PROTO),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
