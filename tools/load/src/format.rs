//! Durations and counts as text.

use crate::stats::CensoredNs;

/// Formats `1 thread`, `2 threads`.
pub fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// Formats a duration; one that is only known to be longer begins with `>`.
pub fn known(value: CensoredNs) -> String {
    match value {
        CensoredNs::Exact(ns) => duration(ns),
        CensoredNs::AtLeast(ns) => format!(">{}", duration(ns)),
    }
}

/// Formats three or four significant digits in a suitable unit.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.3} s", value / 1e9),
    }
}

/// Formats a whole number, not negative, with commas between thousands.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = vec![&digits[..first]];
    groups.extend((first..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.into_iter().filter(|group| !group.is_empty()).collect::<Vec<_>>().join(",")
}

/// Rounds to a number of digits after the point.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            [0.0, 999.4, 1000.0, 140_000.0, 1_234_567.0].map(grouped),
            ["0", "999", "1,000", "140,000", "1,234,567"]
        );
    }

    #[test]
    fn durations_have_a_fitting_unit() {
        assert_eq!(
            [999, 1_500, 2_345_678, 61_000_000_000].map(duration),
            ["999 ns", "1.5 µs", "2.35 ms", "61.000 s"]
        );
        assert_eq!([counted(1, "thread"), counted(2, "thread")], ["1 thread", "2 threads"]);
        assert_eq!(known(CensoredNs::AtLeast(10_000_000_000)), ">10.000 s");
    }
}
