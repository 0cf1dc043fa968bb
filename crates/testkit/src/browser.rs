//! A real browser, driven through the pipe of its debugging protocol: what a
//! page shows is awaited, however slow the machine is.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{SOON, await_until};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// The whole page as it is now.
const DOCUMENT: &str = "document.documentElement?.outerHTML ?? ''";

/// Waits until a page contains all awaited texts.
///
/// # Panics
/// Panics if it does not within a minute, if a script of the page fails, if the browser ends, or if
/// none is installed.
#[track_caller]
pub fn await_rendered(url: &str, awaited: &[&str]) {
    let mut browser = Browser::start();
    let session = browser.open(url);
    let mut missing = Vec::new();
    await_until(&format!("{awaited:?} on {url}"), SOON, || {
        let shown = browser.evaluate(&session, DOCUMENT);
        assert!(browser.failures.is_empty(), "scripts of the page failed: {:#?}", browser.failures);
        let now: Vec<&str> = awaited.iter().copied().filter(|text| !shown.contains(text)).collect();
        if now != missing {
            println!("the page lacks {now:?}");
            missing = now;
        }
        missing.is_empty()
    });
}

/// A browser without a window; ended when dropped.
struct Browser {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    /// Number of the last command.
    number: u64,
    /// What the scripts of pages did not catch.
    failures: Vec<Value>,
    /// Profile and pipes.
    _folder: TempDir,
}

impl Browser {
    #[track_caller]
    fn start() -> Self {
        let is_installed = |name: &&&str| {
            let version = Command::new(name).arg("--version").stdin(Stdio::null()).output();
            version.is_ok_and(|done| done.status.success())
        };
        let name = NAMES.iter().find(is_installed);
        let name = name.unwrap_or_else(|| panic!("none of {NAMES:?} is installed"));
        let folder = tempfile::tempdir().expect("a folder");
        let pipes = ["commands", "answers"].map(|name| folder.path().join(name));
        for pipe in &pipes {
            mkfifoat(CWD, pipe, Mode::RWXU).expect("a pipe");
        }
        let child = spawn(name, &pipes, folder.path());
        // In the order in which the shell opens them: each waits for the other side.
        let commands = File::options().write(true).open(&pipes[0]).expect("the first pipe");
        let answers = BufReader::new(File::open(&pipes[1]).expect("the second pipe"));
        Self { child, commands, answers, number: 0, failures: Vec::new(), _folder: folder }
    }

    /// Opens a page. Returns its session.
    fn open(&mut self, url: &str) -> String {
        let page = self.call(None, "Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", &attach);
        let session = attached["sessionId"].as_str().expect("the id of a session").to_owned();
        // With it come the failures of scripts.
        self.call(Some(&session), "Runtime.enable", &json!({}));
        self.call(Some(&session), "Page.navigate", &json!({ "url": url }));
        session
    }

    /// Returns the text that an expression has on the page.
    fn evaluate(&mut self, session: &str, expression: &str) -> String {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let answer = self.call(Some(session), "Runtime.evaluate", &asked);
        answer["result"]["value"].as_str().unwrap_or_default().to_owned()
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Value {
        self.number += 1;
        let mut command = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        let sent = self.commands.write_all(format!("{command}\0").as_bytes());
        sent.expect("the browser reads commands");
        loop {
            let mut message = Vec::new();
            self.answers.read_until(0, &mut message).expect("the browser answers");
            assert_eq!(message.pop(), Some(0), "the browser has ended");
            let answer: Value = serde_json::from_slice(&message).expect("JSON");
            if answer["method"] == "Runtime.exceptionThrown" {
                self.failures.push(answer["params"]["exceptionDetails"]["exception"].clone());
            }
            // Others are events.
            if answer["id"] == self.number {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Starts a browser that reads commands from descriptor 3 and writes answers to descriptor 4.
fn spawn(name: &str, pipes: &[std::path::PathBuf; 2], folder: &Path) -> Child {
    Command::new("sh")
        .args([
            "-c",
            "commands=$1 answers=$2; shift 2; exec \"$@\" 3<\"$commands\" 4>\"$answers\"",
            "sh",
        ])
        .args(pipes)
        .args([name, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg("about:blank")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell")
}
