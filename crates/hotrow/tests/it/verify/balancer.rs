//! Two instances behind one address, with requests distributed in turn. Session tokens keep a
//! client from seeing an older record.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::verify::checker::{Checker, assert_all_rules, with_all_capabilities};
use hotrow_testkit::harness::{Config, Database, Server};

/// A balancer that runs until the test process exits.
pub(crate) struct Balancer {
    pub(crate) address: SocketAddr,
    /// Requests per backend.
    served: Arc<[AtomicU64; 2]>,
}

impl Balancer {
    pub(crate) fn start(backends: [SocketAddr; 2]) -> Self {
        Self::rewriting(backends, |request| request)
    }

    /// Starts a balancer that forwards other requests than it receives.
    pub(crate) fn rewriting(backends: [SocketAddr; 2], rewrite: fn(Vec<u8>) -> Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let served: Arc<[AtomicU64; 2]> = Arc::default();
        let counts = served.clone();
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let counts = counts.clone();
                // The client notices a broken connection itself.
                std::thread::spawn(move || {
                    relay(client, backends, rewrite, &counts).unwrap_or_default()
                });
            }
        });
        Self { address, served }
    }

    /// Returns the responses so far, per backend.
    pub(crate) fn served(&self) -> [u64; 2] {
        [0, 1].map(|backend| self.served[backend].load(Ordering::Relaxed))
    }
}

/// Relays the requests of one client, each to the next backend.
fn relay(
    mut client: TcpStream,
    backends: [SocketAddr; 2],
    rewrite: fn(Vec<u8>) -> Vec<u8>,
    counts: &[AtomicU64; 2],
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut streams = [TcpStream::connect(backends[0])?, TcpStream::connect(backends[1])?];
    for turn in 0.. {
        let at = turn % 2;
        let request = rewrite(message(&mut client, true)?);
        streams[at].set_nodelay(true)?;
        streams[at].write_all(&request)?;
        let has_body = !request.starts_with(b"HEAD");
        client.write_all(&message(&mut streams[at], has_body)?)?;
        counts[at].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads one request or response with a body of Content-Length bytes.
fn message(stream: &mut TcpStream, has_body: bool) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let has_body = has_body && !head.starts_with("http/1.1 304");
            if bytes.len() >= end + 4 + length.filter(|_| has_body).unwrap_or(0) {
                return Ok(bytes);
            }
        }
        match stream.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

#[test]
fn sessions_hold_through_a_balancer() {
    let database = Database::new();
    let config = with_all_capabilities(Config::new(database.path()));
    assert_eq!(Checker::start(&config, &["--create"]).ended(Duration::ZERO).status, Some(0));
    let one = Server::start(&config);
    let other = Server::start(&config);
    let balancer = Balancer::start([one.data, other.data]);
    let url = format!("http://{}", balancer.address);
    let arguments = ["--balancer", url.as_str(), "-d", "4s", "--rate", "300", "--keys", "300"];
    let checker = Checker::against(&config, &[&one, &other], &arguments);
    let report = checker.ended(Duration::from_secs(4)).assert_passed(200, 50);
    assert_all_rules(&report, &["session", "own_write", "monotonic", "fresh"]);
    assert!(balancer.served().iter().all(|served| *served > 20), "{report:#}");
    assert!(report["reads"]["sessions"].as_u64() > Some(20), "{report:#}");
}
