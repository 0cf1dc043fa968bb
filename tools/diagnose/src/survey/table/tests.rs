use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hotrow_measure::clock::thread_cpu;

use super::*;

/// Longest wait for the kernel's tables to reach the expected state.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens and closes connections to a listener; the client closes first, and keeps the port.
fn ended(address: &str, count: usize) -> SocketAddr {
    let service = TcpListener::bind(address).unwrap();
    let there = service.local_addr().unwrap();
    for _ in 0..count {
        let client = TcpStream::connect(there).unwrap();
        let mut accepted = service.accept().unwrap().0;
        drop(client);
        assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    }
    there
}

fn to(sockets: &[Socket], peer: SocketAddr, state: SocketState) -> usize {
    sockets.iter().filter(|socket| socket.peer == peer && socket.state == state).count()
}

/// Both methods, on real sockets in most states.
#[test]
fn the_kernel_and_proc_report_the_same() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = service.local_addr().unwrap();
    let clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(there).unwrap()).collect();
    let until = Instant::now() + PATIENCE;
    loop {
        let query_sockets = query_sockets(DiagQuery::Sockets).unwrap();
        let read = SocketTable::read(&Root::machine(), "proc/net", &mut Vec::new()).sockets;
        let ours = |sockets: &[Socket]| {
            let ours = |of: &&Socket| of.local == there || of.peer == there;
            // Without the fields that only netlink reports.
            let mut ours: Vec<Socket> =
                sockets.iter().filter(ours).map(|of| Socket { backlog: None, ..*of }).collect();
            ours.sort_by_key(|socket| (socket.state, socket.local, socket.peer));
            ours
        };
        let listener =
            query_sockets.iter().find(|of| of.local == there && of.state == SocketState::Listening);
        // Without accepts: both ends of three connections and the listener.
        if ours(&query_sockets) == ours(&read) && ours(&query_sockets).len() == 7 {
            assert_eq!(
                listener.map(|of| (of.unread, of.backlog.is_some_and(|most| most > 3))),
                Some((3, true))
            );
            break;
        }
        assert!(Instant::now() < until, "{:#?}\n{:#?}", ours(&query_sockets), ours(&read));
    }
    drop(clients);
}

#[test]
fn ports_in_time_wait_count_where_they_could_matter() {
    let there = ended("127.0.0.1:0", 20);
    assert_eq!(to(&query_sockets(DiagQuery::TimeWait).unwrap(), there, SocketState::TimeWait), 20);
    let own = SocketTable::own(&Root::machine(), &mut Vec::new());
    assert_eq!(to(&own.sockets, there, SocketState::TimeWait), 0);
    let ports = |time_wait| own.fullest_ports(&Root::machine(), time_wait).unwrap();
    // Other tests of this machine may use more ports to one address.
    assert!(
        ports(u64::MAX).used >= 20 && ports(u64::MAX).used >= ports(0).used,
        "{:?}",
        ports(u64::MAX)
    );
}

/// The cost of a survey with many ended connections: `cargo test --release -p hotrow-diagnose --lib
/// time_wait_costs -- --ignored --nocapture`.
#[test]
#[ignore = "leaves 20,000 sockets in TIME_WAIT for a minute"]
fn time_wait_costs() {
    const COUNT: usize = 20_000;
    // If ports run short, the kernel reuses one after a second: four addresses need a quarter each.
    let there = ["127.0.0.77:0", "127.0.0.78:0", "127.0.0.79:0", "127.0.0.80:0"]
        .map(|of| ended(of, COUNT / 4));
    let median_ms = |mut look: Box<dyn FnMut() -> usize>| {
        let mut costs: Vec<(Duration, usize)> = (0..9)
            .map(|_| {
                let before = thread_cpu();
                let count = look();
                (thread_cpu().saturating_sub(before), count)
            })
            .collect();
        costs.sort_unstable();
        (costs[4].0.as_secs_f64() * 1e3, costs[4].1)
    };
    let read = || SocketTable::read(&Root::machine(), "proc/net", &mut Vec::new()).sockets;
    let (read_ms, read_count) = median_ms(Box::new(move || read().len()));
    let (told_ms, told_count) =
        median_ms(Box::new(|| query_sockets(DiagQuery::Sockets).unwrap().len()));
    let kept = move || {
        let query_sockets = query_sockets(DiagQuery::TimeWait).unwrap();
        there.iter().map(|there| to(&query_sockets, *there, SocketState::TimeWait)).sum()
    };
    let (each_ms, each_count) = median_ms(Box::new(kept));
    println!(
        "/proc: {read_ms:.1} ms for {read_count} sockets; the kernel's answer without TIME_WAIT: \
         {told_ms:.2} ms for {told_count}"
    );
    println!("those in TIME_WAIT alone: {each_ms:.1} ms for {each_count} of them");
    assert!(read_count >= COUNT && told_count < COUNT && each_count == COUNT);
    assert!(told_ms * 4.0 < read_ms);
}
