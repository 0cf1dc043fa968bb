//! Known tests for misleading load generators, applied to this one. Tests of times repeat before
//! they fail.
//!
//! 1. Stop the server for T in an open loop: the samples spread evenly over 0…T.
//!    [`a_stopped_server_shows_in_every_request_that_was_due`].
//! 2. The server's own arrival times follow the schedule. [`arrivals_follow_the_schedule`],
//!    [`fast_schedules_are_kept`].
//! 3. Little's law in a closed loop. [`littles_law_holds_in_a_closed_loop`].
//! 4. Conservation, and the server counts the same. [`the_server_counts_the_same`]; every run
//!    checks the identities within the outcome.
//! 5. Known delays come back within the histogram's error. [`known_delays_come_back`].
//! 6. Delays beyond the time-out stay in the tail. [`time_outs_stay_in_the_tail`].
//! 7. A starved generator reports that it was the limit. `a_starved_generator_names_itself` in
//!    `tools/lab/tests/measure/load/verdicts.rs`, with the real binary.
//! 8. Each planted bottleneck is named, and none without one.
//!    `bottleneck::tests::each_limit_is_named`, [`a_slow_target_is_not_blamed_on_the_generator`],
//!    `without_a_limit_none_is_named` in `tools/lab/tests/measure/load/verdicts.rs`.
//! 9. Traps of the protocol. All of `protocol`, `large_bodies_arrive_whole` in `ways`,
//!    `response::tests`.
//! 10. A step of the wall clock changes nothing. `a_step_of_the_wall_clock_changes_nothing` in
//!     `wall_clock`.
//! 11. It agrees with wrk; A against A shows no difference. `it_agrees_with_wrk` (long runs only:
//!     needs wrk) and `two_series_of_the_same_run_show_no_difference` in `agreement`.
//! 12. Merged intervals are the total. [`seconds_add_up_to_the_whole`].
//! 13. Memory stays flat. `memory_stays_flat` (10⁶ requests) and `memory_stays_flat_for_long`
//!     (10⁸ or ten minutes; long runs only) in `flat`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::scripted::{Server, config, near, open, outcome, retry_until_ok};
use hotrow_load::bottleneck::Bottleneck;
use hotrow_load::outcome::RunEnd;
use hotrow_load::plan::Arrivals;
use hotrow_load::run::run;
use hotrow_load::stats::{CensoredNs, LoadStats};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The server stalls for T: the requests intended then wait from 0 to T, evenly.
#[test]
fn a_stopped_server_shows_in_every_request_that_was_due() {
    const STOP: Duration = Duration::from_millis(1600);
    const RATE: f64 = 500.0;
    retry_until_ok(|| {
        let first = Arc::new(OnceLock::new());
        let server = Server::delaying(move |request| {
            let begun: Instant = *first.get_or_init(|| request.at);
            let from = begun + ms(600);
            let to = begun + ms(600) + STOP;
            if request.at >= from {
                to.saturating_duration_since(request.at)
            } else {
                Duration::ZERO
            }
        });
        let mut config = open(server.address, RATE, Arrivals::Uniform, ms(2800));
        config.connections = 10;
        let latency = outcome(&config).total.latency.answered;
        // Five fifths of T, without the first, which also contains the fast requests.
        for fifth in 1..5 {
            let low = STOP.as_nanos() as u64 / 5 * fifth;
            let high = STOP.as_nanos() as u64 / 5 * (fifth + 1);
            let samples = latency.count_up_to(high) - latency.count_up_to(low);
            near(
                &format!("samples in fifth {fifth}"),
                samples as f64,
                RATE * STOP.as_secs_f64() / 5.0,
                0.2,
            )?;
        }
        Ok(())
    });
}

/// Arrival times are measured by the server's clock.
#[test]
fn arrivals_follow_the_schedule() {
    const RATE: f64 = 400.0;
    retry_until_ok(|| {
        let server = Server::delaying(|_| Duration::ZERO);
        let mut config = open(server.address, RATE, Arrivals::Uniform, ms(1500));
        (config.connections, config.threads) = (8, 2);
        outcome(&config);
        let arrivals: Vec<Instant> = server.times().into_iter().map(|(at, _)| at).collect();
        near("requests", arrivals.len() as f64, 600.0, 0.02)?;
        let n = arrivals.len();
        let due = |i: usize| i as f64 / RATE;
        let mut late: Vec<f64> = arrivals
            .iter()
            .enumerate()
            .map(|(i, at)| (*at - arrivals[0]).as_secs_f64() - due(i))
            .collect();
        near("the time of all arrivals", late[n - 1] + due(n - 1), due(n - 1), 0.02)?;
        late.sort_by(f64::total_cmp);
        // Half of them within one gap, because the server's threads must wake up before they see a
        // request.
        let spread = late[n * 3 / 4] - late[n / 4];
        if spread < 1.0 / RATE {
            Ok(())
        } else {
            Err(format!("half of them arrived within {spread} s of their time"))
        }
    });
}

