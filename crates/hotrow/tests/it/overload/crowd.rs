//! Thousands of connections in one thread, and their cost for the server.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use hotrow_testkit::harness::{Client, Server};

/// Open files that a test needs in addition to its crowd.
const OTHER_FILES: u64 = 500;

/// Returns how many of `wanted` connections the limit on open files allows in this process; the
/// server, a process of its own, has the same limit. Prints a line if they are fewer.
pub(crate) fn room_for(wanted: usize) -> usize {
    let now = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })
        .expect("raise the limit");
    let room = now.maximum.map_or(wanted, |limit| {
        usize::try_from(limit.saturating_sub(OTHER_FILES)).unwrap_or(wanted)
    });
    if room < wanted {
        println!(
            "only {room} connections instead of {wanted}: the limit on open files (ulimit -Hn) is \
             too small"
        );
    }
    room.min(wanted)
}

/// Returns the memory of the server, in bytes, from /proc.
pub(crate) fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))
        .expect("the server lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

pub(crate) struct Member {
    stream: TcpStream,
    /// Received bytes, up to [`KEPT_BYTES`].
    pub(crate) received: Vec<u8>,
    /// The server closed or reset it.
    pub(crate) closed: bool,
}

/// Bytes of its answer that a member stores.
const KEPT_BYTES: usize = 64;

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

    /// Sends the bytes of `bytes` on each connection, as far as its socket accepts them.
    pub(crate) fn send<'a>(&mut self, bytes: impl Fn(usize) -> &'a [u8]) {
        for (at, member) in self.members.iter_mut().enumerate().filter(|(_, member)| !member.closed)
        {
            // The socket may accept only a part, and the server may have closed; reads show that.
            let _ = member.stream.write(bytes(at));
        }
    }

    /// Reads the available bytes of each member. Returns the number of open connections.
    pub(crate) fn read(&mut self) -> usize {
        let mut buffer = [0; 4096];
        for member in self.members.iter_mut().filter(|member| !member.closed) {
            match member.stream.read(&mut buffer) {
                Ok(0) => member.closed = true,
                Ok(n) => {
                    let room = KEPT_BYTES - member.received.len();
                    member.received.extend_from_slice(&buffer[..n.min(room)]);
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => member.closed = true,
            }
        }
        self.members.iter().filter(|member| !member.closed).count()
    }

    /// Sends and reads repeatedly until the server has closed all of them.
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

/// Requests record 1, which is cached, and the admin side's health repeatedly until `done`. Every
/// answer must be 200, and the record's a hit. Returns the number of record requests.
pub(crate) fn request_until(server: &Server, client: &mut Client, done: &AtomicBool) -> u64 {
    let mut admin = server.admin_client();
    let mut answers = 0;
    while !done.load(Ordering::Relaxed) {
        let answer = client.get("/products/1");
        assert_eq!((answer.status, answer.cache()), (200, "hit"));
        answers += 1;
        if answers % 100 == 1 {
            assert_eq!(admin.get("/healthz").status, 200);
            assert_eq!(
                server.admin_client().get("/readyz").status,
                200,
                "a new connection to the admin side too"
            );
        }
    }
    answers
}
