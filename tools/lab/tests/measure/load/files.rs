//! Output files of a run, and the results of an interrupted run.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::*;

/// Starts a run of one minute and interrupts it after the server has received some requests.
fn interrupted_run(more: &[&str]) -> (Option<i32>, String, String) {
    let (address, seen) = server(OK);
    let url = format!("http://{address}/");
    let arguments = [&["-d", "60s", "-c", "2", "--rate", "200", &url], more].concat();
    let mut command = command(&arguments);
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let child = child.expect("it starts");
    let begun = Instant::now();
    // Covers more than one second.
    while seen.load(SeqCst) < 250 {
        assert!(begun.elapsed() < Duration::from_secs(30), "too few requests arrived");
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    outcome(child.wait_with_output().expect("it ends"))
}

/// Returns the samples of an interval log without a tag and with `service`, and its number of
/// intervals.
fn samples(log: &Path) -> (u64, u64, usize) {
    let text = std::fs::read(log).expect("the log");
    let mut latency = 0;
    let mut service = 0;
    let mut intervals = 0;
    for entry in IntervalLogIterator::new(&text) {
        let LogEntry::Interval(interval) = entry.expect("a line of the format") else { continue };
        let bytes = STANDARD.decode(interval.encoded_histogram()).expect("base64");
        let histogram: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram");
        match interval.tag().as_deref() {
            None => {
                latency += histogram.len();
                intervals += 1;
            }
            Some(_) => service += histogram.len(),
        }
    }
    (latency, service, intervals)
}

/// Returns the sums of a CSV file's columns by name, its number of data lines, and its last field.
fn sums(csv: &Path) -> (impl Fn(&str) -> u64, usize, String) {
    let text = std::fs::read_to_string(csv).expect("the file");
    assert!(
        text.ends_with("\r\n") && !text.replace("\r\n", "").contains('\n'),
        "lines must end with CRLF (RFC 4180)"
    );
    let rows: Vec<Vec<String>> = text
        .split_terminator("\r\n")
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect();
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
    let last = rows[rows.len() - 1][rows[0].len() - 1].clone();
    let lines = rows.len() - 1;
    let sum = move |name: &str| {
        let at = rows[0].iter().position(|column| column == name).expect("a column");
        rows[1..].iter().map(|row| row[at].parse::<u64>().expect("a number")).sum()
    };
    (sum, lines, last)
}

#[test]
fn the_seconds_in_the_files_add_up_to_the_report() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hdr = folder.path().join("run.hlog");
    let csv = folder.path().join("run.csv");
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let files = ["--hdr", hdr.to_str().expect("UTF-8"), "--csv", csv.to_str().expect("UTF-8")];
    let (status, out, _) =
        load(&[&["--json", "-d", "2200ms", "-c", "4", "--rate", "300", &url], &files[..]].concat());
    assert_eq!(status, Some(0), "{out}");
    let report = json(&out);
    let (latency, service, intervals) = samples(&hdr);
    let answered = number(&report, "/requests/ok");
    assert_eq!(
        (service, intervals),
        (answered, report["seconds"].as_array().expect("a list").len())
    );
    assert_eq!(latency, answered + number(&report, "/requests/unsent"));
    let (sum, lines, last) = sums(&csv);
    for name in ["scheduled", "unsent", "sent", "ok", "errors", "timeouts"] {
        assert_eq!(sum(name), number(&report, &format!("/requests/{name}")), "{name}");
    }
    assert_eq!((lines, last.as_str()), (intervals, "complete"));
}

#[test]
fn an_interrupted_run_reports_its_figures() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hdr = folder.path().join("run.hlog");
    let csv = folder.path().join("run.csv");
    let files = ["--hdr", hdr.to_str().expect("UTF-8"), "--csv", csv.to_str().expect("UTF-8")];
    // Objectives are evaluated, but the exit status is that of the interruption.
    let (status, out, _) =
        interrupted_run(&[&["--json", "--slo", "p99<60s,max<1us"], &files[..]].concat());
    let report = json(&out);
    assert_conserved(&report);
    assert_eq!((status, &report["interrupted"]), (Some(130), &Value::Bool(true)));
    assert_eq!(
        (&report["end"], &report["slo"][0]["met"], &report["slo"][1]["met"]),
        (&Value::from("interrupted"), &Value::Bool(true), &Value::Bool(false))
    );
    assert!(
        report["verdict"].as_str().is_some_and(|verdict| verdict.starts_with("Interrupted. ")),
        "{report:#}"
    );
    let ok = number(&report, "/requests/ok");
    assert!(ok >= 240 && report["duration_s"].as_f64().is_some_and(|s| s < 40.0), "{report:#}");
    let due = number(&report, "/requests/scheduled");
    assert!(samples(&hdr).1 == due && samples(&hdr).2 >= 2);
    assert!(std::fs::read_to_string(&hdr).expect("the log").ends_with("#[End: interrupted]\n"));
    let (sum, _, last) = sums(&csv);
    assert_eq!((sum("ok"), last.as_str()), (ok, "interrupted"));
}

#[test]
fn the_text_report_mentions_an_interruption() {
    let (status, out, _) = interrupted_run(&["--percentiles"]);
    assert_eq!(status, Some(130));
    assert!(out.starts_with("Interrupted. ") && out.contains("#[Max"), "{out}");
}

#[test]
fn a_full_disk_is_reported_after_the_report() {
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    for option in ["--hdr", "--csv"] {
        let (status, out, err) = load(&["-n", "50", "-c", "2", option, "/dev/full", &url]);
        assert_eq!(status, Some(1), "{option}");
        assert!(out.contains("50 sent, 50 ok"), "{option}: {out}");
        assert!(err.contains("/dev/full cannot be written: No space left"), "{option}: {err}");
    }
}
