//! The relay between real sockets. Times are only checked from below: a busy machine may be late,
//! never early.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

use super::*;

const RTT: Duration = Duration::from_millis(30);
/// Longest wait; beyond it, bytes were lost.
const WAIT_MAX: Duration = Duration::from_secs(20);

struct RunningRelay {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Result<(), DelayError>>>,
}

impl RunningRelay {
    fn start(to: SocketAddr, rtt: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let flag = stop.clone();
        let thread = Some(std::thread::spawn(move || relay(&listener, to, rtt, &flag)));
        Self { address, stop, thread }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        stream
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

/// Starts a server that runs `serve` for each connection.
fn server(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            std::thread::spawn(move || {
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
                serve(stream);
            });
        }
    });
    address
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

fn exchange(stream: &mut TcpStream, text: &[u8]) -> Duration {
    let (started, mut answer) = (Instant::now(), vec![0; text.len()]);
    stream.write_all(text).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, text);
    started.elapsed()
}

#[test]
fn a_new_connection_costs_two_round_trips_and_a_kept_one_costs_one() {
    let relay = RunningRelay::start(server(echo), RTT);
    let started = Instant::now();
    let mut stream = relay.connect();
    exchange(&mut stream, b"one");
    assert!(started.elapsed() >= 2 * RTT, "{:?}", started.elapsed());
    let second = exchange(&mut stream, b"two");
    assert!(second >= RTT, "{second:?}");
}

#[test]
fn without_delay_nothing_gets_stuck() {
    let relay = RunningRelay::start(server(echo), Duration::ZERO);
    let mut stream = relay.connect();
    for size in [1, 10, 100_000, 300_000] {
        exchange_large(&mut stream, size);
    }
}

#[test]
fn more_than_the_buffer_arrives_complete_and_in_order() {
    let relay = RunningRelay::start(server(echo), Duration::from_millis(2));
    exchange_large(&mut relay.connect(), 5 * BUFFERED_BYTES_MAX + 12_345);
}

/// Sends and receives concurrently.
fn exchange_large(stream: &mut TcpStream, size: usize) {
    let sent: Vec<u8> = (0..size).map(|i| (i * 31 / 7) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let thread = std::thread::spawn(move || writer.write_all(&copy).unwrap());
    let mut received = vec![0; size];
    stream.read_exact(&mut received).unwrap();
    thread.join().unwrap();
    assert!(sent == received, "{size} bytes came back otherwise");
}

#[test]
fn a_receiver_that_stops_reading_blocks_only_its_own_sender() {
    // The server reads nothing before its signal.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let target = server(move |mut stream| {
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        if first == *b"s" {
            wait.lock().unwrap().recv_timeout(WAIT_MAX).unwrap();
        }
        stream.write_all(&first).unwrap();
        echo(stream);
    });
    let relay = RunningRelay::start(target, Duration::from_millis(2));
    let mut slow = relay.connect();
    slow.write_all(b"s").unwrap();
    slow.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let (chunk, mut sent) = (vec![b'x'; 64 * 1024], 0);
    // Kernel buffers take some megabytes on either side; the relay's buffer is bounded.
    while let Ok(n) = slow.write(&chunk) {
        sent += n;
        assert!(sent < 64 * BUFFERED_BYTES_MAX, "{sent} bytes went to a receiver that reads none");
    }
    exchange(&mut relay.connect(), b"quick");
    go.send(()).unwrap();
    slow.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    slow.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 1 + sent);
}

#[test]
fn a_half_closed_connection_keeps_its_other_direction() {
    let target = server(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let relay = RunningRelay::start(target, RTT);
    let mut stream = relay.connect();
    stream.write_all(b"to the end").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "to the end");
}

#[test]
fn a_server_that_speaks_first_is_received_after_two_round_trips() {
    let relay = RunningRelay::start(server(|mut stream| stream.write_all(b"hello").unwrap()), RTT);
    let started = Instant::now();
    let mut hello = String::new();
    relay.connect().read_to_string(&mut hello).unwrap();
    assert_eq!(hello, "hello");
    assert!(started.elapsed() >= 2 * RTT - Duration::from_millis(1), "{:?}", started.elapsed());
}

#[test]
fn a_reset_is_relayed_after_earlier_bytes() {
    let target = server(|mut stream| {
        let mut one = [0];
        stream.read_exact(&mut one).unwrap();
        stream.write_all(b"first").unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let relay = RunningRelay::start(target, RTT);
    let mut stream = relay.connect();
    stream.write_all(b"x").unwrap();
    let mut first = [0; 5];
    stream.read_exact(&mut first).unwrap();
    let error = stream.read(&mut first).unwrap_err();
    assert_eq!((&first, error.kind()), (b"first", io::ErrorKind::ConnectionReset));
}

#[test]
fn a_missing_target_causes_a_reset() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relay = RunningRelay::start(closed, RTT);
    let error = relay.connect().read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn hundreds_of_connections_are_relayed() {
    let relay = RunningRelay::start(server(echo), Duration::from_millis(1));
    for _ in 0..5 {
        let mut streams: Vec<_> = (0..100).map(|_| relay.connect()).collect();
        for stream in &mut streams {
            exchange(stream, b"one of many");
        }
    }
}

#[test]
fn a_round_trip_that_is_too_long_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let error =
        relay(&listener, to, RTT_MAX + RTT, &AtomicBool::new(false)).unwrap_err().to_string();
    assert_eq!(error, "a round trip of 10.03s is not possible: it must be 10s at most");
}

#[test]
fn the_command_line_has_every_argument() {
    let (a, b) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
    let argv = argv(Path::new("/bin/hotrow-lab"), a, b, Duration::from_micros(1_500)).join(" ");
    assert_eq!(argv, "/bin/hotrow-lab delay --listen 127.0.0.1:1 --to 127.0.0.1:2 --rtt 1500us");
}
