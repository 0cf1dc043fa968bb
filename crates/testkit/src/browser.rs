//! A real browser, if one is installed, driven through the pipe of its debugging protocol: what a
//! page shows is awaited, however slow the machine is.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{SOON, await_some};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// The whole page as it is now.
const DOCUMENT: &str = "document.documentElement?.outerHTML ?? ''";

/// Returns the page's text once it contains all awaited texts; `None`, with the reason printed,
/// without a browser.
///
/// # Panics
/// Panics if it does not within a minute, or if the browser ends.
#[track_caller]
pub fn rendered(url: &str, awaited: &[&str]) -> Option<String> {
    let mut browser = Browser::start()?;
    let session = browser.open(url);
    let mut missing = Vec::new();
    Some(await_some(&format!("{awaited:?} on {url}"), SOON, || {
        let shown = browser.evaluate(&session, DOCUMENT);
        let now: Vec<&str> = awaited.iter().copied().filter(|text| !shown.contains(text)).collect();
        if now != missing {
            println!("the page lacks {now:?}");
            missing = now;
        }
        missing.is_empty().then_some(shown)
    }))
}

/// A browser without a window; ended when dropped.
struct Browser {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    /// Number of the last command.
    number: u64,
    /// Profile and pipes.
    _folder: TempDir,
}

impl Browser {
    fn start() -> Option<Self> {
        let is_installed = |name: &&&str| {
            let version = Command::new(name).arg("--version").stdin(Stdio::null()).output();
            version.is_ok_and(|done| done.status.success())
        };
        let Some(name) = NAMES.iter().find(is_installed) else {
            println!("skipped: no Chromium or Chrome is installed");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let pipes = ["commands", "answers"].map(|name| folder.path().join(name));
        for pipe in &pipes {
            mkfifoat(CWD, pipe, Mode::RWXU).expect("a pipe");
        }
        let child = spawn(name, &pipes, folder.path());
        // In the order in which the shell opens them: each waits for the other side.
        let commands = File::options().write(true).open(&pipes[0]).expect("the first pipe");
        let answers = BufReader::new(File::open(&pipes[1]).expect("the second pipe"));
        Some(Self { child, commands, answers, number: 0, _folder: folder })
    }

    /// Opens a page. Returns the session that speaks of it.
    fn open(&mut self, url: &str) -> String {
        let page = self.call(None, "Target.createTarget", &json!({ "url": url }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", &attach);
        attached["sessionId"].as_str().expect("the id of a session").to_owned()
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
            // The others are events.
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
