//! Results as HTML pages, and comparisons of results.

use std::path::Path;

use super::*;

#[test]
fn a_result_is_written_as_a_self_contained_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("run.html");
    let file = page.to_str().expect("UTF-8");
    let (address, _) = server(OK);
    let url = format!("http://{address}/<b>?x='&y=\"");
    let run =
        ["-n", "500", "-c", "2", "--html", file, "--slo", "p99<60s", "-H", "X-Trace: secret", &url];
    let (status, out, err) = load(&run);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    let text = std::fs::read_to_string(&page).expect("the page");
    assert!(text.ends_with("</html>\n"), "{text}");
    for part in [
        "Latency by percentile",
        "Over time",
        "Objectives",
        "p99&lt;60s",
        "500 sent, 500",
        "first byte of the response",
        "connection opened",
        "requests/s with 2 requests in flight at most, none failed; ",
        "<dt>Failed</dt><dd>none",
        "Latency over time",
        "data-label=\"p99\"",
        " UTC; ",
        "Linux ",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // The script's own text has all kinds of signs.
    let (page, script) = text.split_once("<script>").expect("the script of the charts");
    for bad in ["<b>", "src=", "href=", "NaN", "Bearer"] {
        assert!(!page.contains(bad), "{bad} is in {page}");
    }
    for bad in ["https:", "http:", "fetch(", "Bearer"] {
        assert!(!script.contains(bad), "{bad} is in the script");
    }
}

/// A run that mostly failed says so first in every report, and names no limit; the second run notes
/// the first one.
#[test]
fn all_reports_begin_with_the_same_sentence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("run.html");
    let (address, _) = server("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    let url = format!("http://{address}/{{id}}");
    let run = |more: &[&str]| {
        let ids = ["-n", "5000", "-c", "2", "--ids", "1..9", &url];
        let mut command = command(&[&ids, more].concat());
        let (_, out, _) =
            outcome(command.env("XDG_CACHE_HOME", folder.path()).output().expect("it"));
        out
    };
    let sentence = "FAILED: no request was answered as expected. 100 % were 404: wrong ids?";
    let text = run(&[]);
    assert!(text.starts_with(sentence) && text.contains("5,000 sent, 0 ok"), "{text}");
    let report = json(&run(&["--json", "--html", page.to_str().expect("UTF-8")]));
    assert_eq!(report["verdict"], sentence);
    let note = report["repeated"].as_str().expect("a note");
    assert!(note.starts_with("a run with seed 1 requested the same ids"), "{note}");
    let page = std::fs::read_to_string(&page).expect("the page");
    let first = page.split_once("class=\"answer\">").expect("an answer").1;
    for part in [&sentence.replace(" %", "\u{a0}%"), "5,000 sent, 0 ok", note] {
        assert!(first.contains(part), "{part} is not in {page}");
    }
    for named in [&text, &page] {
        assert!(!named.contains("What limited it"), "{named}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_reported_before_the_run() {
    let (address, seen) = server(OK);
    let url = format!("http://{address}/");
    let (status, _, err) = load(&["--html", "/nonexistent/page.html", &url]);
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("/nonexistent/page.html cannot be written"), "{err}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("x").to_str().expect("UTF-8").to_owned();
    let (status, _, err) = load(&["--html", &file, "--csv", &file, &url]);
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("--csv and --html name the same file"), "{err}");
    assert_eq!(seen.load(SeqCst), 0, "requests were sent");
    let (status, _, err) = load(&["-n", "10", "-c", "1", "--html", "/dev/full", &url]);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("/dev/full cannot be written: No space left"), "{err}");
}

