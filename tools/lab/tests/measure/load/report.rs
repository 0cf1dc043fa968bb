//! The report: JSON as documented, text, exit status.

use std::time::{Duration, Instant};

use super::*;

/// Checks values that are always there, and the identities between the figures; the names are those
/// of the documentation (`each_key_is_described`).
#[test]
fn the_report_is_the_documented_one() {
    let (address, seen) = server(OK);
    let url = format!("http://{address}/");
    let (status, out, err) = load(&[
        "--json", "-c", "3", "-t", "2", "-d", "400ms", "--rate", "500", "--slo", "p99<60s", &url,
    ]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert_eq!(out.lines().count(), 1, "{out}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    for key in [
        "schema",
        "duration_s",
        "throughput_rps",
        "rate_ratio",
        "status",
        "verdict",
        "interrupted",
        "end",
    ] {
        assert!(report.get(key).is_some_and(|v| !v.is_null()), "{key} in {report:#}");
    }
    let of = |name: &str| number(&report, &format!("/requests/{name}"));
    assert_eq!(of("scheduled"), 200);
    assert_conserved(&report);
    assert_eq!((of("sent"), number(&report, "/status/200")), (seen.load(SeqCst), of("ok")));
}

#[test]
fn without_json_the_report_is_text() {
    let (address, _) = server(OK);
    let (status, out, err) = load(&["-n", "100", "-c", "2", &format!("http://{address}/")]);
    assert_eq!((status, err.as_str()), (Some(0), ""), "progress needs a terminal");
    for part in ["100 sent, 100 ok", "p99.9", "Sent late by", "Generator"] {
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
    assert!(
        p50.strip_prefix('>')
            .and_then(|us| us.parse::<f64>().ok())
            .is_some_and(|us| us >= 100_000.0),
        "{p50}"
    );
}

/// The identities hold for every kind of response.
#[test]
fn nothing_is_lost_or_counted_twice() {
    for (answer, more) in [
        (OK, &["-c", "7", "-t", "2", "-n", "500"][..]),
        (OK, &["-c", "3", "--no-keepalive", "-n", "100"]),
        (OK, &["-c", "2", "-d", "1200ms", "--rate", "300", "--arrivals", "poisson"]),
        ("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", &["-c", "4", "-n", "200"]),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnever",
            &["-c", "4", "--rate", "50", "-d", "1s", "--timeout", "200ms"],
        ),
        ("what is this\r\n", &["-c", "4", "-n", "50"]),
    ] {
        let (address, seen) = server(answer);
        let (_, out, err) = load(&[more, &["--json", &format!("http://{address}/")]].concat());
        assert!(!out.is_empty(), "{err}");
        let report = json(&out);
        assert_conserved(&report);
        // A thread of the server may not have counted its last request yet.
        let sent = number(&report, "/requests/sent");
        let begun = Instant::now();
        while seen.load(SeqCst) < sent && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sent, seen.load(SeqCst), "{answer:?} {more:?}: {report:#}");
    }
}

#[test]
fn objectives_decide_the_exit_status_and_are_named() {
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let run = |slo: &str, more: &[&str]| {
        load(&[&["-n", "100", "-c", "2", "--slo", slo, &url], more].concat())
    };
    let (status, out, err) = run("p99<60s,service.max<60s,errors<=0,rate>0", &[]);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    let is_met = |line: &str| line.contains("p99<60s ") && line.contains(" met ");
    assert!(out.lines().any(is_met) && !out.contains("MISSED"), "{out}");
    let (status, out, _) = run("p99<60s,max<1us,rate>=1000000", &[]);
    assert_eq!(status, Some(3), "{out}");
    assert!(
        out.contains("max<1us") && out.contains("times the bound") && out.contains("too little"),
        "{out}"
    );
    let (status, out, err) = run("errors<=0,p50<1us", &["--json"]);
    let report = json(&out);
    assert_eq!(
        (status, report["slo"][0]["met"].as_bool(), report["slo"][1]["met"].as_bool()),
        (Some(3), Some(true), Some(false))
    );
    assert_eq!(
        (&report["slo"][1]["objective"], &report["slo"][0]["value"]),
        (&Value::from("p50<1us"), &Value::from(0.0))
    );
    assert!(report["slo"][1]["value"].as_f64().is_some_and(|us| us > 1.0), "{report:#}");
    assert!(err.contains("p50<1us") && err.lines().count() == 1, "{err}");
}

/// The percentile falls among timed-out requests, so no upper bound can be met.
#[test]
fn time_outs_violate_an_objective() {
    let (address, _) = server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
    let url = format!("http://{address}/");
    let arguments = [
        "--json",
        "-n",
        "4",
        "-c",
        "4",
        "--timeout",
        "100ms",
        "--slo",
        "p99<60s,errors<100%",
        &url,
    ];
    let (status, out, _) = load(&arguments);
    let report = json(&out);
    assert_eq!(status, Some(1), "no request was answered, so there is no result");
    assert!(
        report["slo"][0]["value"].as_str().is_some_and(|value| value.starts_with('>')),
        "{report:#}"
    );
    assert_eq!(
        (&report["slo"][0]["met"], &report["slo"][1]["met"]),
        (&Value::Bool(false), &Value::Bool(false))
    );
}

#[test]
fn percentiles_are_printed_on_demand() {
    let (address, _) = server(OK);
    let (status, out, _) =
        load(&["-n", "100", "-c", "2", "--percentiles", &format!("http://{address}/")]);
    assert_eq!(status, Some(0), "{out}");
    assert!(
        out.contains("1/(1-Percentile)") && out.contains("Total count    =          100]"),
        "{out}"
    );
}
