//! Syntax of single values, as on the command line of `hotrow load`.

use std::time::Duration;

use hotrow_load::ids::{Distribution, Ids};
use hotrow_load::plan::{self, Rate};

/// Parses a duration: `500ms`, `10s`, `1.5s`, `5m`, `1h`.
///
/// # Errors
/// The rule and the value.
pub fn duration(text: &str) -> Result<Duration, String> {
    hotrow_cli::duration(text).map_err(|rule| format!("{rule}; given {text:?}"))
}

/// Parses a duration above zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("must be above zero, not {text:?}")),
        duration => Ok(duration),
    }
}

/// Parses a range of ids: `1..100000`, both ends included.
pub(super) fn ids(text: &str) -> Result<Ids, String> {
    let wrong = || {
        format!("must be two whole numbers, the smaller first, as in \"1..100000\", not {text:?}")
    };
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
    Ids::range(from, to).map_err(|_| wrong())
}

/// Parses a distribution: `uniform`, `sequential`, `zipf:0.99`.
pub(super) fn distribution(text: &str) -> Result<Distribution, String> {
    text.parse().map_err(|rule| format!("{rule}; given {text:?}"))
}

/// Parses a rate in requests per second.
pub(super) fn rate(rate: f64) -> Result<Rate, String> {
    Rate::new(rate, rate).map_err(|_| {
        format!(
            "must be between {} and {} requests per second, not {rate}",
            plan::RATE_MIN,
            plan::RATE_MAX
        )
    })
}

/// Checks a name that is part of row ids and folder names.
pub(super) fn name(text: &str) -> Result<(), String> {
    const BYTES_MAX: usize = 64;
    let fits = |c: char| c.is_alphanumeric() || " -_.,:()%×½+".contains(c);
    if text.is_empty() || text.len() > BYTES_MAX || text.starts_with('.') || !text.chars().all(fits)
    {
        return Err(format!(
            "must be 1 to {BYTES_MAX} bytes of letters, digits, blanks and - _ . , : ( ) % +, not \
             begin with a dot, and have no slash; not {text:?}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_parse() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for bad in ["", "5", "s", "1..5s", "-1s", "1d", "9999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(positive_duration("0s").is_err());
        assert_eq!(ids("3..9").map(|ids| ids.count()), Ok(7));
        assert!(ids("9..3").is_err() && ids("3-9").is_err() && ids("x..").is_err());
        assert_eq!(distribution("zipf:0.99"), Ok(Distribution::Zipf(0.99)));
        assert!(
            distribution("zipf").is_err()
                && distribution("zipf:-1").is_err()
                && distribution("zipf:nan").is_err()
                && distribution("zipf:11").is_err()
        );
        assert!(rate(0.0).is_err() && rate(f64::NAN).is_err() && rate(10.0).is_ok());
        for good in ["a", "deployment 2 (cache)", "½×", "w-1.5_x"] {
            assert_eq!(name(good), Ok(()), "{good}");
        }
        for bad in ["", "a/b", "..", "a\nb", "a\u{0}", "<b>"] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}
