//! The proxy's thread: waits for bytes, for the time of delayed bytes, and for changes by the test.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::link::{Link, Step, until};
use super::{BOTH, Class, Control, Direction, Shared, reset};

/// Longest wait, so that a bug here causes a slow test rather than a hanging one.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A connection whose startup message is incomplete.
struct PendingConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// Runs until the test ends.
pub fn run(shared: &Shared, listener: &TcpListener, mut woken: &UnixStream) {
    listener.set_nonblocking(true).expect("a listener can");
    woken.set_nonblocking(true).expect("a pair can");
    let mut pending_connections: Vec<PendingConnection> = Vec::new();
    let mut links: Vec<Link> = Vec::new();
    let mut turned_at = Instant::now();
    loop {
        let control = apply_changes(shared, &mut links);
        if control.stop {
            links.iter().for_each(|link| _ = link.over());
            pending_connections.iter().for_each(|pending| reset(&pending.stream));
            return;
        }
        wait(&control, listener, woken, &pending_connections, &links);
        while woken.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
        while let Ok((stream, _)) = listener.accept() {
            prepare(&stream);
            pending_connections.push(PendingConnection { stream, received: Vec::new() });
        }
        let now = Instant::now();
        let mut taken = [0; 3];
        for mut pending in std::mem::take(&mut pending_connections) {
            // If the server sends first, the connection is opened at once.
            match control.class.map_or_else(|| read_startup(&mut pending), Handshake::Session) {
                Handshake::Waits => pending_connections.push(pending),
                Handshake::Gone => {}
                Handshake::Session(class) => {
                    taken[class as usize] += 1;
                    links.extend(connect(pending, class, &control, now));
                }
            }
        }
        let mut bytes = [[0; 2]; 3];
        links.retain_mut(|link| {
            move_bytes(link, &control, &mut bytes[link.class as usize], now) != Step::Over
        });
        publish_counters(shared, &links, taken, bytes);
        let turn = turned_at.elapsed();
        turned_at += turn;
        let mut control = shared.control();
        control.stalled = control.stalled.max(turn.saturating_sub(WAIT_MAX));
    }
}

/// Applies the test's changes.
fn apply_changes(shared: &Shared, links: &mut Vec<Link>) -> Control {
    let mut control = shared.control();
    let cut = std::mem::take(&mut control.cut);
    links.retain(|link| !cut[link.class as usize] || link.over() != Step::Over);
    control.open = open(links);
    control.done = control.wanted;
    shared.obeyed.notify_all();
    *control
}

fn publish_counters(shared: &Shared, links: &[Link], taken: [u64; 3], bytes: [[u64; 2]; 3]) {
    let mut control = shared.control();
    control.open = open(links);
    control.waiting = Default::default();
    for link in links {
        BOTH.into_iter().for_each(|direction| {
            control.waiting[link.class as usize][direction as usize] += link.waiting(direction)
        });
    }
    for class in 0..3 {
        control.taken[class] += taken[class];
        (0..2).for_each(|direction| control.bytes[class][direction] += bytes[class][direction]);
    }
}

fn open(links: &[Link]) -> [u64; 3] {
    let mut open = [0; 3];
    links.iter().for_each(|link| open[link.class as usize] += 1);
    open
}

/// Waits for the next event.
fn wait(
    control: &Control,
    listener: &TcpListener,
    woken: &UnixStream,
    pending_connections: &[PendingConnection],
    links: &[Link],
) {
    let now = Instant::now();
    let mut wait_time = WAIT_MAX;
    let mut fds = vec![
        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN),
    ];
    fds.extend(
        pending_connections
            .iter()
            .map(|pending| PollFd::from_borrowed_fd(pending.stream.as_fd(), PollFlags::IN)),
    );
    for link in links {
        for direction in BOTH {
            let (from, to): (BorrowedFd<'_>, BorrowedFd<'_>) = match direction {
                Direction::ToServer => (link.service.as_fd(), link.server.as_fd()),
                Direction::ToService => (link.server.as_fd(), link.service.as_fd()),
            };
            if link.wants_to_read(direction) {
                fds.push(PollFd::from_borrowed_fd(from, PollFlags::IN));
            }
            match link.due(direction, control.directions[link.class as usize][direction as usize]) {
                Some(due) if due <= now => fds.push(PollFd::from_borrowed_fd(to, PollFlags::OUT)),
                Some(due) => wait_time = wait_time.min(until(due, now)),
                None => {}
            }
        }
    }
    let wait_time = Timespec { tv_sec: 0, tv_nsec: i64::from(wait_time.subsec_nanos()) };
    // Interrupted: the loop continues.
    _ = poll(&mut fds, Some(&wait_time));
}

