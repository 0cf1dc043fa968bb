//! From time to units: the clock of a rate.
//!
//! A meter counts *ticks*, [`TICKS_PER_UNIT`] to the unit, as fast as its rate says. The state of a
//! bucket is the tick at which it is full again (the theoretical arrival time of the generic cell
//! rate algorithm, ITU-T I.371, annex A, in units in place of seconds). A debt is then a number of
//! units at any rate: when the rate changes, the ticks continue at another speed, and every
//! key keeps its tokens and debts to the tick.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::Decision;
use super::snapshot::Snapshot;
use super::value::{Period, Rate};
use super::warm_up::WarmUp;

/// Ticks of one unit: the resolution, not the accuracy, because ticks are counted from one fixed
/// moment and do not add up errors.
pub const TICKS_PER_UNIT: u64 = 1 << 12;
/// Speeds are ticks per nanosecond times this power of two. The slowest, 1/h, is then known to a
/// hundred-millionth, and the fastest, 10,000,000/s, fits.
const SPEED_SHIFT: u32 = 56;

/// A rate, a burst and a warm-up, shared by all keys of a rule. Rate and burst can change at run
/// time.
#[derive(Debug)]
pub struct Meter {
    warm_up: WarmUp,
    setting: Snapshot<4>,
}

/// The changeable part at one moment.
#[derive(Clone, Copy)]
struct Setting {
    /// Counted time and ticks at the moment when the speed was set.
    counted_ns: u64,
    ticks: u64,
    rate: Rate,
    speed: u64,
    burst: u32,
}

impl Meter {
    /// Creates a meter that starts at `now`, cold for `warm_up` if that is not zero. `burst` is at
    /// least 1.
    #[must_use]
    pub fn new(rate: Rate, burst: u32, warm_up: Duration, now: Nanos) -> Self {
        let over_ns = u64::try_from(warm_up.as_nanos()).unwrap_or(u64::MAX);
        let setting =
            Setting { counted_ns: 0, ticks: 0, rate, speed: speed(rate), burst: burst.max(1) };
        Self { warm_up: WarmUp::new(over_ns, now), setting: Snapshot::new(setting.packed()) }
    }

    /// Returns the rate in force.
    pub fn rate(&self) -> Rate {
        self.setting().rate
    }

    /// Returns the burst in force, in units.
    pub fn burst(&self) -> u32 {
        self.setting().burst
    }

    /// Returns the warm-up.
    pub fn warm_up(&self) -> Duration {
        Duration::from_nanos(self.warm_up.over_ns())
    }

    /// Sets the rate, the burst, or both, from `now` on. Every key keeps its tokens and debts; no
    /// key has more than a smaller burst.
    pub fn change(&self, rate: Option<Rate>, burst: Option<u32>, now: Nanos) {
        self.setting.change(|numbers| {
            let before = Setting::unpacked(numbers);
            let rate = rate.unwrap_or(before.rate);
            let after = Setting {
                counted_ns: self.warm_up.counted_ns(now),
                ticks: self.ticks(&before, now),
                rate,
                speed: speed(rate),
                burst: burst.unwrap_or(before.burst).max(1),
            };
            after.packed()
        });
    }

    /// Judges as a [`super::Policy`] does; a request that would wait longer than `max_wait` is
    /// refused.
    #[inline]
    pub(super) fn judge(
        &self,
        state: u64,
        cost: u64,
        now: Nanos,
        max_wait: Duration,
    ) -> (Decision, Option<u64>) {
        let setting = self.setting();
        let ticks = self.ticks(&setting, now);
        let burst = self.warm_up.share_of(u64::from(setting.burst) * TICKS_PER_UNIT, now);
        let next =
            cost.checked_mul(TICKS_PER_UNIT).and_then(|cost| state.max(ticks).checked_add(cost));
        match next {
            Some(next) if next - ticks <= burst => {
                let remaining = (burst - (next - ticks)) / TICKS_PER_UNIT;
                (Decision::Admitted { remaining }, (cost > 0).then_some(next))
            }
            _ => self.judge_late(&setting, next, cost, now, max_wait),
        }
    }

    /// Decides on a request that cannot pass at once.
    #[cold]
    fn judge_late(
        &self,
        setting: &Setting,
        next: Option<u64>,
        cost: u64,
        now: Nanos,
        max_wait: Duration,
    ) -> (Decision, Option<u64>) {
        let waits = (u128::from(setting.speed) * max_wait.as_nanos()) >> SPEED_SHIFT;
        let most = u64::from(setting.burst)
            .saturating_add(u64::try_from(waits).unwrap_or(u64::MAX) / TICKS_PER_UNIT);
        let Some(next) = next.filter(|_| cost <= most) else {
            return (Decision::TooLarge { most }, None);
        };
        // A warm-up would have granted more of the burst by then: the delay errs on the long side.
        let burst = self.warm_up.share_of(u64::from(setting.burst) * TICKS_PER_UNIT, now);
        let delay = self.delay(setting, next.saturating_sub(burst), now);
        if delay <= max_wait {
            return (Decision::Wait { delay }, (cost > 0).then_some(next));
        }
        (Decision::Refused { retry_after: delay - max_wait }, None)
    }

