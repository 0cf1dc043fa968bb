//! Memory stays flat at any length of a run (test 13 of `coordinated_omission`). Alone in its
//! process, so that no other memory counts.

mod scripted;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotrow_load::outcome::Outcome;
use hotrow_load::plan::StopCondition;
use hotrow_load::run::run;
use scripted::config;

/// Most memory beyond that of a run of a tenth of the length, in bytes: the time series takes some
/// 150 bytes per second; histograms do not grow.
const GROWTH_BYTES_MAX: u64 = 3 << 20;
const PIPELINE: usize = 16;

#[test]
fn memory_stays_flat() {
    assert_flat(1_000_000, Duration::from_secs(60));
}

#[test]
#[ignore = "takes up to ten minutes"]
fn memory_stays_flat_for_long() {
    assert_flat(100_000_000, Duration::from_secs(600));
}

fn assert_flat(requests: u64, longest: Duration) {
    let address = server();
    // A first run before the measurement, because its threads' stacks and allocator arenas are not
    // growth.
    measured_run(address, requests / 10, longest);
    let (_, before) = measured_run(address, requests / 10, longest);
    let (outcome, most) = measured_run(address, requests, longest);
    let counts = &outcome.total.counts;
    assert!(
        counts.ok == requests || outcome.window >= longest,
        "{} of {requests} in {:?}",
        counts.ok,
        outcome.window
    );
    println!(
        "{} requests in {:?}, {before} bytes for a tenth of them, then {most} at most",
        counts.ok, outcome.window
    );
    assert!(
        most <= before + GROWTH_BYTES_MAX,
        "{before} bytes for a tenth of the requests, {most} for all of them"
    );
}

/// Runs, and returns the largest resident size of this process at the end of a second or of the
/// run.
fn measured_run(address: SocketAddr, requests: u64, longest: Duration) -> (Outcome, u64) {
    let mut config = config(address, requests);
    config.plan.stop = StopCondition { duration: Some(longest), requests: Some(requests) };
    (config.connections, config.depth, config.threads) = (10, PIPELINE, 2);
    let mut most = 0;
    let outcome = run(&config, &Arc::new(AtomicBool::new(false)), &mut |_, _| {
        most = resident_bytes().max(most)
    })
    .expect("an outcome");
    let counts = &outcome.total.counts;
    assert_eq!((counts.errors.total(), counts.timeouts, counts.unsent), (0, 0, 0));
    (outcome, most.max(resident_bytes()))
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: u64 =
        text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size() as u64
}

/// Starts a server that answers all requests of a read with one write, and stores nothing.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let answers = b"HTTP/1.1 204 No Content\r\n\r\n".repeat(PIPELINE);
                let (mut buffer, mut at_line_end, mut held) = ([0; 16 * 1024], false, 0_usize);
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    // A request ends with an empty line; carriage returns are skipped.
                    for byte in buffer[..n].iter().filter(|byte| **byte != b'\r') {
                        held += usize::from(*byte == b'\n' && at_line_end);
                        at_line_end = *byte == b'\n';
                    }
                    let bytes = std::mem::take(&mut held) * answers.len() / PIPELINE;
                    stream.write_all(&answers[..bytes]).expect("the client reads");
                }
            });
        }
    });
    address
}
