//! TCP sockets with states, queues and peers: `/proc/net/tcp` and `/proc/net/tcp6`. The kernel
//! writes one line per socket, so the cost grows with their number: not for ten reads per second.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// IPv4.
pub const FILE: &str = "proc/net/tcp";
/// IPv6.
pub const FILE_6: &str = "proc/net/tcp6";
/// Most sockets read.
pub const SOCKETS_MAX: usize = 200_000;

/// TCP state of a socket (include/net/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketState {
    /// Open at both ends.
    Established = 1,
    /// This side sent a SYN and awaits the reply.
    SynSent,
    /// The other side sent a SYN.
    SynReceived,
    /// This side is closing.
    FinWait1,
    /// This side has closed; the other has not.
    FinWait2,
    /// Closed, and kept for 60 s.
    TimeWait,
    /// Closed.
    Closed,
    /// The other side has closed; this one has not.
    CloseWait,
    /// Both are closing; this side awaits the last acknowledgement.
    LastAck,
    /// Accepts connections.
    Listening,
    /// Both closed at the same time.
    Closing,
    /// A connection request without a full socket.
    NewSynReceived,
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Local end.
    pub local: SocketAddr,
    /// Remote end; port 0 when there is none.
    pub peer: SocketAddr,
    /// Its state.
    pub state: SocketState,
    /// Bytes written and not acknowledged.
    pub unsent_bytes: u64,
    /// Received bytes not read; of a listener, connections not accepted.
    pub unread: u64,
    /// Accept queue length of a listener; none for other sockets, and none from `/proc`, which
    /// lacks it.
    pub backlog: Option<u64>,
    /// Retransmissions of the oldest unacknowledged segment.
    pub retransmits: u64,
    /// Its inode, as named by `/proc/PID/fd`; 0 when no process holds it.
    pub inode: u64,
}

const STATES: [SocketState; 12] = [
    SocketState::Established,
    SocketState::SynSent,
    SocketState::SynReceived,
    SocketState::FinWait1,
    SocketState::FinWait2,
    SocketState::TimeWait,
    SocketState::Closed,
    SocketState::CloseWait,
    SocketState::LastAck,
    SocketState::Listening,
    SocketState::Closing,
    SocketState::NewSynReceived,
];

impl SocketState {
    /// Returns the state with a number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        STATES.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Parses the file. Invalid lines are skipped: the kernel's last one may be truncated.
pub fn parse(text: &str) -> Option<Vec<Socket>> {
    let mut lines = text.lines();
    lines.next().filter(|heading| heading.contains("local_address"))?;
    Some(lines.take(SOCKETS_MAX).filter_map(socket).collect())
}

/// Counts the sockets of each state.
pub fn by_state(sockets: &[Socket]) -> BTreeMap<SocketState, u64> {
    let mut counts = BTreeMap::new();
    for socket in sockets {
        *counts.entry(socket.state).or_default() += 1;
    }
    counts
}

/// Parses `sl local rem st tx:rx tr:when retrnsmt uid timeout inode …`
/// (Documentation/networking/proc_net_tcp.rst).
fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, peer) = (address(words.next()?)?, address(words.next()?)?);
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let (unsent, unread) = words.next()?.split_once(':')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Socket {
        local,
        peer,
        state: SocketState::of(state)?,
        unsent_bytes: hex(unsent)?,
        unread: hex(unread)?,
        backlog: None,
        retransmits: hex(words.nth(1)?)?,
        inode: words.nth(2)?.parse().ok()?,
    })
}

/// Parses `0100007F:1F90`: the address in words of native byte order, the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word =
        |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let mut bytes = [0; 16];
            bytes.iter_mut().zip(words.iter().flatten()).for_each(|(to, from)| *to = *from);
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}
