//! Formatting of figures. A value that is not a number becomes a dash.

use hotrow_measure::calendar::{iso_date, iso_time};
pub use hotrow_measure::figures::grouped;
use hotrow_measure::statistics::{Estimate, Spread};

const NOTHING: &str = "–";

/// Formats a number with three or four significant digits and thousands separators: `0.0420`,
/// `0.832`, `8.31`, `48.3`, `2,241`, `70,364`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => NOTHING.to_owned(),
        0.0 => "0".to_owned(),
        _ if size < 0.0001 => format!("{value:.1e}"),
        _ if size < 0.1 => format!("{value:.4}"),
        _ if size < 0.9995 => format!("{value:.3}"),
        _ if size < 9.995 => format!("{value:.2}"),
        _ if size < 99.95 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

/// Formats a ratio with the digits that an interval of some per cent supports: `0.83`, `1.04`,
/// `4.6`, `12.3`, `31`.
pub fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => NOTHING.to_owned(),
        _ if value < 0.095 => format!("{value:.3}"),
        _ if value < 1.995 => format!("{value:.2}"),
        _ if value < 19.95 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

/// Formats the two ends of a ratio's interval.
pub fn ratio_ends(low: f64, high: f64, between: &str) -> String {
    format!("{}{between}{}", ratio(low), ratio(high))
}

/// Formats a time in µs, in a suitable unit.
pub fn micros(us: f64) -> String {
    match us {
        _ if !us.is_finite() => NOTHING.to_owned(),
        _ if us < 9.995 => format!("{us:.2} µs"),
        _ if us < 999.5 => format!("{us:.0} µs"),
        _ if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        _ if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        _ if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

/// Formats a share of 1 as a percentage.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value {
        _ if !value.is_finite() => NOTHING.to_owned(),
        // A value just above none or below all must not look like it.
        _ if value > 0.0 && value < 0.05 => "<0.1 %".to_owned(),
        _ if value > 99.95 && value < 100.0 => ">99.9 %".to_owned(),
        _ if value == 0.0 || (9.95..99.5).contains(&value) || value >= 100.0 => {
            format!("{value:.0} %")
        }
        _ => format!("{value:.1} %"),
    }
}

/// Formats cores.
pub fn cores(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { NOTHING.to_owned() }
}

/// Formats bytes in a suitable binary unit.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let digits = usize::from(unit > 0 && value < 9.95);
    if value.is_finite() { format!("{value:.digits$} {}", UNITS[unit]) } else { NOTHING.to_owned() }
}

/// Formats the two ends of an estimate by `format`; empty for a single value.
pub fn ends(estimate: &Estimate, format: impl Fn(f64) -> String) -> String {
    let (low, high) = (format(estimate.low), format(estimate.high));
    match estimate.spread {
        Spread::Interval => format!("{low} – {high}"),
        Spread::Range if estimate.values > 1 => format!("{low} … {high}"),
        Spread::Range => String::new(),
    }
}

/// Formats seconds since 1970 as UTC: `2026-11-21 23:05 UTC`.
pub fn date(unix_s: u64) -> String {
    let time = iso_time(unix_s);
    format!("{} {} UTC", iso_date(unix_s), &time[..time.len() - ":00".len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_significant_digits() {
        let texts = [0.0, 0.00001, 0.042, 0.8321, 8.314, 48.26, 99.96, 2241.4, 70364.0, -1234.0]
            .map(number);
        assert_eq!(
            texts,
            ["0", "1.0e-5", "0.0420", "0.832", "8.31", "48.3", "100", "2,241", "70,364", "−1,234"]
        );
        assert_eq!(
            [0.0123, 0.826, 1.0, 1.996, 4.6, 12.34, 31.4].map(ratio),
            ["0.012", "0.83", "1.00", "2.0", "4.6", "12.3", "31"]
        );
        let times = [5.0, 250.0, 999.6, 12_345.0, 123_456.0, 2e6].map(micros);
        assert_eq!(times, ["5.00 µs", "250 µs", "1.00 ms", "12.3 ms", "123 ms", "2.00 s"]);
        assert_eq!(
            [0.0, 0.0001, 0.034, 0.8, 0.997, 0.9999, 1.0, 1.5].map(percent),
            ["0 %", "<0.1 %", "3.4 %", "80 %", "99.7 %", ">99.9 %", "100 %", "150 %"]
        );
        assert_eq!([512.0, 4e6, 25.2e9].map(bytes), ["512 B", "3.8 MiB", "23 GiB"]);
    }

    #[test]
    fn a_value_that_is_not_a_number_is_a_dash() {
        for format in [number, grouped, ratio, micros, percent, bytes, cores] {
            assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(format), [NOTHING; 3]);
        }
    }

    #[test]
    fn dates_match_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_301_130), "2026-11-21 22:45 UTC");
    }
}
