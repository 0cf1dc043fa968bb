use std::fs;

use super::*;
use crate::results;
use crate::results::SCHEMA;

mod browser;
mod fixture;
mod wellformed;

/// Letters stay, figures become `0`: what is left is what a report is made of.
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
    markdown::render(&compose::document(results))
}

fn html(results: &Results) -> String {
    html::render(&compose::document(results))
}

#[test]
fn a_report_has_its_parts_in_order() {
    let text = markdown(&fixture::results(7));
    let kept: Vec<&str> = text.lines().filter(|l| l.starts_with(['#', '>']) || l.starts_with("**")).collect();
    let want = [
        "# Balancing over three limited backends, with and without a cache",
        "> What do three backends bring, each limited to a fifth of a core, and what does a cache of one second bring?",
        "**Caching for one second makes the date 0 times as fast (0 %: 0–0).**",
        "## Requests per second",
        "### date: GET /what-date-is-it",
        "### name: POST /what-is-my-name",
        "## Latency",
        "### date: GET /what-date-is-it",
        "### name: POST /what-is-my-name",
        "## CPU, and what limited each row",
        "### date: GET /what-date-is-it",
        "### name: POST /what-is-my-name",
        "## Shares of the backends",
        "## Answers by cache outcome",
        "## Further figures",
        "## How it was measured",
        "### Remarks",
    ];
    assert_eq!(kept.iter().map(|line| masked(line)).collect::<Vec<_>>(), want);
}
