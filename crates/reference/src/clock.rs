//! What the service takes for now: the date, and until when it holds.

pub use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use serde::Serialize;

/// The farthest that a clock may be shifted, in s: ten years.
pub const OFFSET_S_MAX: i64 = 10 * 366 * 24 * 3600;
/// Taken off what is left of the day, in s, for what passes between making an answer and its arrival in a cache: one that counts
/// whole seconds, and from the arrival, is then still right in the second after midnight. Without it, a delay of 1 s is too much.
const WAY_S: i64 = 1;

/// A clock in a time zone, shifted for tests of what happens at midnight.
#[derive(Clone, Debug)]
pub struct Clock {
    zone: TimeZone,
    offset: SignedDuration,
}

/// How a clock differs from the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Ahead by so many seconds; behind when negative. At most [`OFFSET_S_MAX`] either way.
    Offset(i64),
    /// It shows this local time of today when it is made, and goes on from there.
    At(Time),
}

/// Why there is no such clock.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The time zone.
    #[error("the time zone of this machine is not known: {0}; set TZ to a name such as Europe/Berlin, or to UTC")]
    Zone(jiff::Error),
    /// The offset.
    #[error("a clock cannot be shifted by {0} s; {OFFSET_S_MAX} s either way is the most")]
    Offset(i64),
    /// The time of day.
    #[error("a clock cannot start at {0} today: {1}")]
    At(Time, jiff::Error),
}

/// A date as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Date {
    pub(crate) year: i16,
    pub(crate) month: i8,
    pub(crate) day: i8,
}

/// A date, and until when it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Today {
    pub(crate) date: Date,
    /// How long an answer with it may be kept, in s.
    pub(crate) max_age_s: i64,
    /// The same as a moment of the machine's clock, which is not shifted: caches go by theirs.
    pub(crate) expires: Timestamp,
}

/// A time of day, written as `HH:MM:SS`.
///
/// # Errors
/// The rule, when it is not.
pub fn time_of_day(text: &str) -> Result<Time, String> {
    Time::strptime("%H:%M:%S", text).map_err(|_| "must be a time of day such as 23:59:50".to_owned())
}

impl Clock {
    /// A clock in the machine's time zone (`TZ`, else /etc/localtime).
    ///
    /// # Errors
    /// When the zone is not known or the shift not possible.
    pub fn new(shift: Shift) -> Result<Self, ClockError> {
        let zone = TimeZone::try_system().map_err(ClockError::Zone)?;
        Self::shifted(zone, Timestamp::now(), shift)
    }

    fn shifted(zone: TimeZone, now: Timestamp, shift: Shift) -> Result<Self, ClockError> {
        let offset = match shift {
            Shift::Offset(s) if s.unsigned_abs() > OFFSET_S_MAX.unsigned_abs() => return Err(ClockError::Offset(s)),
            Shift::Offset(s) => SignedDuration::from_secs(s),
            Shift::At(time) => {
                let today = now.to_zoned(zone.clone()).date();
                let start = today.to_datetime(time).to_zoned(zone.clone()).map_err(|e| ClockError::At(time, e))?;
                start.timestamp().duration_since(now)
            }
        };
        Ok(Self { zone, offset })
    }

    /// Today, by this clock, now.
    pub(crate) fn today(&self) -> Today {
        self.today_at(Timestamp::now())
    }

    fn today_at(&self, machine: Timestamp) -> Today {
        let now = machine.checked_add(self.offset).unwrap_or(Timestamp::MAX).to_zoned(self.zone.clone());
        // Beyond the calendar's end nothing may be kept.
        let left = next_change(&now).map_or(SignedDuration::ZERO, |change| change.duration_since(now.timestamp()));
        let max_age_s = (left.as_secs() - WAY_S).max(0);
        let expires = machine.checked_add(SignedDuration::from_secs(max_age_s)).unwrap_or(machine);
        let date = Date { year: now.year(), month: now.month(), day: now.day() };
        Today { date, max_age_s, expires }
    }
}

/// When the date changes next. Not always at midnight: days begin at one o'clock where the clock goes forward at midnight, and
/// where it goes back just after midnight, the date goes back with it.
fn next_change(now: &Zoned) -> Option<Timestamp> {
    let (zone, date) = (now.time_zone(), now.date());
    let tomorrow = now.tomorrow().ok()?.start_of_day().ok()?;
    let midnight = if tomorrow.timestamp() > now.timestamp() {
        tomorrow.timestamp()
    } else {
        // This evening is there for the second time, and so will be midnight.
        zone.to_ambiguous_timestamp(tomorrow.date().to_datetime(Time::midnight())).later().ok()?
    };
    let mut changes = zone.following(now.timestamp()).map(|t| t.timestamp()).take_while(|t| *t < midnight);
    Some(changes.find(|t| t.to_zoned(zone.clone()).date() != date).unwrap_or(midnight))
}

#[cfg(test)]
mod tests;
