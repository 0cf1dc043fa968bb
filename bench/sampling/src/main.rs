//! Cost of the sampler: a child process with many threads that wake up periodically is sampled at
//! 10 Hz, then as `hotrow load` samples: at both ends, once per second between, with a survey at
//! the end. The report of `hotrow load` states the survey's cost. CPU time is the kernel's clock of
//! the sampling thread. Goal of each: 1 % of one CPU.

use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_diagnose::root::Root;
use hotrow_diagnose::sampler::{INTERVAL, Sampler};
use hotrow_diagnose::samples::{Role, Samples};
use hotrow_diagnose::survey::survey;
use hotrow_measure::clock::{Nanos, thread_cpu};

const USAGE: &str = "usage: sampling [--threads N] [--seconds S]
  --threads N   threads of the watched process, 1 to 1000 (default 50)
  --seconds S   time of each measurement, 1 to 600 (default 20)";
/// Argument that makes this program the child.
const CHILD: &str = "be-watched";
/// Sleep of a thread of the child.
const WAKE_EVERY: Duration = Duration::from_millis(20);
/// Interval of the samples of `hotrow load`.
const LOAD_INTERVAL: Duration = Duration::from_secs(1);
/// Largest share of one CPU for either.
const SHARE_MAX: f64 = 0.01;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, threads] = arguments.as_slice()
        && word == CHILD
    {
        run_child(threads.parse().unwrap_or(1));
        return ExitCode::SUCCESS;
    }
    let Some((threads, time)) = options(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match start(threads) {
        Ok(mut child) => {
            let shares = [measure(child.id(), time), measure_as_load(child.id(), time)];
            // The child ends with its standard input.
            drop(child.stdin.take());
            drop(child.wait());
            if shares.iter().all(|share| *share <= SHARE_MAX) {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(3)
            }
        }
        Err(error) => {
            eprintln!("sampling: the watched process did not start: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: &[String]) -> Option<(u32, Duration)> {
    let mut threads = 50;
    let mut seconds = 20;
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return None };
        match name.as_str() {
            "--threads" => {
                threads = value.parse().ok().filter(|threads| (1..=1000).contains(threads))?
            }
            "--seconds" => {
                seconds = value.parse().ok().filter(|seconds| (1..=600).contains(seconds))?
            }
            _ => return None,
        }
    }
    Some((threads, Duration::from_secs(seconds)))
}

fn start(threads: u32) -> std::io::Result<Child> {
    let own = std::env::current_exe()?;
    Command::new(own).args([CHILD, &threads.to_string()]).stdin(Stdio::piped()).spawn()
}

fn run_child(threads: u32) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(WAKE_EVERY);
                }
            });
        }
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        over.store(true, Ordering::Relaxed);
    });
}

/// Returns the share of one CPU that sampling as `hotrow load` took, with both ends and the survey;
/// prints it.
fn measure_as_load(pid: u32, time: Duration) -> f64 {
    let begun = Nanos::now();
    let cpu_before = thread_cpu();
    let mut sampler = Sampler::new(Root::machine(), &[std::process::id(), pid]);
    let first = sampler.sample_endpoint(Nanos::now());
    let mut last = first.clone();
    while Nanos::now().since(begun) + LOAD_INTERVAL < time {
        std::thread::sleep(LOAD_INTERVAL);
        let now = sampler.sample(Nanos::now());
        drop(Samples::between(&last, &now, |_| Role::Service));
        last = now;
    }
    std::thread::sleep(time.saturating_sub(Nanos::now().since(begun)));
    let end = sampler.sample_endpoint(Nanos::now());
    let mut samples = Samples::between(&first, &end, |_| Role::Service);
    sampler.survey(&mut samples);
    let cpu = thread_cpu().saturating_sub(cpu_before);
    let share = cpu.as_secs_f64() / Nanos::now().since(begun).as_secs_f64();
    println!(
        "as load does         {:.1} ms of CPU time in {:.1} s",
        cpu.as_secs_f64() * 1e3,
        time.as_secs_f64()
    );
    println!(
        "share of one CPU     {:.3} %, aim: at most {:.0} %",
        share * 100.0,
        SHARE_MAX * 100.0
    );
    share
}

/// Returns the share of one CPU that sampling took; prints the figures.
fn measure(pid: u32, time: Duration) -> f64 {
    let mut sampler = Sampler::new(Root::machine(), &[std::process::id(), pid]);
    // The first sample opens the files.
    std::thread::sleep(INTERVAL);
    let first = sampler.sample_endpoint(Nanos::now());
    let ends_us = sampler.cost().cpu.as_secs_f64() * 1e6;
    let mut costs_us: Vec<f64> = Vec::new();
    while Nanos::now().since(first.at) < time {
        std::thread::sleep(INTERVAL);
        let before = sampler.cost().cpu;
        drop(sampler.sample(Nanos::now()));
        costs_us.push(sampler.cost().cpu.saturating_sub(before).as_secs_f64() * 1e6);
    }
    let share = sampler.cost().share().unwrap_or(f64::NAN);
    let last = sampler.sample_endpoint(Nanos::now());
    let mut samples = Samples::between(&first, &last, |_| Role::Service);
    let before = (thread_cpu(), Nanos::now());
    survey(&Root::machine(), &mut samples);
    let survey_us = thread_cpu().saturating_sub(before.0).as_secs_f64() * 1e6;
    costs_us.sort_by(f64::total_cmp);
    let at = |part: f64| {
        costs_us.get((costs_us.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
    };
    let threads: usize = samples.processes.iter().map(|process| process.threads.len()).sum();
    println!("threads watched      {threads}");
    println!("samples              {} in {:.1} s", costs_us.len() + 1, time.as_secs_f64());
    println!(
        "one sample           {:.0} µs of CPU time (median), {:.0} µs (90 %)",
        at(0.5),
        at(0.9)
    );
    println!("the first, at an end {ends_us:.0} µs");
    println!(
        "survey at the end    {survey_us:.0} µs in {:.0} ms",
        Nanos::now().since(before.1).as_secs_f64() * 1e3
    );
    println!(
        "share of one CPU     {:.3} %, aim: at most {:.0} %",
        share * 100.0,
        SHARE_MAX * 100.0
    );
    share
}
