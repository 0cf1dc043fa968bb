//! The access log of the real binary: rotation without a signal, by logrotate too, and an end that
//! loses no line.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server, await_until};

/// Requests between two rotations.
const REQUESTS: u64 = 300;
/// Clients that send requests while logrotate runs, and its runs.
const CLIENTS: u64 = 4;
const ROTATIONS: u64 = 6;

#[test]
fn rotation_and_end_lose_no_line() {
    let database = Database::with_products(10);
    let path = database.folder().join("access.log");
    let rotated = |number: u64| database.folder().join(format!("access.log.{number}"));
    let config = Config::new(database.path())
        .collection("products")
        .set("access_log.output", &format!("{:?}", path.display().to_string()))
        .set("access_log.sample", "1")
        .set("listen.unknown_parameters", "\"ignore\"");
    let server = Server::start(&config);
    let mut client = server.client();
    for number in 0..3 {
        for i in 0..REQUESTS {
            let answer = client.get(&format!("/products/{}?n={}", i % 12, number * REQUESTS + i));
            assert!(matches!(answer.status, 200 | 400 | 404), "{}", answer.status);
        }
        await_until("the file", SOON, || path.exists());
        fs::rename(&path, rotated(number)).expect("a rename");
    }
    for i in 0..REQUESTS {
        client.get(&format!("/products/1?n={}", 3 * REQUESTS + i));
    }
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_access_log_dropped_total", &[]), 0.0);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    let files = (0..3).map(rotated).chain([path]);
    let text: String = files.map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
    let lines = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        line["path"].as_str().expect("a path").split_once("?n=").expect("a query").1.to_owned()
    });
    let expected: Vec<String> = (0..4 * REQUESTS).map(|number| number.to_string()).collect();
    assert_eq!(lines.collect::<Vec<_>>(), expected);
}

/// Returns the text of a file, which may be compressed.
fn text_of(path: &Path) -> String {
    if path.extension().is_some_and(|extension| extension == "gz") {
        let unpacked = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip starts");
        assert!(unpacked.status.success(), "{path:?}: {unpacked:?}");
        return String::from_utf8(unpacked.stdout).expect("UTF-8");
    }
    fs::read_to_string(path).expect("readable")
}

#[test]
fn logrotate_with_the_shipped_file_loses_and_cuts_no_line_under_load() {
    let database = Database::with_products(10);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("access.log");
    let config = Config::new(database.path())
        .collection("products")
        .set("access_log.output", &format!("{:?}", path.display().to_string()))
        .set("access_log.sample", "1")
        .set("listen.unknown_parameters", "\"ignore\"");
    let server = Server::start(&config);
    // As shipped, but for the folder and the user, who exists only where the package is installed.
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/logrotate/hotrow");
    let shipped = fs::read_to_string(shipped).expect("the shipped file");
    let here = folder.path().display().to_string();
    let adapted = shipped.replace("/var/log/hotrow", &here).replace("    su hotrow hotrow\n", "");
    assert_eq!(adapted.lines().count() + 1, shipped.lines().count());
    let (settings, state) = (database.folder().join("rotate"), database.folder().join("state"));
    fs::write(&settings, adapted).expect("writable");
    let sent = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.client();
                while !is_over.load(Ordering::Relaxed) {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(client.get(&format!("/products/1?n={number}")).status, 200);
                }
            });
        }
        for _ in 0..ROTATIONS {
            let before = sent.load(Ordering::Relaxed);
            await_until("requests between two rotations", SOON, || {
                path.exists() && sent.load(Ordering::Relaxed) > before + REQUESTS
            });
            let mut logrotate = Command::new("logrotate");
            let path = std::env::var("PATH").unwrap_or_default();
            logrotate.env("PATH", format!("{path}:/usr/sbin")).arg("--force").arg("--state");
            let done = logrotate.arg(&state).arg(&settings).output().expect("logrotate starts");
            assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.metrics().sum("hotrow_access_log_dropped_total", &[]), 0.0);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    let files = fs::read_dir(folder.path()).expect("a folder");
    let files: BTreeSet<_> = files.map(|file| file.expect("an entry").path()).collect();
    let is_packed = |file: &&std::path::PathBuf| file.extension().is_some_and(|end| end == "gz");
    assert_eq!(files.iter().filter(is_packed).count() as u64, ROTATIONS - 1, "{files:?}");
    let text: String = files.iter().map(|file| text_of(file)).collect();
    let numbers = text.lines().map(|line| -> u64 {
        let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
        let path = line["path"].as_str().expect("a path");
        path.rsplit_once("?n=").expect("a query").1.parse().expect("a number")
    });
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..sent.into_inner()).collect::<Vec<_>>(), "each request has one line");
}

#[test]
fn an_output_that_cannot_be_opened_prevents_the_start() {
    let database = Database::with_products(1);
    for (output, reason) in [
        (database.folder().to_path_buf(), "must be a regular file"),
        (database.folder().join("no").join("access.log"), "cannot be opened"),
    ] {
        let config = Config::new(database.path())
            .collection("products")
            .set("access_log.output", &format!("{:?}", output.display().to_string()));
        let ended = Ended::run_config(&config, SOON);
        assert_ne!(ended.code(), 0);
        assert!(ended.log.contains(reason), "{}", ended.log);
    }
}
