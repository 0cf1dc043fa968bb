//! `hotrow doctor` as its users see it: what it says of this machine, how it ends, and that its predictions hold.

use std::process::{Command, Output};

use serde_json::Value;

fn doctor(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output: Output =
        Command::new(env!("CARGO_BIN_EXE_hotrow")).arg("doctor").args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The object on standard output; it is alone there.
fn json(arguments: &[&str]) -> (Option<i32>, Value) {
    let (status, out, err) = doctor(&[arguments, &["--json"]].concat());
    assert_eq!((out.lines().count(), err.as_str()), (1, ""), "{out}");
    (status, serde_json::from_str(&out).expect("JSON"))
}

fn limit<'a>(report: &'a Value, name: &str) -> &'a Value {
    let limits = report["limits"].as_array().expect("a list");
    limits.iter().find(|limit| limit["limit"] == name).unwrap_or_else(|| unreachable!("{name} is judged: {report}"))
}

fn of_proc(file: &str) -> u64 {
    std::fs::read_to_string(file).expect(file).trim().parse().expect("a number")
}

#[test]
fn this_machines_limits_are_told_with_their_formulas() {
    let (status, report) = json(&["--connections", "100", "--threads", "10", "--rate", "50"]);
    assert_eq!((status, &report["schema"]), (Some(0), &Value::from("hotrow.doctor/1")));
    assert_eq!(report["goal"]["connections"], 100);
    assert_eq!(report["enough"], true, "so little every machine carries: {report}");
    assert_eq!(limit(&report, "vm.max_map_count")["value"], of_proc("/proc/sys/vm/max_map_count").to_string());
    let somaxconn = of_proc("/proc/sys/net/core/somaxconn");
    let allowed = limit(&report, "net.core.somaxconn")["allows"].as_u64().expect("a number");
    assert_eq!(allowed, (somaxconn + 1) * 10, "a tenth of a second");
    for limit in report["limits"].as_array().expect("a list") {
        let unseen = limit["enough"] == "unseen";
        assert_eq!(limit["formula"].as_str().is_none_or(str::is_empty), unseen, "{limit}");
    }
    let (status, text, err) = doctor(&["--connections", "100", "--threads", "10", "--rate", "50"]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(text.starts_with("goal      100 connections, 10 threads, 50 requests/s (connections are kept)"), "{text}");
    assert!(text.contains("What gives way first") && text.contains("kernel.pid_max"), "{text}");
}

#[test]
fn what_gives_way_is_first_and_can_fail_a_script() {
    let goal = ["--connections", "1000000000", "--no-keepalive", "--rate", "1e6", "--client"];
    assert_eq!(doctor(&goal).0, Some(0), "only told");
    let (status, report) = json(&[&goal[..], &["--fail-below"]].concat());
    assert_eq!((status, &report["enough"]), (Some(3), &Value::from(false)));
    let limits = report["limits"].as_array().expect("a list");
    assert_eq!(limits[0]["enough"], "no");
    let margin = |limit: &Value| Some(limit["allows"].as_f64()? / limit["wanted"].as_f64()?);
    let margins: Vec<f64> = limits.iter().filter(|limit| limit["enough"] == "no").filter_map(margin).collect();
    assert!(margins.len() > 3 && margins.is_sorted(), "the worst first: {margins:?}");
    let (status, text, _) = doctor(&[&goal[..], &["--fail-below"]].concat());
    assert_eq!(status, Some(3));
    assert!(text.contains("sysctl -w net.ipv4.ip_local_port_range='1024 65535'"), "{text}");
    assert!(text.contains("/etc/sysctl.d/90-hotrow.conf") && text.contains("prlimit --pid PID --nofile="), "{text}");
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [&["--connections", "0"][..], &["--threads", "x"], &["--rate", "-1"], &["--demonstrate", "files"]]
    {
        let (status, out, err) = doctor(arguments);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
    }
    let (status, out, err) = doctor(&["--climb", "{}"]);
    assert!(status == Some(1) && out.is_empty() && err.contains("--climb is for the doctor itself"), "{err}");
}

fn demonstrations(report: &Value) -> &Vec<Value> {
    let shown = report["demonstrations"].as_array().expect("a list");
    for demonstration in shown {
        assert_eq!(demonstration["holds"], true, "{demonstration:#}");
        assert!(demonstration["evidence"].as_array().is_some_and(|evidence| !evidence.is_empty()), "{demonstration:#}");
    }
    shown
}

/// Up to a few hundred threads.
#[test]
fn threads_give_way_where_it_is_predicted() {
    let (status, report) = json(&["--threads", "100", "--demonstrate", "threads"]);
    assert_eq!(status, Some(0), "{report:#}");
    let shown = demonstrations(&report);
    assert!(shown.len() >= 2, "{report:#}");
    let maps = shown[0]["predicted"].as_u64().expect("a number");
    assert!([200, 300, 400].contains(&maps), "stack, signal stack, and a guard for each that may be a map: {maps}");
    assert!(shown[0]["evidence"].as_array().is_some_and(|evidence| evidence.len() > 2), "{report:#}");
    // Whichever way the address space ended it: a refusal, or the death of the process.
    let end = shown[1]["evidence"][0].as_str().unwrap_or_default();
    assert!(end.contains("refused") || end.contains("died of signal"), "{end}");
}

/// Up to a few hundred connections to a listener of its own.
#[test]
fn connections_give_way_where_it_is_predicted() {
    let (status, report) = json(&["--connections", "1000", "--demonstrate", "connections"]);
    assert_eq!(status, Some(0), "{report:#}");
    let shown = demonstrations(&report);
    assert!(shown[0]["happened"].as_u64().is_some_and(|made| (200..256).contains(&made)), "{report:#}");
    assert_eq!((&shown[1]["predicted"], &shown[1]["happened"]), (&Value::from(33), &Value::from(33)));
    assert!(shown[1]["evidence"][1].as_str().is_some_and(|words| words.contains("shows 33 connections")), "{report:#}");
}
