//! Tests of `hotrow capacity` against servers with known limits.

#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
/// Minimum number of attempts of searches that depend on an idle machine.
const TRIES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(120);

/// Server with a thread for each connection. Its work function runs before each answer and can end
/// the server.
struct Server {
    address: SocketAddr,
    served: Arc<AtomicU64>,
}

impl Server {
    /// Starts a server; `work` gets the number of the request, from 1, and returns false to end it.
    fn start(work: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        Self::start_answering(move |number| work(number).then_some(OK))
    }

    /// Starts a server; `work` returns the answer, or `None` to end the server.
    fn start_answering(
        work: impl Fn(u64) -> Option<&'static [u8]> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let served = Arc::new(AtomicU64::new(0));
        let dead = Arc::new(AtomicBool::new(false));
        let work = Arc::new(work);
        let count = served.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if dead.load(SeqCst) {
                    return;
                }
                let (Ok(stream), count, dead, work) =
                    (stream, count.clone(), dead.clone(), work.clone())
                else {
                    return;
                };
                std::thread::spawn(move || {
                    answer(stream, || {
                        let work = || work(count.fetch_add(1, SeqCst) + 1);
                        let response = (!dead.load(SeqCst)).then(work).flatten();
                        dead.fetch_or(response.is_none(), SeqCst);
                        response
                    });
                    // The thread that ended the server wakes the listener, which then closes.
                    let _ = dead.load(SeqCst).then(|| TcpStream::connect(address));
                });
            }
        });
        Self { address, served }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn answer(mut stream: TcpStream, next: impl Fn() -> Option<&'static [u8]>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(1..) = stream.read(&mut buffer) {
        match next() {
            Some(answer) if stream.write_all(answer).is_ok() => {}
            _ => return,
        }
    }
}

