//! Verdicts: each test plants one bottleneck, which the verdict must name, or none, which it must
//! report. Tests that depend on an idle machine are repeated several times before they fail.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::*;

/// Fewest attempts of a test that depends on the machine, and the time within which further ones
/// start.
const TRIES: usize = 4;
const TRY_FOR: Duration = Duration::from_secs(90);
/// Share of the machine's CPU time that other programs may use beside a run that is judged, and the
/// time over which it is looked at before and after it.
const OTHERS_BUSY_MAX: f64 = 0.2;
const LOOK_FOR: Duration = Duration::from_millis(100);
/// Serializes the tests that depend on times: locked before a test plants anything.
static ALONE: Mutex<()> = Mutex::new(());

pub(super) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Repeats a run until a report satisfies; panics with all verdicts if none does. Runs beside which
/// others used the CPUs show nothing: if there are only such ones, nothing is judged.
pub(super) fn repeat_until(
    mut run: impl FnMut() -> Value,
    satisfies: impl Fn(&Value, &str) -> bool,
) {
    let (mut verdicts, mut disturbed) = (Vec::new(), 0);
    let begun = Instant::now();
    while verdicts.len() + disturbed < TRIES || begun.elapsed() < TRY_FOR {
        let quiet_before = used_by_others() <= OTHERS_BUSY_MAX;
        let report = run();
        assert_conserved(&report);
        let verdict = report["verdict"].as_str().expect("a text").to_owned();
        if satisfies(&report, &verdict) {
            return;
        }
        if quiet_before && used_by_others() <= OTHERS_BUSY_MAX {
            verdicts.push(format!("{} {verdict}", report["generator"]));
        } else {
            disturbed += 1;
        }
    }
    if verdicts.is_empty() {
        return eprintln!("not judged: others used the CPUs beside all {disturbed} runs");
    }
    panic!(
        "{} runs, and none has the expected verdict ({disturbed} more were disturbed): \
         {verdicts:#?}",
        verdicts.len()
    );
}

/// Returns the share of all CPUs that other processes use over a short time without a load.
fn used_by_others() -> f64 {
    let (ticks_per_s, own_before) = (rustix::param::clock_ticks_per_second() as f64, own_cpu_s());
    let (idle_before, all_before) = machine_ticks();
    std::thread::sleep(LOOK_FOR);
    let (idle, all) = machine_ticks();
    let own_ticks = (own_cpu_s() - own_before) * ticks_per_s;
    let others = (all - all_before) - (idle - idle_before) - own_ticks;
    if all > all_before { others / (all - all_before) } else { 0.0 }
}

/// Returns the ticks of all CPUs: those without work, and all.
fn machine_ticks() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let first = text.lines().next().expect("the sum of all CPUs");
    let ticks: Vec<f64> =
        first.split_ascii_whitespace().skip(1).map(|n| n.parse().expect("ticks")).collect();
    // Idle, and idle while a disk is waited for.
    (ticks[3] + ticks[4], ticks.iter().take(8).sum())
}

/// Returns the CPU time of this process, with what it plants: threads.
fn own_cpu_s() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

pub(super) fn run(arguments: &[&str]) -> Value {
    let (_, out, err) = load(&[arguments, &["--json"]].concat());
    assert!(!out.is_empty(), "{arguments:?}: {err}");
    json(&out)
}

/// Pins this thread, and all that it starts, to one processor.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // Without permission the tests run unpinned.
    let _ = sched_setaffinity(None, &set);
}

/// As [`run`], pinned to a processor.
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

/// Threads that use all CPU time that they can get, until dropped.
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

/// Returns the number before "requests in flight, and there is room".
fn needed(verdict: &str) -> Option<f64> {
    verdict.split(" requests in flight, and").next()?.rsplit(' ').next()?.parse().ok()
}

/// Returns the measured mean number of requests in flight.
fn in_flight(verdict: &str) -> Option<f64> {
    verdict.split(" requests were in flight").next()?.rsplit(' ').next()?.parse().ok()
}

