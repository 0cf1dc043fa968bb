//! Standard error that accepts nothing: full, closed, blocked, or without a reader. The service
//! continues, lost lines are counted, and the process ends on request.

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, Write};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

/// Purges between two reads of the metrics; each writes a line.
const PURGES_PER_CHECK: usize = 500;

/// Kinds of standard error.
enum Output {
    Full,
    Closed,
    /// A full pipe that is never read.
    Blocked(PipeReader),
    ReaderGone,
}

/// Returns a pipe that accepts no further byte; its reader keeps it open.
fn blocked_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("not blocking");
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    // Blocking, as a process that inherits it expects.
    rustix::io::ioctl_fionbio(&writer, false).expect("blocking");
    (reader, writer.into())
}

fn start(config: &Config, output: &mut Output) -> Server {
    match output {
        Output::Full => {
            let full: File = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
            Server::start_with_stderr(config, full.into())
        }
        Output::Closed => Server::start_without_stderr(config),
        Output::Blocked(reader) => {
            let (new, writer) = blocked_pipe();
            *reader = new;
            Server::start_with_stderr(config, writer)
        }
        Output::ReaderGone => {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            Server::start_with_stderr(config, writer.into())
        }
    }
}

/// Purges until lines are lost. A closed output is `/dev/null` to a Rust program, which loses none.
fn purge_until_lines_drop(server: &Server, output: &Output) {
    let mut admin = server.admin_client();
    let mut purge = || {
        for _ in 0..PURGES_PER_CHECK {
            assert_eq!(admin.change("/purge/products", "").status, 200);
        }
    };
    match output {
        Output::Closed => purge(),
        _ => await_until("lines to be lost", Duration::from_secs(60), || {
            purge();
            server.metrics().sum("hotrow_log_dropped_total", &[]) > 0.0
        }),
    }
}

fn assert_service_continues(mut output: Output) {
    let database = Database::with_products(10);
    let config = Config::new(database.path())
        .collection("products")
        .set("log.level", "\"debug\"")
        .with(&[("access_log.output", "\"stderr\""), ("access_log.sample", "1")]);
    let server = start(&config, &mut output);
    server.await_ready();
    let mut client = server.client();
    purge_until_lines_drop(&server, &output);
    for price in 1..4 {
        database.execute(&format!("UPDATE products SET price = {price} WHERE id = 1"));
        await_until("the change", SOON, || client.get("/products/1").json()["price"] == price);
        await_until("a hit", SOON, || client.get("/products/1").cache() == "hit");
    }
    if !matches!(output, Output::Closed) {
        await_until("lines of the access log to be lost", Duration::from_secs(60), || {
            (0..PURGES_PER_CHECK).for_each(|_| assert_eq!(client.get("/products/1").status, 200));
            server.metrics().sum("hotrow_access_log_dropped_total", &[]) > 0.0
        });
    }
    assert_eq!(server.metrics().sum("hotrow_thread_panics_total", &[]), 0.0);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
}

#[test]
fn a_full_log_stops_nothing() {
    assert_service_continues(Output::Full);
}

#[test]
fn a_closed_log_stops_nothing() {
    assert_service_continues(Output::Closed);
}

#[test]
fn a_log_that_is_never_read_stops_nothing() {
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    assert_service_continues(Output::Blocked(reader));
}

#[test]
fn a_log_whose_reader_is_gone_stops_nothing() {
    assert_service_continues(Output::ReaderGone);
}

#[test]
fn a_start_that_fails_ends_with_a_blocked_log_too() {
    let database = Database::with_products(1);
    let config = Config::new(database.path()).collection("products").collection("no_such_table");
    let (_reader, writer) = blocked_pipe();
    assert_eq!(Server::fails_with_stderr(&config, writer, SOON).code(), 1);
}
