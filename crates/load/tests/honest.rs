//! How an expert catches a lying generator: each trick against ours.

mod scripted;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hotrow_load::outcome::End;
use hotrow_load::plan::Arrivals;
use hotrow_load::record::{Known, Record};
use hotrow_load::run::run;
use scripted::{Server, config, near, one_try, open, outcome};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The server stands still for T: the requests intended then wait from 0 to T, evenly.
#[test]
fn a_stopped_server_shows_in_every_request_that_was_due() {
    const STOP: Duration = Duration::from_millis(800);
    const RATE: f64 = 500.0;
    one_try(|| {
        let first = Arc::new(OnceLock::new());
        let server = Server::delaying(move |asked| {
            let begun: Instant = *first.get_or_init(|| asked.at);
            let (from, to) = (begun + ms(600), begun + ms(600) + STOP);
            if asked.at >= from { to.saturating_duration_since(asked.at) } else { Duration::ZERO }
        });
        let mut config = open(server.address, RATE, Arrivals::Uniform, ms(2000));
        config.connections = 10;
        let latency = outcome(&config).total.latency.answered;
        // Five fifths of T, without the first, which holds the fast ones too.
        for fifth in 1..5 {
            let (low, high) = (STOP.as_nanos() as u64 / 5 * fifth, STOP.as_nanos() as u64 / 5 * (fifth + 1));
            let samples = latency.count_up_to(high) - latency.count_up_to(low);
            near(&format!("samples in fifth {fifth}"), samples as f64, RATE * STOP.as_secs_f64() / 5.0, 0.2)?;
        }
        Ok(())
    });
}

/// The server's own clock says when requests came.
#[test]
fn arrivals_follow_the_schedule() {
    const RATE: f64 = 400.0;
    one_try(|| {
        let server = Server::delaying(|_| Duration::ZERO);
        let mut config = open(server.address, RATE, Arrivals::Uniform, ms(1500));
        (config.connections, config.threads) = (8, 2);
        outcome(&config);
        let mut came: Vec<Instant> = server.seen.times.lock().unwrap().iter().map(|(at, _)| *at).collect();
        came.sort();
        assert_eq!(came.len(), 600);
        let due = |i: usize| i as f64 / RATE;
        let mut late: Vec<f64> =
            came.iter().enumerate().map(|(i, at)| (*at - came[0]).as_secs_f64() - due(i)).collect();
        near("the time of all arrivals", late[599] + due(599), due(599), 0.02)?;
        late.sort_by(f64::total_cmp);
        // Half of them within one gap: the server's threads too must be woken before they see a request.
        let spread = late[450] - late[150];
        if spread < 1.0 / RATE { Ok(()) } else { Err(format!("half of them came within {spread} s of their time")) }
    });
}

#[test]
fn littles_law_holds_in_a_closed_loop() {
    one_try(|| {
        let server = Server::delaying(|_| ms(3));
        let mut config = config(server.address, 3000);
        (config.connections, config.threads) = (20, 2);
        let outcome = outcome(&config);
        let mean_s = outcome.total.latency.mean().map_or(0, Known::ns) as f64 / 1e9;
        near("rate × mean latency", outcome.throughput_rps() * mean_s, 20.0, 0.02)
    });
}

/// Everybody counts the same; the laws within the outcome are checked by every run.
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
    assert!(server.requests() - before > counts.sent, "the warm-up was sent, and not counted");
    assert_eq!(counts.ok + counts.unsent, counts.scheduled);
}

/// Delays that the server measured itself come back.
#[test]
fn known_delays_come_back() {
    one_try(|| {
        // Two humps: most around 4 ms, a fifth around 40 ms.
        let server = Server::delaying(|asked| {
            if asked.number % 5 == 0 { ms(40) } else { ms(4) + Duration::from_micros(asked.number % 1000) }
        });
        let mut config = open(server.address, 300.0, Arrivals::Poisson, ms(2000));
        config.connections = 60;
        let service = outcome(&config).total.service;
        let mut took: Vec<u64> =
            server.seen.times.lock().unwrap().iter().map(|(from, to)| (*to - *from).as_nanos() as u64).collect();
        took.sort();
        for quantile in [0.1, 0.5, 0.75, 0.85, 0.95] {
            let there = took[(took.len() as f64 * quantile) as usize] as f64;
            let here = service.quantile(quantile).map_or(0, Known::ns) as f64;
            // Beyond the histogram's 1.6 %, the way there and back, and threads that must wake up: at most 1 ms.
            near(&format!("quantile {quantile}"), here, there + 500_000.0, 0.016 + 500_000.0 / there)?;
        }
        Ok(())
    });
}

#[test]
fn time_outs_stay_in_the_tail() {
    let server = Server::delaying(|asked| if asked.number % 20 == 7 { ms(2000) } else { ms(1) });
    let mut config = config(server.address, 200);
    (config.connections, config.timeout) = (10, ms(250));
    let total = outcome(&config).total;
    assert_eq!((total.counts.timeouts, total.counts.ok), (10, 190));
    assert_eq!(total.latency.count(), 200);
    assert!(
        matches!(total.latency.quantile(0.5), Some(Known::Exactly(..100_000_000))),
        "{:?}",
        total.latency.quantile(0.5)
    );
    assert!(
        matches!(total.latency.quantile(0.99), Some(Known::AtLeast(250_000_000..))),
        "{:?}",
        total.latency.quantile(0.99)
    );
}

#[test]
fn seconds_add_up_to_the_whole() {
    let server = Server::delaying(|asked| Duration::from_micros(asked.number % 3000));
    let mut config = open(server.address, 500.0, Arrivals::Poisson, ms(2500));
    (config.connections, config.threads) = (10, 2);
    let mut sum = Record::default();
    let mut seconds = 0;
    let outcome = run(&config, &Arc::new(AtomicBool::new(false)), &mut |second, record| {
        assert_eq!(second.index, seconds);
        seconds += 1;
        sum.merge(record);
    })
    .expect("an outcome");
    assert_eq!(sum, outcome.total);
    assert_eq!(outcome.seconds.len() as u64, seconds);
    assert!((2..5).contains(&seconds));
}

#[test]
fn an_interrupted_run_reports_what_there_is() {
    let server = Server::delaying(|asked| if asked.number < 50 { ms(1) } else { ms(5000) });
    let mut config = config(server.address, 1000);
    (config.connections, config.timeout) = (4, ms(20_000));
    let stop = Arc::new(AtomicBool::new(false));
    let (set, seen) = (stop.clone(), server.seen.clone());
    std::thread::spawn(move || {
        while seen.requests.load(std::sync::atomic::Ordering::SeqCst) < 54 {
            std::thread::sleep(ms(1));
        }
        set.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    let outcome = run(&config, &stop, &mut |_, _| {}).expect("an outcome");
    assert_eq!(outcome.end, End::Interrupted);
    assert_eq!((outcome.total.counts.ok, outcome.in_flight_at_end), (50, 4));
}
