use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use proptest::prelude::*;

use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

/// Fill interval in ms, capacity, quantum; then rows of: time in ms, tokens taken, wait in ms.
type Vector = ((u64, u64, u64), &'static [(u64, u64, u64)]);

/// The first two are from `juju/ratelimit`; the others follow from its rules.
const TAKES: &[Vector] = &[
    ((250, 10, 1), &[(0, 10, 0), (0, 2, 500), (0, 2, 1000), (0, 1, 1250)]),
    ((10, 10, 1), &[(0, 10, 0), (7, 1, 3), (8, 1, 12)]),
    ((250, 10, 1), &[(0, 10, 0), (251, 1, 0), (251, 1, 249), (2499, 0, 0)]),
    ((10, 10, 5), &[(0, 10, 0), (10, 5, 0), (10, 1, 10), (20, 4, 0), (20, 11, 30)]),
    ((10, 10, 15), &[(0, 10, 0), (10, 10, 0), (10, 15, 10), (20, 1, 10)]),
    ((100, 1, 1), &[(0, 1, 0), (1000, 1, 0), (1000, 1, 100), (1000, 3, 400)]),
];

#[test]
fn takes_wait_as_in_the_vectors() {
    for ((interval, capacity, quantum), rows) in TAKES {
        let mut bucket = TokenBucket::new(ms(*interval), *capacity, *quantum, at(0));
        for (time, tokens, wait) in *rows {
            assert_eq!(
                bucket.take(at(*time), *tokens),
                ms(*wait),
                "{interval} {capacity} {quantum}: {time} {tokens}"
            );
        }
    }
}

#[test]
fn a_bucket_starts_full_and_admits_exactly_its_capacity_at_once() {
    let mut bucket = TokenBucket::new(ms(10), 100, 1, at(5));
    let admitted =
        (0..1000).filter(|_| bucket.take_max_wait(at(5), 1, Duration::ZERO).is_some()).count();
    assert_eq!((admitted, bucket.available(at(5))), (100, 0));
    let later =
        (5..=1005).filter(|t| bucket.take_max_wait(at(*t), 1, Duration::ZERO).is_some()).count();
    assert_eq!(later, 100, "empty, it leaks at the fill rate");
}

#[test]
fn take_available_takes_only_available_tokens() {
    let mut bucket = TokenBucket::new(ms(250), 10, 1, at(0));
    assert_eq!(bucket.take_available(at(0), 6), 6);
    assert_eq!(bucket.take_available(at(0), 6), 4);
    assert_eq!(bucket.take_available(at(0), 1), 0);
    assert_eq!(bucket.take_available(at(750), 9), 3);
    bucket.take(at(750), 4);
    assert_eq!(
        (bucket.take_available(at(1000), 1), bucket.available(at(1000))),
        (0, -3),
        "a debt is no stock"
    );
    assert_eq!(bucket.available(at(1_000_000)), 10, "what overflows is lost");
}

#[test]
fn take_max_wait_refuses_without_taking() {
    let mut bucket = TokenBucket::new(ms(250), 10, 1, at(0));
    assert_eq!(bucket.take_max_wait(at(0), 10, ms(0)), Some(ms(0)));
    assert_eq!(bucket.take_max_wait(at(0), 2, ms(499)), None);
    assert_eq!(bucket.take_max_wait(at(0), 2, ms(500)), Some(ms(500)));
    assert_eq!(bucket.take_max_wait(at(0), 2, ms(999)), None);
    assert_eq!(bucket.available(at(0)), -2);
    assert_eq!(bucket.take_max_wait(at(250), 1, ms(500)), Some(ms(500)));
}

#[test]
fn a_rate_change_keeps_the_tokens() {
    let mut bucket = TokenBucket::new(ms(100), 10, 1, at(0));
    bucket.take(at(0), 6);
    // Half an interval has passed: half of the new one is to come.
    bucket.set_fill(at(50), ms(1000), 2);
    assert_eq!(
        (bucket.available(at(549)), bucket.available(at(550)), bucket.available(at(1550))),
        (4, 6, 8)
    );
    bucket.take(at(1550), 10);
    assert_eq!(bucket.take(at(1550), 0), ms(1000), "a debt stays");
    bucket.set_fill(at(1550), ms(10), 1);
    assert_eq!(bucket.take(at(1550), 0), ms(20), "and is paid at the new rate");
}

#[test]
fn a_capacity_change_keeps_the_tokens_that_fit() {
    let mut bucket = TokenBucket::new(ms(100), 10, 1, at(0));
    bucket.set_capacity(at(0), 20);
    assert_eq!((bucket.available(at(0)), bucket.available(at(5000))), (10, 20));
    bucket.set_capacity(at(5000), 3);
    assert_eq!((bucket.available(at(5000)), bucket.available(at(9000))), (3, 3));
    bucket.take(at(9000), 5);
    bucket.set_capacity(at(9000), 1);
    assert_eq!(bucket.available(at(9000)), -2);
}

#[test]
fn a_cold_bucket_begins_at_a_third_and_is_cold_again_after_a_pause() {
    let cold =
        || TokenBucket::new(ms(10), 30, 1, at(0)).with_warm_up(Duration::from_secs(6), at(0));
    let mut bucket = cold();
    assert_eq!(bucket.available(at(0)), 10);
    // Takes everything available each millisecond.
    let mut over =
        |from: u64, to: u64| (from..to).map(|t| bucket.take_available(at(t), 1000)).sum::<u64>();
    let first = over(0, 1000) - 10;
    let middle = over(1000, 6000);
    let warm = over(6000, 7000);
    // The integral of the rate: at t = 1, 1/3 t + t²/18 times 100; at t = 6, 4 times 100 in total.
    assert!(
        (38..=39).contains(&first) && (399..=401).contains(&(first + middle)),
        "{first} {middle}"
    );
    assert_eq!(warm, 100);
    let mut paused = cold();
    assert_eq!(paused.available(at(5000)), 30, "full, but in use until just now");
    assert_eq!(paused.available(at(11_000)), 10, "after a pause as long as the warm-up it is cold");
    let wait = paused.take(at(11_000), 11);
    assert!(wait > ms(29) && wait < ms(30), "nearly three times as long: {wait:?}");
}

#[test]
fn nothing_overflows() {
    let mut bucket = TokenBucket::new(Duration::MAX, u64::MAX, u64::MAX, Nanos::MAX);
    for now in [Nanos::ZERO, Nanos::MAX] {
        (0..3).for_each(|_| _ = bucket.take(now, u64::MAX));
        bucket.set_fill(now, Duration::ZERO, 0);
        bucket.set_capacity(now, 0);
        bucket.take_available(now, u64::MAX);
        bucket.set_fill(now, Duration::MAX, u64::MAX);
    }
}

/// Clock that advances only during a sleep.
#[derive(Default)]
struct Virtual(AtomicU64);

impl Clock for Virtual {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(SeqCst))
    }

    fn sleep(&self, duration: Duration) {
        self.0.fetch_add(nanos(duration), SeqCst);
    }
}

