use super::*;

const SECOND: u64 = 1_000_000_000;

fn open(from: f64, to: f64, arrivals: Arrivals, duration_s: u64) -> Plan {
    Plan {
        model: LoadModel::Open { rate: Rate::new(from, to).unwrap(), arrivals },
        warmup: Duration::ZERO,
        stop: StopCondition { duration: Some(Duration::from_secs(duration_s)), requests: None },
        seed: 5,
    }
}

/// Returns all slots of one thread, each taken when it is due.
fn of_thread(plan: &Plan, index: u32, threads: u32) -> Vec<Slot> {
    let (mut schedule, mut now_ns, mut all) = (plan.share(index, threads), 0, Vec::new());
    loop {
        match schedule.next(now_ns) {
            NextSlot::Due => all.push(schedule.take(now_ns).expect("it is due")),
            NextSlot::At(at) => now_ns = at,
            NextSlot::Over => return all,
        }
    }
}

fn of_threads(plan: &Plan, threads: u32) -> Vec<Slot> {
    let mut all: Vec<Slot> =
        (0..threads).flat_map(|index| of_thread(plan, index, threads)).collect();
    all.sort_by_key(|slot| slot.intended_ns);
    all
}

#[test]
fn uniform_slots_are_even_and_all_there() {
    let plan = open(1000.0, 1000.0, Arrivals::Uniform, 10);
    let slots = of_threads(&plan, 1);
    assert_eq!(slots.len(), 10_000);
    for (i, slot) in slots.iter().enumerate() {
        assert!(
            slot.measured && slot.intended_ns.abs_diff(i as u64 * 1_000_000) <= 1,
            "{i}: {slot:?}"
        );
    }
}

#[test]
fn a_whole_number_of_requests_is_exact() {
    for rate in [1.0, 3.0, 7.0, 300.0, 999.0, 20_000.0, 33_333.0, 123_457.0] {
        for warmup_s in [0, 1, 3] {
            let plan = Plan {
                warmup: Duration::from_secs(warmup_s),
                ..open(rate, rate, Arrivals::Uniform, 3)
            };
            let measured = of_threads(&plan, 1).iter().filter(|s| s.measured).count();
            assert_eq!(measured as f64, 3.0 * rate, "{rate} requests/s, warm-up {warmup_s} s");
        }
    }
}

#[test]
fn threads_share_one_schedule() {
    for arrivals in [Arrivals::Uniform, Arrivals::Poisson] {
        let plan = Plan { warmup: Duration::from_secs(1), ..open(700.0, 2300.0, arrivals, 5) };
        let alone = of_threads(&plan, 1);
        for threads in [2, 3, 7] {
            assert_eq!(of_threads(&plan, threads), alone, "{arrivals:?}, {threads} threads");
        }
    }
}

#[test]
fn a_ramp_has_the_rate_of_each_moment() {
    let plan = open(1000.0, 9000.0, Arrivals::Uniform, 8);
    let slots = of_threads(&plan, 2);
    assert!(slots.len().abs_diff(40_000) <= 1, "{}", slots.len());
    for second in 0..8 {
        let within = slots.iter().filter(|s| s.intended_ns / SECOND == second).count();
        assert!(within.abs_diff(1500 + 1000 * second as usize) <= 1, "second {second}: {within}");
    }
    let falling = of_threads(&open(9000.0, 1000.0, Arrivals::Uniform, 8), 1);
    assert!(
        falling.len().abs_diff(40_000) <= 1 && falling.iter().all(|s| s.intended_ns < 8 * SECOND)
    );
}

#[test]
fn poisson_gaps_are_exponential() {
    let slots = of_threads(&open(1000.0, 1000.0, Arrivals::Poisson, 100), 1);
    let n = slots.len() as f64;
    // Five standard deviations of a Poisson count.
    assert!((n - 100_000.0).abs() < 5.0 * 100_000_f64.sqrt(), "{n}");
    let gaps: Vec<f64> =
        slots.windows(2).map(|w| (w[1].intended_ns - w[0].intended_ns) as f64 / 1e6).collect();
    let mean = gaps.iter().sum::<f64>() / n;
    let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
    assert!(
        (variance.sqrt() / mean - 1.0).abs() < 0.03,
        "the coefficient of variation is 1: {}",
        variance.sqrt() / mean
    );
    let longer = gaps.iter().filter(|g| **g > 1.0).count() as f64 / n;
    assert!((longer - (-1_f64).exp()).abs() < 0.01, "{longer}");
    assert_ne!(
        slots,
        of_threads(&Plan { seed: 6, ..open(1000.0, 1000.0, Arrivals::Poisson, 100) }, 1)
    );
}

