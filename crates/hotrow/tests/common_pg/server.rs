//! A private PostgreSQL server: own data folder, own port on 127.0.0.1, an unprivileged owner, gone when dropped.
//!
//! Included by `#[path]` into the tests of two crates; needs nothing but std, `rustix` and `tempfile`. A missing
//! PostgreSQL fails the test with a text that says so.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    reason = "several test binaries use a part each, and fail by panicking"
)]

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[path = "programs.rs"]
mod programs;

/// How long starting and stopping may take: generous, for tests run beside each other on two cores.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server that is dropped may take to end its own processes, before they are killed.
const QUIT_PATIENCE: Duration = Duration::from_secs(8);
/// Between two looks at something awaited.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Lines of the server's log that a failing test shows.
const LOG_LINES_MAX: usize = 40;

/// What every server starts with; what a test sets comes after it and wins.
const SETTINGS: [(&str, &str); 8] = [
    ("listen_addresses", "127.0.0.1"),
    ("wal_level", "logical"),
    ("fsync", "off"),
    ("shared_buffers", "32MB"),
    // Ordinary files in the data folder: nothing stays in /dev/shm after a kill.
    ("dynamic_shared_memory_type", "mmap"),
    ("log_line_prefix", "%m [%p] %a "),
    ("jit", "off"),
    ("max_wal_senders", "10"),
];

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended, everything is written.
    Fast,
    /// As a crash, but the server ends its processes itself.
    Immediate,
}

/// A running (or stopped) server of one's own; stopped and removed when dropped, and also when the process is killed.
pub struct Server {
    port: u16,
    folder: TempDir,
    postmaster: Option<Child>,
    guard: Child,
}

impl Server {
    /// Starts a server with more settings. All servers of a machine are copies of one cluster, so they have the same
    /// system identifier; see [`Self::start_other`].
    #[track_caller]
    pub fn start(settings: &[(&str, &str)]) -> Self {
        let template = programs::template();
        Self::launch(settings, |data| programs::run(Command::new("cp").arg("-a").arg(&template).arg(data)))
    }

    /// As [`Self::start`], with a system identifier that no other server has.
    #[track_caller]
    pub fn start_other(settings: &[(&str, &str)]) -> Self {
        Self::launch(settings, programs::initdb)
    }

    /// A standby of this server that streams from it; [`Self::promote`] makes a primary of it.
    #[track_caller]
    pub fn standby(&self, settings: &[(&str, &str)]) -> Self {
        Self::launch(settings, |data| {
            let mut copy = programs::as_owner("pg_basebackup");
            copy.args(["--dbname", &self.url(), "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast"]);
            programs::run(copy.arg("--no-sync").arg("--pgdata").arg(data));
        })
    }

    #[track_caller]
    fn launch(settings: &[(&str, &str)], make: impl FnOnce(&Path)) -> Self {
        let folder = TempDir::with_prefix("hotrow-pg-").expect("a temporary folder");
        programs::give_to_owner(folder.path());
        let data = folder.path().join("data");
        make(&data);
        let port = free_port();
        let sockets = folder.path().to_str().expect("UTF-8").to_owned();
        let own = [("port", port.to_string()), ("unix_socket_directories", sockets)];
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        append_settings(&data, SETTINGS.into_iter().chain(own).chain(settings.iter().copied()));
        let guard = guard(&folder);
        let mut server = Self { port, folder, postmaster: None, guard };
        server.restart();
        server
    }

    // --- how to reach it ----------------------------------------------------------------------------------------------

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The superuser's connection string, for the database `postgres`.
    pub fn url(&self) -> String {
        self.url_for("postgres", "postgres")
    }