enum Handshake {
    Waits,
    Gone,
    Session(Class),
}

/// Reads until the startup message is complete.
fn read_startup(pending: &mut PendingConnection) -> Handshake {
    let mut bytes = [0; 4096];
    loop {
        match pending.stream.read(&mut bytes) {
            Ok(0) => return Handshake::Gone,
            Ok(n) => pending.received.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Handshake::Waits;
            }
            Err(_) => return Handshake::Gone,
        }
        match classify(&pending.received) {
            Startup::Incomplete => {}
            Startup::Session(class) => return Handshake::Session(class),
            Startup::Encryption(length) => {
                pending.received.drain(..length);
                if pending.stream.write_all(b"N").is_err() {
                    return Handshake::Gone;
                }
            }
            Startup::Nonsense => {
                reset(&pending.stream);
                return Handshake::Gone;
            }
        }
    }
}

/// Connects to the server; `None` if the connection is refused or the server cannot be reached.
fn connect(
    pending: PendingConnection,
    class: Class,
    control: &Control,
    now: Instant,
) -> Option<Link> {
    let refused = control.refused[class as usize];
    let server =
        if refused { None } else { TcpStream::connect(("127.0.0.1", control.target)).ok() };
    let Some(server) = server else {
        reset(&pending.stream);
        return None;
    };
    prepare(&server);
    Some(Link::new(class, pending.stream, server, pending.received, now))
}

fn prepare(stream: &TcpStream) {
    stream.set_nonblocking(true).expect("a socket can");
    stream.set_nodelay(true).expect("a socket can");
}

fn move_bytes(link: &mut Link, control: &Control, bytes: &mut [u64; 2], now: Instant) -> Step {
    for direction in BOTH {
        link.read(direction, now);
        match link.deliver(
            direction,
            control.directions[link.class as usize][direction as usize],
            now,
        ) {
            Step::Open(delivered) => bytes[direction as usize] += delivered,
            Step::Over => return Step::Over,
        }
    }
    Step::Open(0)
}

/// Longest startup message.
const STARTUP_BYTES_MAX: usize = 10_000;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// Result of parsing the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// Too few bytes.
    Incomplete,
    /// A request for encryption of this length. It is declined, because the proxy must read the
    /// following messages.
    Encryption(usize),
    /// A connection of that class.
    Session(Class),
    /// Not PostgreSQL.
    Nonsense,
}

/// Parses the first bytes sent by the service.
pub fn classify(bytes: &[u8]) -> Startup {
    let number =
        |at: usize| bytes.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    let (Some(length), Some(code)) = (number(0), number(4)) else { return Startup::Incomplete };
    let length = length as usize;
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Startup::Nonsense;
    }
    let Some(message) = bytes.get(8..length) else { return Startup::Incomplete };
    match code {
        SSL_REQUEST | GSS_REQUEST => Startup::Encryption(length),
        CANCEL_REQUEST => Startup::Session(Class::Readers),
        _ => Startup::Session(class(message)),
    }
}

/// Returns the class by the parameters, which are pairs of texts that each end with a zero byte.
fn class(message: &[u8]) -> Class {
    let texts: Vec<&[u8]> = message.split(|byte| *byte == 0).collect();
    let value =
        |name: &[u8]| texts.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    if value(b"replication").is_some() {
        return Class::Replication;
    }
    let name =
        String::from_utf8_lossy(value(b"application_name").unwrap_or_default()).to_lowercase();
    if name.contains("feed") { Class::FeedSql } else { Class::Readers }
}
