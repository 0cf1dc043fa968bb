//! TCP's state of single sockets: netlink requests (sock_diag(7)) and replies as bytes;
//! [`crate::survey`] does the I/O. The kernel omits what is not requested and writes no text: with
//! many sockets this costs a small fraction of reading `/proc/net/tcp`.
//!
//! Layouts: include/uapi/linux/netlink.h, inet_diag.h, and `struct tcp_info` in linux/tcp.h, which
//! grows at its end: fields that an older kernel lacks are `None`. Numbers are in native byte
//! order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::sockets::{Socket, SocketState};

/// The address family of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 (AF_INET).
    V4 = 2,
    /// IPv6 (AF_INET6), IPv4-mapped addresses included.
    V6 = 10,
}

/// One open connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiagConnection {
    /// Inode of its socket, as named by `/proc/PID/fd`.
    pub inode: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Minimum round-trip time (since 4.6); none before the first measurement.
    pub rtt_min: Option<Duration>,
    /// Segments retransmitted since it was opened.
    pub retransmitted: u64,
    /// Time with data to send, and the parts limited by a window or buffer (since 4.10).
    pub sending: Option<Sending>,
}

/// Sending time of a connection, and the parts in which it was limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Time with data to send.
    pub busy: Duration,
    /// The receiver's window was full.
    pub receiver_limited: Duration,
    /// The send buffer was full.
    pub send_buffer_limited: Duration,
}

/// A dump request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagQuery {
    /// Open connections, with `tcp_info`: for [`parse`].
    Connections,
    /// All sockets except TIME_WAIT, without attributes: for [`parse_sockets`].
    Sockets,
    /// Sockets in TIME_WAIT, without attributes.
    TimeWait,
}

/// The status of a dump after one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpStatus {
    /// More parts follow.
    More,
    /// This was the last part.
    Done,
    /// The kernel refused with this errno; 0 for an invalid reply.
    Refused(i32),
}

/// A message header.
const HEADING_BYTES: usize = 16;
/// `struct inet_diag_req_v2`.
const QUESTION_BYTES: usize = 56;
/// `struct inet_diag_msg`.
const ANSWER_BYTES: usize = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// NLM_F_REQUEST | NLM_F_DUMP.
const FLAGS: u16 = 0x301;
const IPPROTO_TCP: u8 = 6;
/// All states, from [`SocketState::Established`] to [`SocketState::NewSynReceived`].
const ALL_STATES: u32 = (1 << 13) - (1 << 1);
/// The attribute with `struct tcp_info`.
const INET_DIAG_INFO: u16 = 2;
/// Timer value for a retransmission (tcp_diag_get_info in net/ipv4/inet_diag.c).
const RETRANSMISSION: u8 = 1;

mod offset {
    // In `struct inet_diag_msg`.
    pub(super) const STATE: usize = 1;
    pub(super) const TIMER: usize = 2;
    pub(super) const RETRANSMITS: usize = 3;
    pub(super) const LOCAL_PORT: usize = 4;
    pub(super) const PEER_PORT: usize = 6;
    pub(super) const LOCAL: usize = 8;
    pub(super) const PEER: usize = 24;
    pub(super) const RQUEUE: usize = 56;
    pub(super) const WQUEUE: usize = 60;
    pub(super) const INODE: usize = 68;
    // In `struct tcp_info`.
    pub(super) const RTT: usize = 68;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const BUSY_TIME: usize = 168;
    pub(super) const RWND_LIMITED: usize = 176;
    pub(super) const SNDBUF_LIMITED: usize = 184;
}

impl DiagQuery {
    /// Returns the requested extension and the states as bits.
    fn extension_and_states(self) -> (u8, u32) {
        match self {
            Self::Connections => (1 << (INET_DIAG_INFO - 1), bit(SocketState::Established)),
            Self::Sockets => (0, ALL_STATES & !bit(SocketState::TimeWait)),
            Self::TimeWait => (0, bit(SocketState::TimeWait)),
        }
    }
}

fn bit(state: SocketState) -> u32 {
    1 << state as u32
}

