//! Units of values in JSON.

use std::time::Duration;

/// Converts to milliseconds, to the microsecond.
pub fn millis(duration: Duration) -> f64 {
    // Microseconds suffice.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
