//! A step of the wall clock changes nothing (test 10 of `honest`).
//!
//! The real clock is not ours to set, so this test runs itself again with a library loaded before all others that steps the
//! clock (`tools/step.c`, which needs `cc`). Calls that go past the C library to the kernel's shared page are not
//! stepped by it; that none of them asks for the wall clock is a matter of the sources, which the second test reads.

mod scripted;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use hotrow_load::plan::Arrivals;
use hotrow_load::record::Known;
use scripted::{Server, open, outcome};

/// Set in the process whose clock is stepped: the time of the first step after its beginning, in ms.
const STEP: &str = "STEP_MS";
const STEP_MS: u64 = 1500;
const RUN: Duration = Duration::from_millis(3500);
const RATE: f64 = 200.0;
const DELAY: Duration = Duration::from_millis(5);
/// How slow a busy machine may be.
const PATIENCE: Duration = Duration::from_secs(20);

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
        .args(["--exact", "a_step_of_the_wall_clock_changes_nothing", "--nocapture"])
        .env("LD_PRELOAD", &library)
        .env(STEP, STEP_MS.to_string())
        .output()
        .expect("it starts");
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
}

/// In the process whose clock is stepped, twice while it runs.
fn stepped() {
    let begun = (SystemTime::now(), std::time::Instant::now());
    let server = Server::delaying(|_| DELAY);
    let mut config = open(server.address, RATE, Arrivals::Uniform, RUN);
    (config.connections, config.timeout) = (8, PATIENCE);
    let outcome = outcome(&config);
    let passed = begun.1.elapsed();
    let wall = begun.0.duration_since(SystemTime::now()).expect("the wall clock was stepped back");
    assert!(wall > Duration::from_secs(3500), "the wall clock was stepped: {wall:?}");
    // An hour is far from all of these: a busy machine cannot be mistaken for a step.
    let ns = |time: Option<Known>| Duration::from_nanos(time.map_or(0, Known::ns));
    let latency = &outcome.total.latency;
    let (least, most) = (ns(latency.quantile(0.0)), ns(latency.max()));
    assert_eq!((outcome.window, outcome.total.counts.scheduled), (RUN, (RUN.as_secs_f64() * RATE) as u64));
    assert!((RUN..RUN + PATIENCE).contains(&passed), "the run took {passed:?}");
    assert!(DELAY <= least && most < PATIENCE, "latencies from {least:?} to {most:?}");
    assert!(outcome.total.schedule_lag.max() < PATIENCE.as_nanos() as u64, "{:?}", outcome.total.schedule_lag.max());
    assert_eq!((outcome.total.counts.timeouts, outcome.total.counts.errors.total()), (0, 0));
}

/// Nothing that measures or waits names the wall clock. TLS asks for it to judge certificates, inside its library.
#[test]
fn no_source_names_the_wall_clock() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["load/src", "measure/src", "diagnose/src"] {
        collect(&crates.join(folder), &mut files);
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
