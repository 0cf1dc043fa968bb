//! The checker as a process.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use hotrow_testkit::harness::server::binary;
use hotrow_testkit::harness::{Config, Server};

/// Time limit beyond the requested duration.
const BEYOND: Duration = Duration::from_secs(60);
/// Every rule that applies in a run with all capabilities.
pub(crate) const ALL_RULES: [&str; 10] = [
    "committed",
    "monotonic",
    "fresh",
    "age",
    "no_cache",
    "session",
    "own_write",
    "strict",
    "snapshot",
    "purged",
];
/// The collection, and its table.
pub(crate) const NAME: &str = "verified";
/// Another collection of the table.
pub(crate) const OTHER: &str = "verified_too";

/// Enables all capabilities of the collection.
pub(crate) fn with_all_capabilities(config: Config) -> Config {
    config
        .collection(NAME)
        .set(&format!("collections.{NAME}.allow_no_cache"), "true")
        .set(&format!("collections.{NAME}.allow_min_position"), "true")
        .set("cache.capacity", "\"1MiB\"")
        // The bound that the checker applies, and waits for.
        .set("cache.max_staleness", "\"1s\"")
        .set("listen.workers", "2")
        .set("limits.checks_per_s", "50")
}

/// Serves the same rows once more, for snapshots of two collections.
pub(crate) fn with_another_collection(config: Config) -> Config {
    config.set(&format!("collections.{OTHER}.table"), &format!("\"{NAME}\""))
}

/// Has the collection read over the Redis protocol too, with near caches of both modes, and its
/// changes followed; and another collection of its table.
pub(crate) fn with_near_caches(config: Config) -> Config {
    with_another_collection(config)
        .set("listen.redis", REDIS_ADDRESS)
        .set(&format!("collections.{NAME}.changes"), "true")
        .set("follow.heartbeat", "\"200ms\"")
}

/// Value of `listen.redis` with which the checker reads over it.
const REDIS_ADDRESS: &str = "\"127.0.0.1:0\"";

/// A running checker.
pub(crate) struct Checker {
    child: Child,
    began: Instant,
    _folder: TempDir,
}

/// An ended checker.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) output: String,
    pub(crate) log: String,
}

/// Arguments of a run that must pass: enough reads, and CPU for the tests beside it.
pub(crate) const MODEST: [&str; 2] = ["--read-rate", "1500"];

impl Checker {
    /// Starts `hotrow verify` with this configuration and further arguments.
    pub(crate) fn start(config: &Config, arguments: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("hotrow.toml");
        std::fs::write(&file, config.text()).expect("write the configuration");
        let mut command = Command::new(binary());
        command.arg("verify").arg("--config").arg(&file).args(arguments);
        if config.text().contains(OTHER) && !arguments.contains(&"--collection") {
            command.args(["--collection", NAME]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start");
        Self { child, began: Instant::now(), _folder: folder }
    }

    /// Starts it against instances, with `--json` and further arguments.
    pub(crate) fn against(config: &Config, instances: &[&Server], arguments: &[&str]) -> Self {
        let mut all = vec!["--json".to_owned()];
        for instance in instances {
            all.extend(["--url".to_owned(), format!("http://{}", instance.data)]);
            all.extend(["--admin".to_owned(), format!("http://{}", instance.admin)]);
            if config.text().contains(&format!("redis = {REDIS_ADDRESS}")) {
                all.extend(["--redis".to_owned(), format!("redis://{}", instance.redis())]);
            }
        }
        all.extend(arguments.iter().map(|text| (*text).to_owned()));
        Self::start(config, &all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    /// Waits for its end, shortly after `duration`. Its output fits in a pipe.
    #[track_caller]
    pub(crate) fn ended(mut self, duration: Duration) -> Ended {
        let end = self.began + duration + BEYOND;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            assert!(Instant::now() < end, "the checker still runs");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut output = String::new();
        let mut log = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut output).expect("UTF-8");
        self.child.stderr.take().expect("piped").read_to_string(&mut log).expect("UTF-8");
        Ended { status: status.code(), output, log }
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Ended {
    /// Returns the report in JSON.
    #[track_caller]
    pub(crate) fn report(&self) -> Value {
        serde_json::from_str(&self.output)
            .unwrap_or_else(|error| panic!("no report: {error}: {self:?}"))
    }

    /// Asserts that the contract held and that much was checked; returns the report.
    #[track_caller]
    pub(crate) fn assert_passed(&self, reads: u64, changes: u64) -> Value {
        let report = self.report();
        let counterexample =
            report["first_violation"]["counterexample"].as_str().unwrap_or_default();
        assert_eq!(
            (self.status, &report["verdict"]),
            (Some(0), &Value::from("passed")),
            "{counterexample}\n{report:#}{}",
            self.log
        );
        let number = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        assert!(
            number("/reads/total") >= reads && number("/writes/changes") >= changes,
            "{report:#}"
        );
        assert!(number("/convergence/responses") > 0, "{report:#}");
        println!("{report:#}");
        report
    }

    /// Asserts that a violation with a counterexample was found; returns rule and counterexample.
    #[track_caller]
    pub(crate) fn assert_violated(&self) -> (String, String) {
        let report = self.report();
        assert_eq!(
            (self.status, &report["verdict"]),
            (Some(1), &Value::from("violated")),
            "{report:#}{}",
            self.log
        );
        let first = &report["first_violation"];
        let text = |name: &str| first[name].as_str().expect("a text").to_owned();
        let counterexample = text("counterexample");
        println!("found after {} s\n{counterexample}", report["duration_s"]);
        assert!(
            counterexample.contains("<== this one")
                && counterexample.contains("commit of version #"),
            "{counterexample}"
        );
        (text("rule"), counterexample)
    }
}

/// Asserts that every rule applied to some response.
#[track_caller]
pub(crate) fn assert_all_rules(report: &Value, rules: &[&str]) {
    for rule in rules {
        assert!(report["checked"][rule].as_u64() > Some(0), "{rule} did not apply: {report:#}");
    }
}

/// Asserts that followers got changes, returned, kept copies, and were judged.
#[track_caller]
pub(crate) fn assert_followers(report: &Value) {
    for path in [
        "/followers/changes",
        "/followers/heartbeats",
        "/followers/returns",
        "/followers/copies_read",
        "/reads/forms/followed_copy",
        "/checked/followed",
    ] {
        let count = report.pointer(path).and_then(Value::as_u64);
        assert!(count > Some(0), "{path}: {report:#}");
    }
}

/// Asserts that near caches read, kept copies, had invalidations, and were judged.
#[track_caller]
pub(crate) fn assert_near_caches(report: &Value) {
    for path in [
        "/near_caches/copies_read",
        "/near_caches/kept",
        "/near_caches/invalidations",
        "/reads/forms/redis_get",
        "/reads/forms/redis_mget",
        "/reads/forms/copy",
        "/checked/copied",
    ] {
        let count = report.pointer(path).and_then(Value::as_u64);
        assert!(count > Some(0), "{path}: {report:#}");
    }
    let is_behind_hub = report["feeds"][0] == "hub";
    let broadcasts = &report["near_caches"]["targets"][0]["broadcast"];
    assert_eq!(*broadcasts, !is_behind_hub, "{report:#}");
}

/// Asserts that the service's own check ran and found nothing.
#[track_caller]
pub(crate) fn assert_self_checked(server: &Server) {
    let metrics = server.metrics();
    assert!(metrics.sum("hotrow_checked_answers_total", &[]) > 0.0, "no answer was checked");
    assert_eq!(metrics.sum("hotrow_inconsistent_answers_total", &[]), 0.0, "{}", server.log());
}
