//! Sizes and durations with their units, parsed and formatted; ranges that several sections share.

use std::ops::RangeInclusive;
use std::time::Duration;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const YEAR: Duration = Duration::from_hours(24 * 365);
/// Most keys of one query: with four key columns this stays below SQLite's 32,766 parameters.
pub(super) const QUERY_KEYS_MAX: usize = 8_000;
/// Range of entry lifetimes, which are always finite.
pub(super) const TTL: RangeInclusive<Duration> = ms(10)..=YEAR;
/// Range of time-outs: never zero, never too long to be useful.
pub(super) const TIMEOUT: RangeInclusive<Duration> = ms(10)..=Duration::from_hours(1);

const SIZES: [(&str, u64); 9] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

const DURATIONS_MS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) const fn s(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Parses `256MiB`, `64KB`, `512B` or `4096` as bytes. Units are case-sensitive; a space before the
/// unit is allowed.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    match unit {
        "" => Some(number),
        _ => number.checked_mul(factor(&SIZES, unit)?),
    }
}

/// Formats bytes in the largest binary unit that divides them.
pub(super) fn format_size(bytes: u64) -> String {
    let binary = SIZES.iter().filter(|(unit, _)| unit.ends_with("iB") || *unit == "B");
    format(bytes, binary, "B")
}

/// Parses `250ms`, `1s`, `5m`, `24h` or `2d`. A bare number is refused because its unit is
/// ambiguous.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    Some(Duration::from_millis(number.checked_mul(factor(&DURATIONS_MS, unit)?)?))
}

/// Formats a duration in the largest unit that divides it; fractions of a millisecond are dropped.
pub(super) fn format_duration(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // One day is shown as 24h, like other times of that order.
    let units = DURATIONS_MS.iter().filter(|(unit, factor)| *unit != "d" || ms >= 2 * factor);
    format(ms, units, "s")
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

fn factor(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
}

fn format<'a>(value: u64, units: impl Iterator<Item = &'a (&'a str, u64)>, zero: &str) -> String {
    if value == 0 {
        return format!("0{zero}");
    }
    for (unit, factor) in units {
        if value.is_multiple_of(*factor) {
            return format!("{}{unit}", value / factor);
        }
    }
    // Both lists end with the factor 1, which divides everything.
    value.to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_bytes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("16KiB", 16384),
            ("64KB", 64000),
            ("1 MiB", 1 << 20),
            ("512B", 512),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for bad in [
            "",
            "MiB",
            "1mib",
            "-1",
            "1.5MiB",
            "18446744073709551616",
            "99999999999PiB",
            "1KiB2",
            "١KiB",
        ] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, ms) in
            [("250ms", 250), ("0s", 0), ("5m", 300_000), ("24h", 86_400_000), ("2d", 172_800_000)]
        {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "1", "s", "1.5s", "-1s", "1h30m", "1 fortnight", "999999999999999999d"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(format_duration(Duration::ZERO), "0s");
        assert_eq!(format_duration(Duration::from_secs(75)), "75s");
        assert_eq!(format_duration(Duration::from_hours(24)), "24h");
        assert_eq!(format_duration(Duration::from_hours(48)), "2d");
    }

    proptest! {
        #[test]
        fn formatted_values_are_parsed_back(bytes: u64, ms in 0..u64::MAX / 2) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = (parse_size(&text), parse_duration(&text));
        }
    }
}
