//! `hotrow load` from the user's view: output, rejected arguments, exit status.

mod calibration;
mod confirm;
mod database;
mod files;
mod pages;
mod refusals;
mod report;
#[path = "../../../../commands/src/tui/tests/terminal.rs"]
mod small;
mod terminal;
mod verdicts;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use serde_json::Value;

/// Answers every request with the same response. Requests must arrive in one piece, as small ones
/// do.
fn server(answer: &'static str) -> (SocketAddr, Arc<AtomicU64>) {
    working_server(answer, || {})
}

/// As [`server`], after `work` for each request. Each connection has a thread.
fn working_server(
    answer: &'static str,
    work: impl Fn() + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    let work = Arc::new(work);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), count, work) = (stream, count.clone(), work.clone()) else {
                return;
            };
            std::thread::spawn(move || {
                let mut buffer = [0; 64 * 1024];
                while let Ok(1..) = stream.read(&mut buffer) {
                    count.fetch_add(1, SeqCst);
                    work();
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, seen)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
    // Calibrations of this machine must not apply.
    command.arg("load").args(arguments).env("XDG_CACHE_HOME", "/nonexistent");
    command
}

fn load(arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(command(arguments).output().expect("it starts"))
}

fn outcome(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn number(report: &Value, pointer: &str) -> u64 {
    report
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("{pointer} in {report:#}"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Asserts the identities between a report's figures: nothing is lost or counted twice, and the
/// seconds add up to the totals.
fn assert_conserved(report: &Value) {
    let of = |name: &str| number(report, &format!("/requests/{name}"));
    let error = |name: &str| number(report, &format!("/errors/{name}"));
    assert_eq!(of("scheduled"), of("unsent") + of("sent"), "{report:#}");
    assert_eq!(
        of("sent"),
        of("ok") + of("errors") + of("timeouts") + of("in_flight_at_end"),
        "{report:#}"
    );
    let wrong = error("unexpected_status");
    assert_eq!(
        of("errors"),
        error("reset")
            + error("closed")
            + error("malformed")
            + error("goaway")
            + error("refused_stream")
            + error("stream_reset")
            + wrong,
        "{report:#}"
    );
    let statuses: u64 = report["status"]
        .as_object()
        .expect("an object")
        .values()
        .map(|n| n.as_u64().expect("a count"))
        .sum();
    assert_eq!(statuses, of("ok") + wrong, "{report:#}");
    let seconds = report["seconds"].as_array().expect("a list");
    for name in ["scheduled", "unsent", "sent", "ok", "errors", "timeouts"] {
        let sum: u64 = seconds.iter().map(|second| number(second, &format!("/{name}"))).sum();
        assert_eq!(sum, of(name), "{name} of the seconds in {report:#}");
    }
}
