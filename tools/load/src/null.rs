//! The null server: answers every request at once with the same few bytes, so that a run measures
//! only the generator and the kernel. Of HTTP it understands only the end of a request without a
//! body. It serves [`crate::calibrate`] on 127.0.0.1.

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
/// The end of a request without a body.
const END: &[u8; 4] = b"\r\n\r\n";
/// Bytes per read; one buffer for all connections of a thread.
const READ_BYTES: usize = 16 * 1024;
/// Length of the accept queue.
const BACKLOG: i32 = 4096;
/// Events per wait.
const EVENTS: usize = 256;
/// Interval between checks of the stop flag.
const STOP_POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A running null server. Dropping it ends its threads.
#[derive(Debug)]
pub struct NullServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl NullServer {
    /// Starts a server on a free port of 127.0.0.1 with this many threads. Each thread has its own
    /// listener; the kernel distributes connections.
    ///
    /// # Errors
    /// Fails when a socket or a thread cannot be created.
    pub fn start(threads: usize) -> io::Result<Self> {
        let first = listen(0)?;
        let address = first.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let mut server = Self { address, ended, threads: Vec::new() };
        let mut listener = Some(first);
        for index in 0..threads.max(1) {
            let own = listener.take().map_or_else(|| listen(address.port()), Ok)?;
            let (serving, ended) = (NullWorker::new(own)?, server.ended.clone());
            let builder = Builder::new().name(format!("null-{index}"));
            server.threads.push(builder.spawn(move || serving.serve(&ended))?);
        }
        Ok(server)
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            // A thread that panicked has reported it already.
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
struct NullWorker {
    epoll: OwnedFd,
    listener: TcpListener,
    connections: HashMap<u64, NullConnection>,
    buffer: Vec<u8>,
    answers: Vec<u8>,
}

struct NullConnection {
    stream: TcpStream,
    /// Number of bytes of [`END`] that the last bytes matched.
    matched: usize,
}

impl NullWorker {
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
            // A valid epoll descriptor returns no error but an interruption.
            if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&STOP_POLL_INTERVAL))
                .is_err()
            {
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
            // A connection that cannot be registered is closed; the generator counts that.
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok()
                && epoll::add(&self.epoll, &stream, key, EventFlags::IN).is_ok()
            {
                self.connections.insert(key.u64(), NullConnection { stream, matched: 0 });
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
                // A client that does not read its responses is disconnected: nothing is buffered
                // for it.
                requests == 0
                    || matches!(
                        client.stream.write(&self.answers),
                        Ok(sent) if sent == self.answers.len()
                    )
            }
            Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        if !open {
            self.connections.remove(&key);
        }
    }
}

impl NullConnection {
    /// Returns the number of requests that end in `bytes`, which continue the earlier bytes.
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

/// Returns the key of a socket: its descriptor, which is unique while open.
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
            let requests =
                b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /\r HTTP/1.1\r\n\r\r\n\r\n".repeat(5);
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
