//! Rates in their text form: `100/s`, `6000/m`, `10/h`.

use std::fmt;
use std::str::FromStr;

/// Most units per second, for any period. A [`super::meter::Meter`] then counts for 14 years
/// without overflowing.
pub const PER_SECOND_MAX: u64 = 10_000_000;
/// Most units in one period.
pub const UNITS_MAX: u32 = 1_000_000_000;

/// Units per period; never zero, never more than [`PER_SECOND_MAX`] and [`UNITS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    units: u32,
    period: Period,
}

/// Time over which units are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// `/s`
    Second,
    /// `/m`
    Minute,
    /// `/h`
    Hour,
}

/// Error of a value that is not a [`Rate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Not a number, a slash and a period.
    #[error(
        "must be a number per second, minute or hour, such as \"100/s\", \"6000/m\" or \"10/h\""
    )]
    Form,
    /// Zero, or beyond the bounds.
    #[error("must be 1 to {UNITS_MAX} units, and at most {PER_SECOND_MAX} per second")]
    Range,
}

impl Rate {
    /// One unit per second.
    pub const ONE_PER_SECOND: Self = Self { units: 1, period: Period::Second };

    /// Creates a rate of `units` per `period`.
    ///
    /// # Errors
    /// [`RateError::Range`].
    pub fn new(units: u64, period: Period) -> Result<Self, RateError> {
        let most = (PER_SECOND_MAX * period.seconds()).min(u64::from(UNITS_MAX));
        match u32::try_from(units) {
            Ok(units) if (1..=most).contains(&u64::from(units)) => Ok(Self { units, period }),
            _ => Err(RateError::Range),
        }
    }

    /// Restores a rate from its stored parts.
    pub(super) fn from_parts(units: u32, period: Period) -> Self {
        Self { units, period }
    }

    /// Units per period.
    #[must_use]
    pub fn units(self) -> u32 {
        self.units
    }

    /// The period.
    #[must_use]
    pub fn period(self) -> Period {
        self.period
    }
}

impl Period {
    /// Returns its length in seconds.
    #[must_use]
    pub fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// Returns its length in nanoseconds.
    #[must_use]
    pub fn nanos(self) -> u64 {
        self.seconds() * 1_000_000_000
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (units, period) = text.split_once('/').ok_or(RateError::Form)?;
        let period = match period {
            "s" => Period::Second,
            "m" => Period::Minute,
            "h" => Period::Hour,
            _ => return Err(RateError::Form),
        };
        if units.is_empty() || !units.bytes().all(|b| b.is_ascii_digit()) {
            return Err(RateError::Form);
        }
        // Digits alone fail to parse only when there are too many.
        Self::new(units.parse().map_err(|_| RateError::Range)?, period)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period {
            Period::Second => "s",
            Period::Minute => "m",
            Period::Hour => "h",
        };
        write!(f, "{}/{period}", self.units)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    #[test]
    fn rates_survive_parsing_and_printing() {
        for text in ["1/s", "100/s", "6000/m", "10/h", "10000000/s", "600000000/m", "1000000000/h"]
        {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
        }
        for text in [
            "", "/", "100", "100/", "/s", "100/d", "-1/s", "+1/s", "1.5/s", " 1/s", "1/s ", "1 /s",
            "1/S",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Form), "{text:?}");
        }
        for text in
            ["0/s", "10000001/s", "600000001/m", "1000000001/h", "99999999999999999999999/s"]
        {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Range), "{text:?}");
        }
    }
}
