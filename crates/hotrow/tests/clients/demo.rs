//! Tests of `hotrow serve --demo`: its output, its cleanup and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of the invitation: a heading, six commands, two pages, and how it ends.
const LINES: usize = 10;

/// Demonstration in a temporary folder of its own; killed when the value is dropped.
struct Demo {
    process: Child,
    out: BufReader<ChildStdout>,
    err: ChildStderr,
}

impl Demo {
    fn start(parent: &Path, more: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_hotrow"))
            .args(["serve", "--demo", "--data", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(more)
            .env("TMPDIR", parent)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let out = BufReader::new(process.stdout.take().expect("piped"));
        let err = process.stderr.take().expect("piped");
        Self { process, out, err }
    }

    /// Returns the lines that it prints when it is ready.
    fn invitation(&mut self) -> Vec<String> {
        let lines: Vec<String> =
            self.out.by_ref().lines().take(LINES).map(|line| line.expect("UTF-8")).collect();
        let mut err = String::new();
        if lines.len() < LINES {
            let _ = self.err.read_to_string(&mut err);
        }
        assert!(lines.len() == LINES, "it ended before it was ready: {lines:?}\n{err}");
        lines
    }

    fn signal(&self, signal: i32) {
        // SAFETY: plain system call on the process that this value started and has not waited for.
        #[allow(unsafe_code)]
        let sent = unsafe { libc::kill(self.process.id() as i32, signal) };
        assert_eq!(sent, 0);
    }

    fn status(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().expect("waitable") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(parent)
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .collect()
}

fn ask(url: &str) -> TcpStream {
    let (address, path) =
        url.strip_prefix("http://").and_then(|u| u.split_once('/')).expect("a URL");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .expect("sent");
    stream
}

fn get(url: &str) -> String {
    let mut answer = String::new();
    ask(url).read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn its_suggested_commands_work_and_sigterm_cleans_up() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let mut demo = Demo::start(parent.path(), &["--demo-writes", "100"]);
    let lines = demo.invitation();
    assert_eq!(lines[0], "Serving 100000 products. Try:");
    let urls: Vec<&str> = lines[1..LINES - 1]
        .iter()
        .filter(|line| line.contains("curl ") || line.contains(": http"))
        .map(|l| l.rsplit(' ').next().expect("a word").trim_matches('\''))
        .collect();
    let one = get(urls[0]);
    assert!(one.starts_with("HTTP/1.1 200") && one.contains("\"id\":4711"), "{one}");
    let batch = get(urls[1]);
    assert!(
        batch.starts_with("HTTP/1.1 200")
            && batch.contains("\"items\"")
            && batch.contains("\"id\":3"),
        "{batch}"
    );
    let mut events = BufReader::new(ask(urls[2])).lines().map(|line| line.expect("a line"));
    assert!(events.any(|line| line == "event: change"), "the writes of the demonstration");
    drop(events);
    for (url, part) in [(urls[3], "<html"), (urls[4], "openapi.json")] {
        let page = get(url);
        assert!(page.starts_with("HTTP/1.1 200") && page.contains(part), "{page}");
    }

    assert_eq!(folders(parent.path()).len(), 1);
    demo.signal(libc::SIGTERM);
    assert_eq!(demo.status(), Some(0));
    assert!(folders(parent.path()).is_empty(), "{:?}", folders(parent.path()));
}

#[test]
fn a_signal_interrupts_the_generation() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let mut demo = Demo::start(parent.path(), &[]);
    let deadline = Instant::now() + PATIENCE;
    // The folder is created after the handlers are installed.
    while folders(parent.path()).is_empty() {
        assert!(Instant::now() < deadline, "no folder was created");
        std::thread::yield_now();
    }
    demo.signal(libc::SIGINT);
    // 0 if the last products were written before the signal was noticed.
    assert!(matches!(demo.status(), Some(0 | 130)));
    assert!(folders(parent.path()).is_empty());
}

#[test]
fn the_next_start_removes_the_folder_of_a_killed_one() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let mut killed = Demo::start(parent.path(), &[]);
    killed.invitation();
    killed.signal(libc::SIGKILL);
    assert_eq!(killed.status(), None);
    let left = folders(parent.path());
    assert_eq!(left.len(), 1, "SIGKILL allows no cleanup");
    let mut next = Demo::start(parent.path(), &[]);
    next.invitation();
    assert!(!left[0].exists() && folders(parent.path()).len() == 1);
    next.signal(libc::SIGINT);
    assert_eq!(next.status(), Some(0));
    assert!(folders(parent.path()).is_empty());
}
