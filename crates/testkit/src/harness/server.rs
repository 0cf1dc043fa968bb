//! The real binary as a child process.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::metrics::Metrics;
use super::{Client, Config, SOON, await_some, await_until};

/// A running `hotrow serve`; killed when dropped.
pub struct Server {
    pub data: SocketAddr,
    pub admin: SocketAddr,
    process: Process,
}

impl Server {
    /// Starts on `config` and waits until it is ready.
    #[track_caller]
    pub fn start(config: &Config) -> Self {
        let server = Self::start_unready(config);
        server.await_ready();
        server
    }

    /// Starts on `config` and waits until it listens.
    #[track_caller]
    pub fn start_unready(config: &Config) -> Self {
        Self::start_with(config, &[])
    }

    /// Does as [`Self::start_unready`], with variables in its environment.
    #[track_caller]
    pub fn start_with(config: &Config, environment: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("hotrow.toml");
        std::fs::write(&file, config.text()).expect("write the configuration");
        let arguments = [OsStr::new("serve"), OsStr::new("--config"), file.as_os_str()];
        let failpoints = config.failpoints();
        let mut environment = environment.to_vec();
        environment.extend(failpoints.as_deref().map(|words| ("HOTROW_FAILPOINTS", words)));
        Self::listening(Process::spawn(&arguments, &environment, Some(folder)))
    }

    /// Starts on `config` with this standard error, which is not read, and waits until it listens.
    #[track_caller]
    pub fn start_with_stderr(config: &Config, stderr: Stdio) -> Self {
        Self::listening(Process::spawn_unlogged(config, stderr))
    }

