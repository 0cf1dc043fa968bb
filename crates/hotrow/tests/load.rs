//! `hotrow load` as its users see it: what it prints, what it refuses, how it ends.

#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Answers every request with the same words; each request must come in one piece, as small ones do.
fn server(answer: &'static str) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, seen) = (listener.local_addr().expect("bound"), Arc::new(AtomicU64::new(0)));
    let count = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), count) = (stream, count.clone()) else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 64 * 1024];
                while let Ok(1..) = stream.read(&mut buffer) {
                    count.fetch_add(1, SeqCst);
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
    command.arg("load").args(arguments);
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
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} in {report:#}"))
}

/// The names of the contract, in their order, and the laws between the figures.
#[test]
fn the_report_is_the_documented_one() {
    let (address, seen) = server(OK);
    let url = format!("http://{address}/");
    let (status, out, err) = load(&["--json", "-c", "3", "-t", "2", "-d", "400ms", "--rate", "500", &url]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert_eq!(out.lines().count(), 1, "{out}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let keys = |pointer: &str| {
        let object =
            report.pointer(pointer).and_then(Value::as_object).unwrap_or_else(|| panic!("{pointer} in {report:#}"));
        object.keys().cloned().collect::<Vec<_>>()
    };
    let sorted = |names: &str| {
        let mut names: Vec<String> = names.split(' ').map(str::to_owned).collect();
        names.sort();
        names
    };
    for (pointer, names) in [
        ("/target", "url connections threads rate arrivals keepalive"),
        ("/requests", "scheduled unsent sent ok errors timeouts in_flight_at_end"),
        ("/latency_us", "mean p50 p75 p90 p95 p99 p999 max"),
        ("/service_us", "mean p50 p75 p90 p95 p99 p999 max"),
        ("/schedule_lag_us", "mean p50 p75 p90 p95 p99 p999 max"),
        ("/bytes", "sent received"),
        ("/errors", "connect reset closed malformed unexpected_status"),
        ("/generator", "cpu_s cpu_us_per_request cpu_share limited"),
    ] {
        assert_eq!(keys(pointer), sorted(names), "{pointer}");
    }
    for key in ["schema", "duration_s", "throughput_rps", "rate_ratio", "status", "verdict"] {
        assert!(report.get(key).is_some_and(|v| !v.is_null()), "{key} in {report:#}");
    }
    let of = |name: &str| number(&report, &format!("/requests/{name}"));
    assert_eq!(of("scheduled"), 200);
    assert_eq!(of("scheduled"), of("unsent") + of("sent"));
    assert_eq!(of("sent"), of("ok") + of("errors") + of("timeouts") + of("in_flight_at_end"));
    assert_eq!((of("sent"), number(&report, "/status/200")), (seen.load(SeqCst), of("ok")));
}

#[test]
fn people_get_a_text() {
    let (address, _) = server(OK);
    let (status, out, err) = load(&["-n", "100", "-c", "2", &format!("http://{address}/")]);
    assert_eq!((status, err.as_str()), (Some(0), ""), "no progress where nobody looks");
    for part in ["100 sent, 100 ok", "p99.9", "sent late by", "generator"] {
        assert!(out.contains(part), "{part:?} in {out}");
    }
}

#[test]
fn timed_out_percentiles_are_lower_bounds() {
    let (address, _) = server("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnever");
    let url = format!("http://{address}/");
    let (status, out, _) = load(&["--json", "-n", "4", "-c", "4", "--timeout", "100ms", &url]);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((status, number(&report, "/requests/timeouts")), (Some(1), 4));
    let p50 = report["latency_us"]["p50"].as_str().expect("a text");
    assert!(p50.strip_prefix('>').and_then(|us| us.parse::<f64>().ok()).is_some_and(|us| us >= 100_000.0), "{p50}");
}

/// Each with its message, before a request is sent.
#[test]
fn wrong_arguments_are_refused_in_words() {
    let (address, seen) = server(OK);
    let url = format!("http://{address}/");
    let with_id = format!("{url}{{id}}");
    let secure = format!("https://{address}/");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "\n").expect("writable");
    let empty = empty.to_str().expect("UTF-8");
    let cases: &[(&[&str], &str)] = &[
        (&["ftp://a/"], "only http:// and https://"),
        (&["127.0.0.1"], "must begin with http:// or https://"),
        (&["http://a:99999/"], "port must be between 1 and 65535"),
        (&["--rate", "0", &url], "0 requests per second is not possible"),
        (&["--rate", "1e12", &url], "is not possible"),
        (&["--rate", "1..2", "-n", "5", &url], "add --duration"),
        (&["-d", "5", &url], "with a unit"),
        (&["-d", "0s", &url], "nothing ends this run"),
        (&["-c", "1", "-t", "2", &url], "2 threads need as many connections"),
        (&["-c", "999999", &url], "connections"),
        (&["--pipeline", "2", "--no-keepalive", &url], "leave --no-keepalive out"),
        (&["--body", "@/nonexistent/file", &url], "/nonexistent/file cannot be read: No such file"),
        (&["--ids-file", "/nonexistent/file", &with_id], "/nonexistent/file cannot be read"),
        (&["--ids-file", empty, &with_id], "the file of ids is empty"),
        (&[&with_id], "--ids FROM..TO"),
        (&["--ids", "1..5", &url], "no URL has {id}"),
        (&["--ids", "5..1", &with_id], "5..1 is empty"),
        (&["--pick", "zipf:x", &with_id], "zipf:0.99"),
        (&["-m", "GE T", &url], "no HTTP method"),
        (&["-H", "Content-Length: 5", &url], "cannot be set by hand"),
        (&["-H", "no colon", &url], "must have a colon"),
        (&["--insecure", &url], "for https:// URLs"),
        (&["--cacert", "/nonexistent/file", &secure], "/nonexistent/file has no certificates"),
        (&[&url, "http://127.0.0.2/"], "not the same server"),
        (&["x*http://a/", &url], "weight"),
        (&["--timeout", "0s", &url], "--timeout must be longer"),
        (&["--expect-status", "99", &url], "200..=999"),
    ];
    for (arguments, words) in cases {
        let (status, out, err) = load(arguments);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.contains(words), "{arguments:?} should say {words:?}, says {err}");
    }
    assert_eq!(seen.load(SeqCst), 0);
}

