//! One connection: the client's socket, the target's, and what is on its way between them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use rustix::event::epoll::EventFlags;
use socket2::{Domain, SockRef, Socket, Type};

use super::line::{Arrival, End, Line};

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Reads of one connection and direction before the others have their turn.
const READS_MAX: u32 = 8;

/// Which socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Target,
}

/// What a turn of the relay has for its connections.
pub(super) struct Turn<'a> {
    pub(super) now: Nanos,
    /// Where connections go.
    pub(super) to: SocketAddr,
    /// Bytes that may be read.
    pub(super) room: usize,
    pub(super) buffer: &'a mut [u8],
    /// Has the target's socket watched.
    pub(super) watch: &'a dyn Fn(&TcpStream) -> io::Result<()>,
}

/// Where a connection stands; the later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Advance {
    /// For bytes, for time, or for a socket to take more.
    Waits,
    /// It could read if others took less room.
    WantsRoom,
    /// It could go on now.
    Again,
    /// Both directions have ended.
    Over,
}

#[derive(Debug)]
pub(super) struct Link {
    client: Socketed,
    target: Target,
    /// From the client to the target.
    up: Line,
    /// From the target to the client.
    down: Line,
    /// When an alarm is set for.
    alarm: Option<Nanos>,
}

/// The target's side.
#[derive(Debug)]
enum Target {
    /// It would not know of the client yet.
    Unopened(Nanos),
    Opening(Socketed),
    Open(Socketed),
}

/// A socket and what is known about it.
#[derive(Debug)]
struct Socketed {
    stream: TcpStream,
    /// There may be something to read.
    readable: bool,
    /// It may take something.
    writable: bool,
    /// All that it is to get was written to it, and its end too.
    finished: bool,
}

