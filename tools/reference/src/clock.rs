//! The service's clock: the current date, and how long it remains valid.

pub use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use serde::Serialize;

/// Largest clock offset, in s: ten years.
pub const OFFSET_S_MAX: i64 = 10 * 366 * 24 * 3600;
/// Margin subtracted from the rest of the day, in s, for the transfer to a cache: a cache that
/// counts whole seconds from the arrival is then correct in the second after midnight. Without it,
/// a delay of 1 s is too long.
const TRANSIT_MARGIN_S: i64 = 1;

/// A clock in a time zone, which tests of midnight can shift.
#[derive(Clone, Debug)]
pub struct Clock {
    zone: TimeZone,
    offset: SignedDuration,
}

/// The difference between a clock and the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Ahead by this many seconds; behind when negative. At most [`OFFSET_S_MAX`] either way.
    Offset(i64),
    /// Shows this local time of today when created, and continues from there.
    At(Time),
}

/// Reasons why a clock is not possible.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The time zone is unknown.
    #[error(
        "the time zone of this machine is not known: {0}; set TZ to a name such as Europe/Berlin, \
         or to UTC"
    )]
    Zone(jiff::Error),
    /// The offset is out of range.
    #[error("a clock cannot be shifted by {0} s; {OFFSET_S_MAX} s either way is the most")]
    Offset(i64),
    /// The time of day is not possible.
    #[error("a clock cannot start at {0} today: {1}")]
    At(Time, jiff::Error),
}

/// A date as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Date {
    pub(crate) year: i16,
    pub(crate) month: i8,
    pub(crate) day: i8,
}

/// A date and its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Today {
    pub(crate) date: Date,
    /// Time that a response may be cached, in s.
    pub(crate) max_age_s: i64,
    /// The same as a point on the machine's unshifted clock, which caches use.
    pub(crate) expires: Timestamp,
}

/// Parses a time of day, written as `HH:MM:SS`.
/// # Errors
/// Returns the rule when it is invalid.
pub fn time_of_day(text: &str) -> Result<Time, String> {
    Time::strptime("%H:%M:%S", text)
        .map_err(|_| "must be a time of day such as 23:59:50".to_owned())
}

impl Clock {
    /// Creates a clock in the machine's time zone (`TZ`, else /etc/localtime).
    ///
    /// # Errors
    /// Fails when the zone is unknown or the shift impossible.
    pub fn new(shift: Shift) -> Result<Self, ClockError> {
        let zone = TimeZone::try_system().map_err(ClockError::Zone)?;
        Self::shifted(zone, Timestamp::now(), shift)
    }

    fn shifted(zone: TimeZone, now: Timestamp, shift: Shift) -> Result<Self, ClockError> {
        let offset = match shift {
            Shift::Offset(s) if s.unsigned_abs() > OFFSET_S_MAX.unsigned_abs() => {
                return Err(ClockError::Offset(s));
            }
            Shift::Offset(s) => SignedDuration::from_secs(s),
            Shift::At(time) => {
                let today = now.to_zoned(zone.clone()).date();
                let start = today
                    .to_datetime(time)
                    .to_zoned(zone.clone())
                    .map_err(|e| ClockError::At(time, e))?;
                start.timestamp().duration_since(now)
            }
        };
        Ok(Self { zone, offset })
    }

    /// Returns today's date by this clock.
    pub(crate) fn today(&self) -> Today {
        self.today_at(Timestamp::now())
    }

    fn today_at(&self, machine: Timestamp) -> Today {
        let now =
            machine.checked_add(self.offset).unwrap_or(Timestamp::MAX).to_zoned(self.zone.clone());
        // Beyond the calendar's end nothing is cacheable.
        let left = next_change(&now)
            .map_or(SignedDuration::ZERO, |change| change.duration_since(now.timestamp()));
        let max_age_s = (left.as_secs() - TRANSIT_MARGIN_S).max(0);
        let expires = machine.checked_add(SignedDuration::from_secs(max_age_s)).unwrap_or(machine);
        let date = Date { year: now.year(), month: now.month(), day: now.day() };
        Today { date, max_age_s, expires }
    }
}

/// Returns the time of the next change of date. Not always midnight: days begin at one o'clock
/// where the clock goes forward at midnight, and where it goes back just after midnight, the date
/// goes back with it.
fn next_change(now: &Zoned) -> Option<Timestamp> {
    let (zone, date) = (now.time_zone(), now.date());
    let tomorrow = now.tomorrow().ok()?.start_of_day().ok()?;
    let midnight = if tomorrow.timestamp() > now.timestamp() {
        tomorrow.timestamp()
    } else {
        // This evening repeats, and so will midnight.
        zone.to_ambiguous_timestamp(tomorrow.date().to_datetime(Time::midnight())).later().ok()?
    };
    let mut changes =
        zone.following(now.timestamp()).map(|t| t.timestamp()).take_while(|t| *t < midnight);
    Some(changes.find(|t| t.to_zoned(zone.clone()).date() != date).unwrap_or(midnight))
}

#[cfg(test)]
mod tests;