#[test]
fn littles_law_holds_in_a_closed_loop() {
    retry_until_ok(|| {
        let server = Server::delaying(|_| ms(3));
        // One thread: of two, the one that ends first would leave its connections idle.
        let mut config = config(server.address, 10_000);
        (config.connections, config.threads) = (20, 1);
        let outcome = outcome(&config);
        let mean_s = outcome.total.latency.mean().map_or(0, CensoredNs::ns) as f64 / 1e9;
        near("rate × mean latency", outcome.throughput_rps() * mean_s, 20.0, 0.02)
    });
}

/// Server and generator count the same; every run checks the identities within the outcome.
#[test]
fn the_server_counts_the_same() {
    let server = Server::delaying(|_| Duration::ZERO);
    for (connections, threads) in [(1, 1), (7, 2), (32, 2)] {
        let before = server.requests();
        let mut config = config(server.address, 2000);
        (config.connections, config.threads) = (connections, threads);
        let counts = outcome(&config).total.counts;
        assert_eq!((counts.scheduled, counts.sent, counts.ok), (2000, 2000, 2000));
        assert_eq!(server.requests() - before, 2000);
    }
    let before = server.requests();
    let mut config = open(server.address, 2000.0, Arrivals::Poisson, ms(700));
    (config.connections, config.threads, config.plan.warmup) = (5, 2, ms(300));
    let counts = outcome(&config).total.counts;
    assert!(server.requests() - before > counts.sent, "the warm-up must be sent and not counted");
    assert_eq!(counts.ok + counts.unsent, counts.scheduled);
}

/// So fast that slots are sent together: none is lost, and half of them are in time.
#[test]
fn fast_schedules_are_kept() {
    const RATE: f64 = 12_000.0;
    retry_until_ok(|| {
        let server = Server::delaying(|_| Duration::ZERO);
        let mut config = open(server.address, RATE, Arrivals::Uniform, ms(500));
        (config.connections, config.timeout) = (20, ms(5000));
        let outcome = outcome(&config);
        let counts = &outcome.total.counts;
        assert_eq!(
            (counts.scheduled, counts.ok + counts.unsent, server.requests()),
            (6000, 6000, counts.sent)
        );
        near("requests sent", counts.sent as f64, 6000.0, 0.02)?;
        let arrivals: Vec<Instant> = server.times().into_iter().map(|(at, _)| at).collect();
        near(
            "the time of all arrivals",
            (arrivals[arrivals.len() - 1] - arrivals[0]).as_secs_f64(),
            0.5,
            0.05,
        )?;
        let lag_ns = outcome.total.schedule_lag.value_at_quantile(0.5).unwrap_or(0);
        if lag_ns < 2_000_000 {
            Ok(())
        } else {
            Err(format!("half of them were sent more than {lag_ns} ns late"))
        }
    });
}

/// Delays set in the server, and measured by it, are reported: never less than set, and not much
/// more than measured. The tolerance depends on the machine: wake-ups of the server's threads, and
/// of the generator's when it reads, are as late as the generator's when it sends.
#[test]
fn known_delays_come_back() {
    // Two modes: most around 4 ms, a fifth around 40 ms.
    let delay = |number: u64| {
        if number.is_multiple_of(5) { ms(40) } else { ms(4) + Duration::from_micros(number % 1000) }
    };
    retry_until_ok(|| {
        let server = Server::delaying(move |request| delay(request.number));
        let mut config = open(server.address, 300.0, Arrivals::Poisson, ms(2000));
        config.connections = 60;
        let total = outcome(&config).total;
        let mut reported: Vec<Duration> = (0..server.requests()).map(delay).collect();
        let mut seen: Vec<Duration> = server.times().iter().map(|(from, to)| *to - *from).collect();
        reported.sort();
        seen.sort();
        for quantile in [0.1, 0.5, 0.75, 0.85, 0.95] {
            let of = |sorted: &[Duration]| sorted[(sorted.len() as f64 * quantile) as usize];
            let here =
                Duration::from_nanos(total.service.quantile(quantile).map_or(0, CensoredNs::ns));
            let wakes_late =
                Duration::from_nanos(total.own_lag.value_at_quantile(0.95).unwrap_or(0));
            // The histogram reports up to 1/64 too much.
            let most = of(&seen) + of(&seen) / 64 + ms(1) + 3 * wakes_late;
            // The rank of this quantile may be one below the server's.
            let least = of(&reported).saturating_sub(Duration::from_micros(10));
            if here < least || here > most {
                return Err(format!(
                    "quantile {quantile} is {here:?}, should be within {least:?} and {most:?}"
                ));
            }
        }
        Ok(())
    });
}

