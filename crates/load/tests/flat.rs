//! Memory stays flat however long a run lasts (test 13 of `honest`). Alone in its process, so that nobody else's memory counts.

mod scripted;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotrow_load::outcome::Outcome;
use hotrow_load::plan::Extent;
use hotrow_load::run::run;
use scripted::config;

/// What a run may take beyond one of a tenth of its length, in bytes: the time series takes some 150 a second, histograms grow never.
const GROWTH_BYTES_MAX: u64 = 3 << 20;
const PIPELINE: usize = 16;

#[test]
fn memory_stays_flat() {
    run_and_weigh(1_000_000, Duration::from_secs(60));
}

#[test]
#[ignore = "takes up to ten minutes"]
fn memory_stays_flat_for_long() {
    run_and_weigh(100_000_000, Duration::from_secs(600));
}

fn run_and_weigh(requests: u64, longest: Duration) {
    let address = server();
    // Once before it is weighed: what a first run leaves (threads' stacks, the allocator's arenas) is no growth.
    weighed(address, requests / 10, longest);
    let (_, before) = weighed(address, requests / 10, longest);
    let (outcome, most) = weighed(address, requests, longest);
    let counts = &outcome.total.counts;
    assert!(counts.ok == requests || outcome.window >= longest, "{} of {requests} in {:?}", counts.ok, outcome.window);
    println!("{} requests in {:?}, {before} bytes for a tenth of them, then {most} at most", counts.ok, outcome.window);
    assert!(most <= before + GROWTH_BYTES_MAX, "{before} bytes for a tenth of the requests, {most} for all of them");
}

/// A run, and the largest resident size of this process at the end of one of its seconds or of itself.
fn weighed(address: SocketAddr, requests: u64, longest: Duration) -> (Outcome, u64) {
    let mut config = config(address, requests);
    config.plan.extent = Extent { duration: Some(longest), requests: Some(requests) };
    (config.connections, config.pipeline, config.threads) = (10, PIPELINE, 2);
    let mut most = 0;
    let outcome = run(&config, &Arc::new(AtomicBool::new(false)), &mut |_, _| most = resident_bytes().max(most))
        .expect("an outcome");
    let counts = &outcome.total.counts;
    assert_eq!((counts.errors.total(), counts.timeouts, counts.unsent), (0, 0, 0));
    (outcome, most.max(resident_bytes()))
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: u64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size() as u64
}

/// Answers as many requests as came at once with one write, and keeps nothing.
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
                    // A request ends with an empty line; carriage returns may be overlooked.
                    for byte in buffer[..n].iter().filter(|byte| **byte != b'\r') {
                        held += usize::from(*byte == b'\n' && at_line_end);
                        at_line_end = *byte == b'\n';
                    }
                    let bytes = std::mem::take(&mut held) * answers.len() / PIPELINE;
                    stream.write_all(&answers[..bytes]).expect("somebody reads");
                }
            });
        }
    });
    address
}
