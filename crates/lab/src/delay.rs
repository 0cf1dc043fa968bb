//! A TCP relay that makes a network of a loopback interface: what is read on one side is written on the other half of a
//! round-trip time later, in order, as fast as it came.
//!
//! Opening a connection costs a round trip too. The client's `connect` is answered at once by the kernel, so the connection to
//! the target is opened where the client's first bytes could be there: one and a half round trips later. A request on a new
//! connection so takes two round trips, on one that is kept one, and a handshake of TLS what it takes.
//!
//! One thread, edge-triggered. Its share of the CPU is to be seen apart: run it in a process of its own ([`argv`]).
//!
//! Reading order: [`relay`], `link` (one connection), `line` (what is on its way in one direction).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

mod line;
mod link;

pub use line::HELD_MAX;
use link::{Advance, Link, READ_BYTES, Side, Turn};

/// The longest round trip that is accepted.
pub const RTT_MAX: Duration = Duration::from_secs(10);
/// Connections at once; more wait in the kernel's queue until one ends.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Bytes on their way over all connections. At that bound nothing more is read until some have arrived.
pub const HELD_ALL_MAX: usize = 256 * HELD_MAX;
/// Events taken at once.
const EVENTS: usize = 256;
/// Longest sleep, so that the flag that ends it is seen.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Sleep when something could not go on for want of room or of files.
const SLEEP_WANT: Duration = Duration::from_millis(1);
/// The listener's events carry this; connections have their index.
const LISTENER: u64 = u64::MAX;
/// What a socket is watched for.
const WATCHED: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Why there is no relay.
#[derive(Debug, thiserror::Error)]
pub enum DelayError {
    /// Too far away.
    #[error("a round trip of {0:?} is not possible: it must be {RTT_MAX:?} at most")]
    Rtt(Duration),
    /// The system refused.
    #[error("the relay cannot run: {0}")]
    System(#[from] io::Error),
}

/// Relays every connection of `listener` to `to`, until `stop` is set. Connections that exist then are cut off.
///
/// A target that does not take a connection shows to the client as a reset.
///
/// # Errors
/// A round trip over [`RTT_MAX`]; what the system refused when it began.
pub fn relay(listener: &TcpListener, to: SocketAddr, rtt: Duration, stop: &AtomicBool) -> Result<(), DelayError> {
    if rtt > RTT_MAX {
        return Err(DelayError::Rtt(rtt));
    }
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN | EventFlags::ET)
        .map_err(io::Error::from)?;
    let links = (0..CONNECTIONS_MAX).map(|_| None).collect();
    let free = (0..CONNECTIONS_MAX).rev().collect();
    let mut relay = Relay {
        epoll,
        listener,
        to,
        rtt,
        links,
        free,
        alarms: BinaryHeap::new(),
        again: Vec::new(),
        want: Vec::new(),
        acceptable: true,
        held: 0,
        buffer: vec![0; READ_BYTES],
    };
    let mut events = Vec::with_capacity(EVENTS);
    while !stop.load(Ordering::Relaxed) {
        relay.turn(&mut events)?;
    }
    Ok(())
}

/// The command line of a relay in a process of its own; `hotrow` is this program.
#[must_use]
pub fn argv(hotrow: &Path, listen: SocketAddr, to: SocketAddr, rtt: Duration) -> Vec<String> {
    let hotrow = hotrow.to_string_lossy().into_owned();
    let (listen, to, rtt) = (listen.to_string(), to.to_string(), format!("{}us", rtt.as_micros()));
    let words = ["lab", "delay", "--listen", &listen, "--to", &to, "--rtt", &rtt];
    std::iter::once(hotrow).chain(words.map(str::to_owned)).collect()
}

