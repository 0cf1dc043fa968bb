//! The checker as a process.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::server::binary;
use crate::harness::{Config, Server};

/// How long a checker may take beyond the time it was given.
const BEYOND: Duration = Duration::from_secs(60);
/// Every rule that has something to say in a run in which everything is granted.
pub(crate) const ALL_RULES: [&str; 8] =
    ["committed", "monotonic", "fresh", "age", "no_cache", "session", "own_write", "purged"];
/// The collection, and its table.
pub(crate) const NAME: &str = "verified";

/// Grants all that a client may ask.
pub(crate) fn granting(config: Config) -> Config {
    config
        .collection(NAME)
        .set(&format!("collections.{NAME}.allow_no_cache"), "true")
        .set(&format!("collections.{NAME}.allow_min_position"), "true")
        .set("cache.capacity", "\"1MiB\"")
        // The promise that the checker holds the service to, and waits out.
        .set("cache.max_staleness", "\"1s\"")
        .set("listen.workers", "2")
        .set("limits.checks_per_s", "50")
}

/// A checker that runs.
pub(crate) struct Checker {
    child: Child,
    began: Instant,
    _folder: TempDir,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) output: String,
    pub(crate) log: String,
}

impl Checker {
    /// Starts `hotrow verify` with this configuration and more arguments.
    pub(crate) fn start(config: &Config, arguments: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("hotrow.toml");
        std::fs::write(&file, config.text()).expect("write the configuration");
        let mut command = Command::new(binary());
        command.arg("verify").arg("--config").arg(&file).args(arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        Self { child, began: Instant::now(), _folder: folder }
    }

    /// Starts it against instances, with `--json` and more arguments.
    pub(crate) fn against(config: &Config, instances: &[&Server], arguments: &[&str]) -> Self {
        let mut all = vec!["--json".to_owned()];
        for instance in instances {
            all.extend(["--url".to_owned(), format!("http://{}", instance.data)]);
            all.extend(["--admin".to_owned(), format!("http://{}", instance.admin)]);
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

    /// Waits for its end, which must come soon after it has run for `duration`. What it prints fits a pipe.
    #[track_caller]
    pub(crate) fn ended(mut self, duration: Duration) -> Ended {
        let end = self.began + duration + BEYOND;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            assert!(Instant::now() < end, "it still runs");
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut output, mut log) = (String::new(), String::new());
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
    /// The report in JSON.
    #[track_caller]
    pub(crate) fn report(&self) -> Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("no report: {error}: {self:?}"))
    }

    /// Asserts that the contract held and that much was checked; gives the report.
    #[track_caller]
    pub(crate) fn assert_kept(&self, reads: u64, changes: u64) -> Value {
        let report = self.report();
        let story = report["first_violation"]["story"].as_str().unwrap_or_default();
        assert_eq!(
            (self.status, &report["verdict"]),
            (Some(0), &Value::from("kept")),
            "{story}\n{report:#}{}",
            self.log
        );
        let number = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        assert!(number("/reads/all") >= reads && number("/writes/changes") >= changes, "{report:#}");
        assert!(number("/converged/answers") > 0, "{report:#}");
        println!("{report:#}");
        report
    }

    /// Asserts that a rule was found broken, with a story; gives both.
    #[track_caller]
    pub(crate) fn assert_broken(&self) -> (String, String) {
        let report = self.report();
        assert_eq!((self.status, &report["verdict"]), (Some(1), &Value::from("broken")), "{report:#}{}", self.log);
        let first = &report["first_violation"];
        let text = |name: &str| first[name].as_str().expect("a text").to_owned();
        let story = text("story");
        println!("found after {} s\n{story}", report["took_s"]);
        assert!(story.contains("<== this one") && story.contains("commit of version #"), "{story}");
        (text("rule"), story)
    }
}

/// Asserts that every rule had something to judge.
#[track_caller]
pub(crate) fn assert_all_rules(report: &Value, rules: &[&str]) {
    for rule in rules {
        assert!(report["judged"][rule].as_u64() > Some(0), "{rule} had nothing to judge: {report:#}");
    }
}

/// Asserts that the service has checked answers of its own and found nothing.
#[track_caller]
pub(crate) fn assert_self_checked(server: &Server) {
    let metrics = server.metrics();
    assert!(metrics.sum("hotrow_checked_answers_total", &[]) > 0.0, "it checked nothing");
    assert_eq!(metrics.sum("hotrow_inconsistent_answers_total", &[]), 0.0, "{}", server.log());
}
