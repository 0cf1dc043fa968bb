use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;

use super::*;
use crate::rate::Cell;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn gcra(rate: &str, burst: u32) -> Gcra {
    Gcra(Meter::new(rate.parse().unwrap(), burst, Duration::ZERO, Nanos(0)))
}

fn admitted(decision: Decision) -> bool {
    matches!(decision, Decision::Admitted { .. })
}

#[test]
fn a_burst_has_its_exact_size_and_then_the_rate_holds() {
    let gcra = gcra("100/s", 100);
    let cell = Cell::default();
    for left in (0..100).rev() {
        assert_eq!(cell.decide(&gcra, 1, Nanos(0)), Decision::Admitted { remaining: left });
    }
    assert!(!admitted(cell.decide(&gcra, 1, Nanos(0))));
    let later = (1..=1000).filter(|ms| admitted(cell.decide(&gcra, 1, Nanos(ms * MS)))).count();
    assert_eq!(later, 100);
}

#[test]
fn refused_requests_take_nothing_and_are_admitted_at_the_reported_time() {
    let gcra = gcra("10/s", 5);
    let cell = Cell::default();
    assert!(admitted(cell.decide(&gcra, 3, Nanos(0))));
    let before = cell.state();
    let Decision::Refused { retry_after } = cell.decide(&gcra, 4, Nanos(0)) else {
        panic!("too much")
    };
    assert!((retry_after.as_millis() as i64 - 200).abs() <= 1, "{retry_after:?}");
    assert_eq!(
        (cell.decide(&gcra, 6, Nanos(0)), cell.state()),
        (Decision::TooLarge { most: 5 }, before)
    );
    let early = Nanos(retry_after.as_nanos() as u64 - 1);
    assert!(!admitted(cell.decide(&gcra, 4, early)));
    assert_eq!(
        cell.decide(&gcra, 4, early.after(Duration::from_nanos(1))),
        Decision::Admitted { remaining: 0 }
    );
    assert_eq!(
        cell.decide(&gcra, 0, Nanos(0)),
        cell.decide(&gcra, 0, Nanos(0)),
        "nothing costs nothing"
    );
}

#[test]
fn tokens_and_debts_are_carried_over_a_change() {
    let gcra = gcra("10/s", 10);
    let cell = Cell::default();
    assert!(admitted(cell.decide(&gcra, 7, Nanos(0))));
    gcra.0.change(Some("1000/h".parse().unwrap()), None, Nanos(0));
    assert_eq!(cell.decide(&gcra, 0, Nanos(0)), Decision::Admitted { remaining: 3 });
    gcra.0.change(None, Some(20), Nanos(0));
    assert_eq!(
        cell.decide(&gcra, 0, Nanos(0)),
        Decision::Admitted { remaining: 13 },
        "the new room is there at once"
    );
    gcra.0.change(None, Some(5), Nanos(0));
    let Decision::Refused { retry_after } = cell.decide(&gcra, 1, Nanos(0)) else {
        panic!("2 more than the burst")
    };
    assert!((retry_after.as_secs_f64() - 3.0 * 3.6).abs() < 0.01, "{retry_after:?}");
}

#[test]
fn a_cold_start_grants_a_third_of_burst_and_rate() {
    let warm_up = Duration::from_secs(6);
    let gcra = Gcra(Meter::new("100/s".parse().unwrap(), 30, warm_up, Nanos(0)));
    let cell = Cell::default();
    let over = |from: u64, to: u64| {
        (from..to).filter(|t| admitted(cell.decide(&gcra, 1, Nanos(t * MS)))).count()
    };
    let first = (0..100).filter(|_| admitted(cell.decide(&gcra, 1, Nanos(0)))).count();
    assert_eq!(first, 10);
    // In 6 seconds: the integral of the rate, 400, and 20 units by which the burst has grown.
    let cold = over(1, 6000);
    assert!((418..=421).contains(&cold), "{cold}");
    assert_eq!(over(6000, 7000), 100);
}

#[test]
fn threads_never_exceed_the_burst() {
    let gcra = gcra("1/h", 5000);
    let cell = Cell::default();
    let count = || (0..2000).filter(|_| admitted(cell.decide(&gcra, 1, Nanos(0)))).count();
    let all: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(all, 5000);
}

const THREADS: u64 = 4;
/// Two consecutively decided clock readings may be one token's time apart (see below), and a bucket
/// requested that rarely must hold two tokens to lose none.
const BURST: u64 = 2;

/// Several threads request four times the allowed rate, on one clock that each call advances. No
/// schedule loses a token: while one thread decides on a reading, each other one holds at most one
/// older reading, so the newest decided readings are at most `THREADS` steps, one token's time,
/// apart.
fn admitted_from_many_threads(per_second: u64, seconds: u64) -> u64 {
    let gcra = gcra(&format!("{per_second}/s"), BURST as u32);
    let cell = Cell::default();
    let clock = AtomicU64::new(0);
    let step = SECOND / per_second / THREADS;
    let ask = || {
        let readings = std::iter::repeat_with(|| clock.fetch_add(step, Relaxed))
            .take_while(|now| *now < seconds * SECOND);
        readings.filter(|now| admitted(cell.decide(&gcra, 1, Nanos(*now)))).count() as u64
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn many_threads_get_exactly_the_rate_in_any_schedule() {
    for (per_second, seconds) in [(1, 60), (100, 60), (100_000, 20)] {
        let admitted = admitted_from_many_threads(per_second, seconds);
        let exact = per_second * seconds;
        assert!(
            (exact..=exact + BURST).contains(&admitted),
            "{admitted} in {seconds} s at {per_second}/s"
        );
    }
}

proptest! {
    /// Compared with a bucket of whole ticks, refilled at each call.
    #[test]
    fn gcra_equals_a_refilled_bucket(
        per_second in 1..5000_u32, burst in 1..50_u32,
        calls in prop::collection::vec((0..2000_u64, 0..60_u64), 1..80),
    ) {
        const TICKS: u64 = crate::rate::meter::TICKS_PER_UNIT;
        let gcra = gcra(&format!("{per_second}/s"), burst);
        let cell = Cell::default();
        let ticks_at = |ms: u64| ms * u64::from(per_second) * TICKS / 1000;
        let mut level = u64::from(burst) * TICKS;
        let mut time = 0;
        for (pause, cost) in calls {
            level = (level + ticks_at(time + pause) - ticks_at(time)).min(u64::from(burst) * TICKS);
            time += pause;
            let granted = cost * TICKS <= level;
            level -= if granted { cost * TICKS } else { 0 };
            match cell.decide(&gcra, cost, Nanos(time * MS)) {
                Decision::Admitted { remaining } => {
                    prop_assert_eq!((true, level / TICKS), (granted, remaining))
                }
                Decision::Refused { retry_after } => {
                    prop_assert!(!granted && cost <= u64::from(burst));
                    let then = Nanos(time * MS).after(retry_after);
                    prop_assert!(gcra.judge(cell.state(), cost, then).0.is_admitted());
                    let just_before = Nanos(then.0 - 1);
                    prop_assert!(!gcra.judge(cell.state(), cost, just_before).0.is_admitted());
                }
                Decision::TooLarge { most } => {
                    prop_assert!(cost > most && most == u64::from(burst))
                }
                Decision::Wait { .. } => prop_assert!(false, "a token bucket does not wait"),
            }
        }
    }
}
