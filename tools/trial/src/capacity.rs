//! Searches for the capacity of a server. The modules decide which load to try next and what a
//! result means; callers carry the loads out and pass in the time they took, so tests run against
//! simulated servers.
//!
//! Reading order: this file (length of a step), [`search`] (open loop: the highest rate that meets
//! an objective), [`certainty`] (statistical certainty of a step), [`closed`] (closed loop:
//! connections until the throughput stops rising), [`usl`] (the scalability law behind that curve).

pub mod certainty;
pub mod closed;
pub mod search;
pub mod usl;

use std::time::Duration;

/// Divisor of the requests for a step that doubles or halves the rate; it only finds the region.
pub const CLIMB_PART: u64 = 10;
/// Multiple of the requests for a bisecting step; it decides the place of the plateaus.
pub const BISECT_X: u64 = 3;
/// Multiple of the requests for a plateau.
pub const PLATEAU_X: u64 = 20;
/// Largest multiple of its shortest length by which a step or plateau is extended for its requests.
pub const LONGER_X: u32 = 3;
/// Warm-up before each step, as a divisor of its length; queues need time to reach their length.
pub const WARMUP_PART: u32 = 10;

/// Returns the length of a step for `requests` at a rate, long enough for a meaningful percentile:
/// between `least` and [`LONGER_X`] times that.
///
/// Of n requests, n·(1 − q) lie beyond the quantile q, and their number varies like a binomial one,
/// by about its root. With 100 such requests the share is known to 10 % if requests are
/// independent, so 100 / (1 − q) requests are needed: 10,000 for p99
/// ([`hotrow_load::objective::Objective::requests_wanted`]). Requests in a queue are not
/// independent: one burst makes many of them late. Both ends of an interval therefore rest on a
/// plateau with [`PLATEAU_X`] times as many.
pub fn step_length(rate_rps: f64, requests: u64, least: Duration) -> Duration {
    let most = least.saturating_mul(LONGER_X);
    let wanted_s = requests as f64 / rate_rps;
    // Not a number, or longer than a `Duration`: the longest allowed.
    Duration::try_from_secs_f64(wanted_s).unwrap_or(most).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rates_take_longer_within_bounds() {
        let least = Duration::from_secs(2);
        assert_eq!(step_length(10_000.0, 10_000, least), least);
        assert_eq!(step_length(2_500.0, 10_000, least), Duration::from_secs(4));
        assert_eq!(step_length(1.0, 10_000, least), Duration::from_secs(6));
        for odd in [0.0, f64::NAN, -1.0, f64::INFINITY] {
            assert!((least..=least * LONGER_X).contains(&step_length(odd, 10_000, least)), "{odd}");
        }
    }
}
