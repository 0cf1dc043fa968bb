//! How long a step must be for its percentile to mean something.
//!
//! Of n requests, n·(1 − q) lie beyond the quantile q. Their number scatters like a binomial one, by about its root: with
//! 100 of them the share beyond is known to 10 % where requests are independent. So 100 / (1 − q) requests are wanted:
//! 10,000 for p99 ([`hotrow_load::objective::Objective::requests_wanted`]). Requests in a queue are not independent: one
//! crowd makes many of them late. Both ends of an interval therefore rest on a plateau with [`PLATEAU_X`] times as many.

use std::time::Duration;

/// A step that doubles or halves the rate wants this part of the requests: it only finds out where to look.
pub const CLIMB_PART: u64 = 10;
/// A step that halves the interval wants this many times the requests of others: it decides where plateaus lie.
pub const BISECT_X: u64 = 3;
/// A plateau wants this many times the requests of a step.
pub const PLATEAU_X: u64 = 20;
/// A step or plateau is made longer for its requests, up to this many times its shortest length.
pub const LONGER_X: u32 = 3;
/// Warm-up before each step, as a part of its length: queues need time to become as long as they will be.
pub const WARMUP_PART: u32 = 10;

/// How long to load at a rate for as many requests, between `least` and [`LONGER_X`] times that.
#[must_use]
pub fn length(rate_rps: f64, requests: u64, least: Duration) -> Duration {
    let most = least.saturating_mul(LONGER_X);
    let wanted_s = requests as f64 / rate_rps;
    // Not a number, or longer than a Duration can be: as long as is allowed.
    Duration::try_from_secs_f64(wanted_s).unwrap_or(most).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rates_take_longer_within_bounds() {
        let least = Duration::from_secs(2);
        assert_eq!(length(10_000.0, 10_000, least), least);
        assert_eq!(length(2_500.0, 10_000, least), Duration::from_secs(4));
        assert_eq!(length(1.0, 10_000, least), Duration::from_secs(6));
        for odd in [0.0, f64::NAN, -1.0, f64::INFINITY] {
            assert!((least..=least * LONGER_X).contains(&length(odd, 10_000, least)), "{odd}");
        }
    }
}
