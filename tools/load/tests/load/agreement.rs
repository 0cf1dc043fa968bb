//! Agreement with wrk in a closed loop, and of two series of the same run (test 11 of
//! `coordinated_omission`). Runs alternate, and whole rounds are repeated before a test fails.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::scripted::{Server, config, near, outcome, retry_until_ok};
use hotrow_load::plan::StopCondition;
use hotrow_load::run::Config;
use hotrow_load::stats::CensoredNs;

const CONNECTIONS: usize = 10;
/// The server's time per request, so that the rate depends on the connections more than on the
/// machine.
const DELAY: Duration = Duration::from_millis(2);
const ROUNDS: usize = 5;
/// Largest difference of the medians of rates and latencies, as a share.
const AGREEMENT: f64 = 0.05;

fn closed(address: SocketAddr, length: Duration) -> Config {
    let mut config = config(address, 0);
    config.plan.stop = StopCondition { duration: Some(length), requests: None };
    config.connections = CONNECTIONS;
    config
}

/// Figures of a run.
struct Figures {
    rps: f64,
    /// Median service time, in µs.
    median_us: f64,
}

fn ours(address: SocketAddr, length: Duration) -> Figures {
    let outcome = outcome(&closed(address, length));
    let median_ns = outcome.total.service.quantile(0.5).map_or(0, CensoredNs::ns);
    Figures { rps: outcome.throughput_rps(), median_us: median_ns as f64 / 1000.0 }
}

/// Runs wrk and parses `Requests/sec:  1234.56` and `50%    2.10ms`.
fn wrk(address: SocketAddr, length: Duration) -> Figures {
    let connections = format!("-c{CONNECTIONS}");
    let length = format!("-d{}s", length.as_secs());
    let url = format!("http://{address}/");
    let arguments =
        ["-t1", &connections, &length, "--latency", "-H", "Connection: keep-alive", &url];
    let done = Command::new("wrk").args(arguments).output().expect("wrk is installed");
    let text = String::from_utf8(done.stdout).expect("text");
    let after =
        |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    let rps = after("Requests/sec:")
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("a rate in {text}"));
    let median_us = after("50%").and_then(micros).unwrap_or_else(|| panic!("a median in {text}"));
    Figures { rps, median_us }
}

fn micros(text: &str) -> Option<f64> {
    let (number, unit_us) = match text {
        _ if text.ends_with("us") => (text.strip_suffix("us")?, 1.0),
        _ if text.ends_with("ms") => (text.strip_suffix("ms")?, 1e3),
        _ => (text.strip_suffix('s')?, 1e6),
    };
    Some(number.parse::<f64>().ok()? * unit_us)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "needs wrk"]
fn it_agrees_with_wrk() {
    let server = Server::delaying(|_| DELAY);
    let length = Duration::from_secs(1);
    retry_until_ok(|| {
        let pairs: Vec<_> = (0..ROUNDS)
            .map(|_| (ours(server.address, length), wrk(server.address, length)))
            .collect();
        let of = |pick: fn(&Figures) -> f64| {
            let (us, wrk) = pairs.iter().map(|(us, wrk)| (pick(us), pick(wrk))).unzip();
            (median(us), median(wrk))
        };
        let (rate, latency) = (of(|figures| figures.rps), of(|figures| figures.median_us));
        near("our rate, by wrk's,", rate.0, rate.1, AGREEMENT)?;
        near("our median latency, by wrk's,", latency.0, latency.1, AGREEMENT)
    });
}

/// A against A, alternating: the ratio of their rates is 1 within the spread of the rounds.
#[test]
fn two_series_of_the_same_run_show_no_difference() {
    /// In eight rounds, all ratios lie on the same side of 1 by chance in one of 128 attempts: a
    /// sign test at 1 %.
    const PAIRS: usize = 8;
    let server = Server::delaying(|_| DELAY);
    let length = Duration::from_millis(150);
    retry_until_ok(|| {
        let ratio = |_| ours(server.address, length).rps / ours(server.address, length).rps;
        let mut ratios: Vec<f64> = (0..PAIRS).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let middle = f64::midpoint(ratios[PAIRS / 2 - 1], ratios[PAIRS / 2]);
        near(
            "the middle ratio",
            middle,
            1.0,
            AGREEMENT.max((ratios[PAIRS - 2] - ratios[1]) / 2.0),
        )?;
        if ratios[0] <= 1.0 && 1.0 <= ratios[PAIRS - 1] {
            Ok(())
        } else {
            Err(format!("{ratios:?} do not hold 1"))
        }
    });
}
