//! What TCP knows of single sockets: questions to the kernel by netlink (sock_diag(7)) and its answers, as bytes. Reading is
//! up to [`crate::survey`]. The kernel leaves out what is not asked for, and writes no text: of many sockets this costs a small part of
//! what `/proc/net/tcp` does.
//!
//! Layouts: include/uapi/linux/netlink.h, inet_diag.h, and `struct tcp_info` in linux/tcp.h, which grows at its end: what an
//! older kernel does not have is none. Numbers are in the machine's order of bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::sockets::{Socket, State};

/// Which sockets are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 (AF_INET).
    V4 = 2,
    /// IPv6 (AF_INET6), with IPv4 in it.
    V6 = 10,
}

/// One open connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Its socket's number, as `/proc/PID/fd` names it.
    pub inode: u64,
    /// Smoothed round trip time.
    pub rtt: Duration,
    /// Shortest round trip time (since 4.6); none while there is none.
    pub rtt_min: Option<Duration>,
    /// Segments that were sent again since it was opened.
    pub retransmitted: u64,
    /// Time in which it had data to send, and the parts of it in which a window or buffer held it back (since 4.10).
    pub sending: Option<Sending>,
}

/// How long a connection was sending, and what held it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// It had data to send.
    pub busy: Duration,
    /// The receiver's window was full.
    pub receiver_limited: Duration,
    /// The own send buffer was full.
    pub send_buffer_limited: Duration,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Open connections, with `tcp_info`: for [`parse`].
    Connections,
    /// All sockets that are not in TIME_WAIT, without more: for [`parse_sockets`].
    Sockets,
    /// Those in TIME_WAIT, likewise.
    TimeWait,
}

/// How an answer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// There is more to read.
    More,
    /// It was the last.
    Done,
    /// The kernel refused, with this number of an error; 0 when the answer is none that it would give.
    Refused(i32),
}

/// A message's heading.
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
/// The states that there are, from [`State::Established`] to [`State::NewSynReceived`].
const ALL_STATES: u32 = (1 << 13) - (1 << 1);
/// The attribute with `struct tcp_info`.
const INET_DIAG_INFO: u16 = 2;
/// Offsets.
/// What a connection's timer waits for (tcp_diag_get_info in net/ipv4/inet_diag.c).
const RETRANSMISSION: u8 = 1;

mod at {
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

impl Wanted {
    /// The extension that is asked for beside each socket, and the states.
    fn extension_and_states(self) -> (u8, u32) {
        match self {
            Self::Connections => (1 << (INET_DIAG_INFO - 1), bit(State::Established)),
            Self::Sockets => (0, ALL_STATES & !bit(State::TimeWait)),
            Self::TimeWait => (0, bit(State::TimeWait)),
        }
    }
}

fn bit(state: State) -> u32 {
    1 << state as u32
}

/// The question for TCP sockets of a family.
#[must_use]
pub fn question(family: Family, wanted: Wanted) -> Vec<u8> {
    let (extension, states) = wanted.extension_and_states();
    let mut bytes = Vec::with_capacity(HEADING_BYTES + QUESTION_BYTES);
    bytes.extend(((HEADING_BYTES + QUESTION_BYTES) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(FLAGS.to_ne_bytes());
    // Sequence and sender: the socket has asked nothing else, and the kernel knows it.
    bytes.extend([0; 8]);
    bytes.extend([family as u8, IPPROTO_TCP, extension, 0]);
    bytes.extend(states.to_ne_bytes());
    // Any address.
    bytes.resize(HEADING_BYTES + QUESTION_BYTES, 0);
    bytes
}

/// Hands out the connections of one part of an answer. A message that is cut ends the answer.
pub fn parse(bytes: &[u8], mut each: impl FnMut(Connection)) -> Part {
    messages(bytes, |body| connection(body).into_iter().for_each(&mut each))
}

/// The same of sockets.
pub fn parse_sockets(bytes: &[u8], mut each: impl FnMut(Socket)) -> Part {
    messages(bytes, |body| socket(body).into_iter().for_each(&mut each))
}

fn messages(mut bytes: &[u8], mut each: impl FnMut(&[u8])) -> Part {
    while !bytes.is_empty() {
        let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) else { return Part::Refused(0) };
        let Some(body) = bytes.get(HEADING_BYTES..length as usize) else { return Part::Refused(0) };
        match kind {
            // A dump that fails in the middle says so at its end (netlink_dump in net/netlink/af_netlink.c).
            NLMSG_DONE => {
                let error = u32_at(body, 0).map_or(0, |error| error as i32);
                return if error < 0 { Part::Refused(error.saturating_neg()) } else { Part::Done };
            }
            NLMSG_ERROR => return Part::Refused(u32_at(body, 0).map_or(0, |error| (error as i32).saturating_neg())),
            SOCK_DIAG_BY_FAMILY => each(body),
            _ => {}
        }
        bytes = bytes.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    Part::More
}

fn socket(body: &[u8]) -> Option<Socket> {
    let state = State::of(*body.get(at::STATE)?)?;
    let (unread, written) = (u32_at(body, at::RQUEUE)?, u32_at(body, at::WQUEUE)?);
    let listens = state == State::Listening;
    Some(Socket {
        local: address(body, at::LOCAL, at::LOCAL_PORT)?,
        peer: address(body, at::PEER, at::PEER_PORT)?,
        state,
        unsent_bytes: if listens { 0 } else { written.into() },
        unread: unread.into(),
        backlog: listens.then(|| written.into()),
        // Else they are probes of an idle connection, or of one whose window is closed.
        retransmits: if *body.get(at::TIMER)? == RETRANSMISSION { (*body.get(at::RETRANSMITS)?).into() } else { 0 },
        inode: u32_at(body, at::INODE)?.into(),
    })
}

/// Addresses and ports stand as on the wire.
fn address(body: &[u8], at: usize, port_at: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*body.get(port_at..)?.first_chunk()?);
    let ip = match *body.first()? {
        family if family == Family::V4 as u8 => IpAddr::from(Ipv4Addr::from(*body.get(at..)?.first_chunk::<4>()?)),
        _ => IpAddr::from(Ipv6Addr::from(*body.get(at..)?.first_chunk::<16>()?)).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

fn connection(body: &[u8]) -> Option<Connection> {
    let inode = u64::from(u32_at(body, at::INODE)?);
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

fn info(inode: u64, info: &[u8]) -> Option<Connection> {
    let us = |at: usize| u64_at(info, at).map(Duration::from_micros);
    let sending = || {
        Some(Sending {
            busy: us(at::BUSY_TIME)?,
            receiver_limited: us(at::RWND_LIMITED)?,
            send_buffer_limited: us(at::SNDBUF_LIMITED)?,
        })
    };
    Some(Connection {
        inode,
        rtt: Duration::from_micros(u32_at(info, at::RTT)?.into()),
        // All ones: nothing was measured yet (tcp_min_rtt).
        rtt_min: u32_at(info, at::MIN_RTT).filter(|us| *us != u32::MAX).map(|us| Duration::from_micros(us.into())),
        retransmitted: u32_at(info, at::TOTAL_RETRANS)?.into(),
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
