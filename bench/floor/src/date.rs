//! The `date` field, formatted at most once per second.

use rustix::time::{ClockId, clock_gettime};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The current second in the format of RFC 9110 section 5.6.7.
pub struct Date {
    second: i64,
    text: [u8; 29],
}

impl Date {
    /// Returns the current date.
    pub fn now() -> Self {
        let second = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
        Self { second, text: format(second) }
    }

    /// Reads the clock and formats a new second.
    pub fn refresh(&mut self) {
        let second = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
        if second != self.second {
            *self = Self { second, text: format(second) };
        }
    }

    /// Returns the 29 bytes of the date.
    pub fn text(&self) -> &[u8; 29] {
        &self.text
    }
}

/// Formats seconds since 1970. Days to date: Howard Hinnant, "chrono-compatible low-level date
/// algorithms".
fn format(second: i64) -> [u8; 29] {
    let days = second.div_euclid(86_400);
    let of_day = second.rem_euclid(86_400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let text = format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[days.rem_euclid(7) as usize],
        MONTHS[(month - 1) as usize],
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    );
    let mut bytes = [b' '; 29];
    let length = text.len().min(29);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_dates() {
        assert_eq!(&super::format(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&super::format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&super::format(1_709_208_000), b"Thu, 29 Feb 2024 12:00:00 GMT");
    }
}
