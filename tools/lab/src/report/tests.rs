use std::fs;
use std::path::PathBuf;

use hotrow_report::markdown;

use super::*;
use hotrow_results as results;

mod browser;
pub(super) mod fixture;
mod parts;
mod wellformed;

/// Replaces digits by `0`; the rest is the structure of a report.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        let figure = |c: char| matches!(c, '0' | '.' | ',');
        if !(figure(c) && out.ends_with('0')) || (c != '0' && !figure(c)) {
            out.push(c);
        }
    }
    out
}

fn markdown(results: &Results) -> String {
    hotrow_report::markdown::render(&compose::document(results))
}

fn html_page(results: &Results) -> String {
    hotrow_report::html::render(&compose::document(results))
}

/// Returns the cells of all tables in a Markdown text.
fn tables(markdown: &str) -> Vec<Vec<Vec<String>>> {
    let lines: Vec<&str> = markdown.lines().collect();
    let tables = lines.split(|line| !line.starts_with("| ")).filter(|table| !table.is_empty());
    let cells = |line: &&str| {
        let text = line.replace("\\|", "¦");
        text.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    tables.map(|table| table.iter().map(cells).collect()).collect()
}

#[test]
fn a_report_has_its_parts_in_order() {
    let text = markdown(&fixture::results(7));
    let kept: Vec<&str> =
        text.lines().filter(|l| l.starts_with(['#', '>']) || l.starts_with("**")).collect();
    let want = [
        "# Balancing over three limited backends, with and without a cache",
        "> What do three backends bring, each limited to a fifth of a core, and what does a cache \
         of one second bring?",
        "**Caching for one second makes the date 0 times as fast (0 %: 0–0).**",
        "## Requests per second",
        "### date: GET /what-date-is-it",
        "### name: POST /what-is-my-name",
        "## Latency",
        "### date: GET /what-date-is-it",
        "### name: POST /what-is-my-name",
        "## CPU and bottleneck of each row",
        "### date: GET /what-date-is-it",
        "### name: POST /what-is-my-name",
        "### Evidence for the limits",
        "## Shares of the backends",
        "## Answers by cache outcome",
        "## Further figures",
        "## Method",
        "### Warnings",
    ];
    assert_eq!(kept.iter().map(|line| masked(line)).collect::<Vec<_>>(), want);
    assert!(text.contains("The published ratio is 7.6 (3,893 against 514 requests/s)."), "{text}");
}

#[test]
fn tables_have_the_published_columns() {
    let tables = tables(&markdown(&fixture::results(7)));
    let heads: Vec<String> = tables.iter().map(|table| table[0].join(" ")).collect();
    let rates = "Deployment Proxy Caching Balancing Connections Requests/s Ratio Published \
                 Published ratio Limited by";
    let latencies = "Deployment p50 p90 p95 p99 p99.9 max Published";
    let cpu = "Deployment Service Proxy Generator Cores used Memory Limited by";
    let seen = "Deployment Limited by Evidence Remedy";
    let more = [
        seen,
        "Deployment Backend Weight By weight Served Requests",
        "Deployment HIT EXPIRED UPDATING",
        "Deployment hit ratio",
    ];
    let want = [rates, rates, latencies, latencies, cpu, cpu].into_iter().chain(more);
    assert_eq!(heads, want.collect::<Vec<_>>());
    let masked = |row: &[String]| masked(&row.join(" | "));
    let first = &tables[0];
    assert_eq!(first.len(), 2 + 10);
    assert_eq!(
        masked(&first[2]),
        "direct | none | none | none | 0 | **0** (0 – 0) | 0 | 0 | 0 | its one connection"
    );
    let cached = "three backends, cache | nginx, published profile | 0 s in nginx | round robin \
                  over 0 | 0 | **0** (0 – 0) | 0 (0 – 0) | 0 | 0 | its one connection";
    assert_eq!(masked(&first[5]), cached);
    let shares: Vec<&str> =
        tables[7].iter().filter(|row| row[2] == "4").map(|row| row[4].as_str()).collect();
    assert_eq!(shares, ["67 %"; 4], "four of six");
    assert_eq!(
        tables[4][8][6],
        "the CPU limit of the service (0.20 of 0.20 cores) (7 of 7 rounds)"
    );
    assert_eq!(
        tables[4][7][6],
        "the CPU limit of the service (0.20 of 0.20 cores) (7 of 7 rounds, 95 % confidence)"
    );
    let seen = "direct, 6 connections, date | CPU limit of the service | the group of date-1 was \
                throttled in 388 of 400 periods; it used 0.20 CPUs | twice the quota doubles the \
                rate";
    assert_eq!(tables[6][2].join(" | "), seen);
}

#[test]
fn pages_are_well_formed_and_self_contained() {
    let none = Vec::<String>::new();
    for results in [fixture::results(7), fixture::results(1), fixture::odd_results()] {
        assert_eq!(wellformed::complaints(&html_page(&results)), none);
        for text in [html_page(&results), markdown(&results)] {
            let checked = text.replace("preferred", "").replace("info", "");
            assert!(
                !checked.contains("NaN") && !checked.contains("inf ") && !checked.contains("inf<"),
                "{checked}"
            );
        }
    }
    let page = html_page(&fixture::odd_results());
    assert!(
        page.contains("&lt;script&gt;alert(&#39;t&#39;)&lt;/script&gt;")
            && !page.contains('\u{202e}'),
        "{page}"
    );
}

#[test]
fn names_cannot_break_out_of_markdown() {
    let text = markdown(&fixture::odd_results());
    for table in tables(&text) {
        let wrong: Vec<_> = table.iter().filter(|row| row.len() != table[0].len()).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
    // Text that a reader's program would take as markup is escaped, or in a code block or span.
    for bad in ["<script", "<img", "<b>", "<ights", "\u{202e}", "\u{0}"] {
        let outside = text.replace("'</code><script>'", "").replace(&format!("\\{bad}"), "");
        assert!(!outside.contains(bad), "{bad:?} in {outside}");
    }
    assert!(
        text.contains("# \\<script>alert('t')\\</script> \\| \\*bold\\* \\](http://evil.example/)"),
        "{text}"
    );
    assert!(text.contains("````\nhotrow-lab run '</code><script>' ```\n````"), "{text}");
}

#[test]
fn failed_rows_have_reasons_and_no_figures() {
    let text = markdown(&fixture::odd_results());
    let rates = &tables(&text)[0..2];
    let of = |deployment: &str, connections: &str, table: &Vec<Vec<String>>| {
        let found = table.iter().find(|row| row[0].contains(deployment) && row[4] == connections);
        found.map(|row| row[6].clone()).unwrap_or_default()
    };
    assert_eq!(of("direct", "6", &rates[1]), "**FAILED**");
    assert_eq!(of("one backend", "6", &rates[0]), "**FAILED**");
    assert_eq!(of("three backends", "1", &rates[0]), "**FAILED**", "lost answers make it invalid");
    assert!(
        of("three backends", "6", &rates[0]).starts_with("**≥ "),
        "its generator was the limit"
    );
    assert_eq!(of("longer than any column", "6", &rates[1]), "not measured");
    for reason in [
        "this run is not complete: 38 of 40 measurements were made.",
        "3 rows of 20 failed",
        "direct, name, 6 connections, TLS \\| \\<x>: off, round 2: status 502 \\<b>twice\\</b> \\| \
         at 3 s",
        "round 1: it has no result",
        "round 1: some answers were lost, broken or unexpected",
        "Two more backends make the date …: not known, because",
    ] {
        assert!(text.contains(reason), "{reason} is not in {text}");
    }
}

#[test]
fn a_row_with_a_fault_may_have_failed_requests() {
    let mut results = fixture::odd_results();
    let reason = "some answers were lost";
    assert!(markdown(&results).contains(reason));
    results.rows.iter_mut().for_each(|row| row.fault = true);
    let text = markdown(&results);
    assert!(!text.contains(reason), "{text}");
    assert!(text.contains("2 rows of 20 failed"), "{text}");
}

#[test]
fn few_rounds_give_no_certain_answer() {
    let one = markdown(&fixture::results(1));
    assert!(one.contains("but that is uncertain (1 round is too few; 5 are needed)"), "{one}");
    let three = markdown(&fixture::results(3));
    assert!(
        three.contains("3 rounds are too few; range")
            && three.contains("an interval needs 5 rounds"),
        "{three}"
    );
}

#[test]
fn an_experiment_without_rows_or_questions_has_a_report() {
    let mut empty = fixture::results(1);
    (empty.rows, empty.measurements) = (Vec::new(), Vec::new());
    assert!(
        markdown(&empty)
            .contains("not known, because there is no row \"three backends, cache/date/6\"")
    );
    assert_eq!(wellformed::complaints(&html_page(&empty)), Vec::<String>::new());
    let mut plain = fixture::results(5);
    plain.experiment.compare.clear();
    let text = markdown(&plain);
    assert!(
        masked(&text).contains("**From 0 requests/s (weights, date, 0 connection) to"),
        "{text}"
    );
}

#[test]
fn a_report_can_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let results = fixture::results(5);
    fs::write(at(results::FILE), serde_json::to_string(&results).unwrap()).unwrap();
    fs::write(at(HTML_FILE), "old").unwrap();
    let written = write(folder.path()).unwrap();
    assert!(
        written.answer.starts_with("Caching for one second makes the date 1"),
        "{}",
        written.answer
    );
    assert_eq!(fs::read_to_string(&written.html).unwrap(), html_page(&results));
    assert_eq!(fs::read_to_string(&written.markdown).unwrap(), markdown(&results));
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [HTML_FILE, MARKDOWN_FILE, results::FILE]);
}

