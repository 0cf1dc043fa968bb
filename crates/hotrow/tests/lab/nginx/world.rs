//! Scripted backends, a running nginx, and a client that shows all it gets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotrow_lab::nginx::{Backend, Form, Front, argv, check, configuration, find, write};
use hotrow_lab::stage::free_port;

/// What does not happen within this time does not happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
pub(super) const FORMS: [Form; 2] = [Form::Original, Form::Tuned];

/// A request as a backend gets it.
pub(super) struct Asked {
    /// From 0, over all connections.
    pub(super) number: u64,
    /// All of it.
    pub(super) text: String,
}

/// What a backend saw.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) requests: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) texts: Mutex<Vec<String>>,
}

pub(super) struct Service {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
}

impl Service {
    /// Answers each request by `answer`: header lines, and a body. A thread per connection.
    pub(super) fn start(answer: impl Fn(&Asked) -> (String, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (address, seen) = (listener.local_addr().expect("bound"), Arc::new(Seen::default()));
        let (answer, noted) = (Arc::new(answer), seen.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), answer, seen) = (stream, answer.clone(), noted.clone()) else { return };
                seen.connections.fetch_add(1, SeqCst);
                std::thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        Self { address, seen }
    }

    /// Answers with its name.
    pub(super) fn named(name: &'static str) -> Self {
        Self::start(move |_| (String::new(), name.to_owned()))
    }

    /// Answers with the number of the request, and these header lines.
    pub(super) fn numbering(head: &'static str) -> Self {
        Self::start(move |asked| (head.to_owned(), asked.number.to_string()))
    }

    /// Answers `GET /N` with the number of the request, and the header lines that stand at N.
    pub(super) fn heading(heads: Vec<String>) -> Self {
        Self::start(move |asked| {
            let path = asked.text.split(' ').nth(1).expect("a path");
            let n: usize = path.trim_start_matches('/').parse().expect("a number");
            (heads[n].clone(), asked.number.to_string())
        })
    }

    pub(super) fn requests(&self) -> u64 {
        self.seen.requests.load(SeqCst)
    }

    pub(super) fn weighing(&self, weight: u32) -> Backend {
        Backend { address: self.address, weight }
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Asked) -> (String, String), seen: &Seen) {
    let mut held = Vec::new();
    while let Some(text) = request(&mut stream, &mut held) {
        let number = seen.requests.fetch_add(1, SeqCst);
        let keeps = text.contains(" HTTP/1.1\r\n") && !text.contains("\r\nConnection: close\r\n");
        seen.texts.lock().expect("no panic").push(text.clone());
        let (head, body) = answer(&Asked { number, text });
        let length = body.len();
        let text = if head.starts_with("HTTP/") { head } else { format!("HTTP/1.1 200 OK\r\n{head}") };
        // Unless it is told that the connection ends, nginx keeps it for the next request, which then may be sent to nobody.
        let end = if keeps { "" } else { "Connection: close\r\n" };
        // In one write: in several, the second would wait for the acknowledgement of the first.
        let text = format!("{text}{end}Content-Length: {length}\r\n\r\n{body}");
        if stream.write_all(text.as_bytes()).is_err() || !keeps {
            return;
        }
    }
}

/// The next request, its body included.
fn request(stream: &mut TcpStream, held: &mut Vec<u8>) -> Option<String> {
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&held[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let whole = end + 4 + length.map_or(0, |n| n.parse().expect("a length"));
            if held.len() >= whole {
                return Some(String::from_utf8(held.drain(..whole).collect()).expect("text"));
            }
        }
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => held.extend_from_slice(&buffer[..n]),
            Ok(0) | Err(_) => return None,
        }
    }
}

/// An nginx that serves; it ends with this value.
pub(super) struct Nginx {
    pub(super) front: Front,
    child: Child,
}

/// A front with one worker in a folder of its own, on a free port.
pub(super) fn front(form: Form, backends: Vec<Backend>, folder: &tempfile::TempDir) -> Front {
    let port = free_port().expect("a free port");
    // Fronts of one test may share the folder.
    let mut front = Front::new(form, port, backends, folder.path().join(port.to_string()));
    front.workers = Some(1);
    front
}

impl Nginx {
    pub(super) fn start(front: Front) -> Self {
        let text = configuration(&front);
        Self::start_with(front, &text)
    }

    pub(super) fn start_with(front: Front, text: &str) -> Self {
        front.validate().expect("a front");
        let (binary, _) = find().expect("nginx");
        let file = write(&front, text).expect("written");
        check(&binary, &file).expect("a configuration");
        let argv = argv(&binary, &front);
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(Stdio::null());
        let mut nginx = Self { child: command.spawn().expect("started"), front };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(nginx.address()).is_err() {
            assert!(Instant::now() < deadline, "nginx does not listen");
            assert!(nginx.child.try_wait().expect("a child").is_none(), "nginx ended");
            std::thread::sleep(Duration::from_millis(2));
        }
        nginx
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.front.listen))
    }

    pub(super) fn get(&self, path: &str) -> Reply {
        ask(self.address(), &format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"))
    }

    pub(super) fn post(&self, path: &str, body: &str) -> Reply {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: {length}");
        ask(self.address(), &format!("{head}\r\n\r\n{body}"))
    }

    /// Ends it when the requests under way are answered.
    pub(super) fn finish(mut self) {
        self.signal(rustix::process::Signal::QUIT);
        self.child.wait().expect("a child");
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        // One that has ended needs no signal.
        let _ = rustix::process::kill_process(id, signal);
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Its master ends its workers, which a kill would leave behind.
            self.signal(rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Reply {
    /// A header's value; empty when there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        let values = self.head.lines().filter_map(|line| line.split_once(": "));
        values.filter(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, value)| value).next().unwrap_or_default()
    }

    /// What the cache did.
    pub(super) fn cache(&self) -> &str {
        self.header("X-Cache-Status")
    }
}

/// Sends a request that asks for the connection to be closed, and reads to its end.
pub(super) fn ask(to: SocketAddr, request: &str) -> Reply {
    receive(send(to, request))
}

pub(super) fn send(to: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

/// Reads an answer of known length. It does not wait for the end of the connection, for nginx keeps that open while it renews
/// an answer in the background.
pub(super) fn receive(mut stream: TcpStream) -> Reply {
    let (mut held, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let n = stream.read(&mut buffer).expect("an answer");
        held.extend_from_slice(&buffer[..n]);
        let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") else {
            assert!(n > 0, "no answer: {:?}", String::from_utf8_lossy(&held));
            continue;
        };
        let head = String::from_utf8(held[..end].to_vec()).expect("text");
        let status = head.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{head:?}"));
        let mut reply = Reply { status, head, body: String::new() };
        let length: usize = reply.header("Content-Length").parse().expect("a length");
        if held.len() >= end + 4 + length {
            reply.body = String::from_utf8(held[end + 4..end + 4 + length].to_vec()).expect("text");
            return reply;
        }
        assert!(n > 0, "cut off: {}", reply.head);
    }
}

/// Waits for a condition.
pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} never came true");
        std::thread::sleep(Duration::from_millis(2));
    }
}
