//! Values of `Retry-After`.

use std::time::Duration;

/// Rounds up, so that a client that obeys `Retry-After` is not early.
pub fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}
