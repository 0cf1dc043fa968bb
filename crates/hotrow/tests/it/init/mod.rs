//! `hotrow init` over real databases: the written file passes `hotrow check` and is served as it
//! is, and what cannot be served is a comment with its reason.

mod auto;
mod mongodb;
mod mysql;
mod postgres;
mod sqlite;
mod without_file;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hotrow_testkit::harness::{Ended, Server, program};
use tempfile::TempDir;

/// Time limit of one run.
const RUN_WITHIN: Duration = Duration::from_secs(60);
/// Variable in which the tests pass the connection string.
const VARIABLE: &str = "DATABASE_URL";

/// A configuration file written by `hotrow init`.
struct Written {
    folder: TempDir,
    url: String,
    text: String,
    /// Standard error of the run.
    log: String,
    /// Standard output: SQL for an administrator.
    setup: String,
}

/// Runs `hotrow init --from env:DATABASE_URL` with more arguments.
#[track_caller]
fn run(url: &str, more: &[&str]) -> Ended {
    let arguments = [&["init", "--from", "env:DATABASE_URL"], more].concat();
    let ended = Ended::run_with(&arguments, &[(VARIABLE, url)], RUN_WITHIN);
    assert!(!ended.log.contains("panicked"), "{ended:?}");
    ended
}

impl Written {
    /// Writes a file in which at least one table can be served, and checks it.
    #[track_caller]
    fn of(url: &str, more: &[&str]) -> Self {
        let written = Self::lacking(url, more);
        assert_eq!(written.setup, "");
        let checked = written.check();
        assert_eq!((checked.code(), checked.log.as_str()), (0, ""), "{checked:?}");
        written
    }

    /// Runs `hotrow check` on the file.
    fn check(&self) -> Ended {
        let check = ["check", "--config", &self.file().display().to_string()];
        Ended::run_with(&check, &[(VARIABLE, &self.url)], RUN_WITHIN)
    }

    /// Writes a file for a database that may lack something.
    #[track_caller]
    fn lacking(url: &str, more: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("hotrow.toml");
        let output = ["--output", file.to_str().expect("UTF-8")];
        let ended = run(url, &[&output, more].concat());
        assert_eq!(ended.code(), 0, "{ended:?}");
        let text = std::fs::read_to_string(&file).expect("it is written");
        Self { folder, url: url.to_owned(), text, log: ended.log, setup: ended.output }
    }

    /// Returns the text with the settings that it offers behind these headings.
    fn with_offers(&self, headings: &[&str]) -> String {
        let is_offered = |part: &str| headings.iter().any(|heading| part.contains(heading));
        let mut is_wanted = false;
        let lines = self.text.lines().map(|line| {
            let setting = line.strip_prefix("# ").filter(|of| {
                is_wanted = if of.starts_with('[') { is_offered(of) } else { is_wanted };
                is_wanted && (of.starts_with('[') || of.contains(" = "))
            });
            setting.unwrap_or(line)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("hotrow.toml")
    }

    /// Serves the file as it is.
    #[track_caller]
    fn serve(&self) -> Server {
        serve(&self.file(), &self.url)
    }

    /// Serves the file, and asserts that each of these paths has a record.
    #[track_caller]
    fn assert_serves(&self, paths: &[&str]) {
        let server = self.serve();
        for path in paths {
            let answer = server.get(path);
            assert_eq!(answer.status, 200, "{path}: {answer:?}\n{}", self.text);
        }
        let served = self.text.lines().filter(|line| line.starts_with("[collections.")).count();
        assert_eq!(served, paths.len(), "one path for each collection of\n{}", self.text);
    }

    /// Returns the commented part of a collection: from its description to its settings.
    #[track_caller]
    fn refusal(&self, collection: &str) -> &str {
        let heading = format!("# [collections.{collection}]\n");
        let end = self.text.find(&heading).unwrap_or_else(|| {
            panic!("{collection} is not refused in\n{}", self.text);
        });
        let before = &self.text[..end];
        &before[before.rfind("\n\n").map_or(0, |start| start + 2)..]
    }
}

/// Serves a file on free ports.
#[track_caller]
fn serve(file: &Path, url: &str) -> Server {
    let mut command = Command::new(program("hotrow"));
    command.arg("serve").arg("--config").arg(file).env(VARIABLE, url);
    command.args(["--data", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).stdin(Stdio::null());
    let server = Server::start_command(command);
    server.await_ready();
    server
}

/// Asserts that the text has all of these parts.
#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}