    /// A connection string.
    pub fn url_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// The folder of its Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The data folder, for its files.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file into the data folder as the server wants its own (mode 0600), and gives its path.
    #[track_caller]
    pub fn write_file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.data().join(name);
        std::fs::write(&path, content).expect("write into the data folder");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the file is ours");
        programs::give_to_owner(&path);
        path
    }

    /// Replaces pg_hba.conf; for sessions that begin after this.
    #[track_caller]
    pub fn set_hba(&self, lines: &str) {
        self.write_file("pg_hba.conf", lines.as_bytes());
        // The server has taken it in once it says so in its log.
        let loads = || self.log().matches("received SIGHUP").count();
        let before = loads();
        self.signal_postmaster(Signal::HUP);
        self.wait("pg_hba.conf to be read", || loads() > before);
    }

    // --- SQL ----------------------------------------------------------------------------------------------------------

    /// Runs statements as the superuser in the database `postgres`, each in a transaction of its own.
    ///
    /// # Panics
    /// When one of them fails.
    #[track_caller]
    pub fn batch(&self, sql: &str) {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Runs statements and gives what they print: fields by `|`, rows by line feed.
    ///
    /// # Panics
    /// When one of them fails.
    #[track_caller]
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// As [`Self::query`].
    ///
    /// # Errors
    /// What psql said.
    #[track_caller]
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        let mut psql = programs::as_owner("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url()]);
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("psql");
        let mut input = psql.stdin.take().expect("piped");
        // By standard input, not -c: that would make one transaction of all. psql may end before it has read all.
        let sql = sql.to_owned();
        let writer = std::thread::spawn(move || _ = input.write_all(sql.as_bytes()));
        let output = psql.wait_with_output().expect("psql ends");
        writer.join().expect("no panics there");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Sets settings that need no restart, and waits until new sessions have them.
    #[track_caller]
    pub fn set(&self, settings: &[(&str, &str)]) {
        append_settings(&self.data(), settings.iter().copied());
        let loaded = self.query("SELECT pg_conf_load_time()");
        self.signal_postmaster(Signal::HUP);
        self.wait("the settings to be read", || self.query("SELECT pg_conf_load_time()") != loaded);
    }

    /// Sets settings that take hold at the next [`Self::restart`].
    #[track_caller]
    pub fn set_for_restart(&self, settings: &[(&str, &str)]) {
        append_settings(&self.data(), settings.iter().copied());
    }

    // --- its life -----------------------------------------------------------------------------------------------------

    /// Stops it.
    #[track_caller]
    pub fn stop(&mut self, how: Stop) {
        self.signal_postmaster(if how == Stop::Fast { Signal::INT } else { Signal::QUIT });
        self.reap();
    }

    /// Kills all its processes at once, as a power cut does.
    #[track_caller]
    pub fn kill9(&mut self) {
        // First the one that would start others; then no new one appears.
        self.signal_postmaster(Signal::KILL);
        self.reap();
        self.wait("its processes to end", || {
            let left = self.processes();
            left.iter().for_each(|pid| signal(*pid, Signal::KILL));
            left.is_empty()
        });
    }

    /// Starts it (again) on its port, and waits until it takes connections.
    #[track_caller]
    pub fn restart(&mut self) {
        if self.postmaster.is_some() {
            self.stop(Stop::Fast);
        }
        let log = std::fs::File::options().create(true).append(true).open(self.log_file()).expect("its log");
        let mut postgres = programs::as_owner("postgres");
        postgres.arg("-D").arg(self.data()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // A group of its own: Ctrl-C at the terminal is for the test, whose end stops the server.
        let child = postgres.process_group(0).spawn().expect("start postgres");
        let pid = child.id().to_string();
        self.postmaster = Some(child);
        self.wait("it to take connections", || {
            let child = self.postmaster.as_ref().expect("just started");
            assert!(is_alive(child.id()), "postgres ended:\n{}", self.log_tail());
            let text = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines.first() == Some(&pid.as_str())
                && lines.get(7).is_some_and(|s| matches!(s.trim(), "ready" | "standby"))
        });
    }

    /// Whether it has been started and not been stopped.
    pub fn runs(&self) -> bool {
        self.postmaster.is_some()
    }

    /// Makes a primary of a standby, and waits until it is one.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.query("SELECT pg_promote(true, 60)"), "t", "{}", self.log_tail());
    }

    /// Stops all its processes (SIGSTOP) and waits until none runs; [`Self::resume`] lets them go on.
    #[track_caller]
    pub fn pause(&self) {
        self.signal_postmaster(Signal::STOP);
        self.wait("its processes to stand still", || {
            let all = self.processes();
            all.iter().for_each(|pid| signal(*pid, Signal::STOP));
            all.iter().all(|pid| matches!(state(*pid), None | Some('T' | 'Z')))
        });
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        self.processes().iter().for_each(|pid| signal(*pid, Signal::CONT));
    }

    /// All its processes, the postmaster among them.
    pub fn processes(&self) -> Vec<u32> {
        let data = self.data();
        let all = std::fs::read_dir("/proc").expect("/proc");
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        // Every process of a server works in its data folder.
        pids.filter(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data)).collect()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }

    #[track_caller]
    fn signal_postmaster(&self, what: Signal) {
        signal(self.postmaster.as_ref().expect("the server runs").id(), what);
    }

    /// Waits for the end of the postmaster.
    #[track_caller]
    fn reap(&mut self) {
        let mut child = self.postmaster.take().expect("the server runs");
        self.wait("it to end", || child.try_wait().expect("wait").is_some());
    }

    #[track_caller]
    fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}\n{}", self.log_tail());
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of PostgreSQL ---\n{}", self.log_tail());
        }
        // Nothing it holds is wanted any more. No panic here: a test may be failing already.
        if let Some(mut child) = self.postmaster.take() {
            signal(child.id(), Signal::QUIT);
            self.resume();
            let end = Instant::now() + QUIT_PATIENCE;
            while child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < end {
                std::thread::sleep(LOOK_EVERY);
            }
            signal(child.id(), Signal::KILL);
            _ = child.wait();
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() > end {
                break;
            }
            left.iter().for_each(|pid| signal(*pid, Signal::KILL));
            std::thread::sleep(LOOK_EVERY);
        }
        programs::forget_shared_memory(&self.data());
        _ = self.guard.kill();
        _ = self.guard.wait();
    }
}

/// Ends the server and removes its folder if this process dies without a chance to: its end closes the pipe.
fn guard(folder: &TempDir) -> Child {
    const SCRIPT: &str = r#"
        read -r _
        pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null)
        if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$0/data" ]; then
          kill -QUIT "$pid"; kill -CONT "$pid"
          while [ -d "/proc/$pid" ]; do sleep 0.1; done
        fi
        rm -rf "$0""#;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(SCRIPT).arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.process_group(0).spawn().expect("sh")
}

fn append_settings<'a>(data: &Path, settings: impl Iterator<Item = (&'a str, &'a str)>) {
    let path = data.join("postgresql.conf");
    let mut file = std::fs::File::options().append(true).open(path).expect("postgresql.conf");
    for (name, value) in settings {
        writeln!(file, "{name} = '{}'", value.replace('\'', "''")).expect("write postgresql.conf");
    }
}

/// A port that nobody listens on, below those that outgoing connections get: a restarted server finds it free.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let seed = std::process::id().wrapping_mul(97);
    for _ in 0..1000 {
        let step = seed.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (step % 6_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on 127.0.0.1");
}

/// A process that is gone is no fault.
fn signal(pid: u32, what: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        _ = kill_process(pid, what);
    }
}

fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The letter of /proc/PID/stat; none when there is no such process.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // It follows the name, which is in parentheses and may hold anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether we may become another user.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}
