//! Units on the command line.

use std::time::Duration;

use hotrow_load::plan::DURATION_MAX;

/// Parses `500ms`, `10s`, `1.5s`, `5m`, `1h`.
///
/// # Errors
/// Anything else, and more than [`DURATION_MAX`].
pub fn duration(text: &str) -> Result<Duration, String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit_s = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("must be a number with a unit: us, ms, s, m or h".to_owned()),
    };
    let number: f64 =
        number.parse().map_err(|_| "must be a number with a unit, as in 10s".to_owned())?;
    let seconds = number * unit_s;
    if seconds > DURATION_MAX.as_secs_f64() {
        return Err("must not be longer than a week".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}
