//! One connection through the proxy: two sockets and what is on its way between them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::{Class, Conduct, Way, reset};

/// Bytes on their way in one direction, beyond which nothing more is read.
const HELD_BYTES_MAX: usize = 256 * 1024;
/// Bytes read at once.
const PIECE_BYTES: usize = 16 * 1024;

/// A connection whose class is known.
pub(super) struct Link {
    pub(super) class: Class,
    pub(super) service: TcpStream,
    pub(super) server: TcpStream,
    pipes: [Pipe; 2],
}

/// One direction.
#[derive(Default)]
struct Pipe {
    pieces: VecDeque<(Instant, Piece)>,
    held_bytes: usize,
    /// The source has nothing more to say.
    ended: bool,
    /// The destination has been told so.
    closed: bool,
}

enum Piece {
    Bytes(Vec<u8>, usize),
    End,
    Reset,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many bytes were delivered.
    Open(u64),
    /// The connection is over.
    Over,
}

impl Link {
    /// `first`: what the service has sent already.
    pub(super) fn new(class: Class, service: TcpStream, server: TcpStream, first: Vec<u8>, now: Instant) -> Self {
        let mut pipes: [Pipe; 2] = Default::default();
        pipes[Way::ToServer as usize].push(now, first);
        Self { class, service, server, pipes }
    }

    fn ends(&self, way: Way) -> (&TcpStream, &TcpStream) {
        match way {
            Way::ToServer => (&self.service, &self.server),
            Way::ToService => (&self.server, &self.service),
        }
    }

    /// Whether the source of this direction is to be read.
    pub(super) fn wants_to_read(&self, way: Way) -> bool {
        let pipe = &self.pipes[way as usize];
        !pipe.ended && pipe.held_bytes < HELD_BYTES_MAX
    }

    /// Bytes on their way in this direction.
    pub(super) fn waiting(&self, way: Way) -> u64 {
        self.pipes[way as usize].held_bytes as u64
    }

    /// When the next piece of this direction is due; none when there is none or it is held.
    pub(super) fn due(&self, way: Way, conduct: Conduct) -> Option<Instant> {
        let (arrived, _) = self.pipes[way as usize].pieces.front()?;
        (!conduct.held).then(|| *arrived + conduct.delay)
    }

    /// Reads what the source has.
    pub(super) fn read(&mut self, way: Way, now: Instant) {
        if !self.wants_to_read(way) {
            return;
        }
        let mut bytes = vec![0; PIECE_BYTES];
        let got = self.ends(way).0.read(&mut bytes);
        let pipe = &mut self.pipes[way as usize];
        match got {
            Ok(0) => pipe.end(now, Piece::End),
            Ok(n) => {
                bytes.truncate(n);
                pipe.push(now, bytes);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => pipe.end(now, Piece::Reset),
        }
    }

    /// Delivers what is due.
    pub(super) fn deliver(&mut self, way: Way, conduct: Conduct, now: Instant) -> Step {
        let mut delivered = 0;
        while self.due(way, conduct).is_some_and(|due| due <= now) {
            let (service, server) = (&self.service, &self.server);
            let mut to = if way == Way::ToServer { server } else { service };
            let pipe = &mut self.pipes[way as usize];
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
                    // If the other side is gone, its own direction tells.
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
    pub(super) fn over(&self) -> Step {
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

/// The time until `due`, in the form that poll takes.
pub(super) fn until(due: Instant, now: Instant) -> Duration {
    due.saturating_duration_since(now)
}
