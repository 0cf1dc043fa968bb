//! Scripted backends, a running nginx, and a client that returns complete responses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotrow_lab::stage::free_port;
use hotrow_proxies::nginx::{
    Backend, NginxProxy, ProxyProfile, argv, check, configuration, find, write,
};

/// Time limit of a wait.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(20);
pub(super) const PROFILES: [ProxyProfile; 2] = [ProxyProfile::Published, ProxyProfile::Tuned];

/// A request as received by a backend.
pub(super) struct ReceivedRequest {
    /// Number over all connections, from 0.
    pub(super) number: u64,
    /// The whole text.
    pub(super) text: String,
}

/// Requests received by a backend.
#[derive(Default)]
pub(super) struct Received {
    pub(super) requests: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) texts: Mutex<Vec<String>>,
}

pub(super) struct Service {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Received>,
}

impl Service {
    /// Starts a service whose responses come from `answer`: header lines and a body. A thread per
    /// connection.
    pub(super) fn start(
        answer: impl Fn(&ReceivedRequest) -> (String, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::new(Received::default());
        let answer = Arc::new(answer);
        let noted = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), answer, seen) = (stream, answer.clone(), noted.clone()) else {
                    return;
                };
                seen.connections.fetch_add(1, SeqCst);
                std::thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        Self { address, seen }
    }

    /// Starts a service that responds with its name.
    pub(super) fn named(name: &'static str) -> Self {
        Self::start(move |_| (String::new(), name.to_owned()))
    }

    /// Starts a service that responds with the number of the request, and these header lines.
    pub(super) fn counting(head: &'static str) -> Self {
        Self::start(move |request| (head.to_owned(), request.number.to_string()))
    }

    /// Starts a service that responds to `GET /N` with the number of the request and the header
    /// lines `heads[N]`.
    pub(super) fn with_heads(heads: Vec<String>) -> Self {
        Self::start(move |request| {
            let path = request.text.split(' ').nth(1).expect("a path");
            let n: usize = path.trim_start_matches('/').parse().expect("a number");
            (heads[n].clone(), request.number.to_string())
        })
    }

    pub(super) fn requests(&self) -> u64 {
        self.seen.requests.load(SeqCst)
    }

    pub(super) fn with_weight(&self, weight: u32) -> Backend {
        Backend { address: self.address, weight }
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(&ReceivedRequest) -> (String, String),
    seen: &Received,
) {
    let mut buffered = Vec::new();
    while let Some(text) = request(&mut stream, &mut buffered) {
        let number = seen.requests.fetch_add(1, SeqCst);
        let keeps = text.contains(" HTTP/1.1\r\n") && !text.contains("\r\nConnection: close\r\n");
        seen.texts.lock().expect("no panic").push(text.clone());
        let (head, body) = answer(&ReceivedRequest { number, text });
        let length = body.len();
        let text =
            if head.starts_with("HTTP/") { head } else { format!("HTTP/1.1 200 OK\r\n{head}") };
        // Without this header nginx keeps the connection for the next request, which would be lost.
        let end = if keeps { "" } else { "Connection: close\r\n" };
        // In one write; otherwise the second would wait for the acknowledgement of the first.
        let text = format!("{text}{end}Content-Length: {length}\r\n\r\n{body}");
        if stream.write_all(text.as_bytes()).is_err() || !keeps {
            return;
        }
    }
}

/// Reads the next request with its body.
fn request(stream: &mut TcpStream, buffered: &mut Vec<u8>) -> Option<String> {
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(end) = buffered.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffered[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let whole = end + 4 + length.map_or(0, |n| n.parse().expect("a length"));
            if buffered.len() >= whole {
                return Some(String::from_utf8(buffered.drain(..whole).collect()).expect("text"));
            }
        }
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => buffered.extend_from_slice(&buffer[..n]),
            Ok(0) | Err(_) => return None,
        }
    }
}