struct Relay<'a> {
    epoll: OwnedFd,
    listener: &'a TcpListener,
    to: SocketAddr,
    rtt: Duration,
    links: Vec<Option<Link>>,
    /// Indexes of `links` that are free.
    free: Vec<usize>,
    /// When which connection has something due. One that ended may still stand here; its successor is not harmed by it.
    alarms: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Connections that could go on.
    again: Vec<usize>,
    /// Connections that could go on if there were room.
    want: Vec<usize>,
    /// Whether the listener may have a connection.
    acceptable: bool,
    /// Bytes on their way.
    held: usize,
    /// What is read, between two sockets.
    buffer: Vec<u8>,
}

impl Relay<'_> {
    /// Waits for something to do, and does it.
    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        let sleep = self.sleep(Nanos::now());
        let time = Timespec { tv_sec: sleep.as_secs() as i64, tv_nsec: i64::from(sleep.subsec_nanos()) };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let now = Nanos::now();
        let mut waiting = std::mem::take(&mut self.again);
        waiting.append(&mut self.want);
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => self.acceptable = true,
                token => {
                    let (index, side) =
                        ((token / 2) as usize, if token % 2 == 0 { Side::Client } else { Side::Target });
                    if let Some(Some(link)) = self.links.get_mut(index) {
                        link.woke(side, event.flags);
                        waiting.push(index);
                    }
                }
            }
        }
        while let Some(Reverse((at, index))) = self.alarms.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.alarms.pop();
            if let Some(Some(link)) = self.links.get_mut(index) {
                link.rang(at);
                waiting.push(index);
            }
        }
        waiting.sort_unstable();
        waiting.dedup();
        for index in waiting {
            self.advance(index, now);
        }
        self.accept(now);
        Ok(())
    }

    fn sleep(&self, now: Nanos) -> Duration {
        if !self.again.is_empty() {
            return Duration::ZERO;
        }
        let due = self.alarms.peek().map_or(SLEEP_MAX, |Reverse((at, _))| at.since(now));
        // A full house is no want: the next connection is taken when one has ended.
        let wants = !self.want.is_empty() || (self.acceptable && !self.free.is_empty());
        due.min(if wants { SLEEP_WANT } else { SLEEP_MAX })
    }

    fn advance(&mut self, index: usize, now: Nanos) {
        let Some(link) = self.links.get_mut(index).and_then(Option::as_mut) else { return };
        let before = link.held();
        let watch = |socket: &TcpStream| {
            epoll::add(&self.epoll, socket, EventData::new_u64(2 * index as u64 + 1), WATCHED).map_err(io::Error::from)
        };
        let room = HELD_ALL_MAX.saturating_sub(self.held);
        let mut turn = Turn { now, to: self.to, room, buffer: &mut self.buffer, watch: &watch };
        let advance = link.advance(&mut turn);
        self.held = self.held + link.held() - before;
        match advance {
            Advance::Waits => {}
            Advance::WantsRoom => self.want.push(index),
            Advance::Again => self.again.push(index),
            Advance::Over => {
                self.held -= link.held();
                // Its sockets close, and so leave the epoll set.
                self.links[index] = None;
                self.free.push(index);
                return;
            }
        }
        if let Some(at) = link.alarm(now) {
            self.alarms.push(Reverse((at, index)));
        }
    }

    fn accept(&mut self, now: Nanos) {
        while self.acceptable {
            let Some(index) = self.free.pop() else { return };
            let accepted = self.listener.accept().and_then(|(client, _)| {
                let link = Link::new(client, self.rtt, now)?;
                epoll::add(&self.epoll, link.client(), EventData::new_u64(2 * index as u64), WATCHED)?;
                Ok(link)
            });
            match accepted {
                Ok(link) => {
                    self.links[index] = Some(link);
                    self.advance(index, now);
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.acceptable = false,
                // One that was gone before it was taken; the next may be good.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {
                    self.free.push(index);
                    continue;
                }
                // No files or no memory: later, there may be some again.
                Err(_) => {}
            }
            self.free.push(index);
            return;
        }
    }
}

#[cfg(test)]
mod tests;
