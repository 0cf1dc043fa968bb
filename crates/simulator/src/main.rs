//! `simulator`: runs many seeds of the simulation and prints what they covered.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use hotrow_simulator::{Counts, ENGINES, Engine, Mix, Rules, Scenario, run, shrink};

/// Time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Steps the cache under simulated databases and faults, and checks the consistency contract.
///
/// Example: simulator --reads 100000000
#[derive(Parser)]
struct Arguments {
    /// Engine; all of them in turn without it.
    #[arg(long, value_parser = engine)]
    kind: Option<Engine>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds per engine.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Steps of one seed before all faults end.
    #[arg(long, default_value_t = 3_000)]
    steps: u64,
    /// Run until so many reads instead of a number of seeds.
    #[arg(long)]
    reads: Option<u64>,
    /// Safeguard to disable, by its name in planted.rs: for example Lease or StandbyFloor.
    #[cfg(feature = "failpoints")]
    #[arg(long, value_parser = safeguard)]
    without: Option<hotrow_cache::Safeguard>,
    /// Scenario in place of lookups: aliases, embedded, followers, tracking, purges or hub.
    #[cfg(feature = "failpoints")]
    #[arg(long)]
    scenario: Option<String>,
    /// Half of the requests are strict reads and snapshots.
    #[arg(long)]
    strict: bool,
    /// Judge answers by the database alone, not by what the feed has reported.
    #[arg(long)]
    contract_only: bool,
}

fn engine(name: &str) -> Result<Engine, String> {
    let names = || ENGINES.map(|engine| engine.name).join(", ");
    Engine::named(name).ok_or_else(|| format!("one of {}", names()))
}

#[cfg(feature = "failpoints")]
fn safeguard(name: &str) -> Result<hotrow_cache::Safeguard, String> {
    let names = hotrow_simulator::UNGUARDED.iter().map(|unguarded| unguarded.safeguard);
    let found = names.into_iter().find(|safeguard| format!("{safeguard:?}") == name);
    found.ok_or_else(|| "no safeguard of planted.rs".to_owned())
}

/// Runs the seeds of a scenario beside lookups.
#[cfg(feature = "failpoints")]
fn run_scenario(name: &str, seeds: u64) -> ExitCode {
    let outcome = match hotrow_simulator::World::named(name) {
        Some(world) => world.run_all(seeds),
        None => Err(format!("no scenario {name}")),
    };
    match outcome {
        Ok(counts) => println!("{counts}"),
        Err(error) => {
            println!("violation: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "failpoints")]
    if let Some(name) = &arguments.scenario {
        return run_scenario(name, arguments.seeds);
    }
    let engines: Vec<Engine> = arguments.kind.map_or(ENGINES.to_vec(), |engine| vec![engine]);
    let (began, mut reported) = (Instant::now(), Instant::now());
    let mut totals = vec![Counts::default(); engines.len()];
    let (mut seed, mut reads) = (arguments.seed, 0);
    loop {
        let is_over = match arguments.reads {
            Some(most) => reads >= most,
            None => seed >= arguments.seed.saturating_add(arguments.seeds),
        };
        if is_over {
            break;
        }
        for (engine, total) in engines.iter().zip(&mut totals) {
            let mut scenario = Scenario::new(*engine, seed, arguments.steps);
            if arguments.strict {
                scenario.mix = Mix::Strict;
            }
            if arguments.contract_only {
                scenario.rules = Rules::Contract;
            }
            #[cfg(feature = "failpoints")]
            {
                scenario.without = arguments.without;
            }
            let report = run(&scenario);
            if report.violation.is_some() {
                return violated(&scenario);
            }
            reads += report.counts.reads;
            total.add(&report.counts);
        }
        seed += 1;
        if reported.elapsed() > PROGRESS_EVERY {
            reported = Instant::now();
            let seconds = began.elapsed().as_secs();
            _ = writeln!(std::io::stderr(), "{seconds} s: seed {seed}, {reads} reads");
        }
    }
    print(&engines, &totals, seed - arguments.seed, began.elapsed());
    ExitCode::SUCCESS
}

/// Prints a violation with the command that repeats it.
fn violated(scenario: &Scenario) -> ExitCode {
    let shrunk = shrink(scenario);
    let Scenario { engine, seed, steps, rules, .. } = shrunk;
    if let Some(violation) = run(&shrunk).violation {
        println!("violation: {}\n{}", violation.rule, violation.detail);
    }
    let mut more = String::new();
    #[cfg(feature = "failpoints")]
    if let Some(safeguard) = shrunk.without {
        more = format!(" --without {safeguard:?}");
    }
    if shrunk.mix == Mix::Strict {
        more.push_str(" --strict");
    }
    if rules == Rules::Contract {
        more.push_str(" --contract-only");
    }
    println!(
        "repeat: simulator --kind {} --seed {seed} --seeds 1 --steps {steps}{more}",
        engine.name
    );
    ExitCode::FAILURE
}

fn print(engines: &[Engine], totals: &[Counts], seeds: u64, took: Duration) {
    let mut all = Counts::default();
    for (engine, total) in engines.iter().zip(totals) {
        println!("{}: {seeds} seeds, {} reads", engine.name, total.reads);
        all.add(total);
    }
    for (name, count) in all.each() {
        println!("  {name}: {count}");
    }
    let (schedules, seconds) = (seeds * engines.len() as u64, took.as_secs_f64());
    println!(
        "{} reads in {schedules} schedules, 0 violations, {seconds:.1} s: {:.0} reads/s, {:.0} \
         schedules/s",
        all.reads,
        all.reads as f64 / seconds,
        schedules as f64 / seconds
    );
}
