//! Simulation of 10 to 1,000 instances behind a balancer, with a change hub: their load on the
//! database and the network, hit ratio, staleness, and what breaks first. From a seed: the same
//! command prints the same table.

mod cache;
mod inputs;
mod model;
mod random;

use std::process::ExitCode;

use inputs::{ALL, LIMITS, Origin};
use model::{Outcome, Routing, Scenario, simulate};
use random::Zipf;

const USAGE: &str = "usage: scale [--seed N] [--events N]
  --seed N     seed of all random numbers (default 1)
  --events N   simulated requests per row (default 2000000)
Prints Markdown: keep it as bench/runs/DATE-scale.md, and rows of it in docs/routing.md.";

const KEYS: usize = 1_000_000;
const SKEW: f64 = 0.99;
const CAPACITY: usize = 100_000;
const WRITES_PER_S: f64 = 1_000.0;
const LOSSES_PER_H: f64 = 1.0;

fn main() -> ExitCode {
    let Some((seed, events)) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    print!("{}", document(seed, events));
    ExitCode::SUCCESS
}

fn options() -> Option<(u64, usize)> {
    let (mut seed, mut events) = (1, 2_000_000);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next()?;
        match name.as_str() {
            "--seed" => seed = value.parse().ok()?,
            "--events" => events = value.parse().ok().filter(|n| (1_000..=1 << 30).contains(n))?,
            _ => return None,
        }
    }
    Some((seed, events))
}

/// Returns the whole run.
fn document(seed: u64, events: usize) -> String {
    let command = format!(
        "cargo run --release --manifest-path bench/Cargo.toml -p scale -- --seed {seed} --events \
         {events}"
    );
    let mut text = format!("# scale, seed {seed}\n\n`{command}`\n\n");
    text.push_str("| input | value | from |\n|---|---|---|\n");
    for input in ALL {
        let origin = match input.origin {
            Origin::Run(run) => format!("`{run}`"),
            Origin::Assumed => "assumed".to_owned(),
        };
        text.push_str(&format!("| {} | {} {} | {origin} |\n", input.name, input.value, input.unit));
    }
    text.push_str(&format!(
        "\n{KEYS} records, Zipf {SKEW}, {CAPACITY} entries per instance, {WRITES_PER_S} changes/s, \
         {LOSSES_PER_H} loss/h.\nLimits: {} cores per instance, {} of the database with {} \
         connections, {} of NATS, {} Gbit/s.\n\n",
        LIMITS.instance_cores,
        LIMITS.primary_cores,
        LIMITS.primary_connections,
        LIMITS.nats_cores,
        LIMITS.network_bits / 1e9,
    ));
    text.push_str(
        "| instances | requests/s | routing | hit ratio | reads/s | database cores | NATS Mbit/s | \
         busiest instance, cores | staleness p99, ms | reads in the second after a loss | \
         used most, or **too small** |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let zipf = Zipf::new(KEYS, SKEW);
    for requests_per_s in [1e4, 1e5, 1e6, 1e7] {
        for instances in [10, 100, 1_000] {
            for routing in [Routing::Consistent, Routing::Spread] {
                let scenario = Scenario {
                    instances,
                    requests_per_s,
                    writes_per_s: WRITES_PER_S,
                    capacity: CAPACITY,
                    routing,
                    losses_per_h: LOSSES_PER_H,
                    events,
                };
                text.push_str(&row(&scenario, &simulate(&scenario, &zipf, seed)));
            }
        }
    }
    text
}

fn row(scenario: &Scenario, outcome: &Outcome) -> String {
    let routing = match scenario.routing {
        Routing::Consistent => "consistent",
        Routing::Spread => "spread",
    };
    let staleness = match outcome.staleness_p99_s {
        Some(seconds) => format!("{:.0}", seconds * 1e3),
        None => "unbounded".to_owned(),
    };
    // What does not suffice, or what is used most.
    let named = |(what, share): &(&str, f64)| format!("{what} {:.0} %", share * 100.0);
    let over: Vec<String> = outcome.used.iter().filter(|own| own.1 > 1.0).map(named).collect();
    let used = match &over[..] {
        [] => outcome.used.first().map(named).unwrap_or_default(),
        over => format!("**{}**", over.join(", ")),
    };
    format!(
        "| {} | {} | {routing} | {:.1} % | {} | {:.2} | {:.0} | {:.2} | {staleness} | {} | \
         {used} |\n",
        scenario.instances,
        thousands(scenario.requests_per_s),
        outcome.hit_ratio * 100.0,
        thousands(outcome.reads_per_s),
        outcome.primary_cores,
        outcome.nats_bits / 1e6,
        outcome.busiest_cores,
        thousands(outcome.reads_after_loss),
    )
}

/// Returns a number without a fraction, with commas.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        assert_eq!([7.4, 1_234.0, 12_345_678.0].map(thousands), ["7", "1,234", "12,345,678"]);
    }

    #[test]
    fn a_run_is_repeated_by_its_seed() {
        assert_eq!(document(3, 2_000), document(3, 2_000));
    }

    /// The page shows rows of the kept run and no others.
    #[test]
    fn the_page_has_rows_of_the_kept_run() {
        let page = include_str!("../../../docs/routing.md");
        let run = include_str!("../../runs/2026-11-26-scale.md");
        let (_, section) = page.split_once("\n## Scale").expect("a section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with('|')).collect();
        assert!(rows.len() >= 10, "{} lines", rows.len());
        for row in rows {
            assert!(run.lines().any(|line| line == row), "the run lacks {row}");
        }
    }
}
