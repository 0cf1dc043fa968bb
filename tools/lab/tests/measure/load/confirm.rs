//! `--confirm`: a change of the load tests the named limit.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::verdicts::{alone, repeat_until, run};
use super::*;

fn is_confirmed(report: &Value, classes: &[&str]) -> bool {
    let verdict = &report["diagnosis"]["verdict"];
    verdict["conclusion"] == "confirmed" && classes.iter().any(|class| verdict["class"] == *class)
}

/// Each request waits 5 ms: twice the connections result in twice the rate.
#[test]
fn too_few_connections_are_confirmed() {
    let _alone = alone();
    let (address, _) = working_server(OK, || std::thread::sleep(Duration::from_millis(5)));
    let url = format!("http://{address}/");
    repeat_until(
        || run(&["-d", "1s", "-c", "4", "--confirm", &url]),
        |report, _| {
            let trials = report["diagnosis"]["verdict"]["trials"].as_array().expect("a list");
            is_confirmed(report, &["TooFewConnections"])
                && trials.iter().any(|trial| trial["change"] == "8 connections instead of 4")
        },
    );
}

/// One request at a time, and none needs a CPU: neither more connections nor less CPU time have an
/// effect. Load by other processes may raise other suspicions, but no contradicting one is
/// confirmed.
#[test]
fn a_limit_of_the_target_is_not_blamed_on_connections() {
    let _alone = alone();
    let one_at_a_time = Mutex::new(());
    let (address, _) = working_server(OK, move || {
        let _one = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(Duration::from_millis(2));
    });
    let url = format!("http://{address}/");
    repeat_until(
        || run(&["-d", "1s", "-c", "16", "--confirm", &url]),
        |report, _| {
            assert!(
                !is_confirmed(report, &["TooFewConnections", "Generator", "NoneFound"]),
                "{report:#}"
            );
            let trials = report["diagnosis"]["verdict"]["trials"].as_array().expect("a list");
            let flat = |trial: &Value| {
                trial["change"] == "32 connections instead of 16"
                    && trial["class"] != "TooFewConnections"
                    && trial["conclusion"] == "confirmed"
            };
            trials.iter().any(flat)
        },
    );
}

/// Most runs of a load until a test of a hypothesis is begun.
const RUNS_MAX: usize = 10;

#[test]
fn an_interruption_of_the_confirmation_leaves_the_run_complete() {
    let _alone = alone();
    let (address, _) = working_server(OK, || std::thread::sleep(Duration::from_millis(5)));
    let url = format!("http://{address}/");
    let arguments = [
        "-d",
        "1s",
        "-c",
        "4",
        "--confirm",
        "--confirm-time",
        "60s",
        "--json",
        "--progress",
        "lines",
        &url,
    ];
    // Where other work took the processors, the run may find nothing that could be tested.
    let (child, lines) = (0..RUNS_MAX)
        .find_map(|_| {
            let mut child = command(&arguments)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it starts");
            let mut lines =
                BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
            if lines.any(|line| line.starts_with("test ")) {
                return Some((child, lines));
            }
            child.wait_with_output().expect("it ends");
            None
        })
        .expect("a test is begun");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let rest: Vec<String> = lines.collect();
    let (status, out, _) = outcome(child.wait_with_output().expect("it ends"));
    let report = json(&out);
    assert_eq!(status, Some(130), "{rest:#?} {report:#}");
    assert_eq!(
        (&report["interrupted"], &report["end"]),
        (&Value::Bool(false), &Value::from("complete")),
        "{report:#}"
    );
    assert!(number(&report, "/requests/ok") > 0);
}

#[test]
fn an_untested_verdict_is_called_a_suspicion() {
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let (status, out, _) = load(&["-d", "2s", "-c", "4", &url]);
    assert_eq!(status, Some(0), "{out}");
    assert!(out.contains("suspicion: ") && out.contains("not tested, --confirm tests it"), "{out}");
    let (_, out, _) = load(&["-d", "2s", "-c", "4", "--json", &url]);
    let report = json(&out);
    assert!(report["diagnosis"]["verdict"]["conclusion"].is_null(), "{report:#}");
    assert_eq!(
        report["diagnosis"]["verdict"]["class"],
        report["diagnosis"]["findings"][0]["class"]
    );
    let (status, _, err) = load(&["--confirm-time", "5s", &url]);
    assert_eq!(status, Some(2), "{err}");
}
