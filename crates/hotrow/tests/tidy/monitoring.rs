//! Alerts, runbook and dashboard name each other and the metrics that exist.

use std::collections::BTreeSet;

use crate::tree::Tree;
use crate::{assert_complains, assert_silent};

const RULES: &str = "packaging/monitoring/hotrow.rules.yml";
const DASHBOARD: &str = "packaging/monitoring/hotrow.dashboard.json";
const RUNBOOK: &str = "docs/reference/runbook.md";
const METRICS: &str = "docs/reference/metrics.md";
/// Suffixes of the series of a histogram.
const OF_HISTOGRAM: [&str; 3] = ["_bucket", "_count", "_sum"];

/// Each alert has a comment, of which its section of the runbook is made, and a link to that.
pub(crate) fn alerts(tree: &Tree) -> Vec<String> {
    let rules = tree.text(RULES).unwrap_or_default();
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let is_incomplete = |name: &&str| {
        let link = format!("runbook_url: {RUNBOOK}#{}\n", name.to_lowercase());
        !rules.contains(&format!("# Reference `runbook`: {name}\n")) || !rules.contains(&link)
    };
    let incomplete = alerts.filter(is_incomplete);
    incomplete.map(|name| format!("{RULES}: {name} needs a comment and a link")).collect()
}

/// Rules, dashboard and runbook use documented metrics only.
pub(crate) fn metrics(tree: &Tree) -> Vec<String> {
    let documented: BTreeSet<&str> = tree.text(METRICS).map_or_else(BTreeSet::new, |page| {
        let items = page.lines().filter_map(|line| line.strip_prefix("| `"));
        items.filter_map(|item| item.split('`').next()).collect()
    });
    let mut complaints = Vec::new();
    for path in [RULES, DASHBOARD, RUNBOOK] {
        let Some(text) = tree.text(path) else {
            complaints.push(format!("{path} is missing"));
            continue;
        };
        let unknown = names(text).into_iter().filter(|name| {
            let family = OF_HISTOGRAM.iter().find_map(|suffix| name.strip_suffix(suffix));
            !documented.contains(name) && !family.is_some_and(|name| documented.contains(name))
        });
        complaints.extend(unknown.map(|name| format!("{path}: {METRICS} has no {name}")));
    }
    complaints
}

/// Returns the names of metrics in a text. Names of recording rules have colons, and groups of
/// rules are no metrics.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_part(c));
    words
        .filter(|word| word.starts_with("hotrow_") && !word.contains(':'))
        .filter(|word| !matches!(*word, "hotrow_recordings" | "hotrow_alerts"))
        .collect()
}

#[test]
fn an_alert_without_a_section_is_found() {
    let rule = "# Reference `runbook`: HotrowDown\n#\n- alert: HotrowDown\n  \
                runbook_url: docs/reference/runbook.md#hotrowdown\n";
    assert_silent(alerts, &[(RULES, rule)]);
    for (part, other) in [("`: HotrowDown", "`: HotrowUp"), ("#hotrowdown", "#down")] {
        assert_complains(alerts, &[(RULES, &rule.replace(part, other))], "HotrowDown needs");
    }
}

#[test]
fn a_metric_that_does_not_exist_is_found() {
    let page = "| `hotrow_a_total` (`x`) | A. |\n| `hotrow_b_seconds` | Histogram. |";
    let of =
        |rules| [(METRICS, page), (RULES, rules), (DASHBOARD, ""), (RUNBOOK, "`m hotrow_a_total`")];
    assert_silent(metrics, &of("rate(hotrow_a_total[5m]) + instance:hotrow_c:rate5m"));
    assert_silent(metrics, &of("hotrow_b_seconds_bucket{le=\"1\"}"));
    assert_complains(metrics, &of("hotrow_c_total > 0"), "hotrow_c_total");
    assert_complains(metrics, &of("hotrow_a_total_x"), "hotrow_a_total_x");
}