#[test]
fn invalid_figures_do_not_make_the_others_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let mut odd = fixture::odd_results();
    odd.measurements[0].figures =
        vec![("x".to_owned(), f64::NAN, String::new()), ("y".to_owned(), 2.0, String::new())];
    odd.measurements[0].tiers[0].cpu_s = f64::INFINITY;
    fs::write(folder.path().join(results::FILE), serde_json::to_string(&odd).unwrap()).unwrap();
    let kept = read(folder.path()).unwrap();
    assert_eq!(kept.measurements[0].figures, [("y".to_owned(), 2.0, String::new())]);
    assert_eq!(wellformed::complaints(&html_page(&kept)), Vec::<String>::new());
}

#[test]
fn an_answer_has_the_further_figures_of_both_rows() {
    let mut results = fixture::results(5);
    for measurement in &mut results.measurements {
        let ratio = if measurement.row.starts_with("three backends, cache") { 0.8125 } else { 0.5 };
        measurement.figures = vec![
            ("hit ratio".to_owned(), ratio, String::new()),
            ("held".to_owned(), 2048.0, "B".to_owned()),
        ];
    }
    let text = markdown(&results);
    assert!(
        text.contains(
            "Further figures: hit ratio 0.812 against 0.500; held 2.0 KiB against 2.0 KiB."
        ),
        "{text}"
    );
}

