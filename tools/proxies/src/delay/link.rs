//! One relayed connection: the client's socket, the target's, and the bytes in transit between
//! them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use rustix::event::epoll::EventFlags;
use socket2::{Domain, SockRef, Socket, Type};

use super::line::{Arrival, DelayLine, StreamEnd};

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Reads of one connection and direction before other connections are served.
const READS_MAX: u32 = 8;

/// Which socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Target,
}

/// Shared context of one pass over the ready connections.
pub(super) struct PassContext<'a> {
    pub(super) now: Nanos,
    /// Address of the target.
    pub(super) to: SocketAddr,
    /// Bytes that may be read.
    pub(super) room: usize,
    pub(super) buffer: &'a mut [u8],
    /// Registers the target's socket with epoll.
    pub(super) watch: &'a dyn Fn(&TcpStream) -> io::Result<()>,
}

/// Result of serving a connection; of two results the later variant wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkProgress {
    /// It waits for bytes, time, or a writable socket.
    Waits,
    /// It could read if there were buffer space.
    WantsRoom,
    /// It has more to do now.
    Again,
    /// Both directions have ended.
    Over,
}

#[derive(Debug)]
pub(super) struct Link {
    client: SocketState,
    target: TargetState,
    /// From the client to the target.
    up: DelayLine,
    /// From the target to the client.
    down: DelayLine,
    /// Time of the current alarm.
    alarm: Option<Nanos>,
}

/// State of the target's side.
#[derive(Debug)]
enum TargetState {
    /// The target would not know of the client before this time.
    Unopened(Nanos),
    Opening(SocketState),
    Open(SocketState),
}

/// A socket and its readiness.
#[derive(Debug)]
struct SocketState {
    stream: TcpStream,
    /// It may be readable.
    readable: bool,
    /// It may be writable.
    writable: bool,
    /// All bytes and the end were written.
    finished: bool,
}

