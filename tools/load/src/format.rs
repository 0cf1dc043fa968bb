//! Durations and counts as text.

pub use hotrow_measure::figures::grouped;

use crate::stats::CensoredNs;

/// Formats `1 thread`, `2,000 threads`.
pub fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(n as f64))
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

/// Rounds to a number of digits after the point.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use super::*;

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
