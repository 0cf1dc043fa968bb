//! The Gregorian calendar in UTC. One function of our own, because PostgreSQL and MongoDB store
//! dates far beyond the years that calendar libraries support.

/// A day of the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilDate {
    /// Year; 0 is the year before 1.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: i64,
    /// Day of the month, 1 to 31.
    pub day: i64,
}

/// Returns the date `days` days after 1970-01-01. Computed in cycles of 400 years, with years that
/// begin in March, so that the leap day is the last.
///
/// `days` must be at least 719,468 below [`i64::MAX`]; no count of milliseconds or microseconds
/// reaches that.
///
/// Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
pub fn civil_date(days: i64) -> CivilDate {
    const CYCLE_DAYS: i64 = 146_097;
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH_DAYS: i64 = 719_468;
    let days = days + EPOCH_DAYS;
    let cycle = days.div_euclid(CYCLE_DAYS);
    let of_cycle = days.rem_euclid(CYCLE_DAYS);
    let year_of_cycle =
        (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / (CYCLE_DAYS - 1)) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    CivilDate { year: year_of_cycle + cycle * 400 + i64::from(month <= 2), month, day }
}

/// Formats seconds since 1970 by `date -u +%Y-%m-%d`, as in `2026-11-21`.
pub fn iso_date(unix_s: u64) -> String {
    // A count of seconds has far fewer days than an `i64` holds.
    let CivilDate { year, month, day } = civil_date((unix_s / 86_400) as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Formats the time of day of seconds since 1970, in UTC, as in `23:59:58`.
pub fn iso_time(unix_s: u64) -> String {
    let second = unix_s % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As printed by `date -u -d @N`.
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_164_800, "2024-02-29 00:00:00"),
            (1_795_301_130, "2026-11-21 22:45:30"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(format!("{} {}", iso_date(unix_s), iso_time(unix_s)), text);
        }
    }

    #[test]
    fn days_far_from_the_epoch_follow_each_other() {
        // From 4801 BC, before the first date of PostgreSQL, to beyond the year 12000.
        let mut last = civil_date(-2_473_000);
        for days in -2_472_999..3_700_000 {
            let date = civil_date(days);
            let is_next_day =
                (date.year, date.month, date.day - 1) == (last.year, last.month, last.day);
            let is_next_month = date.day == 1
                && (28..=31).contains(&last.day)
                && date.year * 12 + date.month == last.year * 12 + last.month + 1;
            assert!(is_next_day || is_next_month, "{last:?}, {date:?}");
            last = date;
        }
        assert_eq!(civil_date(2_145_042_905), CivilDate { year: 5_874_897, month: 12, day: 31 });
        assert_eq!(civil_date(-719_529), CivilDate { year: -1, month: 12, day: 31 });
    }
}