/// Writes a result as `--json` prints it, of `seconds` seconds with about `rps` answers each, and
/// returns its path.
fn saved_result(folder: &Path, name: &str, rps: f64, seconds: u32) -> String {
    let second = |i: u32| {
        let ok = rps * (1.0 + 0.01 * f64::from(i * 7 % 5));
        let us = 1e6 / ok;
        serde_json::json!({
            "second": i, "length_s": 1.0,
            "scheduled": ok as u64, "unsent": 0, "sent": ok as u64, "ok": ok as u64,
            "errors": 0, "timeouts": 0,
            "p50_us": us, "p99_us": format!(">{}", 3.0 * us), "max_us": null,
            "schedule_lag_p99_us": null,
        })
    };
    let quantiles = serde_json::json!({
        "mean": 1.0, "p50": 1e6 / rps, "p75": 1.0, "p90": 1.0, "p95": 1.0, "p99": 3e6 / rps,
        "p999": ">9.5", "max": null,
    });
    let result = serde_json::json!({
        "schema": "hotrow.load/2", "interrupted": false, "end": "complete",
        "duration_s": f64::from(seconds),
        "target": {
            "url": "http://a/", "connections": 8, "threads": 1,
            "rate": null, "arrivals": null, "keepalive": true,
        },
        "requests": {
            "scheduled": 10, "unsent": 0, "sent": 10, "ok": 10,
            "errors": 0, "timeouts": 0, "in_flight_at_end": 0,
        },
        "throughput_rps": rps, "latency_us": quantiles,
        "generator": {"limited": false}, "verdict": "Fine.",
        "seconds": (0..seconds).map(second).collect::<Vec<_>>(),
    });
    let file = folder.join(name);
    std::fs::write(&file, result.to_string()).expect("written");
    file.to_str().expect("UTF-8").to_owned()
}

#[test]
fn two_results_are_compared_by_their_seconds_with_a_caveat() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let a = saved_result(folder.path(), "a", 1000.0, 10);
    let b = saved_result(folder.path(), "b", 1200.0, 10);
    let page = folder.path().join("page.html").to_str().expect("UTF-8").to_owned();
    let (status, out, err) = load(&["compare", &a, &b, "--html", &page]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    for part in [
        "Requests/s: B is 20 % higher, better (1.20 times A's; 95 %: 1.",
        "Latency p50: B is 17 % lower, better",
        "Seconds of a run are not independent",
    ] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
    let page = std::fs::read_to_string(&page).expect("a page");
    // Both runs are laid over each other.
    for part in ["B is 20\u{a0}% higher", "\"A p99\"", "\"B p99\"", "Requests per second"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let (_, out, _) = load(&["compare", &a, &a]);
    assert!(out.contains("Requests/s: no difference shown (1.00 times A's"), "{out}");
    let (_, out, _) = load(&["compare", &saved_result(folder.path(), "c", 900.0, 2), &b]);
    assert!(
        out.contains("but 2 values on a side are too few for a conclusion (5 are needed)"),
        "{out}"
    );
}

#[test]
fn sides_of_several_runs_are_compared_by_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let side = |name: &str, rps: f64| -> Vec<String> {
        (0..6)
            .map(|i| saved_result(folder.path(), &format!("{name}{i}"), rps + f64::from(i), 3))
            .collect()
    };
    let a = side("a", 1000.0);
    let b = side("b", 800.0);
    let arguments: Vec<&str> = ["compare", "--a"]
        .into_iter()
        .chain(a.iter().map(String::as_str))
        .chain(["--b"])
        .chain(b.iter().map(String::as_str))
        .collect();
    let (status, out, err) = load(&arguments);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(
        out.contains("Requests/s: B is 20 % lower, worse") && !out.contains("Seconds of a run"),
        "{out}"
    );
}

#[test]
fn a_file_without_a_result_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let good = saved_result(folder.path(), "good", 1000.0, 5);
    let other = folder.path().join("other.json");
    let refused = |text: &str| {
        std::fs::write(&other, text).expect("written");
        let (status, out, err) = load(&["compare", &good, other.to_str().expect("UTF-8")]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{err}");
        err
    };
    for (text, why) in [
        ("not json", "other.json is no result of `hotrow load --json` (hotrow.load/2): expected"),
        (r#"{"schema":"hotrow.lab/1"}"#, r#"its schema is "hotrow.lab/1""#),
        ("[]", "it has no schema"),
        (r#"{"schema":"hotrow.load/2"}"#, "missing field"),
    ] {
        let error = refused(text);
        assert!(error.contains(why), "{why} is not in {error}");
    }
    let (status, _, err) = load(&["compare", &good, "/nonexistent.json"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("/nonexistent.json cannot be read: No such file"), "{err}");
}

/// Uses a real run's output instead of a constructed result.
#[test]
fn the_output_of_a_run_can_be_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (address, _) = server(OK);
    let file = folder.path().join("run.json");
    let (status, out, _) = load(&["--json", "-n", "200", "-c", "2", &format!("http://{address}/")]);
    assert_eq!(status, Some(0), "{out}");
    std::fs::write(&file, out).expect("written");
    let file = file.to_str().expect("UTF-8");
    let (status, out, err) = load(&["compare", file, file]);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("B over A"), "{out}");
}