impl Link {
    pub(super) fn new(client: TcpStream, rtt: Duration, now: Nanos) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        let (delay, open) = (rtt / 2, now.after(rtt + rtt / 2));
        Ok(Self {
            client: SocketState::new(client)?,
            target: TargetState::Unopened(open),
            up: DelayLine::new(delay),
            down: DelayLine::new(delay),
            alarm: None,
        })
    }

    pub(super) fn client(&self) -> &TcpStream {
        &self.client.stream
    }

    /// Returns the bytes in transit.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.up.buffered_bytes() + self.down.buffered_bytes()
    }

    /// Records epoll's events for a socket.
    pub(super) fn on_event(&mut self, side: Side, flags: EventFlags) {
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let socket = match (side, &mut self.target) {
            (Side::Client, _) => &mut self.client,
            (Side::Target, TargetState::Opening(socket) | TargetState::Open(socket)) => socket,
            // An event of an earlier connection at this index.
            (Side::Target, TargetState::Unopened(_)) => return,
        };
        // A read or write reports the error itself.
        socket.readable |= broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        socket.writable |= broken || flags.contains(EventFlags::OUT);
    }

    /// Records that an alarm went off.
    pub(super) fn on_alarm(&mut self, at: Nanos) {
        self.alarm = self.alarm.filter(|alarm| *alarm != at);
    }

    /// Returns the next alarm, unless it is already set.
    pub(super) fn alarm(&mut self, now: Nanos) -> Option<Nanos> {
        let opens = match self.target {
            TargetState::Unopened(at) => Some(at),
            _ => None,
        };
        let dues = [opens, self.up.next_due(), self.down.next_due()];
        // Bytes that are already due wait for their socket, not for time.
        let next = dues.into_iter().flatten().filter(|at| *at > now).min()?;
        if self.alarm.is_some_and(|alarm| alarm <= next) {
            return None;
        }
        self.alarm = Some(next);
        self.alarm
    }

    /// Does all work that is possible now.
    pub(super) fn advance(&mut self, pass: &mut PassContext<'_>) -> LinkProgress {
        let now = pass.now;
        if self.open(pass).is_err() {
            self.down.end(StreamEnd::Reset, now);
        }
        // Sending first frees space for reading.
        let mut reset = self.client.send(&mut self.down, &mut self.up, now);
        let mut wants = LinkProgress::Waits;
        if let TargetState::Open(target) = &mut self.target {
            reset |= target.send(&mut self.up, &mut self.down, now);
            wants = wants.max(target.receive(&mut self.down, pass));
            wants = wants.max(self.client.receive(&mut self.up, pass));
            if self.client.can_send(&self.down, now) || target.can_send(&self.up, now) {
                wants = LinkProgress::Again;
            }
            if self.client.finished && target.finished {
                return LinkProgress::Over;
            }
        } else {
            wants = wants.max(self.client.receive(&mut self.up, pass));
        }
        if reset {
            self.cut();
            return LinkProgress::Over;
        }
        wants
    }

    /// Makes the close of both sockets send resets.
    fn cut(&self) {
        let target = match &self.target {
            TargetState::Unopened(_) => None,
            TargetState::Opening(socket) | TargetState::Open(socket) => Some(&socket.stream),
        };
        for stream in target.into_iter().chain([&self.client.stream]) {
            // If this fails the socket closes normally; there is no better alternative.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Opens the connection to the target when it is due, and checks its result.
    fn open(&mut self, pass: &PassContext<'_>) -> io::Result<()> {
        if matches!(self.target, TargetState::Unopened(at) if at <= pass.now) {
            let stream = connect(pass.to)?;
            (pass.watch)(&stream)?;
            self.target = TargetState::Opening(SocketState::new(stream)?);
        }
        let TargetState::Opening(socket) = &self.target else { return Ok(()) };
        if !socket.writable {
            return Ok(());
        }
        if let Some(error) = socket.stream.take_error()? {
            return Err(error);
        }
        if let TargetState::Opening(socket) =
            std::mem::replace(&mut self.target, TargetState::Unopened(Nanos::MAX))
        {
            self.target = TargetState::Open(socket);
        }
        Ok(())
    }
}

impl SocketState {
    fn new(stream: TcpStream) -> io::Result<Self> {
        // Only the relay delays bytes, not Nagle's algorithm.
        stream.set_nodelay(true)?;
        Ok(Self { stream, readable: false, writable: false, finished: false })
    }

    /// Reads into a delay line while there are bytes and space.
    fn receive(&mut self, line: &mut DelayLine, pass: &mut PassContext<'_>) -> LinkProgress {
        for _ in 0..READS_MAX {
            if !self.readable || line.room() == 0 {
                return LinkProgress::Waits;
            }
            let most = pass.buffer.len().min(line.room()).min(pass.room);
            if most == 0 {
                return LinkProgress::WantsRoom;
            }
            match self.stream.read(&mut pass.buffer[..most]) {
                Ok(0) => {
                    self.readable = false;
                    line.end(StreamEnd::Closed, pass.now);
                }
                Ok(n) => {
                    pass.room -= n;
                    line.put(&pass.buffer[..n], pass.now);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.readable = false;
                    line.end(StreamEnd::Reset, pass.now);
                }
            }
        }
        if self.readable && line.room() > 0 { LinkProgress::Again } else { LinkProgress::Waits }
    }

    fn can_send(&self, line: &DelayLine, now: Nanos) -> bool {
        self.writable && !self.finished && line.arrived(now).is_some()
    }

    /// Writes the bytes that have arrived; returns true if that ends in a reset. When the socket is
    /// broken, the other side, whose bytes `back` carries, receives the reset after the delay.
    fn send(&mut self, line: &mut DelayLine, back: &mut DelayLine, now: Nanos) -> bool {
        while self.writable && !self.finished {
            match line.arrived(now) {
                None => break,
                Some(Arrival::Bytes(bytes)) => match self.stream.write(bytes) {
                    Ok(n) => line.take(n),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => self.writable = false,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        self.finished = true;
                        line.discard();
                        back.end(StreamEnd::Reset, now);
                    }
                },
                Some(Arrival::End(StreamEnd::Closed)) => {
                    // The peer may have closed already.
                    let _ = self.stream.shutdown(Shutdown::Write);
                    self.finished = true;
                }
                Some(Arrival::End(StreamEnd::Reset)) => return true,
            }
        }
        // A reset does not wait for a receiver that reads nothing.
        line.is_reset(now)
    }
}

/// Starts a non-blocking connect; the socket becomes writable when it succeeds.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), None)?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(e) => return Err(e),
    }
    Ok(socket.into())
}