/// A running nginx, stopped when dropped.
pub(super) struct Nginx {
    pub(super) proxy: NginxProxy,
    child: Child,
}

/// Returns a proxy with one worker in a folder of its own, on a free port.
pub(super) fn proxy(
    profile: ProxyProfile,
    backends: Vec<Backend>,
    folder: &tempfile::TempDir,
) -> NginxProxy {
    let port = free_port().expect("a free port");
    // Proxies of one test may share the folder.
    let mut proxy = NginxProxy::new(profile, port, backends, folder.path().join(port.to_string()));
    proxy.workers = Some(1);
    proxy
}

impl Nginx {
    pub(super) fn start(proxy: NginxProxy) -> Self {
        let text = configuration(&proxy);
        Self::start_with(proxy, &text)
    }

    pub(super) fn start_with(proxy: NginxProxy, text: &str) -> Self {
        proxy.validate().expect("a proxy");
        let (binary, _) = find().expect("nginx");
        let file = write(&proxy, text).expect("written");
        check(&binary, &file).expect("a configuration");
        let argv = argv(&binary, &proxy);
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(Stdio::null());
        let mut nginx = Self { child: command.spawn().expect("started"), proxy };
        let deadline = Instant::now() + WAIT_MAX;
        while TcpStream::connect(nginx.address()).is_err() {
            assert!(Instant::now() < deadline, "nginx does not listen");
            assert!(nginx.child.try_wait().expect("a child").is_none(), "nginx ended");
            std::thread::sleep(Duration::from_millis(2));
        }
        nginx
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.proxy.listen))
    }

    pub(super) fn get(&self, path: &str) -> Reply {
        ask(
            self.address(),
            &format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"),
        )
    }

    pub(super) fn post(&self, path: &str, body: &str) -> Reply {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: {length}"
        );
        ask(self.address(), &format!("{head}\r\n\r\n{body}"))
    }

    /// Stops it after the requests in progress.
    pub(super) fn finish(mut self) {
        self.signal(rustix::process::Signal::QUIT);
        self.child.wait().expect("a child");
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        // An ended process needs no signal.
        let _ = rustix::process::kill_process(id, signal);
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The master process ends its workers, which SIGKILL would leave running.
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
    /// Returns a header's value; empty if absent.
    pub(super) fn header(&self, name: &str) -> &str {
        let values = self.head.lines().filter_map(|line| line.split_once(": "));
        values
            .filter(|(is, _)| is.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .next()
            .unwrap_or_default()
    }

    /// Returns the cache status.
    pub(super) fn cache(&self) -> &str {
        self.header("X-Cache-Status")
    }
}

/// Sends a request that closes the connection, and reads the response to its end.
pub(super) fn ask(to: SocketAddr, request: &str) -> Reply {
    receive(send(to, request))
}

pub(super) fn send(to: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).expect("connected");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

/// Reads a response of known length. It does not wait for the end of the connection, which nginx
/// keeps open while it revalidates in the background.
pub(super) fn receive(mut stream: TcpStream) -> Reply {
    let (mut buffered, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let n = stream.read(&mut buffer).expect("an answer");
        buffered.extend_from_slice(&buffer[..n]);
        let Some(end) = buffered.windows(4).position(|w| w == b"\r\n\r\n") else {
            assert!(n > 0, "no answer: {:?}", String::from_utf8_lossy(&buffered));
            continue;
        };
        let head = String::from_utf8(buffered[..end].to_vec()).expect("text");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or_else(|| panic!("{head:?}"));
        let mut reply = Reply { status, head, body: String::new() };
        let length: usize = reply.header("Content-Length").parse().expect("a length");
        if buffered.len() >= end + 4 + length {
            reply.body =
                String::from_utf8(buffered[end + 4..end + 4 + length].to_vec()).expect("text");
            return reply;
        }
        assert!(n > 0, "cut off: {}", reply.head);
    }
}

/// Waits for a condition.
pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} never came true");
        std::thread::sleep(Duration::from_millis(2));
    }
}
