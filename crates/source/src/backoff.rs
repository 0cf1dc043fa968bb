//! Pauses between attempts to reach the database.

use std::time::Duration;

/// Upper bounds of the first pause and of all pauses. The bound grows exponentially, and each pause
/// is drawn evenly between zero and its bound ("full jitter"), so that instances which lost the
/// same server do not reconnect at the same time.
const FIRST_MAX: Duration = Duration::from_millis(50);
/// Longest pause between two attempts.
pub const LONGEST: Duration = Duration::from_secs(5);

/// Returns the pause before attempt `attempt`; 0 is the first attempt after a loss. `random` is any
/// evenly distributed number.
pub fn pause(attempt: u32, random: u64) -> Duration {
    let bound = FIRST_MAX.saturating_mul(2_u32.saturating_pow(attempt)).min(LONGEST);
    // At most 5 s in microseconds: fits.
    let bound_us = bound.as_micros() as u64;
    Duration::from_micros(random % (bound_us + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_are_spread() {
        let longest = |attempt| {
            (0..60_000_u64).map(|r| pause(attempt, r.wrapping_mul(0x9e37_79b9_7f4a_7c15))).max()
        };
        assert!(longest(0).unwrap() <= FIRST_MAX && longest(0).unwrap() > FIRST_MAX / 2);
        assert!(longest(3).unwrap() > FIRST_MAX * 6 && longest(3).unwrap() <= FIRST_MAX * 8);
        for attempt in [7, 31, 32, u32::MAX] {
            assert!(
                longest(attempt).unwrap() <= LONGEST && longest(attempt).unwrap() > LONGEST / 2,
                "{attempt}"
            );
        }
        assert_eq!(pause(9, 0), Duration::ZERO);
    }
}