#[test]
fn a_late_slot_stays_late() {
    let mut schedule = open(100.0, 100.0, Arrivals::Uniform, 10).share(0, 1);
    let late: Vec<Slot> = std::iter::from_fn(|| schedule.take(SECOND)).collect();
    assert_eq!(late.len(), 101, "all of the first second at once");
    assert!(
        late.iter().enumerate().all(|(i, s)| s.intended_ns.abs_diff(i as u64 * 10_000_000) <= 1)
    );
    assert_eq!(schedule.next(SECOND), NextSlot::At(1_010_000_000));
    assert_eq!(schedule.next(10 * SECOND), NextSlot::Over);
    let unsent = schedule.into_unsent(10 * SECOND);
    assert_eq!(unsent.iter().map(|u| u.slots).sum::<u64>(), 1000 - 101, "none is forgotten");
    assert_eq!(unsent[0], Unsent { intended_ns: 1_010_000_000, slots: 1 });
}

#[test]
fn a_number_of_requests_ends_it() {
    for threads in [1, 3] {
        for pace in [LoadModel::Closed, open(500.0, 500.0, Arrivals::Poisson, 1).model] {
            let stop = StopCondition { duration: None, requests: Some(1000) };
            let plan = Plan { model: pace, warmup: Duration::ZERO, stop, seed: 1 };
            assert_eq!(of_threads(&plan, threads).len(), 1000, "{pace:?}");
        }
    }
}

#[test]
fn the_warm_up_does_not_count() {
    let stop = StopCondition { duration: Some(Duration::from_secs(60)), requests: Some(700) };
    let plan =
        Plan { warmup: Duration::from_secs(2), stop, ..open(300.0, 300.0, Arrivals::Uniform, 60) };
    for threads in [1, 2] {
        let slots = of_threads(&plan, threads);
        assert_eq!(slots.iter().filter(|s| s.measured).count(), 700);
        assert_eq!(slots.iter().filter(|s| !s.measured).count(), 600);
        assert!(slots.iter().all(|s| s.measured == (s.intended_ns >= 2 * SECOND)));
    }
    let mut closed = Plan { model: LoadModel::Closed, ..plan }.share(0, 1);
    assert_eq!(closed.take(SECOND), Some(Slot { intended_ns: SECOND, measured: false }));
    assert_eq!((0..2000).filter_map(|_| closed.take(3 * SECOND)).count(), 700);
}

#[test]
fn endless_backlogs_are_not_walked() {
    let schedule = open(RATE_MAX, RATE_MAX, Arrivals::Poisson, 3600).share(0, 2);
    let unsent = schedule.into_unsent(3600 * SECOND);
    assert!(unsent.len() < 1_100_000, "{}", unsent.len());
    let total: u64 = unsent.iter().map(|u| u.slots).sum();
    assert!((total as f64 / (RATE_MAX * 1800.0) - 1.0).abs() < 0.001, "{total}");
}

#[test]
fn impossible_plans_are_refused() {
    assert!(matches!(Rate::new(0.0, 1.0), Err(PlanError::Rate(0.0))));
    for bad in [f64::NAN, f64::INFINITY, -1.0, 1e8] {
        assert!(Rate::new(1.0, bad).is_err(), "{bad}");
    }
    let good = open(1.0, 2.0, Arrivals::Uniform, 1);
    let with =
        |duration, requests| Plan { stop: StopCondition { duration, requests }, ..good }.check();
    assert_eq!(good.check(), Ok(()));
    assert_eq!(with(None, None), Err(PlanError::Endless));
    assert_eq!(with(Some(Duration::ZERO), None), Err(PlanError::Endless));
    assert_eq!(with(None, Some(5)), Err(PlanError::RampWithoutDuration));
    assert!(matches!(with(Some(Duration::MAX), None), Err(PlanError::TooLong(_))));
}
