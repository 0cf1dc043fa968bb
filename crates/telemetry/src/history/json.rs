//! The JSON of `/history`: one list per series, so that a chart takes it as it is and a name is
//! sent once.

use std::fmt::Write as _;

use super::recorder::{HEAT_ROWS, Lookups, Recorder, SAMPLES_MAX, Sample, heat_bound_ns};
use super::series::Series;

/// Facts of the process around the samples.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Lead of the wall clock over the process's clock.
    pub wall_lead_ns: u64,
    /// Start of the process's service and present time, in Unix time.
    pub started_unix_ms: u64,
    /// Unix time of the answer.
    pub now_unix_ms: u64,
    /// Time between two samples.
    pub period_ms: u64,
}

/// Writes the samples from number `since` on; all of them if that number is not kept or lies ahead,
/// as after a restart.
pub(crate) fn history(recorder: &Recorder, since: u64, frame: Frame) -> String {
    let kept = recorder.samples().len();
    let first = recorder.next() - kept as u64;
    let skipped = match since {
        since if since > recorder.next() => 0,
        since => usize::try_from(since.saturating_sub(first)).unwrap_or(kept).min(kept),
    };
    let samples = || recorder.samples().range(skipped..);
    let mut out = String::with_capacity(4_096);
    let Frame { started_unix_ms, now_unix_ms, period_ms, .. } = frame;
    let _ = write!(
        out,
        concat!(
            r#"{{"started_unix_ms":{},"now_unix_ms":{},"period_ms":{},"samples_max":{},"#,
            r#""first":{},"next":{},"at_unix_ms":"#
        ),
        started_unix_ms,
        now_unix_ms,
        period_ms,
        SAMPLES_MAX,
        first + skipped as u64,
        recorder.next(),
    );
    let at = |sample: &Sample| sample.at.0.saturating_add(frame.wall_lead_ns) / 1_000_000;
    list(&mut out, samples(), |out, sample| _ = write!(out, "{}", at(sample)));
    out.push_str(r#","interval_ms":"#);
    list(&mut out, samples(), |out, sample| _ = write!(out, "{}", sample.interval_ns / 1_000_000));
    out.push_str(r#","series":{"#);
    for (i, series) in Series::ALL.iter().enumerate() {
        let _ = write!(out, "{}\"{}\":", comma(i), series.label());
        list(&mut out, samples(), |out, sample| number(out, sample.values[*series as usize]));
    }
    out.push_str(r#"},"heat":{"bounds_us":"#);
    list(&mut out, 0..HEAT_ROWS - 1, |out, row| number(out, heat_bound_ns(row) as f32 / 1e3));
    out.push_str(r#","counts":"#);
    list(&mut out, samples(), |out, sample| row_counts(out, &sample.heat));
    out.push_str(r#"},"collections":{"#);
    for (i, own) in recorder.collections().iter().enumerate() {
        // A collection's name comes from the configuration and may have any character.
        let name = serde_json::Value::from(own.name.as_str());
        let _ = write!(out, "{}{name}:", comma(i));
        lookups(&mut out, || own.lookups.range(skipped..));
    }
    out.push_str(r#"},"other_collections":"#);
    lookups(&mut out, || recorder.others().range(skipped..));
    out.push('}');
    out
}

fn comma(index: usize) -> &'static str {
    if index == 0 { "" } else { "," }
}

fn list<T>(out: &mut String, items: impl Iterator<Item = T>, write: impl Fn(&mut String, T)) {
    out.push('[');
    for (i, item) in items.enumerate() {
        out.push_str(comma(i));
        write(out, item);
    }
    out.push(']');
}

fn lookups<'a, I: Iterator<Item = &'a Lookups>>(out: &mut String, items: impl Fn() -> I) {
    out.push_str(r#"{"memory":"#);
    list(out, items(), |out, item| number(out, item.memory));
    out.push_str(r#","database":"#);
    list(out, items(), |out, item| number(out, item.database));
    out.push('}');
}

/// Writes the first row with a count and the counts up to the last: `[12,3,0,7]`; `[]` without any.
fn row_counts(out: &mut String, counts: &[u32; HEAT_ROWS]) {
    let first = counts.iter().position(|count| *count > 0);
    let last = counts.iter().rposition(|count| *count > 0);
    let (Some(first), Some(last)) = (first, last) else { return out.push_str("[]") };
    let _ = write!(out, "[{first}");
    counts[first..=last].iter().for_each(|count| _ = write!(out, ",{count}"));
    out.push(']');
}

/// Writes a number with about four significant digits; `null` if it is unknown.
fn number(out: &mut String, value: f32) {
    if !value.is_finite() {
        out.push_str("null");
        return;
    }
    let decimals = match value.abs() {
        size if size >= 1_000.0 || value.fract() == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let before = out.len();
    let _ = write!(out, "{value:.decimals$}");
    if decimals > 0 {
        let kept = out[before..].trim_end_matches('0').trim_end_matches('.').len();
        out.truncate(before + kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_valid() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (0.00001, "0"),
            (12.3456, "12.35"),
            (100.04, "100"),
            (123.46, "123.5"),
            (98_765.4, "98765"),
            (3e9, "3000000000"),
            (f32::NAN, "null"),
            (f32::INFINITY, "null"),
        ] {
            let mut out = String::new();
            number(&mut out, value);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn counts_of_the_heat_map_begin_with_their_row() {
        let mut counts = [0; HEAT_ROWS];
        let written = |counts: &[u32; HEAT_ROWS]| {
            let mut out = String::new();
            row_counts(&mut out, counts);
            out
        };
        assert_eq!(written(&counts), "[]");
        counts[12] = 3;
        counts[14] = 7;
        assert_eq!(written(&counts), "[12,3,0,7]");
    }
}