impl Link {
    pub(super) fn new(client: TcpStream, rtt: Duration, now: Nanos) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        let (delay, open) = (rtt / 2, now.after(rtt + rtt / 2));
        Ok(Self {
            client: Socketed::new(client)?,
            target: Target::Unopened(open),
            up: Line::new(delay),
            down: Line::new(delay),
            alarm: None,
        })
    }

    pub(super) fn client(&self) -> &TcpStream {
        &self.client.stream
    }

    /// Bytes on their way.
    pub(super) fn held(&self) -> usize {
        self.up.held() + self.down.held()
    }

    /// Notes what epoll told of a socket.
    pub(super) fn woke(&mut self, side: Side, flags: EventFlags) {
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let socket = match (side, &mut self.target) {
            (Side::Client, _) => &mut self.client,
            (Side::Target, Target::Opening(socket) | Target::Open(socket)) => socket,
            // An event of a connection that had this place before.
            (Side::Target, Target::Unopened(_)) => return,
        };
        // Reading and writing find out what is broken.
        socket.readable |= broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        socket.writable |= broken || flags.contains(EventFlags::OUT);
    }

    /// Notes that an alarm went off.
    pub(super) fn rang(&mut self, at: Nanos) {
        self.alarm = self.alarm.filter(|alarm| *alarm != at);
    }

    /// When to come back, if that was not said before.
    pub(super) fn alarm(&mut self, now: Nanos) -> Option<Nanos> {
        let opens = match self.target {
            Target::Unopened(at) => Some(at),
            _ => None,
        };
        let dues = [opens, self.up.next_due(), self.down.next_due()];
        // What is due already waits for its socket, not for time.
        let next = dues.into_iter().flatten().filter(|at| *at > now).min()?;
        if self.alarm.is_some_and(|alarm| alarm <= next) {
            return None;
        }
        self.alarm = Some(next);
        self.alarm
    }

    /// Does what can be done now.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) -> Advance {
        let now = turn.now;
        if self.open(turn).is_err() {
            self.down.end(End::Reset, now);
        }
        // Sending first makes room for what is read then.
        let mut reset = self.client.send(&mut self.down, &mut self.up, now);
        let mut wants = Advance::Waits;
        if let Target::Open(target) = &mut self.target {
            reset |= target.send(&mut self.up, &mut self.down, now);
            wants = wants.max(target.receive(&mut self.down, turn));
            wants = wants.max(self.client.receive(&mut self.up, turn));
            if self.client.can_send(&self.down, now) || target.can_send(&self.up, now) {
                wants = Advance::Again;
            }
            if self.client.finished && target.finished {
                return Advance::Over;
            }
        } else {
            wants = wants.max(self.client.receive(&mut self.up, turn));
        }
        if reset {
            self.cut();
            return Advance::Over;
        }
        wants
    }

    /// Has closing send resets.
    fn cut(&self) {
        let target = match &self.target {
            Target::Unopened(_) => None,
            Target::Opening(socket) | Target::Open(socket) => Some(&socket.stream),
        };
        for stream in target.into_iter().chain([&self.client.stream]) {
            // Where the system refuses, it is closed in order: nothing better can be done.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Opens the connection to the target when it is time, and sees whether that worked.
    fn open(&mut self, turn: &Turn<'_>) -> io::Result<()> {
        if matches!(self.target, Target::Unopened(at) if at <= turn.now) {
            let stream = connect(turn.to)?;
            (turn.watch)(&stream)?;
            self.target = Target::Opening(Socketed::new(stream)?);
        }
        let Target::Opening(socket) = &self.target else { return Ok(()) };
        if !socket.writable {
            return Ok(());
        }
        if let Some(error) = socket.stream.take_error()? {
            return Err(error);
        }
        if let Target::Opening(socket) = std::mem::replace(&mut self.target, Target::Unopened(Nanos::MAX)) {
            self.target = Target::Open(socket);
        }
        Ok(())
    }
}

impl Socketed {
    fn new(stream: TcpStream) -> io::Result<Self> {
        // Bytes are held up here as long as was asked for, and no longer.
        stream.set_nodelay(true)?;
        Ok(Self { stream, readable: false, writable: false, finished: false })
    }

    /// Reads into a line as long as there is something and room.
    fn receive(&mut self, line: &mut Line, turn: &mut Turn<'_>) -> Advance {
        for _ in 0..READS_MAX {
            if !self.readable || line.room() == 0 {
                return Advance::Waits;
            }
            let most = turn.buffer.len().min(line.room()).min(turn.room);
            if most == 0 {
                return Advance::WantsRoom;
            }
            match self.stream.read(&mut turn.buffer[..most]) {
                Ok(0) => {
                    self.readable = false;
                    line.end(End::Closed, turn.now);
                }
                Ok(n) => {
                    turn.room -= n;
                    line.put(&turn.buffer[..n], turn.now);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.readable = false;
                    line.end(End::Reset, turn.now);
                }
            }
        }
        if self.readable && line.room() > 0 { Advance::Again } else { Advance::Waits }
    }

    fn can_send(&self, line: &Line, now: Nanos) -> bool {
        self.writable && !self.finished && line.arrived(now).is_some()
    }

    /// Writes what has arrived for it; true when that ends in a reset. When it is broken itself, the other side, whose bytes
    /// `back` brings, hears of it in time.
    fn send(&mut self, line: &mut Line, back: &mut Line, now: Nanos) -> bool {
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
                        back.end(End::Reset, now);
                    }
                },
                Some(Arrival::End(End::Closed)) => {
                    // It may be gone already, which is as good.
                    let _ = self.stream.shutdown(Shutdown::Write);
                    self.finished = true;
                }
                Some(Arrival::End(End::Reset)) => return true,
            }
        }
        // A reset does not wait for a reader who takes nothing.
        line.is_reset(now)
    }
}

/// Begins to connect; it is there when it can be written.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), None)?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(e) => return Err(e),
    }
    Ok(socket.into())
}
