use std::collections::{HashMap, HashSet};

use super::*;

/// Parses a page as strictly as the format is specified, and returns its samples by series. Panics
/// at the first fault.
pub(crate) fn lint(text: &str) -> HashMap<String, f64> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line ends in a line feed");
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    let mut samples = HashMap::new();
    let mut family = "";
    let mut helped = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect(line);
            assert!(!help.is_empty() && help.ends_with('.'), "{line}: help is a sentence");
            helped = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert_eq!(name, helped, "HELP comes right before TYPE");
            assert!(kinds.insert(name, kind).is_none(), "{name} is declared twice");
            check_family(name, kind);
            family = name;
        } else {
            let (series, value) = line.rsplit_once(' ').expect(line);
            let (name, labels) = parse_series(series);
            let suffix = name
                .strip_prefix(family)
                .unwrap_or_else(|| panic!("{line}: outside of its family {family}"));
            let suffixes: &[&str] =
                if kinds[family] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}: suffix {suffix}");
            assert_eq!(labels.iter().any(|(l, _)| l == "le"), suffix == "_bucket", "{line}: le");
            let value: f64 = value.replace("Inf", "inf").parse().expect(line);
            assert!(kinds[family] == "gauge" || value >= 0.0, "{line}");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} is given twice");
        }
    }
    check_histograms(text, &samples);
    samples
}

fn check_family(name: &str, kind: &str) {
    assert!(
        name.starts_with("hotrow_")
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    );
    assert!(["counter", "gauge", "histogram"].contains(&kind), "{name}: {kind}");
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
    for unit in ["_ms", "_ns", "_us", "_milliseconds", "_kb", "_mb", "_percent"] {
        assert!(!name.trim_end_matches("_total").ends_with(unit), "{name}: base units only");
    }
    assert!(
        !["_bucket", "_sum", "_count", "_info"].iter().any(|s| name.ends_with(s)),
        "{name}: reserved suffix"
    );
}

fn parse_series(series: &str) -> (&str, Vec<(String, String)>) {
    let Some((name, rest)) = series.split_once('{') else { return (series, Vec::new()) };
    let mut rest = rest.strip_suffix('}').expect(series);
    let mut labels = Vec::new();
    let mut seen = HashSet::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").expect(series);
        assert!(
            label.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !label.starts_with("__"),
            "{series}"
        );
        assert!(seen.insert(label), "{series}: label twice");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect(series) {
                (at, '"') => break at,
                (_, '\\') => match chars.next().expect(series).1 {
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    c => panic!("{series}: escape {c}"),
                },
                (_, c) => value.push(c),
            }
        };
        labels.push((label.to_owned(), value));
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    (name, labels)
}

/// Checks each histogram: bounds and counts rise, the last bound is +Inf, and its count is
/// `_count`.
fn check_histograms(text: &str, samples: &HashMap<String, f64>) {
    let mut last: HashMap<String, (f64, f64)> = HashMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0;
        let (name, mut labels) = parse_series(series);
        let Some(at) = labels.iter().position(|(l, _)| l == "le") else { continue };
        let bound: f64 = labels.remove(at).1.replace("Inf", "inf").parse().unwrap();
        let owner = format!("{} {labels:?}", name.trim_end_matches("_bucket"));
        let count = samples[series];
        if let Some((bound_before, count_before)) = last.insert(owner, (bound, count)) {
            assert!(bound > bound_before && count >= count_before, "{line}");
        }
    }
    for (series, count) in samples {
        let (name, labels) = parse_series(series);
        if let Some(family) = name.strip_suffix("_count") {
            assert_eq!(last[&format!("{family} {labels:?}")], (f64::INFINITY, *count), "{series}");
        }
    }
}

fn worker() -> Arc<WorkerMetrics> {
    let w = WorkerMetrics::default();
    w.answered(200, CacheOutcome::Hit);
    w.answered(200, CacheOutcome::Hit);
    w.answered(404, CacheOutcome::Miss);
    w.answered(418, CacheOutcome::None);
    w.hit_latency_ns.record(1_500);
    w.hit_latency_ns.record(1_500_000);
    w.hit_latency_ns.record(60_000_000_000);
    w.ids.note(20_000, 0x9e37_79b9_7f4a_7c15);
    w.accepted.add(3);
    w.closed(CloseCause::Idle);
    w.refused(Rejection::HeadBytes);
    Arc::new(w)
}

