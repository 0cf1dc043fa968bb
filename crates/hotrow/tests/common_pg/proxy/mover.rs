//! The proxy's thread: waits for bytes, for the time of those that are delayed, and for what the test wants.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::link::{Link, Step, until};
use super::startup::{Startup, classify};
use super::{BOTH, Class, Control, Shared, Way, reset};

/// Nothing is waited for longer than this, so that a mistake here shows as slowness and not as a test that hangs.
const NAP_MAX: Duration = Duration::from_millis(100);

/// A connection that has not said yet what it is.
struct Guest {
    stream: TcpStream,
    said: Vec<u8>,
}

/// Runs until the test wants no more.
pub(super) fn run(shared: &Shared, listener: &TcpListener, mut woken: &UnixStream) {
    listener.set_nonblocking(true).expect("a listener can");
    woken.set_nonblocking(true).expect("a pair can");
    let (mut guests, mut links): (Vec<Guest>, Vec<Link>) = (Vec::new(), Vec::new());
    loop {
        let control = obey(shared, &mut links);
        if control.stop {
            links.iter().for_each(|link| _ = link.over());
            guests.iter().for_each(|guest| reset(&guest.stream));
            return;
        }
        wait(&control, listener, woken, &guests, &links);
        while woken.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
        while let Ok((stream, _)) = listener.accept() {
            prepare(&stream);
            guests.push(Guest { stream, said: Vec::new() });
        }
        let now = Instant::now();
        let mut taken = [0; 3];
        for mut guest in std::mem::take(&mut guests) {
            // Where the server speaks first, the guest waits for it.
            match control.class.map_or_else(|| listen(&mut guest), Listened::Session) {
                Listened::Waits => guests.push(guest),
                Listened::Gone => {}
                Listened::Session(class) => {
                    taken[class as usize] += 1;
                    links.extend(connect(guest, class, &control, now));
                }
            }
        }
        let mut bytes = [[0; 2]; 3];
        links.retain_mut(|link| move_bytes(link, &control, &mut bytes[link.class as usize], now) != Step::Over);
        note(shared, &links, taken, bytes);
    }
}

/// Takes over what the test wants.
fn obey(shared: &Shared, links: &mut Vec<Link>) -> Control {
    let mut control = shared.control();
    let cut = std::mem::take(&mut control.cut);
    links.retain(|link| !cut[link.class as usize] || link.over() != Step::Over);
    control.open = open(links);
    control.done = control.wanted;
    shared.obeyed.notify_all();
    *control
}

fn note(shared: &Shared, links: &[Link], taken: [u64; 3], bytes: [[u64; 2]; 3]) {
    let mut control = shared.control();
    control.open = open(links);
    control.waiting = Default::default();
    for link in links {
        BOTH.into_iter().for_each(|way| control.waiting[link.class as usize][way as usize] += link.waiting(way));
    }
    for class in 0..3 {
        control.taken[class] += taken[class];
        (0..2).for_each(|way| control.bytes[class][way] += bytes[class][way]);
    }
}

fn open(links: &[Link]) -> [u64; 3] {
    let mut open = [0; 3];
    links.iter().for_each(|link| open[link.class as usize] += 1);
    open
}

/// Waits until something can be done.
fn wait(control: &Control, listener: &TcpListener, woken: &UnixStream, guests: &[Guest], links: &[Link]) {
    let now = Instant::now();
    let mut nap = NAP_MAX;
    let mut fds = vec![
        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN),
    ];
    fds.extend(guests.iter().map(|guest| PollFd::from_borrowed_fd(guest.stream.as_fd(), PollFlags::IN)));
    for link in links {
        for way in BOTH {
            let (from, to): (BorrowedFd<'_>, BorrowedFd<'_>) = match way {
                Way::ToServer => (link.service.as_fd(), link.server.as_fd()),
                Way::ToService => (link.server.as_fd(), link.service.as_fd()),
            };
            if link.wants_to_read(way) {
                fds.push(PollFd::from_borrowed_fd(from, PollFlags::IN));
            }
            match link.due(way, control.ways[link.class as usize][way as usize]) {
                Some(due) if due <= now => fds.push(PollFd::from_borrowed_fd(to, PollFlags::OUT)),
                Some(due) => nap = nap.min(until(due, now)),
                None => {}
            }
        }
    }
    let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
    // Interrupted: the loop comes round again.
    _ = poll(&mut fds, Some(&nap));
}

enum Listened {
    Waits,
    Gone,
    Session(Class),
}

/// Reads what a guest says until its startup message is whole.
fn listen(guest: &mut Guest) -> Listened {
    let mut bytes = [0; 4096];
    loop {
        match guest.stream.read(&mut bytes) {
            Ok(0) => return Listened::Gone,
            Ok(n) => guest.said.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Listened::Waits,
            Err(_) => return Listened::Gone,
        }
        match classify(&guest.said) {
            Startup::Incomplete => {}
            Startup::Session(class) => return Listened::Session(class),
            Startup::Encryption(length) => {
                guest.said.drain(..length);
                if guest.stream.write_all(b"N").is_err() {
                    return Listened::Gone;
                }
            }
            Startup::Nonsense => {
                reset(&guest.stream);
                return Listened::Gone;
            }
        }
    }
}

/// Leads a guest on; none when it is refused, or the server cannot be reached.
fn connect(guest: Guest, class: Class, control: &Control, now: Instant) -> Option<Link> {
    let refused = control.refused[class as usize];
    let server = if refused { None } else { TcpStream::connect(("127.0.0.1", control.target)).ok() };
    let Some(server) = server else {
        reset(&guest.stream);
        return None;
    };
    prepare(&server);
    Some(Link::new(class, guest.stream, server, guest.said, now))
}

fn prepare(stream: &TcpStream) {
    stream.set_nonblocking(true).expect("a socket can");
    stream.set_nodelay(true).expect("a socket can");
}

fn move_bytes(link: &mut Link, control: &Control, bytes: &mut [u64; 2], now: Instant) -> Step {
    for way in BOTH {
        link.read(way, now);
        match link.deliver(way, control.ways[link.class as usize][way as usize], now) {
            Step::Open(delivered) => bytes[way as usize] += delivered,
            Step::Over => return Step::Over,
        }
    }
    Step::Open(0)
}
