//! A TCP relay that adds network delay to loopback connections. Bytes read on one side are written
//! on the other half a round-trip time later, in order and at the same rate.
//!
//! Opening a connection costs a round trip too. The kernel completes the client's `connect` at
//! once, so the relay opens the connection to the target when the client's first bytes could arrive
//! there: one and a half round trips later. A request therefore takes two round trips on a new
//! connection and one on a kept one; a TLS handshake adds its own.
//!
//! One thread, edge-triggered epoll. Run it in a process of its own ([`argv`]) to measure its CPU
//! time separately.
//!
//! Reading order: [`relay`], `link` (one connection), `line` (a delay line: bytes in transit in one
//! direction).

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

pub use line::BUFFERED_BYTES_MAX;
use link::{Link, LinkProgress, PassContext, READ_BYTES, Side};

/// Longest accepted round trip.
pub const RTT_MAX: Duration = Duration::from_secs(10);
/// Connections at once; further ones wait in the kernel's accept queue.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Bytes in transit over all connections. At this bound the relay reads nothing more until some
/// have arrived.
pub const BUFFERED_BYTES_TOTAL_MAX: usize = 256 * BUFFERED_BYTES_MAX;
/// Events taken from epoll at once.
const EVENTS: usize = 256;
/// Longest sleep, which bounds the delay until the stop flag is seen.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Sleep while a connection waits for buffer space or file descriptors.
const RETRY_SLEEP: Duration = Duration::from_millis(1);
/// Epoll key of the listener; connections use their index.
const LISTENER: u64 = u64::MAX;
/// Events for which a socket is watched.
const WATCHED: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Reason a relay cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DelayError {
    /// The round trip is too long.
    #[error("a round trip of {0:?} is not possible: it must be {RTT_MAX:?} at most")]
    Rtt(Duration),
    /// A system call failed.
    #[error("the relay cannot run: {0}")]
    System(#[from] io::Error),
}

/// Relays every connection of `listener` to `to` until `stop` is set; existing connections are then
/// reset.
///
/// A client of a target that accepts no connection sees a reset.
///
/// # Errors
/// A round trip over [`RTT_MAX`], or a failed system call at the start.
pub fn relay(
    listener: &TcpListener,
    to: SocketAddr,
    rtt: Duration,
    stop: &AtomicBool,
) -> Result<(), DelayError> {
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
        ready: Vec::new(),
        starved: Vec::new(),
        acceptable: true,
        buffered_bytes: 0,
        buffer: vec![0; READ_BYTES],
    };
    let mut events = Vec::with_capacity(EVENTS);
    while !stop.load(Ordering::Relaxed) {
        relay.pass(&mut events)?;
    }
    Ok(())
}

/// Returns the command line of a relay process; `program` is this program.
pub fn argv(program: &Path, listen: SocketAddr, to: SocketAddr, rtt: Duration) -> Vec<String> {
    let program = program.to_string_lossy().into_owned();
    let (listen, to, rtt) = (listen.to_string(), to.to_string(), format!("{}us", rtt.as_micros()));
    let words = ["delay", "--listen", &listen, "--to", &to, "--rtt", &rtt];
    std::iter::once(program).chain(words.map(str::to_owned)).collect()
}

struct Relay<'a> {
    epoll: OwnedFd,
    listener: &'a TcpListener,
    to: SocketAddr,
    rtt: Duration,
    links: Vec<Option<Link>>,
    /// Free indexes of `links`.
    free: Vec<usize>,
    /// Times at which connections have something due. Entries of closed connections may remain; a
    /// wake-up without work is harmless.
    alarms: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Connections with work to do now.
    ready: Vec<usize>,
    /// Connections that wait for buffer space.
    starved: Vec<usize>,
    /// True if the listener may have a connection to accept.
    acceptable: bool,
    /// Bytes in transit.
    buffered_bytes: usize,
    /// Scratch buffer between two sockets.
    buffer: Vec<u8>,
}

impl Relay<'_> {
    /// Waits for events and handles them.
    fn pass(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        let sleep = self.sleep(Nanos::now());
        let time =
            Timespec { tv_sec: sleep.as_secs() as i64, tv_nsec: i64::from(sleep.subsec_nanos()) };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let now = Nanos::now();
        let mut waiting = std::mem::take(&mut self.ready);
        waiting.append(&mut self.starved);
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => self.acceptable = true,
                token => {
                    let (index, side) = (
                        (token / 2) as usize,
                        if token % 2 == 0 { Side::Client } else { Side::Target },
                    );
                    if let Some(Some(link)) = self.links.get_mut(index) {
                        link.on_event(side, event.flags);
                        waiting.push(index);
                    }
                }
            }
        }
        while let Some(Reverse((at, index))) =
            self.alarms.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.alarms.pop();
            if let Some(Some(link)) = self.links.get_mut(index) {
                link.on_alarm(at);
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
        if !self.ready.is_empty() {
            return Duration::ZERO;
        }
        let due = self.alarms.peek().map_or(SLEEP_MAX, |Reverse((at, _))| at.since(now));
        // At the connection limit there is no need to retry: the next connection is accepted when
        // one has ended.
        let wants = !self.starved.is_empty() || (self.acceptable && !self.free.is_empty());
        due.min(if wants { RETRY_SLEEP } else { SLEEP_MAX })
    }

    fn advance(&mut self, index: usize, now: Nanos) {
        let Some(link) = self.links.get_mut(index).and_then(Option::as_mut) else { return };
        let before = link.buffered_bytes();
        let watch = |socket: &TcpStream| {
            epoll::add(&self.epoll, socket, EventData::new_u64(2 * index as u64 + 1), WATCHED)
                .map_err(io::Error::from)
        };
        let room = BUFFERED_BYTES_TOTAL_MAX.saturating_sub(self.buffered_bytes);
        let mut pass =
            PassContext { now, to: self.to, room, buffer: &mut self.buffer, watch: &watch };
        let advance = link.advance(&mut pass);
        self.buffered_bytes = self.buffered_bytes + link.buffered_bytes() - before;
        match advance {
            LinkProgress::Waits => {}
            LinkProgress::WantsRoom => self.starved.push(index),
            LinkProgress::Again => self.ready.push(index),
            LinkProgress::Over => {
                self.buffered_bytes -= link.buffered_bytes();
                // Closing its sockets removes them from the epoll set.
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
                epoll::add(
                    &self.epoll,
                    link.client(),
                    EventData::new_u64(2 * index as u64),
                    WATCHED,
                )?;
                Ok(link)
            });
            match accepted {
                Ok(link) => {
                    self.links[index] = Some(link);
                    self.advance(index, now);
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.acceptable = false,
                // The connection was reset before it was accepted; the next one may be fine.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {
                    self.free.push(index);
                    continue;
                }
                // Out of files or memory: retry later.
                Err(_) => {}
            }
            self.free.push(index);
            return;
        }
    }
}

#[cfg(test)]
mod tests;