#[test]
fn waiting_sleeps_and_a_bounded_wait_refuses_at_once() {
    let bucket = SharedBucket::new(TokenBucket::new(ms(250), 10, 1, at(0)));
    let clock = Virtual::default();
    assert_eq!((bucket.wait(&clock, 10), clock.now()), (ms(0), at(0)));
    assert_eq!((bucket.wait(&clock, 2), clock.now()), (ms(500), at(500)));
    assert_eq!((bucket.wait_max(&clock, 3, ms(749)), clock.now()), (None, at(500)));
    assert_eq!((bucket.wait_max(&clock, 3, ms(750)), clock.now()), (Some(ms(750)), at(1250)));
    assert_eq!(bucket.with(|b| b.available(at(1250))), 0);
}

proptest! {
    /// Compared with the plainest form: one interval after the other.
    #[test]
    fn the_bucket_equals_one_refilled_step_by_step(
        interval in 1..50_u64, capacity in 1..20_u64, quantum in 1..8_u64,
        calls in prop::collection::vec((0..60_u64, 0..30_u64, prop::option::of(0..400_u64)), 1..60),
    ) {
        let mut bucket = TokenBucket::new(ms(interval), capacity, quantum, at(0));
        let mut tokens = capacity as i64;
        let mut time = 0_u64;
        for (pause, take, max_wait) in calls {
            for _ in 0..pause {
                time += 1;
                if time.is_multiple_of(interval) {
                    tokens = (tokens + quantum as i64).min(capacity as i64);
                }
            }
            let mut left = tokens - take as i64;
            let mut wait = 0;
            while left < 0 {
                wait += 1;
                if (time + wait).is_multiple_of(interval) {
                    left += quantum as i64;
                }
            }
            let granted = max_wait.is_none_or(|max| wait <= max);
            let got = match max_wait {
                None => Some(bucket.take(at(time), take)),
                Some(max) => bucket.take_max_wait(at(time), take, ms(max)),
            };
            prop_assert_eq!(got, granted.then_some(ms(wait)));
            tokens -= if granted { take as i64 } else { 0 };
            prop_assert_eq!(bucket.available(at(time)), tokens);
        }
    }
}
