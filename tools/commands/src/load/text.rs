//! The result as text for a terminal, from the document of the page, and the progress line of each
//! second.

use std::fmt::Write;

use hotrow_load::format::{grouped, known};
use hotrow_load::outcome::Second;
use hotrow_load::stats::CensoredNs;

use super::html;
use super::load_result::LoadResult;

/// Longest line, in characters.
const LINE_CHARS_MAX: usize = 98;

/// Returns the complete report.
pub(super) fn report(result: &LoadResult<'_>) -> String {
    let text = hotrow_report::text::render(&html::document(result, None));
    text.lines().map(wrapped).collect::<Vec<_>>().join("\n")
}

/// Breaks a long line between words; what follows in a list is below the words of the item.
fn wrapped(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches([' ', '-']).len();
    let mut out = String::new();
    let mut length = 0;
    for word in line.split(' ') {
        let letters = word.chars().count();
        if length + letters > LINE_CHARS_MAX && length > indent {
            out.truncate(out.trim_end().len());
            let _ = write!(out, "\n{:indent$}", "");
            length = indent;
        }
        // Writing to a string cannot fail.
        let _ = write!(out, "{word} ");
        length += letters + 1;
    }
    out.truncate(out.trim_end().len());
    out
}

pub(super) fn progress(second: &Second) -> String {
    let ok = grouped(second.ok as f64);
    let mut line = format!("{:>5} s  {ok:>9} answers", second.index + 1);
    let of = |time: Option<CensoredNs>| time.map_or_else(|| "-".to_owned(), known);
    let _ = write!(line, "  p50 {:>9}  p99 {:>9}", of(second.latency.p50), of(second.latency.p99));
    let failed = second.errors + second.timeouts + second.connect_errors;
    if failed > 0 {
        let _ = write!(line, "  {failed} failed");
    }
    line
}
