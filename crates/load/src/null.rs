//! The null server: answers every request at once with the same few bytes, so that nothing but the generator (and the
//! kernel between the two) is measured. It understands of HTTP only where a request without a body ends; it serves
//! [`crate::calibrate`], on 127.0.0.1.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{Timespec, epoll::Event};
use socket2::{Domain, Protocol, Socket, Type};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// What ends a request without a body.
const END: &[u8; 4] = b"\r\n\r\n";
/// Bytes read at once; shared by all connections of a thread.
const READ_BYTES: usize = 16 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Events taken at once.
const EVENTS: usize = 256;
/// How often the wish to end is looked for.
const STOP_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A running null server. Dropping it ends its threads.
#[derive(Debug)]
pub struct NullServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl NullServer {
    /// Starts one on a free port of 127.0.0.1, with this many threads. Each listens for itself; the kernel deals
    /// connections out.
    ///
    /// # Errors
    /// When a socket or a thread cannot be had.
    pub fn start(threads: usize) -> io::Result<Self> {
        let first = listen(0)?;
        let address = first.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let mut server = Self { address, ended, threads: Vec::new() };
        let mut listener = Some(first);
        for index in 0..threads.max(1) {
            let own = listener.take().map_or_else(|| listen(address.port()), Ok)?;
            let (serving, ended) = (Serving::new(own)?, server.ended.clone());
            let builder = Builder::new().name(format!("null-{index}"));
            server.threads.push(builder.spawn(move || serving.serve(&ended))?);
        }
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            // A thread that panicked has said so; there is nothing left to save.
            let _ = thread.join();
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_port(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// One thread's listener and connections.
struct Serving {
    epoll: OwnedFd,
    listener: TcpListener,
    connections: HashMap<u64, Client>,
    buffer: Vec<u8>,
    answers: Vec<u8>,
}

struct Client {
    stream: TcpStream,
    /// How much of [`END`] the last bytes were.
    matched: usize,
}

impl Serving {
    fn new(listener: TcpListener) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, key_of(&listener), EventFlags::IN)?;
        let buffer = vec![0; READ_BYTES];
        Ok(Self { epoll, listener, connections: HashMap::new(), buffer, answers: Vec::new() })
    }

    fn serve(mut self, ended: &AtomicBool) {
        let own = key_of(&self.listener).u64();
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        while !ended.load(Ordering::Relaxed) {
            events.clear();
            // An error is an interruption; no other can befall a valid epoll descriptor.
            if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&STOP_LOOK)).is_err() {
                continue;
            }
            for event in &events {
                match event.data.u64() {
                    key if key == own => self.accept(),
                    key => self.answer(key),
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let key = key_of(&stream);
            // A connection that cannot be watched is closed, and the generator counts that.
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok()
                && epoll::add(&self.epoll, &stream, key, EventFlags::IN).is_ok()
            {
                self.connections.insert(key.u64(), Client { stream, matched: 0 });
            }
        }
    }

    fn answer(&mut self, key: u64) {
        let Some(client) = self.connections.get_mut(&key) else { return };
        let open = match client.stream.read(&mut self.buffer) {
            Ok(0) => false,
            Ok(n) => {
                let requests = client.requests_ended(&self.buffer[..n]);
                self.answers.clear();
                (0..requests).for_each(|_| self.answers.extend_from_slice(ANSWER));
                // Whoever does not read its answers is let go: nothing is kept for it.
                requests == 0 || matches!(client.stream.write(&self.answers), Ok(sent) if sent == self.answers.len())
            }
            Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        if !open {
            self.connections.remove(&key);
        }
    }
}

impl Client {
    /// Requests that end in `bytes`, which follow on what came before.
    fn requests_ended(&mut self, bytes: &[u8]) -> usize {
        let mut ended = 0;
        for byte in bytes {
            self.matched = match byte {
                b if *b == END[self.matched] => self.matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if self.matched == END.len() {
                self.matched = 0;
                ended += 1;
            }
        }
        ended
    }
}

/// What tells a socket apart: its descriptor, which no other has while it is open.
fn key_of(socket: &impl AsRawFd) -> EventData {
    EventData::new_u64(u64::from(socket.as_raw_fd().unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_answer_however_it_is_cut() {
        let server = NullServer::start(2).unwrap();
        for cut in [1, 3, 7, 1000] {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /\r HTTP/1.1\r\n\r\r\n\r\n".repeat(5);
            for piece in requests.chunks(cut) {
                stream.write_all(piece).unwrap();
            }
            let mut answers = vec![0; ANSWER.len() * 10];
            stream.read_exact(&mut answers).unwrap();
            assert_eq!(answers, ANSWER.repeat(10), "{cut}");
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut answers).unwrap(), 0, "nothing follows");
        }
    }
}
