//! Tests of `hotrow doctor`: its report about this machine, its exit status and its predictions.

use std::process::{Command, Output};

use serde_json::Value;

fn doctor(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"))
        .arg("doctor")
        .args(arguments)
        .output()
        .expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Returns the exit status and the object, which is alone on standard output.
fn json(arguments: &[&str]) -> (Option<i32>, Value) {
    let (status, out, err) = doctor(&[arguments, &["--json"]].concat());
    assert_eq!((out.lines().count(), err.as_str()), (1, ""), "{out}");
    (status, serde_json::from_str(&out).expect("JSON"))
}

fn limit<'a>(report: &'a Value, name: &str) -> &'a Value {
    let limits = report["limits"].as_array().expect("a list");
    limits
        .iter()
        .find(|limit| limit["limit"] == name)
        .unwrap_or_else(|| unreachable!("{name} is judged: {report}"))
}

fn of_proc(file: &str) -> u64 {
    std::fs::read_to_string(file).expect(file).trim().parse().expect("a number")
}

#[test]
fn limits_of_this_machine_are_reported_with_their_formulas() {
    let (status, report) = json(&["--connections", "100", "--threads", "10", "--rate", "50"]);
    assert_eq!((status, &report["schema"]), (Some(0), &Value::from("hotrow.doctor/1")));
    assert_eq!(report["goal"]["connections"], 100);
    assert_eq!(report["enough"], true, "every machine supports so little: {report}");
    assert_eq!(
        limit(&report, "vm.max_map_count")["value"],
        of_proc("/proc/sys/vm/max_map_count").to_string()
    );
    let somaxconn = of_proc("/proc/sys/net/core/somaxconn");
    let allowed = limit(&report, "net.core.somaxconn")["allows"].as_u64().expect("a number");
    assert_eq!(allowed, (somaxconn + 1) * 10, "the queue of a tenth of a second");
    for limit in report["limits"].as_array().expect("a list") {
        let unknown = limit["enough"] == "unknown";
        assert_eq!(limit["formula"].as_str().is_none_or(str::is_empty), unknown, "{limit}");
    }
    let (status, text, err) = doctor(&["--connections", "100", "--threads", "10", "--rate", "50"]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(
        text.starts_with(
            "goal      100 connections, 10 threads, 50 requests/s (connections are kept)"
        ),
        "{text}"
    );
    assert!(text.contains("First limits reached") && !text.contains("formula"), "{text}");
    assert!(text.contains("more limits suffice: hotrow doctor --all"), "{text}");
    let (_, all, _) = doctor(&["--all"]);
    assert!(all.contains("kernel.pid_max") && all.contains("formula") && !all.contains("--all"));
}

#[test]
fn limits_below_the_goal_are_first_and_can_fail_a_script() {
    let goal = ["--connections", "1000000000", "--no-keepalive", "--rate", "1e6", "--client"];
    assert_eq!(doctor(&goal).0, Some(0), "a report alone is no failure");
    let (status, report) = json(&[&goal[..], &["--fail-below"]].concat());
    assert_eq!((status, &report["enough"]), (Some(3), &Value::from(false)));
    let limits = report["limits"].as_array().expect("a list");
    assert_eq!(limits[0]["enough"], "no");
    let margin = |limit: &Value| Some(limit["allows"].as_f64()? / limit["wanted"].as_f64()?);
    let margins: Vec<f64> =
        limits.iter().filter(|limit| limit["enough"] == "no").filter_map(margin).collect();
    assert!(margins.len() > 3 && margins.is_sorted(), "most severe first: {margins:?}");
    let (status, text, _) = doctor(&[&goal[..], &["--fail-below"]].concat());
    assert_eq!(status, Some(3));
    assert!(text.contains("sysctl -w net.ipv4.ip_local_port_range='1024 65535'"), "{text}");
    assert!(
        text.contains("/etc/sysctl.d/90-hotrow.conf")
            && text.contains("prlimit --pid PID --nofile="),
        "{text}"
    );
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [
        &["--connections", "0"][..],
        &["--threads", "x"],
        &["--rate", "-1"],
        &["--verify-limits", "files"],
    ] {
        let (status, out, err) = doctor(arguments);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
    }
    let (status, out, err) = doctor(&["--child", "{}"]);
    assert!(
        status == Some(1) && out.is_empty() && err.contains("--child is internal to hotrow doctor"),
        "{err}"
    );
}

fn limit_checks(report: &Value) -> &Vec<Value> {
    let shown = report["checks"].as_array().expect("a list");
    for check in shown {
        assert_eq!(check["holds"], true, "{check:#}");
        assert!(
            check["evidence"].as_array().is_some_and(|evidence| !evidence.is_empty()),
            "{check:#}"
        );
    }
    shown
}

/// Creates a few hundred threads.
#[test]
fn threads_are_limited_as_predicted() {
    let (status, report) = json(&["--threads", "100", "--verify-limits", "threads"]);
    assert_eq!(status, Some(0), "{report:#}");
    let shown = limit_checks(&report);
    assert!(shown.len() >= 2, "{report:#}");
    let maps = shown[0]["predicted"].as_u64().expect("a number");
    assert!(
        [200, 300, 400].contains(&maps),
        "stack, signal stack, and a guard for each that may be a map: {maps}"
    );
    assert!(
        shown[0]["evidence"].as_array().is_some_and(|evidence| evidence.len() > 2),
        "{report:#}"
    );
    // The address space ends the child by a refusal or by its death.
    let end = shown[1]["evidence"][0].as_str().unwrap_or_default();
    assert!(end.contains("refused") || end.contains("died of signal"), "{end}");
}

/// Opens a few hundred connections to a listener of its own.
#[test]
fn connections_are_limited_as_predicted() {
    let (status, report) = json(&["--connections", "1000", "--verify-limits", "connections"]);
    assert_eq!(status, Some(0), "{report:#}");
    let shown = limit_checks(&report);
    assert!(
        shown[0]["observed"].as_u64().is_some_and(|made| (200..256).contains(&made)),
        "{report:#}"
    );
    assert_eq!(
        (&shown[1]["predicted"], &shown[1]["observed"]),
        (&Value::from(33), &Value::from(33))
    );
    assert!(
        shown[1]["evidence"][1]
            .as_str()
            .is_some_and(|words| words.contains("shows 33 connections")),
        "{report:#}"
    );
}