#[test]
fn a_comparison_by_figure_is_answered_by_it() {
    let answered = |rounds: u32, ours: fn(u32) -> f64, figure: &str| {
        let mut results = fixture::results(rounds);
        for measurement in &mut results.measurements {
            let cached = measurement.row.starts_with("three backends, cache");
            let value = if cached { ours(measurement.round) } else { 0.5 };
            measurement.figures = vec![("hit ratio".to_owned(), value, String::new())];
        }
        results.experiment.compare[0].figure = Some(figure.to_owned());
        markdown(&results)
    };
    for (rounds, ours, figure, wanted) in [
        (5, (|_| 0.8125) as fn(u32) -> f64, "hit ratio", ": hit ratio 0.812 against 0.500."),
        (
            5,
            |_| 0.5,
            "hit ratio",
            ": hit ratio 0.500 against 0.500, which is no significant difference in this run.",
        ),
        (
            2,
            |round| 0.8 + f64::from(round) / 100.0,
            "hit ratio",
            " against 0.500, but that is uncertain, because there were",
        ),
        (5, |_| 0.5, "queries", ": not known, because a row has no figure \"queries\"."),
    ] {
        let text = answered(rounds, ours, figure);
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn invalid_results_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(results::FILE);
    let refused = |text: &str| {
        fs::write(&file, text).unwrap();
        write(folder.path()).unwrap_err().to_string()
    };
    for (text, why) in [
        ("{", "is not hotrow.lab/2: EOF"),
        ("{}", "it has no schema"),
        (r#"{"schema":"hotrow.load/1"}"#, r#"its schema is "hotrow.load/1""#),
        (r#"{"schema":"hotrow.lab/2"}"#, "missing field `experiment`"),
    ] {
        let error = refused(text);
        assert!(error.contains(why) && error.contains(results::FILE), "{error}");
    }
    let error = write(Path::new("/nonexistent")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/results.json cannot be read: No such file"), "{error}");
    // A folder at the path of the new file represents every write failure.
    fs::write(&file, serde_json::to_string(&fixture::results(1)).unwrap()).unwrap();
    fs::create_dir(folder.path().join("report.md.new")).unwrap();
    let error = write(folder.path()).unwrap_err().to_string();
    assert!(error.contains("report.md cannot be written: Is a directory"), "{error}");
}

/// Returns the runs of earlier versions.
fn kept() -> Vec<PathBuf> {
    let runs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
    let folders = std::fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join(results::FILE).exists()).collect()
}

#[test]
fn kept_runs_can_still_be_read_and_compared() {
    let mut old = 0;
    for folder in kept() {
        let results = read(&folder).unwrap();
        old += usize::from(
            results.measurements.iter().all(|measurement| measurement.findings.is_empty()),
        );
        let report = markdown::render(&compose::document(&results));
        assert!(report.contains("bottleneck of each row"), "{folder:?}: {report}");
        let compared = markdown::render(&compare::document(&results, &results).unwrap());
        assert!(compared.contains("Limited by"), "{folder:?}: {compared}");
    }
    assert!(old >= 5, "{old} runs without findings are kept: the test shows too little");
}