    /// Starts on `config` with standard error closed, and waits until it listens.
    #[track_caller]
    pub fn start_without_stderr(config: &Config) -> Self {
        let (folder, file) = written(config);
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" serve --config \"$1\" 2>&-"]).arg(binary()).arg(file);
        Self::listening(Process::spawn_command(command, Some(folder)))
    }

    /// Starts on a configuration that must not work, with this standard error.
    #[track_caller]
    pub fn fails_with_stderr(config: &Config, stderr: Stdio, within: Duration) -> Ended {
        Process::spawn_unlogged(config, stderr).ended(within)
    }

    /// Waits until the process has printed its addresses.
    #[track_caller]
    fn listening(process: Process) -> Self {
        let (data, admin) = process.await_output("its addresses", |out| {
            let line = out.lines().find_map(|line| line.strip_prefix("records on http"))?;
            let line = line.strip_prefix('s').unwrap_or(line).strip_prefix("://")?;
            let (data, admin) = line.split_once(", admin on http")?;
            let admin = admin.strip_prefix('s').unwrap_or(admin).strip_prefix("://")?;
            let admin = admin.split(", redis on ").next().unwrap_or(admin);
            Some((data.parse().ok()?, admin.parse().ok()?))
        });
        Self { data, admin, process }
    }

    /// Starts `hotrow relay` on `config` and waits until it listens; it has no data API.
    #[track_caller]
    pub fn start_relay(config: &Config) -> Self {
        let (folder, file) = written(config);
        let arguments = [OsStr::new("relay"), OsStr::new("--config"), file.as_os_str()];
        let failpoints = config.failpoints();
        let environment = failpoints.as_deref().map(|words| ("HOTROW_FAILPOINTS", words));
        let process = Process::spawn(&arguments, environment.as_slice(), Some(folder));
        let admin = process.await_output("its address", |out| {
            let line = out.lines().find_map(|line| line.strip_prefix("relay, admin on http://"))?;
            line.parse().ok()
        });
        Self { data: admin, admin, process }
    }

    /// Returns the address of the Redis protocol.
    ///
    /// # Panics
    /// If it is not served.
    #[track_caller]
    pub fn redis(&self) -> std::net::SocketAddr {
        self.process.await_output("its address for Redis", |out| {
            let (_, address) =
                out.lines().find_map(|line| line.split_once(", redis on redis://"))?;
            address.parse().ok()
        })
    }

    /// Does as [`Self::start`], with a hard limit on its open files.
    #[track_caller]
    pub fn start_with_files(config: &Config, files: u32) -> Self {
        Self::start_limited(config, &format!("--nofile={files}:{files}"))
    }

    /// Does as [`Self::start`], under a limit in the syntax of `prlimit`.
    #[track_caller]
    pub fn start_limited(config: &Config, limit: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("hotrow.toml");
        std::fs::write(&file, config.text()).expect("write the configuration");
        let mut command = Command::new("prlimit");
        command.arg(limit).arg(binary()).arg("serve").arg("--config").arg(file);
        let server = Self::listening(Process::spawn_command(command, Some(folder)));
        server.await_ready();
        server
    }

    /// Does as [`Self::start_unready`], by a command that finally executes `hotrow serve`. The
    /// command sets its standard input.
    #[track_caller]
    pub fn start_command(command: Command) -> Self {
        Self::listening(Process::spawn_piped(command, None))
    }

    /// Starts `hotrow serve --demo` with more arguments, on free ports, with `TMPDIR` at `folder`.
    #[track_caller]
    pub fn start_demo(folder: &std::path::Path, more: &[&str]) -> Self {
        Self::start_demo_with(folder, more, &[])
    }

    /// Does as [`Self::start_demo`], with variables in its environment.
    #[track_caller]
    pub fn start_demo_with(
        folder: &std::path::Path,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let folder = folder.to_str().expect("UTF-8");
        let environment = [&[("TMPDIR", folder)], environment].concat();
        Self::start_without_file(&[&["--demo"], more].concat(), &environment)
    }

    /// Starts `hotrow serve` on free ports with arguments that replace a configuration file.
    #[track_caller]
    pub fn start_without_file(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let ports = ["--data", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let arguments = [&["serve"], arguments, &ports].concat();
        let process = Process::spawn(&arguments, environment, None);
        let (data, admin) = process.await_output("its invitation", |out| {
            let address = |prefix: &str| {
                let (_, rest) = out.split_once(prefix)?;
                rest.split('/').next()?.parse().ok()
            };
            Some((address("http://")?, address("Live page: http://")?))
        });
        Self { data, admin, process }
    }

    /// Starts `hotrow lab reference` with more arguments and variables, on a free port; it has no
    /// admin API of its own.
    #[track_caller]
    pub fn start_reference(more: &[&str], environment: &[(&str, &str)]) -> Self {
        let arguments = [&["lab", "reference", "--listen", "127.0.0.1:0"], more].concat();
        let process = Process::spawn(&arguments, environment, None);
        let data = process.await_output("its address", |out| {
            out.lines()
                .find_map(|line| line.strip_prefix("reference service on http://"))?
                .parse()
                .ok()
        });
        Self { data, admin: data, process }
    }

    /// Waits until `/readyz` succeeds.
    #[track_caller]
    pub fn await_ready(&self) {
        let mut client = Client::connect(self.admin);
        await_until("ready", SOON, || client.get("/readyz").status == 200);
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.data)
    }

    /// Sends `GET` on a connection of its own and returns the answer.
    #[track_caller]
    pub fn get(&self, path: &str) -> super::Answer {
        self.client().get(path)
    }

    #[track_caller]
    pub fn admin_client(&self) -> Client {
        Client::connect(self.admin)
    }

    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let answer = self.admin_client().get("/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        Metrics::parse(&answer.text())
    }

    /// Returns the number of queries at the database so far.
    #[track_caller]
    pub fn queries(&self) -> u64 {
        self.metrics().sum("hotrow_source_queries_total", &[]) as u64
    }

    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        let answer = self.admin_client().get("/status");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Returns its standard error so far.
    pub fn log(&self) -> String {
        self.process.stderr.text()
    }

    /// Waits until its log contains `text`. The log has a thread of its own in the process and a
    /// reader here: what `/status` shows already may reach it later.
    #[track_caller]
    pub fn await_log(&self, text: &str) {
        await_until(&format!("`{text}` in the log"), SOON, || self.log().contains(text));
    }

    /// Returns its standard output so far.
    pub fn output(&self) -> String {
        self.process.stdout.text()
    }

    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.child), signal).expect("signal");
    }

    /// Stops the process (SIGSTOP) and waits until none of its threads runs; SIGCONT continues it.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        await_until("all threads to stop", SOON, || {
            let stopped = |task: std::io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(task.expect("a task").path().join("stat"))
                    .unwrap_or_default();
                // The state follows the name, which is in parentheses and may contain anything.
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            };
            std::fs::read_dir(&tasks).expect("the process lives").all(stopped)
        });
    }

    /// Waits until the process ends by itself.
    #[track_caller]
    pub fn ended(self, within: Duration) -> Ended {
        self.process.ended(within)
    }

    pub fn runs(&mut self) -> bool {
        self.process.child.try_wait().expect("wait").is_none()
    }
}

