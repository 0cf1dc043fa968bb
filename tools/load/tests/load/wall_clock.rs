//! A step of the wall clock changes nothing (test 10 of `coordinated_omission`).
//!
//! A test cannot set the real clock, so this one runs itself again with a preloaded library that
//! steps the clock (`tools/step.c`, which needs `cc`). Calls that bypass the C library for the
//! kernel's shared page are not stepped; the second test checks in the sources that none of them
//! reads the wall clock.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::scripted::{Server, open, outcome};
use hotrow_load::plan::Arrivals;
use hotrow_load::stats::CensoredNs;

/// Variable of the process whose clock is stepped: time of the first step after its start, in ms.
const STEP: &str = "STEP_MS";
const STEP_MS: u64 = 1500;
const RUN: Duration = Duration::from_millis(3500);
const RATE: f64 = 200.0;
const DELAY: Duration = Duration::from_millis(5);
/// Largest delay on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(20);

#[test]
fn a_step_of_the_wall_clock_changes_nothing() {
    if std::env::var_os(STEP).is_some() {
        return stepped();
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = folder.path().join("step.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools/step.c");
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
    assert!(build.status().expect("a C compiler").success());
    let again = Command::new(std::env::current_exe().expect("a file"))
        .args(["--exact", "wall_clock::a_step_of_the_wall_clock_changes_nothing", "--nocapture"])
        .env("LD_PRELOAD", &library)
        .env(STEP, STEP_MS.to_string())
        .output()
        .expect("it starts");
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
}

/// Runs in the process whose clock is stepped, twice during the run.
fn stepped() {
    let begun = (SystemTime::now(), std::time::Instant::now());
    let server = Server::delaying(|_| DELAY);
    let mut config = open(server.address, RATE, Arrivals::Uniform, RUN);
    (config.connections, config.timeout) = (8, LATE_MAX);
    let outcome = outcome(&config);
    let passed = begun.1.elapsed();
    let wall = begun.0.duration_since(SystemTime::now()).expect("the wall clock was stepped back");
    assert!(wall > Duration::from_secs(3500), "the wall clock was stepped: {wall:?}");
    // An hour is far from all of these, so a busy machine cannot look like a step.
    let ns = |time: Option<CensoredNs>| Duration::from_nanos(time.map_or(0, CensoredNs::ns));
    let latency = &outcome.total.latency;
    let least = ns(latency.quantile(0.0));
    let most = ns(latency.max());
    assert_eq!(
        (outcome.window, outcome.total.counts.scheduled),
        (RUN, (RUN.as_secs_f64() * RATE) as u64)
    );
    assert!((RUN..RUN + LATE_MAX).contains(&passed), "the run took {passed:?}");
    assert!(DELAY <= least && most < LATE_MAX, "latencies from {least:?} to {most:?}");
    assert!(
        outcome.total.schedule_lag.max() < LATE_MAX.as_nanos() as u64,
        "{:?}",
        outcome.total.schedule_lag.max()
    );
    assert_eq!((outcome.total.counts.timeouts, outcome.total.counts.errors.total()), (0, 0));
}

/// Code that measures or waits does not name the wall clock. TLS reads it inside its library, to
/// check certificates.
#[test]
fn no_source_names_the_wall_clock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["tools/load/src", "crates/measure/src", "tools/diagnose/src"] {
        collect(&root.join(folder), &mut files);
    }
    assert!(files.len() > 20, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        for name in ["SystemTime", "Realtime", "gettimeofday", "UNIX_EPOCH"] {
            assert!(!text.contains(name), "{} names {name}", file.display());
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