/// Builds the request for TCP sockets of a family.
pub fn request(family: Family, wanted: DiagQuery) -> Vec<u8> {
    let (extension, states) = wanted.extension_and_states();
    let mut bytes = Vec::with_capacity(HEADING_BYTES + QUESTION_BYTES);
    bytes.extend(((HEADING_BYTES + QUESTION_BYTES) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(FLAGS.to_ne_bytes());
    // Sequence and port id: the socket has only one request, and the kernel knows the port.
    bytes.extend([0; 8]);
    bytes.extend([family as u8, IPPROTO_TCP, extension, 0]);
    bytes.extend(states.to_ne_bytes());
    // Any address.
    bytes.resize(HEADING_BYTES + QUESTION_BYTES, 0);
    bytes
}

/// Passes the connections of one part of a reply to `each`. A truncated message ends the reply.
pub fn parse(bytes: &[u8], mut each: impl FnMut(DiagConnection)) -> DumpStatus {
    messages(bytes, |body| connection(body).into_iter().for_each(&mut each))
}

/// The same for sockets.
pub fn parse_sockets(bytes: &[u8], mut each: impl FnMut(Socket)) -> DumpStatus {
    messages(bytes, |body| socket(body).into_iter().for_each(&mut each))
}

fn messages(mut bytes: &[u8], mut each: impl FnMut(&[u8])) -> DumpStatus {
    while !bytes.is_empty() {
        let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) else {
            return DumpStatus::Refused(0);
        };
        let Some(body) = bytes.get(HEADING_BYTES..length as usize) else {
            return DumpStatus::Refused(0);
        };
        match kind {
            // A dump that fails midway reports it at its end (netlink_dump in
            // net/netlink/af_netlink.c).
            NLMSG_DONE => {
                let error = u32_at(body, 0).map_or(0, |error| error as i32);
                return if error < 0 {
                    DumpStatus::Refused(error.saturating_neg())
                } else {
                    DumpStatus::Done
                };
            }
            NLMSG_ERROR => {
                return DumpStatus::Refused(
                    u32_at(body, 0).map_or(0, |error| (error as i32).saturating_neg()),
                );
            }
            SOCK_DIAG_BY_FAMILY => each(body),
            _ => {}
        }
        bytes = bytes.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    DumpStatus::More
}

fn socket(body: &[u8]) -> Option<Socket> {
    let state = SocketState::of(*body.get(offset::STATE)?)?;
    let (unread, written) = (u32_at(body, offset::RQUEUE)?, u32_at(body, offset::WQUEUE)?);
    let listens = state == SocketState::Listening;
    Some(Socket {
        local: address(body, offset::LOCAL, offset::LOCAL_PORT)?,
        peer: address(body, offset::PEER, offset::PEER_PORT)?,
        state,
        unsent_bytes: if listens { 0 } else { written.into() },
        unread: unread.into(),
        backlog: listens.then(|| written.into()),
        // Other timers are probes of an idle connection, or of one with a closed window.
        retransmits: if *body.get(offset::TIMER)? == RETRANSMISSION {
            (*body.get(offset::RETRANSMITS)?).into()
        } else {
            0
        },
        inode: u32_at(body, offset::INODE)?.into(),
    })
}

/// Addresses and ports are in network byte order.
fn address(body: &[u8], at: usize, port_at: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*body.get(port_at..)?.first_chunk()?);
    let ip = match *body.first()? {
        family if family == Family::V4 as u8 => {
            IpAddr::from(Ipv4Addr::from(*body.get(at..)?.first_chunk::<4>()?))
        }
        _ => IpAddr::from(Ipv6Addr::from(*body.get(at..)?.first_chunk::<16>()?)).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

fn connection(body: &[u8]) -> Option<DiagConnection> {
    let inode = u64::from(u32_at(body, offset::INODE)?);
    let mut attributes = body.get(ANSWER_BYTES..)?;
    loop {
        let (length, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        let value = attributes.get(4..length)?;
        if kind == INET_DIAG_INFO {
            return info(inode, value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn info(inode: u64, info: &[u8]) -> Option<DiagConnection> {
    let us = |at: usize| u64_at(info, at).map(Duration::from_micros);
    let sending = || {
        Some(Sending {
            busy: us(offset::BUSY_TIME)?,
            receiver_limited: us(offset::RWND_LIMITED)?,
            send_buffer_limited: us(offset::SNDBUF_LIMITED)?,
        })
    };
    Some(DiagConnection {
        inode,
        rtt: Duration::from_micros(u32_at(info, offset::RTT)?.into()),
        // All ones: not measured yet (tcp_min_rtt).
        rtt_min: u32_at(info, offset::MIN_RTT)
            .filter(|us| *us != u32::MAX)
            .map(|us| Duration::from_micros(us.into())),
        retransmitted: u32_at(info, offset::TOTAL_RETRANS)?.into(),
        sending: sending(),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
