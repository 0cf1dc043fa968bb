//! One connection through the proxy: two sockets and the bytes in transit between them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::{Class, Conduct, Direction, reset};

/// Most bytes in transit in one direction; beyond that nothing is read.
const HELD_BYTES_MAX: usize = 256 * 1024;
/// Bytes read at once.
const PIECE_BYTES: usize = 16 * 1024;

/// A connection whose class is known.
pub struct Link {
    pub class: Class,
    pub service: TcpStream,
    pub server: TcpStream,
    pipes: [Pipe; 2],
}

/// One direction.
#[derive(Default)]
struct Pipe {
    pieces: VecDeque<(Instant, Piece)>,
    held_bytes: usize,
    /// The source has closed its side.
    ended: bool,
    /// The destination's side has been closed.
    closed: bool,
}

enum Piece {
    Bytes(Vec<u8>, usize),
    End,
    Reset,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes delivered.
    Open(u64),
    /// The connection has ended.
    Over,
}

impl Link {
    /// `first`: the bytes that the service has sent already.
    pub fn new(
        class: Class,
        service: TcpStream,
        server: TcpStream,
        first: Vec<u8>,
        now: Instant,
    ) -> Self {
        let mut pipes: [Pipe; 2] = Default::default();
        pipes[Direction::ToServer as usize].push(now, first);
        Self { class, service, server, pipes }
    }

    fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::ToServer => (&self.service, &self.server),
            Direction::ToService => (&self.server, &self.service),
        }
    }

    /// Returns whether the source of this direction is to be read.
    pub fn wants_to_read(&self, direction: Direction) -> bool {
        let pipe = &self.pipes[direction as usize];
        !pipe.ended && pipe.held_bytes < HELD_BYTES_MAX
    }

    /// Returns the bytes in transit in this direction.
    pub fn waiting(&self, direction: Direction) -> u64 {
        self.pipes[direction as usize].held_bytes as u64
    }

    /// Returns the time at which the next piece of this direction is due; `None` without one or
    /// during a hold.
    pub fn due(&self, direction: Direction, conduct: Conduct) -> Option<Instant> {
        let (arrived, _) = self.pipes[direction as usize].pieces.front()?;
        (!conduct.held).then(|| *arrived + conduct.delay)
    }

    /// Reads the available bytes of the source.
    pub fn read(&mut self, direction: Direction, now: Instant) {
        if !self.wants_to_read(direction) {
            return;
        }
        let mut bytes = vec![0; PIECE_BYTES];
        let got = self.ends(direction).0.read(&mut bytes);
        let pipe = &mut self.pipes[direction as usize];
        match got {
            Ok(0) => pipe.end(now, Piece::End),
            Ok(n) => {
                bytes.truncate(n);
                pipe.push(now, bytes);
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => pipe.end(now, Piece::Reset),
        }
    }

    /// Delivers the bytes that are due.
    pub fn deliver(&mut self, direction: Direction, conduct: Conduct, now: Instant) -> Step {
        let mut delivered = 0;
        while self.due(direction, conduct).is_some_and(|due| due <= now) {
            let service = &self.service;
            let server = &self.server;
            let mut to = if direction == Direction::ToServer { server } else { service };
            let pipe = &mut self.pipes[direction as usize];
            let Some((_, piece)) = pipe.pieces.front_mut() else { break };
            match piece {
                Piece::Bytes(bytes, sent) => match to.write(&bytes[*sent..]) {
                    Ok(n) => {
                        *sent += n;
                        delivered += n as u64;
                        pipe.held_bytes -= n;
                        if *sent < bytes.len() {
                            continue;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return self.over(),
                },
                Piece::End => {
                    // If the peer has closed, its own direction ends the connection.
                    _ = to.shutdown(Shutdown::Write);
                    pipe.closed = true;
                }
                Piece::Reset => return self.over(),
            }
            pipe.pieces.pop_front();
        }
        let done = self.pipes.iter().all(|pipe| pipe.closed);
        if done { Step::Over } else { Step::Open(delivered) }
    }

    /// Resets both ends.
    pub fn over(&self) -> Step {
        reset(&self.service);
        reset(&self.server);
        Step::Over
    }
}

impl Pipe {
    fn push(&mut self, now: Instant, bytes: Vec<u8>) {
        self.held_bytes += bytes.len();
        self.pieces.push_back((now, Piece::Bytes(bytes, 0)));
    }

    fn end(&mut self, now: Instant, how: Piece) {
        self.ended = true;
        self.pieces.push_back((now, how));
    }
}

/// Returns the time until `due`, in poll's form.
pub fn until(due: Instant, now: Instant) -> Duration {
    due.saturating_duration_since(now)
}
