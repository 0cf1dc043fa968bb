//! A server with a service that reports the requests it received, and a client that sends bytes.
// Each test binary uses some of this, and a failing helper fails its test.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

pub(crate) mod authority;
pub(crate) mod events;
pub(crate) mod frames;
pub(crate) mod http2;
pub(crate) mod load;
pub(crate) mod redis;
pub(crate) mod service;
pub(crate) mod shelf;
pub(crate) mod tenants;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{Shutdown as Half, SocketAddr, TcpStream};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hotrow_answer::metrics::{CloseCause, WorkerMetrics};
use hotrow_answer::request::{BodyError, RequestBody};
use hotrow_config::transport::Transport;
use hotrow_config::{Concurrency, Config, Limits};
use hotrow_front::connection::serve::HttpService;
use hotrow_front::worker::{WorkerError, WorkerName, WorkerThreads, Workers, run_workers};
use hotrow_net::listen::Listeners;
use hotrow_net::listen::unix::UnixEndpoint;
use hotrow_net::tls::TlsEndpoint;
use hotrow_supervisor::Supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;

/// Nothing in a test takes longer unless something is broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Length of the answer to `/long`.
pub(crate) const LONG_BYTES: usize = 100_000;

pub(crate) fn limits() -> Limits {
    Limits {
        connections: 100,
        connections_per_client: 0,
        requests_in_flight: 100,
        header_bytes: 4096,
        headers: 32,
        target_bytes: 1024,
        body_bytes: 10_000,
        header_timeout: DEADLINE,
        body_timeout: DEADLINE,
        idle_timeout: DEADLINE,
        idle_reclaim: DEADLINE,
        write_timeout: DEADLINE,
        request_timeout: DEADLINE,
        drain_delay: Duration::ZERO,
        drain_timeout: DEADLINE,
        max_batch: 10,
        position_wait: DEADLINE,
        privileged_waiters: 4,
        checks_per_s: 0,
        send_bytes: 0,
        bytes: hotrow_config::ByteLimits::default(),
        drain_rate_min: 0,
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) limiter: ConcurrencyLimiter,
    workers: Option<Workers>,
}

/// Holds `GET /wait` back until it is opened, and counts waiting requests.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimiter {
    open: Arc<watch::Sender<bool>>,
    pub(crate) waiting: Arc<AtomicUsize>,
    /// Requests for `/count` so far.
    counted: Arc<AtomicUsize>,
}

impl ConcurrencyLimiter {
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }
}

impl Server {
    pub(crate) fn start(limits: Limits) -> Self {
        Self::start_with(limits, 1)
    }

    pub(crate) fn start_with(limits: Limits, workers: usize) -> Self {
        Self::start_over(limits, workers, Transport::default())
    }

    pub(crate) fn start_over(limits: Limits, workers: usize, transport: Transport) -> Self {
        let unix = transport.unix.as_ref().map(|unix| UnixEndpoint::bind(unix).unwrap());
        let listeners = Listeners::bind("127.0.0.1:0".parse().unwrap(), workers).unwrap();
        let tls =
            transport.tls.as_ref().map(|tls| TlsEndpoint::load(tls, transport.http2).unwrap());
        let listeners = listeners.with_unix(unix).with_tls(tls.clone());
        let address = listeners.address();
        let concurrency = Concurrency {
            kind: hotrow_admission::concurrency::limit::Kind::Fixed,
            tolerance: 2.0,
            probe_interval: Duration::from_secs(1),
            deadline_header: true,
        };
        let config = Config {
            data: address,
            admin: address,
            admin_token: None,
            admin_hosts: Vec::new(),
            hot_keys: true,
            ready_when: hotrow_config::ReadyWhen::Fresh,
            ready_sources: hotrow_config::ReadySources::Any,
            sources: vec![hotrow_config::Source {
                name: "default".to_owned(),
                slow_query: Duration::ZERO,
                strict_looks_per_s: 1_000,
            }],
            workers,
            limits,
            concurrency,
            breaker: None,
            shed: None,
            collections: Vec::new(),
            follow: hotrow_config::follow::Follow::default(),
            purge: hotrow_config::purge::Purge::default(),
            rate: hotrow_config::rate::RateLimits::default(),
            describes_on_data: false,
            ignores_unknown_parameters: false,
            cors: None,
            access: None,
            transport,
            admin_transport: Transport::default(),
            warm_start: None,
            observability: Default::default(),
            miss_ratio_curve: false,
        };
        let limiter = ConcurrencyLimiter {
            open: Arc::new(watch::Sender::new(false)),
            waiting: Arc::default(),
            counted: Arc::default(),
        };
        let shutdown = Shutdown::new();
        let made = limiter.clone();
        if let Some(tls) = tls {
            // It ends with the shutdown.
            drop(hotrow_net::tls::start(tls, &shutdown, &Supervisor::default()).unwrap());
        }
        let threads = WorkerThreads { name: WorkerName::Http, supervisor: Supervisor::default() };
        let echo = move |_| Echo(made.clone());
        let workers = run_workers(&config, listeners, echo, &shutdown, &threads).unwrap();
        Self { address, shutdown, limiter, workers: Some(workers) }
    }

