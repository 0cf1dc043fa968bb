//! HTTP servers whose limit is known by construction, to test tools that search for limits: a token
//! bucket that delays or refuses requests beyond it, a queue with one worker and random work
//! (M/M/1), and one with several workers and constant work (M/D/c). One epoll loop; work is only
//! waited for, so the limit does not depend on the machine. `GET /_check` returns how late the
//! answers left and the mean of the work.
//!
//! usage: known-limit ADDR delays RATE BURST | refuses RATE BURST | queue RATE SEED |
//! workers RATE WORKERS

mod check;
mod random;
mod schedule;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::{ClockId, clock_gettime};
use sockets::{Ready, Sockets};

use check::Check;
use random::Random;
use schedule::{Bucket, Decision, LimitKind, Schedule};

const USAGE: &str = "usage: known-limit ADDR delays RATE BURST | refuses RATE BURST | queue RATE \
                     SEED | workers RATE WORKERS";
const REQUEST_BYTES_MAX: usize = 4 << 10;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const REFUSED: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
const CHECK_PATH: &[u8] = b"GET /_check ";

struct Server {
    sockets: Sockets<Connection>,
    schedule: Schedule,
    /// Answers not sent yet, in the order of their times: time, place and number of the connection.
    leaving: VecDeque<(u64, usize, u64)>,
    check: Check,
    /// Connections so far. The number distinguishes a connection from a later one in the same
    /// place.
    opened: u64,
}

struct Connection {
    socket: OwnedFd,
    number: u64,
    request: Vec<u8>,
}

impl Server {
    fn bind(address: SocketAddr, limit_kind: LimitKind) -> Result<Self, Errno> {
        Ok(Self {
            sockets: Sockets::bind(address)?,
            schedule: Schedule::new(limit_kind),
            leaving: VecDeque::new(),
            check: Check::default(),
            opened: 0,
        })
    }

    fn run(&mut self) -> Result<(), Errno> {
        let mut ready = Ready::default();
        loop {
            let timeout =
                self.leaving.front().map(|(at_ns, ..)| timespec(at_ns.saturating_sub(now_ns())));
            self.sockets.wait(&mut ready, timeout.as_ref())?;
            if ready.listener {
                let opened = &mut self.opened;
                self.sockets.accept(|socket| {
                    *opened += 1;
                    Connection { socket, number: *opened, request: Vec::new() }
                });
            }
            for place in ready.places() {
                self.read(place);
            }
            self.send_due();
        }
    }

    fn read(&mut self, at: usize) {
        let mut buffer = [0; REQUEST_BYTES_MAX];
        let Some(connection) = self.sockets.at(at) else { return };
        let bytes = match recv(&connection.socket, &mut buffer, RecvFlags::empty()) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok((bytes, _))
                if bytes > 0 && connection.request.len() + bytes <= REQUEST_BYTES_MAX =>
            {
                bytes
            }
            Ok(_) | Err(_) => return self.sockets.close(at),
        };
        connection.request.extend_from_slice(&buffer[..bytes]);
        // Requests have no body, and clients send one request at a time.
        if !connection.request.ends_with(b"\r\n\r\n") {
            return;
        }
        let is_check = connection.request.starts_with(CHECK_PATH);
        connection.request.clear();
        let number = connection.number;
        if is_check {
            let answer = self.check.answer(&self.schedule);
            return self.send(at, &answer);
        }
        match self.schedule.arrival(now_ns()) {
            Decision::LeavesAt(time_ns) => self.leaving.push_back((time_ns, at, number)),
            Decision::Refused => self.send(at, REFUSED),
        }
    }

    fn send_due(&mut self) {
        while let Some((time_ns, at, number)) = self.leaving.front().copied() {
            let now_ns = now_ns();
            if time_ns > now_ns {
                return;
            }
            self.leaving.pop_front();
            self.check.left(now_ns - time_ns);
            if self.sockets.at(at).is_some_and(|connection| connection.number == number) {
                self.send(at, OK);
            }
        }
    }

    /// Answers are short, so a socket takes one whole; otherwise the connection is closed.
    fn send(&mut self, at: usize, answer: &[u8]) {
        let Some(connection) = self.sockets.at(at) else { return };
        if send(&connection.socket, answer, SendFlags::NOSIGNAL) != Ok(answer.len()) {
            self.sockets.close(at);
        }
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

fn limit_kind(words: &[String]) -> Option<LimitKind> {
    let [kind, rate, other] = words else { return None };
    let rate: f64 = rate.parse().ok().filter(|rate| *rate > 0.0)?;
    match kind.as_str() {
        "delays" => Some(LimitKind::Delays(Bucket::new(rate, other.parse().ok()?))),
        "refuses" => Some(LimitKind::Refuses(Bucket::new(rate, other.parse().ok()?))),
        "queue" => {
            Some(LimitKind::Queue { mean_ns: 1e9 / rate, random: Random::new(other.parse().ok()?) })
        }
        "workers" => Some(LimitKind::workers(rate, other.parse().ok()?)),
        _ => None,
    }
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, words) = arguments.split_first().ok_or(USAGE)?;
    let address: SocketAddr =
        address.parse().map_err(|e| format!("{address:?} is no address: {e}"))?;
    let limit_kind = limit_kind(words).ok_or(USAGE)?;
    // The smallest slack: a sleep of this thread ends within a few µs of its time.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
        .map_err(|e| format!("timer slack: {e}"))?;
    let mut server = Server::bind(address, limit_kind)
        .map_err(|e| format!("cannot listen on {address}: {e}"))?;
    server.run().map_err(|e| format!("epoll: {e}"))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("known-limit: {message}");
            ExitCode::FAILURE
        }
    }
}