/// End of a process.
#[derive(Debug)]
pub struct Ended {
    /// Status or signal.
    pub status: ExitStatus,
    /// All of standard output.
    pub output: String,
    /// All of standard error.
    pub log: String,
}

impl Ended {
    /// Runs the binary with these arguments until it ends by itself.
    #[track_caller]
    pub fn run(arguments: &[&str], within: Duration) -> Self {
        Self::run_with(arguments, &[], within)
    }

    /// Does as [`Self::run`], with variables in its environment.
    #[track_caller]
    pub fn run_with(arguments: &[&str], environment: &[(&str, &str)], within: Duration) -> Self {
        Process::spawn(arguments, environment, None).ended(within)
    }

    /// Runs `serve` on a configuration that must not work.
    #[track_caller]
    pub fn run_config(config: &Config, within: Duration) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("hotrow.toml");
        std::fs::write(&file, config.text()).expect("write the configuration");
        Self::run(&["serve", "--config", file.to_str().expect("UTF-8")], within)
    }

    /// Runs a command until it ends by itself. The command sets its standard input.
    #[track_caller]
    pub fn run_command(command: Command, within: Duration) -> Self {
        Process::spawn_piped(command, None).ended(within)
    }

    #[track_caller]
    pub fn code(&self) -> i32 {
        assert_eq!(self.status.signal(), None, "{self:?}");
        self.status.code().expect("ended by itself")
    }
}

struct Process {
    child: Child,
    stdout: Captured,
    stderr: Captured,
    _folder: Option<TempDir>,
}

impl Process {
    fn spawn<S: AsRef<OsStr>>(
        arguments: &[S],
        environment: &[(&str, &str)],
        folder: Option<TempDir>,
    ) -> Self {
        let mut command = Command::new(binary());
        command.args(arguments).envs(environment.iter().copied());
        Self::spawn_command(command, folder)
    }

    fn spawn_unlogged(config: &Config, stderr: Stdio) -> Self {
        let (folder, file) = written(config);
        let mut command = Command::new(binary());
        command.arg("serve").arg("--config").arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("start the binary");
        let stdout = Captured::start(child.stdout.take().expect("piped"));
        Self { child, stdout, stderr: Captured::start(std::io::empty()), _folder: Some(folder) }
    }

    fn spawn_command(mut command: Command, folder: Option<TempDir>) -> Self {
        command.stdin(Stdio::null());
        Self::spawn_piped(command, folder)
    }

    fn spawn_piped(mut command: Command, folder: Option<TempDir>) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start the binary");
        let stdout = Captured::start(child.stdout.take().expect("piped"));
        let stderr = Captured::start(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr, _folder: folder }
    }

    #[track_caller]
    fn await_output<T>(&self, what: &str, mut find: impl FnMut(&str) -> Option<T>) -> T {
        await_some(what, SOON * 2, || {
            let closed = self.stdout.reader.is_finished();
            let found = find(&self.stdout.text());
            assert!(
                found.is_some() || !closed,
                "it ended without {what}: {}{}",
                self.stdout.text(),
                self.stderr.text()
            );
            found
        })
    }

    #[track_caller]
    fn ended(mut self, within: Duration) -> Ended {
        let end = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            assert!(Instant::now() < end, "still running after {within:?}: {}", self.stderr.text());
            std::thread::sleep(Duration::from_millis(1));
        };
        await_until("its output to end", SOON, || {
            self.stdout.reader.is_finished() && self.stderr.reader.is_finished()
        });
        Ended { status, output: self.stdout.text(), log: self.stderr.text() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the server ---\n{}", self.stderr.text());
        }
    }
}

/// Writes the configuration to a file in a folder of its own.
fn written(config: &Config) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("hotrow.toml");
    std::fs::write(&file, config.text()).expect("write the configuration");
    (folder, file)
}

/// Output of a pipe that a thread reads, so that the child never blocks on it.
struct Captured {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Captured {
    fn start(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = text.clone();
        let reader = std::thread::spawn(move || {
            let mut lines = BufReader::new(pipe);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                into.lock()
                    .expect("no panic under this lock")
                    .push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        self.text.lock().expect("no panic under this lock").clone()
    }
}

/// Returns the path of the binary under test.
pub fn binary() -> PathBuf {
    super::program("hotrow")
}