#[test]
fn what_is_not_there_is_told_within_seconds() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let (plain, _) = server(OK);
    let begun = Instant::now();
    for (arguments, words) in [
        (vec![format!("http://{nobody}/")], "refused"),
        (vec!["http://nobody.invalid/".to_owned()], "nobody.invalid is unknown"),
        (vec!["--unix-socket".to_owned(), "/nonexistent/socket".to_owned(), "http://a/".to_owned()], "No such file"),
        (vec!["--insecure".to_owned(), format!("https://{plain}/")], "does not speak TLS"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (status, out, err) = load(&arguments);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
        assert!(err.contains(words), "{arguments:?} should say {words:?}, says {err}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_is_not_http_is_no_result() {
    let (address, _) = server("220 mail.example ESMTP\r\n");
    let (status, out, _) = load(&["-n", "10", "-c", "2", &format!("http://{address}/")]);
    assert_eq!(status, Some(1));
    assert!(out.contains("is this an HTTP server?") && out.contains("there is no result"), "{out}");
}

/// Tries of a test that judges the machine.
const TRIES: usize = 4;

/// With every processor taken away from it the generator must say that it was the limit.
#[test]
fn a_starved_generator_says_so() {
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let spinners: Vec<_> = (0..processors * 6)
        .map(|_| {
            let over = over.clone();
            std::thread::spawn(move || {
                while !over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let said = (0..TRIES).any(|_| {
        let (_, out, _) = load(&["--json", "-d", "1s", "-c", "20", "-t", "1", &url]);
        let report: Value = serde_json::from_str(&out).expect("JSON");
        report["generator"]["limited"] == true
            && report["verdict"].as_str().is_some_and(|v| v.contains("The generator was the limit"))
    });
    over.store(true, SeqCst);
    spinners.into_iter().for_each(|s| s.join().expect("no panic"));
    assert!(said, "{TRIES} runs without a CPU, and none of them says so");
}

/// With next to nothing to do it must not blame itself.
#[test]
fn an_idle_generator_is_not_the_limit() {
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let verdicts: Vec<String> = (0..TRIES)
        .map_while(|_| {
            let (_, out, _) = load(&["--json", "-d", "500ms", "-c", "2", "-t", "1", "--rate", "50", &url]);
            let report: Value = serde_json::from_str(&out).expect("JSON");
            (report["generator"]["limited"] == true).then(|| report.to_string())
        })
        .collect();
    assert!(verdicts.len() < TRIES, "{verdicts:#?}");
}

#[test]
fn an_interruption_reports_what_there_is() {
    let (address, seen) = server(OK);
    let arguments = ["--json", "-d", "60s", "-c", "2", "--rate", "200", &format!("http://{address}/")];
    let child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let begun = Instant::now();
    while seen.load(SeqCst) < 20 {
        assert!(begun.elapsed() < Duration::from_secs(30), "no request came");
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let (status, out, _) = outcome(child.wait_with_output().expect("it ends"));
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((status, &report["interrupted"]), (Some(130), &Value::Bool(true)));
    assert!(number(&report, "/requests/ok") >= 18 && report["duration_s"].as_f64().is_some_and(|s| s < 40.0));
}