#[test]
fn time_outs_stay_in_the_tail() {
    const TIMEOUT: Duration = Duration::from_millis(500);
    retry_until_ok(|| {
        let server =
            Server::delaying(|request| if request.number % 20 == 7 { ms(5000) } else { ms(1) });
        let mut config = config(server.address, 200);
        (config.connections, config.timeout) = (10, TIMEOUT);
        let total = outcome(&config).total;
        assert_eq!(total.latency.count(), 200);
        let p50 = total.latency.quantile(0.5);
        let p99 = total.latency.quantile(0.99);
        let in_time = matches!(p50, Some(CensoredNs::Exact(ns)) if ns < TIMEOUT.as_nanos() as u64);
        let in_the_tail =
            matches!(p99, Some(CensoredNs::AtLeast(ns)) if ns >= TIMEOUT.as_nanos() as u64);
        let fine = (total.counts.timeouts, total.counts.ok) == (10, 190) && in_time && in_the_tail;
        if fine { Ok(()) } else { Err(format!("p50 {p50:?}, p99 {p99:?}, {:?}", total.counts)) }
    });
}

/// Two connections carry 100 of the 500 requests due per second: requests are late, but not because
/// of the generator.
#[test]
fn a_slow_target_is_not_blamed_on_the_generator() {
    retry_until_ok(|| {
        let server = Server::delaying(|_| ms(20));
        let mut config = open(server.address, 500.0, Arrivals::Uniform, ms(1000));
        (config.connections, config.timeout) = (2, ms(5000));
        let outcome = outcome(&config);
        let lag_ns = outcome.total.schedule_lag.value_at_quantile(0.9).unwrap_or(0);
        let kept = outcome.rate_ratio().unwrap_or(1.0);
        if outcome.limit() == Bottleneck::NotGenerator && lag_ns > 100_000_000 && kept < 0.5 {
            return Ok(());
        }
        Err(format!("{:?}, lag {lag_ns} ns, {kept} of the rate", outcome.limit()))
    });
}

#[test]
fn seconds_add_up_to_the_whole() {
    let server = Server::delaying(|request| Duration::from_micros(request.number % 3000));
    let mut config = open(server.address, 500.0, Arrivals::Poisson, ms(2500));
    (config.connections, config.threads) = (10, 2);
    let mut sum = LoadStats::default();
    let mut seconds = 0;
    let outcome = run(&config, &Arc::new(AtomicBool::new(false)), &mut |second, record| {
        assert_eq!(second.index, seconds);
        seconds += 1;
        sum.merge(record);
    })
    .expect("an outcome");
    assert_eq!(sum, outcome.total);
    assert_eq!(outcome.seconds.len() as u64, seconds);
    assert!(seconds >= 2, "{seconds}");
}

#[test]
fn an_interrupted_run_reports_its_figures() {
    let server = Server::delaying(|request| if request.number < 50 { ms(1) } else { ms(5000) });
    let mut config = config(server.address, 1000);
    (config.connections, config.timeout) = (4, ms(20_000));
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    let seen = server.seen.clone();
    std::thread::spawn(move || {
        while seen.requests.load(std::sync::atomic::Ordering::SeqCst) < 54 {
            std::thread::sleep(ms(1));
        }
        set.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    let outcome = run(&config, &stop, &mut |_, _| {}).expect("an outcome");
    assert_eq!(outcome.end, RunEnd::Interrupted);
    assert_eq!((outcome.total.counts.ok, outcome.in_flight_at_end), (50, 4));
}
