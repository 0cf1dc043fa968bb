//! The planted process: a small HTTP service that is slow in exactly one way, or a process that
//! burns CPUs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hotrow_measure::clock::thread_cpu;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use super::plan::{Plan, Service, Threads, Work};

/// Prefix of the line with the listening address.
pub(crate) const LISTENING: &str = "listening ";
/// Requests are small and arrive in one piece, one at a time.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Size at which an appended file is truncated.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Pause before the next attempt when no connection can be accepted.
const NO_FILE_REST: Duration = Duration::from_millis(5);

/// Follows the plan until standard input ends, which it does when the parent ends.
pub(crate) fn run(plan: &Plan) {
    match plan {
        Plan::Burner(threads) => (0..*threads).for_each(|_| {
            std::thread::spawn(|| {
                loop {
                    burn(Duration::from_secs(1));
                }
            });
        }),
        Plan::Service(service) => {
            let listener = listen(service).expect("an address of this machine");
            println!("{LISTENING}{}", listener.local_addr().expect("bound"));
            let service = Arc::new(ServiceState::new(service.clone()));
            std::thread::spawn(move || service.accept(&listener));
        }
    }
    let _ = io::stdin().read_to_end(&mut Vec::new());
}

fn listen(service: &Service) -> io::Result<TcpListener> {
    let address = SocketAddr::new(service.listen, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&address.into())?;
    socket.listen(service.backlog)?;
    if let Some(files) = service.open_files {
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: Some(files) })?;
    }
    Ok(socket.into())
}

/// Uses this much CPU time of the thread, independent of other load.
fn burn(time: Duration) {
    let begun = thread_cpu();
    while thread_cpu().saturating_sub(begun) < time {
        std::hint::black_box(
            (0..200_u64).fold(0, |sum: u64, i| sum.wrapping_mul(31).wrapping_add(i)),
        );
    }
}

/// Returns hexadecimal digits without a pattern (SplitMix64's mixing), which are expensive to
/// compress.
fn body(bytes: usize) -> Vec<u8> {
    let mixed = |n: u64| {
        let mixed = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 60
    };
    let numbers = (1..=bytes as u64).map(|n| mixed(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    numbers.map(|number| b"0123456789abcdef"[number as usize]).collect()
}

struct ServiceState {
    plan: Service,
    answer: Vec<u8>,
    lock: Mutex<()>,
    files: AtomicU64,
}

/// State of a thread between requests.
#[derive(Default)]
struct ThreadState {
    backend: Option<TcpStream>,
    file: Option<File>,
    written_bytes: u64,
}

impl ServiceState {
    fn new(plan: Service) -> Self {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", plan.body_bytes);
        let answer = [head.into_bytes(), body(plan.body_bytes)].concat();
        Self { plan, answer, lock: Mutex::new(()), files: AtomicU64::new(0) }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let loops: Vec<Arc<Loop>> = match self.plan.threads {
            Threads::Each => Vec::new(),
            Threads::Loops(count) => {
                (0..count).map(|number| Loop::start(self.clone(), number)).collect()
            }
        };
        for number in 0.. {
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(NO_FILE_REST);
                continue;
            };
            let _ = stream.set_nodelay(true);
            match loops.get(number % loops.len().max(1)) {
                Some(one) => one.take(number as u64, stream),
                None => self.thread(stream),
            }
            if self.plan.accept_rest_ms > 0 {
                std::thread::sleep(Duration::from_millis(self.plan.accept_rest_ms));
            }
        }
    }

    fn thread(self: &Arc<Self>, mut stream: TcpStream) {
        let service = self.clone();
        std::thread::spawn(move || {
            let mut state = ThreadState::default();
            while service.one(&mut stream, &mut state) {}
        });
    }

    /// Answers a request. Returns false when the connection has ended.
    fn one(&self, stream: &mut TcpStream, state: &mut ThreadState) -> bool {
        let mut request = [0; REQUEST_BYTES_MAX];
        let Ok(length @ 1..) = stream.read(&mut request) else { return false };
        if self.work(state).is_err() {
            return false;
        }
        let head_only = request[..length].starts_with(b"HEAD ");
        let answer = if head_only {
            &self.answer[..self.answer.len() - self.plan.body_bytes]
        } else {
            &self.answer
        };
        stream.write_all(answer).is_ok()
    }

    fn work(&self, state: &mut ThreadState) -> io::Result<()> {
        match &self.plan.work {
            Work::Cpu { us } => burn(Duration::from_micros(*us)),
            Work::Locked { us } => {
                let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
                burn(Duration::from_micros(*us));
            }
            Work::Sleep { ms } => std::thread::sleep(Duration::from_millis(*ms)),
            Work::Query { backend } => query_backend(*backend, &mut state.backend)?,
            Work::Sync { folder, bytes } => {
                if state.file.is_none() {
                    let name = format!("{}", self.files.fetch_add(1, Ordering::Relaxed));
                    state.file = Some(File::create(folder.join(name))?);
                }
                if let Some(file) = &mut state.file {
                    append(file, *bytes, &mut state.written_bytes)?;
                }
            }
        }
        Ok(())
    }
}

fn query_backend(backend: SocketAddr, connection: &mut Option<TcpStream>) -> io::Result<()> {
    if connection.is_none() {
        let stream = TcpStream::connect(backend)?;
        stream.set_nodelay(true)?;
        *connection = Some(stream);
    }
    if let Some(stream) = connection {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: backend\r\n\r\n")?;
        let mut answer = [0; REQUEST_BYTES_MAX];
        let length = stream.read(&mut answer)?;
        return if length > 0 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
    }
    Ok(())
}

fn append(file: &mut File, bytes: usize, written_bytes: &mut u64) -> io::Result<()> {
    if *written_bytes >= FILE_BYTES_MAX {
        file.set_len(0)?;
        io::Seek::rewind(file)?;
        *written_bytes = 0;
    }
    file.write_all(&vec![b'x'; bytes])?;
    *written_bytes += bytes as u64;
    file.sync_data()
}

/// A thread that answers on its own connections, one request after another.
struct Loop {
    events: OwnedFd,
    connections: Mutex<HashMap<u64, TcpStream>>,
}

impl Loop {
    fn start(service: Arc<ServiceState>, number: usize) -> Arc<Self> {
        let events = epoll::create(CreateFlags::CLOEXEC).expect("the kernel has it");
        let own = Arc::new(Self { events, connections: Mutex::new(HashMap::new()) });
        let worker = own.clone();
        let thread = std::thread::Builder::new().name(format!("worker-{number}"));
        thread.spawn(move || worker.run(&service)).expect("a thread can be started");
        own
    }

    fn take(&self, number: u64, stream: TcpStream) {
        let added = epoll::add(&self.events, &stream, EventData::new_u64(number), EventFlags::IN);
        if added.is_ok() {
            self.connections.lock().unwrap_or_else(PoisonError::into_inner).insert(number, stream);
        }
    }

    fn run(&self, service: &ServiceState) {
        let mut state = ThreadState::default();
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            if epoll::wait(&self.events, rustix::buffer::spare_capacity(&mut events), None).is_err()
            {
                continue;
            }
            for event in &events {
                let number = event.data.u64();
                let mut connections =
                    self.connections.lock().unwrap_or_else(PoisonError::into_inner);
                // The connection is inserted shortly after its first event; the next wait reports
                // the event again.
                let Some(mut stream) = connections.remove(&number) else { continue };
                drop(connections);
                if service.one(&mut stream, &mut state) {
                    self.connections
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(number, stream);
                }
            }
        }
    }
}
