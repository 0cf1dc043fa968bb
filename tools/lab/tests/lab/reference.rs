//! `hotrow lab reference` as used by an experiment.

mod database;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use hotrow_testkit::harness::client::Fault;
use hotrow_testkit::harness::{Answer, Client, Ended, SOON, Server, await_until};

const FORM: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];

fn start(more: &[&str]) -> (Server, Client) {
    let server = Server::start_reference(more, &[("TZ", "UTC")]);
    let client = server.client();
    (server, client)
}

fn post(client: &mut Client, form: &str) -> Answer {
    client.request("POST", "/what-is-my-name", &FORM, form.as_bytes())
}

/// Checks for ten thousand equal objects; returns the first.
#[track_caller]
fn repeated(answer: &Answer) -> serde_json::Value {
    let all = answer.json();
    let all = all.as_array().expect("an array");
    assert_eq!(all.len(), 10_000);
    assert!(all.iter().all(|one| *one == all[0]), "they differ");
    all[0].clone()
}

/// Returns the date as year, month, day, and its maximum age in s.
#[track_caller]
fn date(client: &mut Client) -> ([i64; 3], i64) {
    let answer = client.get("/what-date-is-it");
    assert!(
        answer.status == 200 && (320_001..=340_001).contains(&answer.body.len()),
        "{}",
        answer.body.len()
    );
    let keep = answer.header("cache-control").expect("a Cache-Control header");
    let max_age_s = keep.strip_prefix("public, max-age=").and_then(|s| s.parse().ok()).expect(keep);
    assert!(
        answer.header("expires").is_some_and(|date| date.ends_with(" GMT")),
        "{:?}",
        answer.headers
    );
    let date = repeated(&answer);
    (["year", "month", "day"].map(|part| date[part].as_i64().expect("a number")), max_age_s)
}

#[test]
fn every_endpoint_responds_and_is_counted() {
    for more in [&["--workers", "2"][..], &["--blocking", "--workers", "2"]] {
        let (_server, mut client) = start(more);
        let hello = client.get("/hello");
        assert_eq!(
            (hello.status, hello.text().as_str(), hello.body.len()),
            (200, "hello world", 11),
            "{more:?}"
        );
        let plain = client.get("/plaintext");
        assert_eq!(
            (plain.header("content-type"), plain.body.len()),
            (Some("text/plain; charset=utf-8"), 12)
        );
        let object = client.get("/json");
        assert_eq!(
            (object.text().as_str(), object.header("content-type")),
            (r#"{"message":"Hello, World!"}"#, Some("application/json"))
        );
        assert_eq!(client.get("/healthz").status, 200);
        assert_eq!(
            (client.get("/spin?us=2000").status, client.get("/sleep?ms=2").status),
            (200, 200)
        );
        date(&mut client);
        let named = post(&mut client, "name=Alexander+Sergeevich+Pushkin");
        assert_eq!(
            (named.status, named.header("cache-control")),
            (200, Some("no-store")),
            "{more:?}"
        );
        assert_eq!(repeated(&named), json!({"name": "Alexander Sergeevich Pushkin"}));
        assert_eq!(repeated(&post(&mut client, "name=%22%D0%9F%22")), json!({"name": "\"П\""}));
        client.get("/nothing").plain_problem(404);
        // Requests to /healthz and /served are not counted.
        assert_eq!(
            (client.get("/served").text(), client.get("/served").text()),
            ("9".to_owned(), "9".to_owned())
        );
        let head = client.request("HEAD", "/hello", &[], b"");
        assert_eq!(
            (head.status, head.header("content-length"), head.body.len()),
            (200, Some("11"), 0)
        );
    }
}

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    let (_server, mut client) = start(&["--workers", "1"]);
    for (form, why) in
        [("", "missing"), ("x=1", "missing"), ("name=", "empty"), ("name=a&name=b", "once")]
    {
        let (_, detail) = post(&mut client, form).plain_problem(400);
        assert!(detail.contains(why), "{form}: {detail}");
    }
    assert!(
        post(&mut client, &format!("name={}", "x".repeat(300)))
            .plain_problem(400)
            .1
            .contains("256")
    );
    let text =
        client.request("POST", "/what-is-my-name", &[("content-type", "text/plain")], b"name=a");
    text.plain_problem(415);
    assert_eq!(text.header("accept"), Some("application/x-www-form-urlencoded"));
    client.request("POST", "/what-is-my-name", &[], b"name=a").plain_problem(415);
    let get = client.get("/what-is-my-name");
    get.plain_problem(405);
    assert_eq!(
        (get.header("allow"), get.header("cache-control")),
        (Some("POST"), Some("no-store"))
    );
    let put = client.request("PUT", "/what-date-is-it", &[], b"");
    put.plain_problem(405);
    assert_eq!(put.header("allow"), Some("GET,HEAD"));
    for path in [
        "/spin",
        "/spin?us=x",
        "/spin?us=-1",
        "/spin?us=1000001",
        "/sleep?ms=10001",
        "/sleep?ms=1&us=1",
    ] {
        let (_, detail) = client.get(path).plain_problem(400);
        assert!(detail.contains("us") || detail.contains("ms"), "{path}: {detail}");
    }
    client.get("/db").plain_problem(400);
    client.get("/db?via=magic").plain_problem(400);
    assert!(client.get("/db?via=raw").plain_problem(503).1.contains("--database"));
    // Last, because an unread large body may cost the connection.
    post(&mut client, &"x".repeat(5000)).plain_problem(413);
}