    /// Returns the time until this state owes nothing.
    pub(super) fn settled_after(&self, state: u64, now: Nanos) -> Duration {
        self.delay(&self.setting(), state, now)
    }

    /// Returns the time until the meter shows `ticks`.
    fn delay(&self, setting: &Setting, ticks: u64, now: Nanos) -> Duration {
        let wanted = u128::from(ticks.saturating_sub(setting.ticks)) << SPEED_SHIFT;
        let counted = u64::try_from(wanted.div_ceil(u128::from(setting.speed))).unwrap_or(u64::MAX);
        self.warm_up.moment(setting.counted_ns.saturating_add(counted)).since(now)
    }

    #[inline]
    fn ticks(&self, setting: &Setting, now: Nanos) -> u64 {
        let counted = self.warm_up.counted_ns(now).saturating_sub(setting.counted_ns);
        let ticks = (u128::from(counted) * u128::from(setting.speed)) >> SPEED_SHIFT;
        setting.ticks.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
    }

    #[inline]
    fn setting(&self) -> Setting {
        Setting::unpacked(self.setting.read())
    }
}

/// Rounded up, by less than one hundred-millionth, so that a unit is available at its time and not
/// a tick later.
fn speed(rate: Rate) -> u64 {
    let ticks = u128::from(rate.units()) * u128::from(TICKS_PER_UNIT);
    // At most 10,000,000 units a second: 41 ticks per nanosecond, below 2^62 after the shift.
    (ticks << SPEED_SHIFT).div_ceil(u128::from(rate.period().nanos())) as u64
}

impl Setting {
    /// Burst and rate share a number: 32 bits, 30 bits, 2 bits. The speed follows from the rate and
    /// is computed again.
    fn packed(self) -> [u64; 4] {
        let period = match self.rate.period() {
            Period::Second => 0,
            Period::Minute => 1,
            Period::Hour => 2,
        };
        let words = u64::from(self.burst) << 32 | u64::from(self.rate.units()) << 2 | period;
        [self.counted_ns, self.ticks, self.speed, words]
    }

    #[inline]
    fn unpacked([counted_ns, ticks, speed, words]: [u64; 4]) -> Self {
        let period = match words & 3 {
            0 => Period::Second,
            1 => Period::Minute,
            _ => Period::Hour,
        };
        let rate = Rate::from_parts((words >> 2) as u32 & ((1 << 30) - 1), period);
        Self { counted_ns, ticks, rate, speed, burst: (words >> 32) as u32 }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[test]
    fn a_rate_survives_packing() {
        for text in ["1/s", "10000000/s", "600000000/m", "1000000000/h"] {
            for burst in [1, 77, u32::MAX] {
                let meter = Meter::new(text.parse().unwrap(), burst, Duration::ZERO, Nanos(5));
                assert_eq!((meter.rate().to_string(), meter.burst()), (text.to_owned(), burst));
            }
        }
    }

    #[test]
    fn ticks_follow_the_rate_for_years() {
        let day = 86_400_000;
        for (text, ms, units) in [
            ("1/s", 1000, 1),
            ("10/h", 360_000, 1),
            ("10000000/s", 3650 * day, 3_153_600_000_000_000),
            ("1/h", 3650 * day, 87_600),
        ] {
            let meter = Meter::new(text.parse().unwrap(), 1, Duration::ZERO, Nanos(0));
            let ticks = meter.ticks(&meter.setting(), at_ms(ms));
            let exact = units * TICKS_PER_UNIT;
            let off = ticks.abs_diff(units * TICKS_PER_UNIT);
            assert!(
                ticks >= exact && off as f64 <= 1e-7 * exact as f64,
                "{text}: {ticks} for {exact}"
            );
        }
    }

    #[test]
    fn a_change_keeps_the_ticks() {
        let meter = Meter::new("10/s".parse().unwrap(), 5, Duration::ZERO, at_ms(100));
        meter.change(Some("1000/s".parse().unwrap()), None, at_ms(1100));
        assert_eq!(
            (meter.ticks(&meter.setting(), at_ms(1100)), meter.burst()),
            (10 * TICKS_PER_UNIT, 5)
        );
        assert_eq!(meter.ticks(&meter.setting(), at_ms(1200)), 110 * TICKS_PER_UNIT);
        meter.change(Some("1/h".parse().unwrap()), Some(7), at_ms(1200));
        assert_eq!(
            (meter.ticks(&meter.setting(), at_ms(1200)), meter.burst()),
            (110 * TICKS_PER_UNIT, 7)
        );
        assert_eq!(meter.settled_after(111 * TICKS_PER_UNIT, at_ms(1200)).as_secs(), 3599);
    }
}