    pub(crate) fn metrics(&self) -> &WorkerMetrics {
        &self.workers.as_ref().unwrap().metrics()[0]
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Waits until `count` connections ended for `cause`.
    pub(crate) fn await_closed(&self, cause: CloseCause, count: u64) {
        wait_until(|| self.metrics().closed_count(cause) >= count);
        assert_eq!(self.metrics().closed_count(cause), count);
    }

    /// Waits until so many clients take nothing of what waits for them.
    pub(crate) fn await_unread(&self, clients: u64) {
        wait_until(|| self.metrics().unread_clients() == clients);
    }

    /// Waits until the workers have ended by themselves.
    pub(crate) fn join(mut self) -> Result<(), WorkerError> {
        self.workers.take().unwrap().join()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.now();
        if let Some(workers) = self.workers.take() {
            let ended = workers.join();
            assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
        }
    }
}

/// Waits for a condition that another thread brings about.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "the condition did not come true");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct Client(pub(crate) TcpStream);

/// Everything that a client received until the connection was closed.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) answers: Vec<Answer>,
    /// Closed in order, not reset.
    pub(crate) closed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.0.write_all(bytes.as_ref()).unwrap();
        self
    }

    pub(crate) fn half_close(&mut self) -> &mut Self {
        self.0.shutdown(Half::Write).unwrap();
        self
    }

    /// Reads exactly one answer.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut bytes = Vec::new();
        loop {
            if let Some((answer, rest)) = parse(&bytes) {
                assert!(rest.is_empty(), "more than one answer");
                return answer;
            }
            let mut byte = [0; 1];
            assert_eq!(
                self.0.read(&mut byte).unwrap(),
                1,
                "closed within an answer: {:?}",
                String::from_utf8_lossy(&bytes)
            );
            bytes.push(byte[0]);
        }
    }

    /// Reads the next of several answers, and returns its status.
    pub(crate) fn next_status(&mut self) -> u16 {
        const END: &[u8] = b"\r\n\r\n";
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(END) {
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut body).unwrap();
        head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Reads until the server closes.
    pub(crate) fn rest(&mut self) -> Received {
        let mut bytes = Vec::new();
        let closed = match self.0.read_to_end(&mut bytes) {
            Ok(_) => true,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
        };
        let mut answers = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (answer, after) = parse(rest).unwrap_or_else(|| {
                panic!("part of an answer: {:?}", String::from_utf8_lossy(rest))
            });
            answers.push(answer);
            rest = after;
        }
        Received { answers, closed }
    }
}

impl Received {
    pub(crate) fn statuses(&self) -> Vec<u16> {
        self.answers.iter().map(|answer| answer.status).collect()
    }
}

fn parse(bytes: &[u8]) -> Option<(Answer, &[u8])> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head
        .lines()
        .find_map(|l| l.strip_prefix("content-length: "))
        .map_or(0, |n| n.parse().unwrap());
    let body = bytes.get(end..end + length)?;
    Some((
        Answer { status, head, body: String::from_utf8(body.to_vec()).unwrap() },
        &bytes[end + length..],
    ))
}

/// Answers `METHOD target body`; 400 when the body is broken. `/wait` waits for the limiter,
/// `/block` blocks its thread until it is open, `/count` returns the number of earlier requests for
/// it, `/panic` panics, `/big` is 64 MB, `/long` is [`LONG_BYTES`], `/ignore` ignores its body.
struct Echo(ConcurrencyLimiter);

impl HttpService for Echo {
    type Body = Piece;

    fn call(
        &self,
        request: Request<RequestBody>,
    ) -> Pin<Box<dyn Future<Output = Response<Piece>>>> {
        let limiter = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let target = parts.uri.to_string();
            let text = match target.as_str() {
                "/big" => return Response::new(Piece::of(vec![b'x'; 64 << 20])),
                "/long" => return Response::new(Piece::of(vec![b'x'; LONG_BYTES])),
                "/ignore" => String::new(),
                "/count" => limiter.counted.fetch_add(1, Ordering::Relaxed).to_string(),
                "/panic" => panic!("as the test asked"),
                "/block" => {
                    limiter.waiting.fetch_add(1, Ordering::Relaxed);
                    wait_until(|| *limiter.open.borrow());
                    String::new()
                }
                "/wait" => {
                    limiter.waiting.fetch_add(1, Ordering::Relaxed);
                    // The limiter lives as long as the service.
                    let _ = limiter.open.subscribe().wait_for(|open| *open).await;
                    limiter.waiting.fetch_sub(1, Ordering::Relaxed);
                    String::new()
                }
                _ => match read(body).await {
                    Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                    Err(_) => {
                        let mut bad = Response::new(Piece::of("broken body"));
                        *bad.status_mut() = http::StatusCode::BAD_REQUEST;
                        return bad;
                    }
                },
            };
            let text = format!("{} {target} {text}", parts.method);
            Response::new(Piece::of(if parts.method == Method::HEAD {
                String::new()
            } else {
                text
            }))
        })
    }
}

async fn read(body: RequestBody) -> Result<Vec<u8>, BodyError> {
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

pub(crate) struct Piece(Option<Bytes>);

impl Piece {
    fn of(bytes: impl Into<Bytes>) -> Self {
        Self(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()))
    }
}

impl Body for Piece {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