/// 20 ms per request, 1,000 requests per second: 20 must be in flight, but there are 5 connections.
#[test]
fn too_few_connections_are_named() {
    let _alone = alone();
    let (address, _) = working_server(OK, || std::thread::sleep(Duration::from_millis(20)));
    let url = format!("http://{address}/");
    repeat_until(
        || run(&["-d", "1s", "--rate", "1000", "-c", "5", &url]),
        |report, verdict| {
            report["generator"]["limited"] == false
                && verdict.contains("The target or its connections were the limit")
                && verdict.contains("room for 5 requests")
                && verdict.contains("of 1,000 requests/s")
                && needed(verdict).is_some_and(|needed| (20.0..30.0).contains(&needed))
        },
    );
    // With enough connections there is no limit.
    repeat_until(
        || run(&["-d", "1s", "--rate", "1000", "-c", "100", &url]),
        |report, verdict| {
            report["generator"]["limited"] == false && verdict.contains("no limit was found")
        },
    );
}

/// A server that handles one request at a time: more connections have no effect.
#[test]
fn a_busy_target_is_named_and_not_the_generator() {
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
        repeat_until(
            || run_pinned(1, &["-d", "1s", "--rate", "1500", "-c", connections, &url]),
            |report, verdict| {
                report["generator"]["limited"] == false
                    && verdict.contains("The target or its connections were the limit")
                    && verdict.starts_with("Not kept: ")
            },
        );
    }
    repeat_until(
        || run_pinned(1, &["-d", "1s", "-c", "8", &url]),
        |report, verdict| {
            report["generator"]["limited"] == false
                && verdict.contains("The generator was not the limit")
                && in_flight(verdict).is_some_and(|n| (7.0..=8.0).contains(&n))
        },
    );
}

/// Without a free processor the generator must name itself as the limit.
#[test]
fn a_starved_generator_names_itself() {
    let _alone = alone();
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    // The limit itself or, where all processors are busy, beside that one.
    let said = |report: &Value, verdict: &str| {
        let words = ["The generator was the limit", "The generator was short of time too"];
        report["generator"]["limited"] == true && words.iter().any(|one| verdict.contains(one))
    };
    {
        let _spinners = Spinners::start(processors * 6, None);
        repeat_until(|| run(&["-d", "1s", "-c", "20", "-t", "1", &url]), said);
    }
    // Only the generator's processor is busy: the target is as fast as before.
    let _spinners = Spinners::start(6, Some(0));
    repeat_until(|| run_pinned(0, &["-d", "1s", "-c", "20", "-t", "1", &url]), said);
    repeat_until(
        || run_pinned(0, &["-d", "1s", "-c", "20", "-t", "1", "--rate", "5000", &url]),
        said,
    );
}

/// Stopped for nine tenths of the time, as by a quota: neither busy nor waiting for a CPU.
#[test]
fn a_suspended_generator_names_itself() {
    let _alone = alone();
    let (address, seen) = server(OK);
    let arguments = ["--json", "-d", "2s", "-c", "20", "-t", "1", &format!("http://{address}/")];
    repeat_until(
        || {
            let before = seen.load(SeqCst);
            let mut child = command(&arguments)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("it starts");
            let pid = Pid::from_raw(child.id() as i32).expect("a process");
            let begun = Instant::now();
            while seen.load(SeqCst) == before && begun.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(1));
            }
            while child.try_wait().expect("its status").is_none() {
                for (signal, time) in [(Signal::STOP, 90), (Signal::CONT, 10)] {
                    // The child may have ended already.
                    let _ = kill_process(pid, signal);
                    std::thread::sleep(Duration::from_millis(time));
                }
            }
            json(&outcome(child.wait_with_output().expect("it ends")).1)
        },
        |report, verdict| {
            // If other processes use its CPU while it may run, the verdict names that instead.
            let named = ["was ready but not running", "for a CPU that others used"];
            report["generator"]["limited"] == true
                && named.iter().any(|words| verdict.contains(words))
        },
    );
}

/// With almost no load, the verdict must name neither the generator nor another limit.
#[test]
fn without_a_limit_none_is_named() {
    let _alone = alone();
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    repeat_until(
        || run(&["-d", "1s", "-c", "10", "-t", "1", "--rate", "200", &url]),
        |report, verdict| {
            report["generator"]["limited"] == false
                && verdict.starts_with("Kept: 200 requests/s, none failed; no limit was found.")
        },
    );
}