#[test]
fn the_date_changes_at_midnight_of_its_clock() {
    let (_server, mut client) = start(&["--clock-at", "12:00:00"]);
    let (noon, max_age_s) = date(&mut client);
    assert!((43_000..12 * 3600).contains(&max_age_s), "{max_age_s}");

    let (_server, mut client) = start(&["--clock-at", "23:59:59"]);
    await_until("midnight", SOON, || date(&mut client).0 != noon);
    let (next, max_age_s) = date(&mut client);
    assert!(
        next > noon && (86_000..24 * 3600).contains(&max_age_s),
        "{noon:?}, then {next:?}, {max_age_s}"
    );

    let week = [("TZ", "UTC"), ("HOTROW_REFERENCE_CLOCK_OFFSET_S", "604800")];
    let server = Server::start_reference(&[], &week);
    assert!(date(&mut server.client()).0 > next);
}

#[test]
fn dates_are_those_of_the_time_zone() {
    // Two time zones that never have the same date at the same time.
    let at = |zone| date(&mut Server::start_reference(&[], &[("TZ", zone)]).client()).0;
    let west = at("Etc/GMT+12");
    let east = at("Etc/GMT-14");
    assert!(west < east, "{west:?} {east:?}");
}

#[test]
fn a_blocking_worker_waits_and_an_asynchronous_one_does_not() {
    let (server, mut client) = start(&["--blocking", "--workers", "1"]);
    let started = Instant::now();
    let mut other = server.client();
    let request = "GET /sleep?ms=150 HTTP/1.1\r\nHost: x\r\n\r\n";
    client.send(request);
    other.send(request);
    assert_eq!((client.answer().status, other.answer().status), (200, 200));
    assert!(
        started.elapsed() >= Duration::from_millis(300),
        "both at once: {:?}",
        started.elapsed()
    );

    let (server, mut client) = start(&["--workers", "1"]);
    let mut other = server.client();
    // After the response to the first of two pipelined requests, the second has been read and
    // sleeps.
    client.send(
        "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /sleep?ms=10000 HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "hello world");
    assert_eq!(other.get("/hello").status, 200);
    assert!(
        matches!(client.try_answer("GET", Duration::from_millis(1)), Err(Fault::Timeout)),
        "it sleeps"
    );
}

#[test]
fn requests_in_progress_complete_before_it_stops() {
    for signal in [Signal::TERM, Signal::INT] {
        let (server, mut client) = start(&["--workers", "1"]);
        client.send(
            "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /sleep?ms=300 HTTP/1.1\r\nHost: x\r\n\r\n",
        );
        assert_eq!(client.answer().status, 200);
        server.signal(signal);
        assert_eq!(client.answer().text(), "done\n");
        client.closed(SOON);
        let ended = server.ended(SOON);
        assert_eq!(ended.code(), 0, "{ended:?}");
    }
}

#[test]
fn impossible_options_are_refused() {
    let run = |more: &[&str]| Ended::run(&[&["lab", "reference"], more].concat(), SOON);
    for (more, why) in [
        (&["--workers", "0"][..], "between 1 and 1024"),
        (&["--workers", "1025"], "between 1 and 1024"),
        (&["--clock-at", "24:00:00"], "23:59:50"),
        (&["--clock-offset-s", "999999999999"], "--clock-offset-s"),
        (&["--database", "mysql://h/d"], "sqlite:PATH"),
        (&["--make-database"], "--database"),
        (&["--connections", "5"], "--database"),
        (&["--listen", "localhost"], "--listen"),
    ] {
        let ended = run(more);
        assert!(ended.code() == 2 && ended.log.contains(why), "{more:?}: {ended:?}");
    }
    let (server, _client) = start(&[]);
    let taken = server.data.to_string();
    let ended = run(&["--listen", &taken]);
    assert!(
        ended.code() == 1 && ended.log.contains(&taken) && ended.log.contains("--listen"),
        "{ended:?}"
    );
}
