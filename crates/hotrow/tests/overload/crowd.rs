//! Thousands of connections in one thread, and what they cost the server.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{Client, Server};

/// Open files that a test needs beside its crowd.
const OTHER_FILES: u64 = 500;

/// As many of `wanted` connections as the limit on open files allows to us; the server, a process of its own, has the same limit.
/// Says so when they are fewer.
pub(crate) fn room_for(wanted: usize) -> usize {
    let now = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum }).expect("raise the limit");
    let room = now.maximum.map_or(wanted, |limit| usize::try_from(limit.saturating_sub(OTHER_FILES)).unwrap_or(wanted));
    if room < wanted {
        println!("only {room} connections instead of {wanted}: the limit on open files (ulimit -Hn) is too small");
    }
    room.min(wanted)
}

/// Memory that the server holds, in bytes, from /proc.
pub(crate) fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

/// One connection of a crowd.
pub(crate) struct Member {
    stream: TcpStream,
    /// What it received, up to [`KEPT_BYTES`].
    pub(crate) received: Vec<u8>,
    /// The server closed or reset it.
    pub(crate) closed: bool,
}

/// Bytes that a member keeps of its answer.
const KEPT_BYTES: usize = 64;

/// Many connections.
pub(crate) struct Crowd {
    pub(crate) members: Vec<Member>,
}

impl Crowd {
    /// Opens `count` connections, one after the other.
    pub(crate) fn open(address: SocketAddr, count: usize) -> Self {
        let member = |_| {
            let stream = TcpStream::connect(address).expect("connect");
            stream.set_nonblocking(true).expect("a socket");
            stream.set_nodelay(true).expect("a socket");
            Member { stream, received: Vec::new(), closed: false }
        };
        Self { members: (0..count).map(member).collect() }
    }

    /// Each member sends what `bytes` gives for it, as far as its socket takes it.
    pub(crate) fn send<'a>(&mut self, bytes: impl Fn(usize) -> &'a [u8]) {
        for (at, member) in self.members.iter_mut().enumerate().filter(|(_, member)| !member.closed) {
            // Some of it may find no room, and the server may have closed, which shows when reading.
            let _ = member.stream.write(bytes(at));
        }
    }

    /// Each member reads what is there. How many are still open.
    pub(crate) fn read(&mut self) -> usize {
        let mut buffer = [0; 4096];
        for member in self.members.iter_mut().filter(|member| !member.closed) {
            match member.stream.read(&mut buffer) {
                Ok(0) => member.closed = true,
                Ok(n) => {
                    let room = KEPT_BYTES - member.received.len();
                    member.received.extend_from_slice(&buffer[..n.min(room)]);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => member.closed = true,
            }
        }
        self.members.iter().filter(|member| !member.closed).count()
    }

    /// Sends and reads in turn until the server has closed all of them.
    ///
    /// # Panics
    /// When it has not within `deadline`.
    pub(crate) fn drip_until_closed(&mut self, byte: &[u8], pause: Duration, deadline: Duration) {
        let end = Instant::now() + deadline;
        loop {
            let open = self.read();
            if open == 0 {
                return;
            }
            assert!(Instant::now() < end, "{open} are still open after {deadline:?}");
            std::thread::sleep(pause);
            self.send(|_| byte);
        }
    }
}

/// Asks for record 1, which is in memory, and for the admin's health again and again until `done`; every answer must be 200, and the
/// record's a hit. How many records it got.
pub(crate) fn ask_until(server: &Server, client: &mut Client, done: &AtomicBool) -> u64 {
    let (mut admin, mut answers) = (server.admin_client(), 0);
    while !done.load(Ordering::Relaxed) {
        let answer = client.get("/products/1");
        assert_eq!((answer.status, answer.cache()), (200, "hit"));
        answers += 1;
        if answers % 100 == 1 {
            assert_eq!(admin.get("/healthz").status, 200);
            assert_eq!(server.admin_client().get("/readyz").status, 200, "a new connection to the admin side, too");
        }
    }
    answers
}
