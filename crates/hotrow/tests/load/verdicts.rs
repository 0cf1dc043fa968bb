//! One bottleneck at a time is planted, and the verdict must name it; with none it must say so. Whatever depends on the
//! machine's leisure is tried several times before it fails.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::*;

/// Fewest tries of a test that judges the machine, and how long it goes on trying.
const TRIES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(90);
/// Tests that judge times do not run beside each other: taken before a test plants anything.
static ALONE: Mutex<()> = Mutex::new(());

pub(super) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs until a report satisfies; the last complaint if none does.
pub(super) fn tried(mut run: impl FnMut() -> Value, satisfies: impl Fn(&Value, &str) -> bool) {
    let mut verdicts = Vec::new();
    let begun = Instant::now();
    while verdicts.len() < TRIES || begun.elapsed() < PATIENCE {
        let report = run();
        conserved(&report);
        let verdict = report["verdict"].as_str().expect("a text").to_owned();
        if satisfies(&report, &verdict) {
            return;
        }
        verdicts.push(format!("{} {verdict}", report["generator"]));
    }
    panic!("{} runs, and none says it: {verdicts:#?}", verdicts.len());
}

pub(super) fn run(arguments: &[&str]) -> Value {
    let (_, out, err) = load(&[arguments, &["--json"]].concat());
    assert!(!out.is_empty(), "{arguments:?}: {err}");
    json(&out)
}

/// Keeps this thread, and all that it starts, on one processor.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // Where it is forbidden the tests run as they can.
    let _ = sched_setaffinity(None, &set);
}

/// The same on a processor of its own.
fn run_pinned(processor: usize, arguments: &[&str]) -> Value {
    std::thread::scope(|scope| {
        let pinned = scope.spawn(|| {
            pin(processor);
            run(arguments)
        });
        pinned.join().expect("no panic")
    })
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Threads that use what they can get until it is dropped.
struct Spinners(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Spinners {
    fn start(n: usize, processor: Option<usize>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let spinner = |_| {
            let over = over.clone();
            std::thread::spawn(move || {
                processor.into_iter().for_each(pin);
                while !over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..n).map(spinner).collect();
        Self(over, threads)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The number before "requests in flight, and there is room".
fn needed(verdict: &str) -> Option<f64> {
    verdict.split(" requests in flight, and").next()?.rsplit(' ').next()?.parse().ok()
}

/// 20 ms for each, 1,000 a second: 20 must be in flight, and there are 5 connections.
#[test]
fn too_few_connections_are_named() {
    let _alone = alone();
    let (address, _) = working_server(OK, || std::thread::sleep(Duration::from_millis(20)));
    let url = format!("http://{address}/");
    tried(
        || run(&["-d", "1s", "--rate", "1000", "-c", "5", &url]),
        |report, verdict| {
            report["generator"]["limited"] == false
                && verdict.contains("The target or its connections were the limit")
                && verdict.contains("room for 5 requests")
                && verdict.contains("of 1000 requests/s")
                && needed(verdict).is_some_and(|needed| (20.0..30.0).contains(&needed))
        },
    );
    // With enough of them nothing is in the way.
    tried(
        || run(&["-d", "1s", "--rate", "1000", "-c", "100", &url]),
        |report, verdict| report["generator"]["limited"] == false && verdict.contains("No limit was found"),
    );
}

/// A server that does one thing at a time: no number of connections helps.
#[test]
fn a_busy_target_is_not_blamed_on_the_generator() {
    let _alone = alone();
    let one_at_a_time = Mutex::new(());
    let (address, _) = std::thread::spawn(|| {
        pin(0);
        working_server(OK, move || {
            let _one = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
            spin(Duration::from_millis(2));
        })
    })
    .join()
    .expect("no panic");
    let url = format!("http://{address}/");
    for connections in ["8", "32"] {
        tried(
            || run_pinned(1, &["-d", "1s", "--rate", "1500", "-c", connections, &url]),
            |report, verdict| {
                report["generator"]["limited"] == false
                    && verdict.contains("The target or its connections were the limit")
                    && verdict.contains("The target rate was not kept")
            },
        );
    }
    tried(
        || run_pinned(1, &["-d", "1s", "-c", "8", &url]),
        |report, verdict| {
            report["generator"]["limited"] == false
                && verdict.contains("The target or its connections set the rate: 8 requests in flight")
        },
    );
}

/// With every processor taken away from it the generator must say that it was the limit.
#[test]
fn a_starved_generator_says_so() {
    let _alone = alone();
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let said = |report: &Value, verdict: &str| {
        report["generator"]["limited"] == true && verdict.contains("The generator was the limit")
    };
    {
        let _spinners = Spinners::start(processors * 6, None);
        tried(|| run(&["-d", "1s", "-c", "20", "-t", "1", &url]), said);
    }
    // Only its own processor is taken: the target is as fast as ever.
    let _spinners = Spinners::start(6, Some(0));
    tried(|| run_pinned(0, &["-d", "1s", "-c", "20", "-t", "1", &url]), said);
    tried(|| run_pinned(0, &["-d", "1s", "-c", "20", "-t", "1", "--rate", "5000", &url]), said);
}

/// Stopped for nine tenths of the time, as by a quota: neither busy nor waiting for a CPU.
#[test]
fn a_generator_that_is_not_run_says_so() {
    let _alone = alone();
    let (address, seen) = server(OK);
    let arguments = ["--json", "-d", "2s", "-c", "20", "-t", "1", &format!("http://{address}/")];
    tried(
        || {
            let before = seen.load(SeqCst);
            let mut child = command(&arguments).stdout(std::process::Stdio::piped()).spawn().expect("it starts");
            let pid = Pid::from_raw(child.id() as i32).expect("a process");
            let begun = Instant::now();
            while seen.load(SeqCst) == before && begun.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(1));
            }
            while child.try_wait().expect("it can be asked").is_none() {
                for (signal, time) in [(Signal::STOP, 90), (Signal::CONT, 10)] {
                    // It may have ended meanwhile.
                    let _ = kill_process(pid, signal);
                    std::thread::sleep(Duration::from_millis(time));
                }
            }
            json(&outcome(child.wait_with_output().expect("it ends")).1)
        },
        |report, verdict| {
            // Where others take its CPU while it may run, that is named instead.
            let named = ["was not run when it wanted to be", "for a CPU that others used"];
            report["generator"]["limited"] == true && named.iter().any(|words| verdict.contains(words))
        },
    );
}

/// With next to nothing to do it must not blame itself, nor anybody else.
#[test]
fn where_nothing_is_the_limit_none_is_named() {
    let _alone = alone();
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    tried(
        || run(&["-d", "1s", "-c", "10", "-t", "1", "--rate", "200", &url]),
        |report, verdict| {
            report["generator"]["limited"] == false
                && verdict.contains("No limit was found: the target kept the rate of 200 requests/s")
        },
    );
}
