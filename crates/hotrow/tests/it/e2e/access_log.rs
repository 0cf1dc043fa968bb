//! The access log of the real binary: rotation without a signal, and an end that loses no line.

use std::fs;

use rustix::process::Signal;

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server, await_until};

/// Requests between two rotations.
const REQUESTS: u64 = 300;

#[test]
fn rotation_and_end_lose_no_line() {
    let database = Database::with_products(10);
    let path = database.folder().join("access.log");
    let rotated = |number: u64| database.folder().join(format!("access.log.{number}"));
    let config = Config::new(database.path())
        .collection("products")
        .set("access_log.output", &format!("{:?}", path.display().to_string()))
        .set("access_log.sample", "1");
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
