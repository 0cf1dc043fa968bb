//! A small HTTP server that follows a script, one thread per connection, and records when requests
//! arrive.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotrow_load::latency_map::Interval;
use hotrow_load::outcome::Outcome;
use hotrow_load::plan::{Arrivals, LoadModel, Plan, Rate, StopCondition};
use hotrow_load::request::{RequestMix, RequestSpec};
use hotrow_load::run::{Config, ExpectedStatus, RunError, run};
use hotrow_transport::target::Address;
use hotrow_transport::tls::HttpVersion;

/// One action of the server for a request.
pub enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Closes the connection with a FIN.
    Close,
    /// Closes the connection with a reset.
    Reset,
}

/// A request, as the script sees it.
pub struct ScriptRequest<'a> {
    /// Number of the request over all connections, from 0.
    pub number: u64,
    pub method: &'a str,
    pub path: &'a str,
    pub at: Instant,
}

pub type Script = dyn Fn(&ScriptRequest<'_>) -> Vec<Step> + Send + Sync;

/// Records of the server.
#[derive(Default)]
pub struct Seen {
    pub requests: AtomicU64,
    pub connections: AtomicU64,
    /// Per request the arrival time, and the time after the last byte of its answer was written.
    pub times: Mutex<Vec<(Instant, Instant)>>,
}

pub struct Server {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    closing: Arc<AtomicBool>,
}

pub fn ok() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()
}

pub fn send(text: &str) -> Step {
    Step::Send(text.as_bytes().to_vec())
}

impl Server {
    pub fn start(script: impl Fn(&ScriptRequest<'_>) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::new(Seen::default());
        let closing = Arc::new(AtomicBool::new(false));
        let script: Arc<Script> = Arc::new(script);
        let seen_too = seen.clone();
        let closing_too = closing.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if closing_too.load(SeqCst) {
                    return;
                }
                let (Ok(stream), script, seen) = (stream, script.clone(), seen_too.clone()) else {
                    continue;
                };
                seen.connections.fetch_add(1, SeqCst);
                std::thread::spawn(move || serve(stream, &*script, &seen));
            }
        });
        Self { address, seen, closing }
    }

    /// Starts a server that answers `200` after the script's delay.
    pub fn delaying(
        delay: impl Fn(&ScriptRequest<'_>) -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |request| vec![Step::Pause(delay(request)), Step::Send(ok())])
    }

    /// Returns per request, in order, the arrival time and the time after the last byte of its
    /// answer was written. Waits until all received answers are recorded.
    pub fn times(&self) -> Vec<(Instant, Instant)> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while (self.seen.times.lock().expect("no panic").len() as u64) < self.requests() {
            assert!(
                Instant::now() < deadline,
                "not all of {} requests are answered",
                self.requests()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut times = self.seen.times.lock().expect("no panic").clone();
        times.sort();
        times
    }

    pub fn requests(&self) -> u64 {
        self.seen.requests.load(SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, script: &Script, seen: &Seen) {
    stream.set_nodelay(true).expect("a TCP socket");
    let (mut held, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") else {
            match stream.read(&mut buffer) {
                Ok(n @ 1..) => held.extend_from_slice(&buffer[..n]),
                Ok(0) | Err(_) => return,
            }
            continue;
        };
        let at = Instant::now();
        let head: Vec<u8> = held.drain(..end + 4).collect();
        let head = String::from_utf8(head).expect("text");
        let mut words = head.split(' ');
        let method = words.next().unwrap_or_default();
        let path = words.next().unwrap_or_default();
        let number = seen.requests.fetch_add(1, SeqCst);
        for step in script(&ScriptRequest { number, method, path, at }) {
            match step {
                Step::Send(bytes) => {
                    if stream.write_all(&bytes).is_err() {
                        return;
                    }
                }
                Step::Pause(time) => std::thread::sleep(time),
                Step::Close => return close(stream),
                Step::Reset => {
                    socket2_linger_zero(&stream);
                    return;
                }
            }
        }
        seen.times.lock().expect("no panic").push((at, Instant::now()));
    }
}

/// Ends a connection with a FIN. Requests that follow are read until the client closes too: to
/// close with unread bytes would send a reset, which destroys answers that the client has not read.
fn close(mut stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

/// Makes the kernel send a reset on close, by a linger time of zero.
fn socket2_linger_zero(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("a TCP socket");
}

/// Returns a closed loop of `requests` requests on one connection; tests change it as needed.
pub fn config(address: SocketAddr, requests: u64) -> Config {
    Config {
        address: Address::Tcp(address),
        tls: None,
        requests: mix("GET", true),
        plan: Plan {
            model: LoadModel::Closed,
            warmup: Duration::ZERO,
            stop: StopCondition { duration: None, requests: Some(requests) },
            seed: 1,
        },
        connections: 1,
        threads: 1,
        keepalive: true,
        version: HttpVersion::Http1,
        depth: 1,
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        expect: ExpectedStatus::Success,
        seed: 1,
        runqueue_wait: None,
        burn_per_request: Duration::ZERO,
    }
}

/// Returns an open loop.
pub fn open(address: SocketAddr, rate: f64, arrivals: Arrivals, duration: Duration) -> Config {
    let mut config = config(address, 0);
    config.plan.model = LoadModel::Open { rate: Rate::new(rate, rate).expect("a rate"), arrivals };
    config.plan.stop = StopCondition { duration: Some(duration), requests: None };
    config
}

pub fn mix(method: &str, keepalive: bool) -> RequestMix {
    let request = RequestSpec {
        method,
        path: "/",
        host: "test",
        headers: &[],
        body: None,
        weight: 1,
        keepalive,
    };
    RequestMix::new(&[request], None).expect("a request")
}

pub fn outcome(config: &Config) -> Outcome {
    let outcome = try_run(config).expect("an outcome");
    let in_map = outcome.latency_map.intervals().iter().map(Interval::answered).sum::<u64>();
    assert_eq!(in_map, outcome.total.counts.ok, "the map has every expected response");
    outcome
}

pub fn try_run(config: &Config) -> Result<Outcome, RunError> {
    run(config, &Arc::new(AtomicBool::new(false)), &mut |_, _| {})
}

/// Fewest attempts of a test that judges times, and the time within which further ones start,
/// because other processes may use the CPU for some time.
const TRIES: usize = 6;
const TRY_FOR: Duration = Duration::from_secs(120);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// Serializes the tests that judge times.
static ALONE: Mutex<()> = Mutex::new(());

/// Repeats a test that judges times: a busy machine may fail some attempts, but not all.
pub fn retry_until_ok(mut test: impl FnMut() -> Result<(), String>) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut failures = Vec::new();
    let begun = Instant::now();
    let mut pause = Duration::from_millis(500);
    while failures.len() < TRIES || begun.elapsed() < TRY_FOR {
        match test() {
            Ok(()) => return,
            Err(failure) => failures.push(failure),
        }
        std::thread::sleep(pause);
        pause = PAUSE_MAX.min(2 * pause);
    }
    panic!("failed {} times: {failures:#?}", failures.len());
}

/// Returns an error unless `value` is within `tolerance` (a share) of `expected`.
pub fn near(what: &str, value: f64, expected: f64, tolerance: f64) -> Result<(), String> {
    if (value - expected).abs() <= tolerance * expected.abs() {
        Ok(())
    } else {
        Err(format!("{what} is {value}, should be {expected} within {} %", tolerance * 100.0))
    }
}