/// Starts a server with this many requests a second for all clients together; others wait.
fn bucket(rate: f64) -> Server {
    let turn = Mutex::new(Instant::now());
    Server::start(move |_| {
        let mut next = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = (*next).max(Instant::now());
        *next = mine + Duration::from_secs_f64(1.0 / rate);
        drop(next);
        std::thread::sleep(mine.saturating_duration_since(Instant::now()));
        true
    })
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
    command.arg("capacity").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn ended(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn capacity(arguments: &[&str]) -> (Option<i32>, String, String) {
    ended(start(arguments).wait_with_output().expect("it ends"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Returns the exit status and the object on standard output.
fn report(arguments: &[&str]) -> (Option<i32>, Value) {
    let (status, out, err) = capacity(&[arguments, &["--json", "-q"]].concat());
    assert_eq!(out.lines().count(), 1, "{out} {err}");
    let report = json(&out);
    assert_eq!(report["schema"], "hotrow.capacity/1");
    (status, report)
}

/// Returns whether the search ended because the generator was the limit, which happens on a busy
/// machine.
fn names_the_generator(report: &Value) -> bool {
    report["end"] == "generator"
}

/// Fails unless each of these searches ended because of the generator; `reports` contains whether
/// it did, and its verdict.
fn skipped(test: &str, reports: &[(bool, String)]) {
    assert!(reports.iter().all(|(generator, _)| *generator), "{reports:#?}");
    println!(
        "skipped: {test}: in {} searches the generator was the limit on this machine: {reports:#?}",
        reports.len()
    );
}

/// The server rejects requests beyond 1,000 a second, except bursts of ten; each answer takes 20
/// ms, so that some milliseconds of a busy machine do not matter. 5 % of errors are reached at
/// 1,000 / 0.95 requests per second.
#[test]
fn the_limit_of_a_rate_limited_server_is_found() {
    const TRUTH_RPS: f64 = 1_000.0 / 0.95;
    let gap = Duration::from_millis(1);
    let next = Mutex::new(Instant::now());
    let server = Server::start_answering(move |_| {
        let now = Instant::now();
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = next.saturating_duration_since(now) < gap * 10;
        if accepted {
            *next = (*next).max(now) + gap;
        }
        drop(next);
        std::thread::sleep(
            (now + Duration::from_millis(20)).saturating_duration_since(Instant::now()),
        );
        Some(if accepted { OK } else { REFUSED })
    });
    let arguments =
        ["--slo", "p50<1s,errors<5%", "--start-rate", "250", "--arrivals", "uniform", "-c", "200"];
    let lengths = ["--step", "300ms", "--plateau", "1s", "--time", "25s"];
    let begun = Instant::now();
    let mut reports = Vec::new();
    while reports.len() < TRIES || begun.elapsed() < PATIENCE {
        let (status, report) = report(&[&arguments[..], &lengths, &[&server.url()]].concat());
        let rps = |end: &str| report["interval"][end]["rps"].as_f64();
        let low = rps("low").unwrap_or(0.0);
        let high = rps("high").unwrap_or(0.0);
        assert!(low < TRUTH_RPS * 1.05, "the server's limit is lower: {report:#}");
        let near = low > TRUTH_RPS * 0.85 && (low..TRUTH_RPS * 1.2).contains(&high);
        // On a busy machine plateaus are repeated, and the time ends before the interval is narrow:
        // the result is valid too.
        let ended = report["end"] == "found" || report["end"] == "time";
        if ended && status == Some(0) && near {
            let steps = report["steps"].as_array().expect("a list");
            assert!(steps.iter().any(|step| step["purpose"] == "plateau"), "{report:#}");
            assert!(
                steps.iter().all(|step| step["slo"].as_array().is_some_and(|slo| slo.len() == 2)),
                "{report:#}"
            );
            assert_eq!(
                (&report["local"], report["limit_confirmed"].is_boolean()),
                (&Value::Bool(true), true)
            );
            // The time left for tests of the limit depends on the machine.
            assert!(report["limit"]["class"].is_string(), "{report:#}");
            assert_eq!(report["next"].as_array().map(Vec::len), Some(6));
            let plateaus = if report["end"] == "found" { 2 } else { 1 };
            assert!(
                report["interval"]["noise"]["plateaus"].as_u64() >= Some(plateaus),
                "{report:#}"
            );
            // The listener is this test's process.
            let watched = report["watched"].as_str().expect("words");
            assert!(watched.contains(&std::process::id().to_string()), "{watched}");
            assert!(!report["findings"].as_array().expect("a list").is_empty(), "{report:#}");
            return;
        }
        reports.push((names_the_generator(&report), report["verdict"].to_string()));
    }
    skipped("the_limit_of_a_rate_limited_server_is_found", &reports);
}

#[test]
fn a_demanded_rate_without_confirmation_is_status_3() {
    let server = bucket(20_000.0);
    let page = std::env::temp_dir().join(format!("hotrow-capacity-{}.html", std::process::id()));
    let page_name = page.to_str().expect("UTF-8");
    let few = [
        "--slo",
        "p50<2s",
        "--start-rate",
        "100",
        "--rate-max",
        "200",
        "--at-least",
        "1000",
        "--html",
        page_name,
    ];
    // Long enough for some late answers.
    let lengths = ["--step", "1s", "--plateau", "2s", "--arrivals", "uniform"];
    let (status, out, err) = capacity(&[&lengths[..], &few, &[&server.url()]].concat());
    assert_eq!(status, Some(3), "{out} {err}");
    for words in [
        "The bound was not found",
        "--rate-max",
        "MISSED",
        "What limited it at",
        "not tested",
        "keep-alive",
    ] {
        assert!(out.contains(words), "{words:?} is missing in {out}");
    }
    let html = std::fs::read_to_string(&page).expect("it was written");
    let _ = std::fs::remove_file(&page);
    assert!(
        html.contains("<figure>") && html.contains("Latency") && html.contains("Capacity"),
        "{html}"
    );
    // No rate meets this objective.
    let never = ["--slo", "p50<1us", "--start-rate", "1000", "--step", "100ms", "--time", "9s"];
    let (status, report) = report(&[&never[..], &[&server.url()]].concat());
    assert!(status == Some(3) || report["end"] == "time", "{report:#}");
    assert_eq!(report["capacity_rps"], Value::Null);
}

#[test]
fn a_target_that_dies_is_reported_with_the_result_so_far() {
    let server = Server::start(|number| number < 300);
    let arguments =
        ["--slo", "p50<1s", "--start-rate", "500", "--step", "200ms", "--plateau", "400ms"];
    let (status, report) = report(&[&arguments[..], &[&server.url()]].concat());
    assert_eq!((status, &report["end"]), (Some(1), &Value::from("harm")), "{report:#}");
    assert!(!report["steps"].as_array().expect("a list").is_empty(), "{report:#}");
    assert_eq!(report["capacity_rps"], Value::Null);
    assert!(server.served.load(SeqCst) >= 300);
}

/// The rate must not be raised while the target is silent.
#[test]
fn a_search_ends_at_a_target_that_never_answers() {
    let server = Server::start(|_| {
        loop {
            std::thread::park();
        }
    });
    let arguments = ["--closed", "--step", "200ms", "--timeout", "300ms", &server.url()];
    let (status, report) = report(&arguments);
    assert_eq!((status, &report["end"]), (Some(1), &Value::from("harm")), "{report:#}");
    assert_eq!(report["steps"].as_array().map(Vec::len), Some(1), "{report:#}");
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let server = bucket(20_000.0);
    let full =
        || Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("Linux"));
    let once = ["--slo", "p50<2s", "--step", "100ms", "--time", "500ms", "-q", &server.url()];
    let runs = [
        &[&["capacity"], &once[..]].concat()[..],
        &["load", "-n", "5", "-q", &server.url()],
        &["doctor"],
    ];
    for arguments in runs {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
        let run = command.args(arguments).stdout(full()).stderr(Stdio::piped()).output();
        let (status, _, err) = ended(run.expect("it ends"));
        assert_eq!(status, Some(1), "{arguments:?}: {err}");
        assert!(err.contains("standard output cannot be written: No space left"), "{err}");
    }
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    let server = bucket(1_000.0);
    let child = start(&[
        "--slo",
        "p50<1s",
        "--start-rate",
        "100",
        "--step",
        "300ms",
        "--json",
        &server.url(),
    ]);
    let begun = Instant::now();
    while server.served.load(SeqCst) < 150 && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_raw(child.id() as i32).expect("a process"), Signal::INT)
        .expect("it lives");
    let (status, out, err) = ended(child.wait_with_output().expect("it ends"));
    assert_eq!(status, Some(130), "{err}");
    let report = json(&out);
    assert_eq!(report["end"], "interrupted");
    assert!(!report["steps"].as_array().expect("a list").is_empty(), "{report:#}");
}

/// Four requests at once, 20 ms each: more than four connections hardly raise the throughput.
#[test]
fn connections_are_raised_to_the_knee() {
    let busy = (Mutex::new(0), std::sync::Condvar::new());
    let server = Server::start(move |_| {
        let workers = &busy.0;
        let free = &busy.1;
        let taken = workers.lock().unwrap_or_else(PoisonError::into_inner);
        *free.wait_while(taken, |taken| *taken >= 4).unwrap_or_else(PoisonError::into_inner) += 1;
        std::thread::sleep(Duration::from_millis(20));
        *workers.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        free.notify_one();
        true
    });
    let arguments = ["--closed", "--connections-max", "32", "--rounds", "2", "--step", "400ms"];
    let begun = Instant::now();
    let mut reports = Vec::new();
    while reports.len() < TRIES || begun.elapsed() < PATIENCE {
        let (status, report) = report(&[&arguments[..], &[&server.url()]].concat());
        let knee = report["closed"]["knee_connections"].as_u64();
        if (status, &report["end"]) == (Some(0), &Value::from("found"))
            && matches!(knee, Some(4 | 8))
        {
            let levels = report["closed"]["levels"].as_array().expect("a list");
            assert!(
                levels.len() >= 5
                    && levels.iter().all(|l| l["rps"].as_array().is_some_and(|r| r.len() <= 2))
            );
            let law = &report["closed"]["law"];
            assert!(
                law["sigma"][0].as_f64().is_some_and(|s| s >= 0.0)
                    && law["lambda_rps"][0].as_f64() > Some(0.0),
                "{law}"
            );
            return;
        }
        let words =
            format!("{} {} {}", report["end"], report["verdict"], report["closed"]["levels"]);
        reports.push((names_the_generator(&report), words));
    }
    skipped("connections_are_raised_to_the_knee", &reports);
}

#[test]
fn wrong_usage_is_refused_before_anything_is_sent() {
    let server = bucket(1_000.0);
    let url = server.url();
    let slo = ["--slo", "p50<1s"];
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["--start-rate", "10", "--rate-max", "5", &url],
            2,
            "--start-rate (10) must not be above --rate-max (5)",
        ),
        (&["--rounds", "2", &url], 2, "--rounds is for --closed"),
        (&["--pid", "4294967295", &url], 2, "--pid 4294967295: there is no such process"),
        (&["--port", "1", &url], 2, "--port 1: no visible process listens"),
        (&["--cgroup", "/nonexistent", &url], 2, "--cgroup /nonexistent is no cgroup"),
        (
            &["--start-rate", "0", &url],
            2,
            "must be a number of requests per second between 0.00001 and 10000000",
        ),
        (&["--html", "/nonexistent/f", &url], 2, "/nonexistent/f cannot be written"),
        (&["--timeout", "0s", &url], 2, "--timeout must be longer"),
        (&["ftp://a"], 2, "only http://, https:// and unix:"),
        (&["http://127.0.0.1:1/"], 1, "no connection to 127.0.0.1:1"),
    ];
    for (arguments, status, words) in cases {
        let (got, out, err) = capacity(&[&slo[..], arguments].concat());
        assert_eq!((got, out.as_str()), (Some(*status), ""), "{arguments:?}: {err}");
        assert!(err.contains(words), "{words:?} is missing in {err}");
    }
    assert_eq!(server.served.load(SeqCst), 0);
}
