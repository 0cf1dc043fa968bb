//! `hotrow-lab models` with real processes and limits.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hotrow_models::limits::Limit;
use hotrow_models::results::{Calls, FILE, Measured, Outcome, Results, SCHEMA};
use rustix::process::{Pid, Signal, kill_process};

const HOTROW: &str = env!("CARGO_BIN_EXE_hotrow-lab");

fn models(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(HOTROW);
    command.args(["models", "--quiet", "--out"]).arg(folder).args(arguments);
    command.output().expect("it starts")
}

fn saved(folder: &Path) -> Results {
    let text = std::fs::read_to_string(folder.join(FILE)).expect("results");
    serde_json::from_str(&text).expect("their schema")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Address space limit, in KiB, under which a run is expected to die or to be refused.
const SPACE_KIB: u64 = 700 << 10;

/// Runs the thread-per-request model with little address space, a limit on its processes only.
fn with_little_space(folder: &Path, arguments: &str) -> (Option<i32>, String, Measured) {
    let run = format!(
        "ulimit -v {SPACE_KIB}; \
         exec \"$0\" models thread-per-request --json --no-count --out \"$1\" {arguments}"
    );
    let mut command = Command::new("sh");
    let output = command.args(["-c", &run, HOTROW]).arg(folder).output().expect("it starts");
    let out = text(&output.stdout);
    let err = text(&output.stderr);
    let mut results: Results =
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {err}"));
    assert_eq!(results, saved(folder));
    (output.status.code(), err, results.models.remove(0))
}

#[test]
fn every_model_completes_in_its_own_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = models(folder.path(), &["--requests", "2001", "--scale", "0.02"]);
    let out = text(&output.stdout);
    let err = text(&output.stderr);
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    let results = saved(folder.path());
    assert_eq!(
        (results.schema.as_str(), results.requests, results.models.len()),
        (SCHEMA, 2_001, 16)
    );
    for measured in &results.models {
        assert_eq!((&measured.outcome, measured.done), (&Outcome::Finished, 2_001), "{measured:?}");
        let figures = measured.figures.as_ref().expect("it finished");
        assert!(
            figures.checks.len() == 9 && figures.checks.iter().all(|check| check.right),
            "{measured:?}"
        );
        // Floors include the CPU time of a request, which a busy machine may overestimate.
        let slept_s = 0.02;
        assert!(figures.wall_s >= slept_s && measured.throughput_tps.is_some(), "{measured:?}");
        assert!(
            figures.rss_peak_bytes >= figures.rss_before_bytes
                && figures.user_s + figures.system_s > 0.0,
            "{measured:?}"
        );
        assert!(figures.processing_us.max >= 20_000.0, "{measured:?}");
        if let Calls::Counted { clone, .. } = measured.calls {
            let started = if measured.name.starts_with("batches") { 2_001 } else { 0 };
            assert!(clone >= started, "{measured:?}");
        }
    }
    for name in ["report.md", "report.html"] {
        let report = std::fs::read_to_string(folder.path().join(name)).expect("a report");
        assert!(report.contains("The fastest, ") && report.contains("32,747"), "{report}");
    }
    assert!(out.contains("times as many a second as one after the other"), "{out}");
}

#[test]
fn a_thread_per_request_dies_at_its_limit_and_names_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (status, err, measured) =
        with_little_space(folder.path(), "--requests 20000 --scale 0.01 --no-safe");
    let Outcome::Died { started, limit, why, remedy, evidence } = &measured.outcome else {
        panic!("{measured:?} {err}");
    };
    assert_eq!(status, Some(0), "{err}");
    assert_eq!(*limit, Limit::AddressSpace, "{evidence:?}");
    assert!(
        why.contains(&format!("RLIMIT_AS is {}", SPACE_KIB * 1024))
            && remedy.starts_with("ulimit -v "),
        "{why}"
    );
    // Started requests were served once each, and there is no throughput.
    assert!(*started > 1_000 && *started < 20_000 && measured.done == *started, "{measured:?}");
    assert_eq!((measured.throughput_tps, measured.distance), (None, None));
    // A thread that has ended still counts in the address space.
    assert!(
        evidence.space_bytes >= (64 << 10) * started && evidence.threads < *started,
        "{evidence:?}"
    );
    assert!(err.contains("thread-per-request: died at "), "{err}");
}

#[test]
fn a_model_that_cannot_finish_is_not_started() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (status, err, measured) = with_little_space(folder.path(), "--requests 20000 --scale 0.01");
    assert_eq!(status, Some(0), "{err}");
    let Outcome::Refused { why, .. } = &measured.outcome else { panic!("{measured:?}") };
    assert!(why.contains("for each of 20000 threads = "), "{why}");
    assert_eq!((measured.done, measured.figures), (0, None));
}

#[test]
fn an_unusable_folder_is_refused_before_any_measurement() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join(FILE), "{}").expect("written");
    let output = models(folder.path(), &[]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("contains results already"), "{err}");
    assert_eq!(std::fs::read_to_string(folder.path().join(FILE)).expect("it is there"), "{}");
    let output = models(&folder.path().join(FILE).join("below"), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot be created"), "{}", text(&output.stderr));
}

/// Each model takes a second at least, the sleep of the first request.
#[test]
fn results_before_an_interruption_are_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(HOTROW);
    command
        .args([
            "models",
            "async",
            "sequential",
            "event-loop",
            "--no-count",
            "--requests",
            "2000",
            "--out",
        ])
        .arg(folder.path());
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let first = lines.next().expect("a model is done").expect("UTF-8");
    let name = first.split(": ").next().expect("a name");
    // With nohup the tests inherit an ignored SIGHUP, and possibly more signals.
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let ignored = status.lines().any(|line| {
        line.starts_with("SigIgn:") && line.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f'])
    });
    let signal = if ignored { Signal::TERM } else { Signal::HUP };
    kill_process(Pid::from_child(&child), signal).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let results = saved(folder.path());
    assert!(results.models[0].name == name && results.models.len() < 3, "{results:?}");
    assert!(
        results
            .warnings
            .iter()
            .any(|warning| warning.starts_with("The run was interrupted; not measured: "))
    );
}

#[test]
fn models_are_listed_and_unknown_names_refused() {
    let output = Command::new(HOTROW).args(["models", "--list"]).output().expect("it starts");
    let out = text(&output.stdout);
    assert_eq!(out.lines().count(), 3 * 16, "{out}");
    assert!(
        out.starts_with("sequential\n    One thread serves one request after the other.\n"),
        "{out}"
    );
    let output = Command::new(HOTROW).args(["models", "fibers"]).output().expect("it starts");
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err.starts_with("hotrow-lab: there is no model \"fibers\"; there are sequential, "),
        "{err}"
    );
    let output = Command::new(HOTROW).args(["model", "{}"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
}
