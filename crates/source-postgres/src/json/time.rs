//! Dates and times. In years 1 to 9999 the forms are those of RFC 3339; before and after, and for
//! infinities, they are PostgreSQL's ISO style.

use std::io::Write as _;

use hotrow_measure::calendar::{CivilDate, civil_date};

use super::quoted;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_MINUTE: i64 = 60 * MICROS_PER_SECOND;
const MICROS_PER_HOUR: i64 = 60 * MICROS_PER_MINUTE;
const MICROS_PER_DAY: i64 = 24 * MICROS_PER_HOUR;
/// Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
const EPOCH_DAYS: i64 = 10_957;

/// Writes `2024-02-29`.
pub(super) fn write_date(out: &mut Vec<u8>, days: i32) {
    quoted(out, |out| match days {
        i32::MAX => out.extend_from_slice(b"infinity"),
        i32::MIN => out.extend_from_slice(b"-infinity"),
        _ => {
            let era = write_day(out, i64::from(days));
            out.extend_from_slice(era);
        }
    });
}

/// Writes `2024-02-29T12:00:00.5` and the zone.
pub(super) fn write_timestamp(out: &mut Vec<u8>, micros: i64, zone: &str) {
    quoted(out, |out| match micros {
        i64::MAX => out.extend_from_slice(b"infinity"),
        i64::MIN => out.extend_from_slice(b"-infinity"),
        _ => {
            let era = write_day(out, micros.div_euclid(MICROS_PER_DAY));
            out.push(b'T');
            write_clock(out, micros.rem_euclid(MICROS_PER_DAY));
            out.extend_from_slice(zone.as_bytes());
            out.extend_from_slice(era);
        }
    });
}

/// Writes `23:59:59.999999`; `24:00:00` is possible.
pub(super) fn write_time(out: &mut Vec<u8>, micros: i64) {
    quoted(out, |out| write_clock(out, micros));
}

/// Writes `12:00:00+05:30`, with seconds of the zone if there are any. PostgreSQL counts zones
/// westwards.
pub(super) fn write_timetz(out: &mut Vec<u8>, micros: i64, west_seconds: i32) {
    quoted(out, |out| {
        write_clock(out, micros);
        let east = -i64::from(west_seconds);
        let seconds = east.abs();
        let sign = if east < 0 { '-' } else { '+' };
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{sign}{:02}:{:02}", seconds / 3600, seconds / 60 % 60);
        if seconds % 60 != 0 {
            let _ = write!(out, ":{:02}", seconds % 60);
        }
    });
}

/// Writes ISO 8601 with designators, `P1Y2M3DT4H5M6.7S`, each part with its own sign as PostgreSQL
/// prints it.
pub(super) fn write_interval(out: &mut Vec<u8>, micros: i64, days: i32, months: i32) {
    quoted(out, |out| match (micros, days, months) {
        (0, 0, 0) => out.extend_from_slice(b"PT0S"),
        (i64::MAX, i32::MAX, i32::MAX) => out.extend_from_slice(b"infinity"),
        (i64::MIN, i32::MIN, i32::MIN) => out.extend_from_slice(b"-infinity"),
        _ => {
            out.push(b'P');
            write_part(out, i64::from(months / 12), b'Y');
            write_part(out, i64::from(months % 12), b'M');
            write_part(out, i64::from(days), b'D');
            if micros != 0 {
                out.push(b'T');
            }
            write_part(out, micros / MICROS_PER_HOUR, b'H');
            write_part(out, micros % MICROS_PER_HOUR / MICROS_PER_MINUTE, b'M');
            let rest = micros % MICROS_PER_MINUTE;
            if rest != 0 {
                let sign = if rest < 0 { "-" } else { "" };
                let _ = write!(out, "{sign}{}", rest.abs() / MICROS_PER_SECOND);
                write_fraction(out, rest.abs() % MICROS_PER_SECOND);
                out.push(b'S');
            }
        }
    });
}

fn write_part(out: &mut Vec<u8>, value: i64, unit: u8) {
    if value != 0 {
        let _ = write!(out, "{value}");
        out.push(unit);
    }
}

/// Writes a day of the Gregorian calendar, counted from 2000-01-01. Returns the suffix of the era.
fn write_day(out: &mut Vec<u8>, days: i64) -> &'static [u8] {
    let CivilDate { year, month, day } = civil_date(days + EPOCH_DAYS);
    // The year before 1 is 1 BC.
    let (year, era): (i64, &[u8]) = if year > 0 { (year, b"") } else { (1 - year, b" BC") };
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
    era
}

fn write_clock(out: &mut Vec<u8>, micros: i64) {
    let hours = micros / MICROS_PER_HOUR;
    let minutes = micros / MICROS_PER_MINUTE % 60;
    let seconds = micros / MICROS_PER_SECOND % 60;
    let _ = write!(out, "{hours:02}:{minutes:02}:{seconds:02}");
    write_fraction(out, micros % MICROS_PER_SECOND);
}

/// Writes as many digits as needed, none for zero.
fn write_fraction(out: &mut Vec<u8>, micros: i64) {
    if micros != 0 {
        let _ = write!(out, ".{micros:06}");
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}
