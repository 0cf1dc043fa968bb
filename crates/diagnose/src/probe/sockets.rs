//! TCP sockets one by one: their states, queues and peers from `/proc/net/tcp` and `/proc/net/tcp6`. The kernel writes
//! a line for each, so this costs more the more there are: not to be read ten times a second.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// IPv4.
pub const FILE: &str = "proc/net/tcp";
/// IPv6.
pub const FILE_6: &str = "proc/net/tcp6";
/// Most sockets that are looked at.
pub const SOCKETS_MAX: usize = 200_000;

/// State of a socket (include/net/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Open at both ends.
    Established = 1,
    /// This side asked for it and has no answer.
    SynSent,
    /// The other side asked for it.
    SynReceived,
    /// This side closes.
    FinWait1,
    /// This side has closed; the other has not.
    FinWait2,
    /// Ended, and remembered for 60 s.
    TimeWait,
    /// Gone.
    Closed,
    /// The other side has closed; this one has not.
    CloseWait,
    /// Both close; this side waits for the last word.
    LastAck,
    /// Waits for connections.
    Listening,
    /// Both closed at once.
    Closing,
    /// Asked for and not yet a socket.
    NewSynReceived,
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// This end.
    pub local: SocketAddr,
    /// The other end; port 0 when there is none.
    pub peer: SocketAddr,
    /// Its state.
    pub state: State,
    /// Bytes that were written and that the other end has not confirmed.
    pub unsent_bytes: u64,
    /// Bytes that have come and were not read; of a listener, connections that were not accepted.
    pub unread: u64,
    /// Of a listener, so many connections may wait to be accepted; none of others, and none where `/proc` tells, which does not say it.
    pub backlog: Option<u64>,
    /// Times that the oldest unconfirmed segment was sent again.
    pub retransmits: u64,
    /// Its number, as `/proc/PID/fd` names it; 0 when no process has it.
    pub inode: u64,
}

const STATES: [State; 12] = [
    State::Established,
    State::SynSent,
    State::SynReceived,
    State::FinWait1,
    State::FinWait2,
    State::TimeWait,
    State::Closed,
    State::CloseWait,
    State::LastAck,
    State::Listening,
    State::Closing,
    State::NewSynReceived,
];

impl State {
    /// By its number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        STATES.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Reads the text of such a file. A line that is not understood is left out: the kernel's last one may be cut.
#[must_use]
pub fn parse(text: &str) -> Option<Vec<Socket>> {
    let mut lines = text.lines();
    lines.next().filter(|heading| heading.contains("local_address"))?;
    Some(lines.take(SOCKETS_MAX).filter_map(socket).collect())
}

/// How many there are of each state.
#[must_use]
pub fn by_state(sockets: &[Socket]) -> BTreeMap<State, u64> {
    let mut counts = BTreeMap::new();
    for socket in sockets {
        *counts.entry(socket.state).or_default() += 1;
    }
    counts
}

/// `sl local rem st tx:rx tr:when retrnsmt uid timeout inode …` (Documentation/networking/proc_net_tcp.rst).
fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, peer) = (address(words.next()?)?, address(words.next()?)?);
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let (unsent, unread) = words.next()?.split_once(':')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Socket {
        local,
        peer,
        state: State::of(state)?,
        unsent_bytes: hex(unsent)?,
        unread: hex(unread)?,
        backlog: None,
        retransmits: hex(words.nth(1)?)?,
        inode: words.nth(2)?.parse().ok()?,
    })
}

/// `0100007F:1F90`: the words of the address in the machine's order of bytes, the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
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
