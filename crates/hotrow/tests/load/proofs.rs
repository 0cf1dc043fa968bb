//! `--prove`: what is named is tested by changing it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::verdicts::{alone, run, tried};
use super::*;

fn proven(report: &Value, classes: &[&str]) -> bool {
    let verdict = &report["diagnosis"]["verdict"];
    verdict["proof"] == "confirmed" && classes.iter().any(|class| verdict["class"] == *class)
}

/// Each request waits 5 ms, however many there are: twice the connections bring twice the rate.
#[test]
fn connections_that_are_too_few_are_proven() {
    let _alone = alone();
    let (address, _) = working_server(OK, || std::thread::sleep(Duration::from_millis(5)));
    let url = format!("http://{address}/");
    tried(
        || run(&["-d", "1s", "-c", "4", "--prove", &url]),
        |report, _| {
            let tried = report["diagnosis"]["verdict"]["tried"].as_array().expect("a list");
            proven(report, &["TooFewConnections"])
                && tried.iter().any(|tried| tried["change"] == "8 connections instead of 4")
        },
    );
}

/// One request at a time, and none needs a CPU: neither more connections nor less CPU time change anything. What the rest of the
/// machine does may raise other suspicions, but none that says otherwise is confirmed.
#[test]
fn a_limit_that_is_reached_is_not_blamed_on_connections() {
    let _alone = alone();
    let one_at_a_time = Mutex::new(());
    let (address, _) = working_server(OK, move || {
        let _one = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(Duration::from_millis(2));
    });
    let url = format!("http://{address}/");
    tried(
        || run(&["-d", "1s", "-c", "16", "--prove", &url]),
        |report, _| {
            assert!(!proven(report, &["TooFewConnections", "Generator", "NoneFound"]), "{report:#}");
            let tried = report["diagnosis"]["verdict"]["tried"].as_array().expect("a list");
            let flat = |tried: &Value| {
                tried["change"] == "32 connections instead of 16"
                    && tried["class"] != "TooFewConnections"
                    && tried["proof"] == "confirmed"
            };
            tried.iter().any(flat)
        },
    );
}

#[test]
fn an_interruption_of_its_tests_leaves_the_run_complete() {
    let _alone = alone();
    let (address, _) = working_server(OK, || std::thread::sleep(Duration::from_millis(5)));
    let url = format!("http://{address}/");
    let arguments = ["-d", "1s", "-c", "4", "--prove", "--prove-time", "60s", "--json", "--progress", "lines", &url];
    let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("test ")), "something is tested");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let rest: Vec<String> = lines.collect();
    let (status, out, _) = outcome(child.wait_with_output().expect("it ends"));
    let report = json(&out);
    assert_eq!(status, Some(130), "{rest:#?} {report:#}");
    assert_eq!((&report["interrupted"], &report["end"]), (&Value::Bool(false), &Value::from("complete")), "{report:#}");
    assert!(number(&report, "/requests/ok") > 0);
}

#[test]
fn what_is_not_tested_is_called_a_suspicion() {
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let (status, out, _) = load(&["-d", "2s", "-c", "4", &url]);
    assert_eq!(status, Some(0), "{out}");
    assert!(out.contains("  suspicion ") && out.contains("not tested, --prove tests it"), "{out}");
    let (_, out, _) = load(&["-d", "2s", "-c", "4", "--json", &url]);
    let report = json(&out);
    assert!(report["diagnosis"]["verdict"]["proof"].is_null(), "{report:#}");
    assert_eq!(report["diagnosis"]["verdict"]["class"], report["diagnosis"]["findings"][0]["class"]);
    let (status, _, err) = load(&["--prove-time", "5s", &url]);
    assert_eq!(status, Some(2), "{err}");
}
