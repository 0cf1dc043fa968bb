//! Texts of key columns whose values are neither integers nor arbitrary texts: booleans, decimal
//! numbers, dates, times.
//!
//! Each value has one canonical text, which is part of the key. An id may add zeros to the fraction
//! of a decimal number; no other variation is an id.

use std::borrow::Cow;

/// Days of the months in a common year.
const MONTH_DAYS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
/// Digits kept of a second's fraction.
const FRACTION_DIGITS_MAX: usize = 6;

/// Form of a column's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanonicalForm {
    /// `true` or `false`.
    Boolean,
    /// `-?digits[.digits]`, without an exponent and without zeros at either end; `0` has no sign.
    Decimal,
    /// `2024-02-29`, in the years 1 to 9999.
    Date,
    /// `2024-02-29T12:00:00.5`, without zeros at the end.
    Timestamp,
    /// The same in UTC, with `Z`.
    TimestampUtc,
}

impl CanonicalForm {
    /// Returns the canonical text of the value that `text` names; `None` when it names none.
    #[must_use]
    pub fn canonical(self, text: &str) -> Option<Cow<'_, str>> {
        match self {
            Self::Boolean => matches!(text, "true" | "false").then_some(text.into()),
            Self::Decimal => decimal(text).map(Cow::Borrowed),
            Self::Date => is_date(text).then_some(text.into()),
            Self::Timestamp => is_timestamp(text).then_some(text.into()),
            Self::TimestampUtc => {
                text.strip_suffix('Z').is_some_and(is_timestamp).then_some(text.into())
            }
        }
    }

    /// Returns the description of the form for an error.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "`true` or `false`",
            Self::Decimal => "a decimal number without exponent, leading zeros or `+`",
            Self::Date => "a date like 2024-02-29",
            Self::Timestamp => {
                "a date and time like 2024-02-29T12:00:00.5, without zeros at the end"
            }
            Self::TimestampUtc => {
                "a time in UTC like 2024-02-29T12:00:00.5Z, without zeros at the end"
            }
        }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn decimal(text: &str) -> Option<&str> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((whole, fraction)) if is_digits(fraction) => (whole, fraction),
        Some(_) => return None,
        None => (unsigned, ""),
    };
    if !is_digits(whole) || whole.len() > 1 && whole.starts_with('0') {
        return None;
    }
    let canonical = match fraction.trim_end_matches('0').len() {
        0 => &text[..text.len() - unsigned.len() + whole.len()],
        kept => &text[..text.len() - fraction.len() + kept],
    };
    (canonical != "-0").then_some(canonical)
}

fn number(text: &str, digits: usize) -> Option<u32> {
    if text.len() == digits && is_digits(text) { text.parse().ok() } else { None }
}

fn is_date(text: &str) -> bool {
    date(text).is_some()
}

fn date(text: &str) -> Option<()> {
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let year = number(year, 4)?;
    let month = number(month, 2)?;
    let day = number(day, 2)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = *MONTH_DAYS.get(usize::try_from(month).ok()?.checked_sub(1)?)?
        + u32::from(is_leap && month == 2);
    (year > 0 && (1..=days).contains(&day)).then_some(())
}

fn is_timestamp(text: &str) -> bool {
    text.split_once('T').is_some_and(|(date, time)| is_date(date) && is_time(time))
}

fn is_time(text: &str) -> bool {
    let (clock, fraction) =
        text.split_once('.').map_or((text, None), |(clock, fraction)| (clock, Some(fraction)));
    let is_fraction = |f: &str| is_digits(f) && f.len() <= FRACTION_DIGITS_MAX && !f.ends_with('0');
    let mut parts = clock.split(':').map(|part| number(part, 2));
    let is_below =
        |part: Option<Option<u32>>, bound| part.flatten().is_some_and(|value| value < bound);
    is_below(parts.next(), 24)
        && is_below(parts.next(), 60)
        && is_below(parts.next(), 60)
        && parts.next().is_none()
        && fraction.is_none_or(is_fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the canonical text of each, `-` for none.
    fn all(form: CanonicalForm, texts: &[&str]) -> Vec<String> {
        texts
            .iter()
            .map(|text| form.canonical(text).map_or("-".to_owned(), Cow::into_owned))
            .collect()
    }

    #[test]
    fn a_decimal_number_has_one_canonical_text() {
        let texts = [
            "0",
            "7",
            "-7",
            "9.50",
            "9.5",
            "100",
            "0.0",
            "-0.25",
            "10.0",
            "1234567890123456789012.5",
        ];
        let canonical =
            ["0", "7", "-7", "9.5", "9.5", "100", "0", "-0.25", "10", "1234567890123456789012.5"];
        assert_eq!(all(CanonicalForm::Decimal, &texts), canonical);
        for bad in [
            "", "-", "-0", "-0.0", "007", "+7", ".5", "5.", "1e3", "NaN", "Infinity", "1.5.", " 1",
            "1,5", "٣",
        ] {
            assert_eq!(CanonicalForm::Decimal.canonical(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_date_is_one_of_the_calendar() {
        for good in ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "2023-04-30"] {
            assert_eq!(CanonicalForm::Date.canonical(good).as_deref(), Some(good));
        }
        for bad in [
            "",
            "2023-02-29",
            "1900-02-29",
            "0000-01-01",
            "10000-01-01",
            "2023-13-01",
            "2023-00-01",
            "2023-04-31",
            "2023-04-00",
            "2023-4-1",
            "20230401",
            "infinity",
            "0044-03-15 BC",
            "2023-04-01 ",
            "2023-04-01T00:00:00",
        ] {
            assert_eq!(CanonicalForm::Date.canonical(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_time_has_no_second_spelling() {
        for good in ["2024-02-29T00:00:00", "2024-02-29T23:59:59.999999", "2024-02-29T12:00:00.05"]
        {
            assert_eq!(CanonicalForm::Timestamp.canonical(good).as_deref(), Some(good));
            let utc = format!("{good}Z");
            assert_eq!(CanonicalForm::TimestampUtc.canonical(&utc).as_deref(), Some(&*utc));
            assert_eq!(CanonicalForm::TimestampUtc.canonical(good), None);
            assert_eq!(CanonicalForm::Timestamp.canonical(&utc), None);
        }
        for bad in [
            "2024-02-29",
            "2024-02-29 00:00:00",
            "2024-02-29T24:00:00",
            "2024-02-29T23:60:00",
            "2024-02-29T23:00:60",
            "2024-02-29T12:00:00.50",
            "2024-02-29T12:00:00.",
            "2024-02-29T12:00:00.1234567",
            "2024-02-29T12:00",
            "2024-02-29T12:00:00+00:00",
            "2024-02-30T12:00:00",
            "infinity",
        ] {
            assert_eq!(CanonicalForm::Timestamp.canonical(bad), None, "{bad}");
        }
    }

    #[test]
    fn booleans_are_spelled_out() {
        assert_eq!(
            all(CanonicalForm::Boolean, &["true", "false", "t", "1", "TRUE", ""]),
            ["true", "false", "-", "-", "-", "-"]
        );
    }
}