#[test]
fn a_page_passes_the_lint_and_adds_the_workers_up() {
    let mut page = Exposition::default();
    expose(&[worker(), worker()], 20_000, &mut page);
    let samples = lint(&page.into_text());
    for (series, value) in [
        (r#"hotrow_http_requests_total{status="200",cache="hit"}"#, 4.0),
        (r#"hotrow_http_requests_total{status="404",cache="miss"}"#, 2.0),
        (r#"hotrow_http_requests_total{status="other",cache="none"}"#, 2.0),
        (r#"hotrow_http_request_duration_seconds_bucket{cache="hit",le="0.000001"}"#, 0.0),
        (r#"hotrow_http_request_duration_seconds_bucket{cache="hit",le="0.0000025"}"#, 2.0),
        (r#"hotrow_http_request_duration_seconds_bucket{cache="hit",le="0.0025"}"#, 4.0),
        (r#"hotrow_http_request_duration_seconds_bucket{cache="hit",le="10"}"#, 4.0),
        (r#"hotrow_http_request_duration_seconds_bucket{cache="hit",le="+Inf"}"#, 6.0),
        (r#"hotrow_http_request_duration_seconds_count{cache="hit"}"#, 6.0),
        (r#"hotrow_http_request_duration_seconds_sum{cache="hit"}"#, 120.003_003),
        (r#"hotrow_http_request_duration_seconds_count{cache="miss"}"#, 0.0),
        (r#"hotrow_http_refused_total{limit="header_bytes"}"#, 2.0),
        (r#"hotrow_http_connections_closed_total{cause="idle_timeout"}"#, 2.0),
        ("hotrow_http_connections", 4.0),
        (r#"hotrow_distinct_ids{day="today"}"#, 1.0),
        (r#"hotrow_distinct_ids{day="yesterday"}"#, 0.0),
    ] {
        assert_eq!(samples.get(series), Some(&value), "{series}");
    }
}

#[test]
fn labels_and_help_are_escaped() {
    let mut page = Exposition::default();
    page.gauge("hotrow_x", "Two\nlines \\ here.", [([("name", "a\"b\\c\nd,e}")], 1.5)]);
    let text = page.into_text();
    assert_eq!(
        text,
        "# HELP hotrow_x Two\\nlines \\\\ here.\n# TYPE hotrow_x \
         gauge\nhotrow_x{name=\"a\\\"b\\\\c\\nd,e}\"} 1.5\n"
    );
    lint(&text);
}

#[test]
fn non_finite_values_have_their_form() {
    let mut page = Exposition::default();
    page.gauge(
        "hotrow_x",
        "A value.",
        [
            ([("of", "a")], f64::INFINITY),
            ([("of", "b")], f64::NEG_INFINITY),
            ([("of", "c")], f64::NAN),
        ],
    );
    let text = page.into_text();
    assert!(
        text.ends_with("{of=\"a\"} +Inf\nhotrow_x{of=\"b\"} -Inf\nhotrow_x{of=\"c\"} NaN\n"),
        "{text}"
    );
}

#[test]
fn the_tables_are_in_the_order_of_their_enums() {
    assert!(OUTCOMES.iter().enumerate().all(|(i, (outcome, _))| *outcome as usize == i));
    assert!(CLOSE_CAUSES.iter().enumerate().all(|(i, (cause, _))| *cause as usize == i));
}

#[test]
fn the_lint_finds_faults() {
    let ok = "# HELP hotrow_a_total Some.\n# TYPE hotrow_a_total counter\nhotrow_a_total 1\n";
    lint(ok);
    for bad in [
        format!("{ok}{ok}"),
        ok.replace("counter", "gauge"),
        ok.replace("hotrow_a_total 1", "hotrow_b_total 1"),
        ok.replace("hotrow_a_total 1", "hotrow_a_total one"),
        ok.replace("hotrow_a_total 1", "hotrow_a_total{x=\"1} 1"),
        ok.replace("# HELP hotrow_a_total Some.\n", ""),
        format!("{ok}hotrow_a_total 2\n"),
    ] {
        assert!(std::panic::catch_unwind(|| lint(&bad)).is_err(), "{bad}");
    }
}
