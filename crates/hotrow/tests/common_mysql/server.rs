//! A MariaDB server for a test: a private one (own data folder, own port on 127.0.0.1, an unprivileged owner, gone when
//! dropped), or a database of its own on the server that HOTROW_TEST_MYSQL_URL names, MySQL for instance.
//!
//! Included by `#[path]` into the tests of two crates; needs nothing but std, `rustix` and `tempfile`. A missing
//! MariaDB fails the test with a text that says so.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    reason = "several test binaries use a part each, and fail by panicking"
)]

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[path = "given.rs"]
mod given;
#[path = "programs.rs"]
mod programs;

use given::Account;

/// How long starting and stopping may take: generous, for tests run beside each other on two cores.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something awaited.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Lines of the server's log that a failing test shows.
const LOG_LINES_MAX: usize = 40;
/// The database of tests on a private server.
const DATABASE: &str = "test";

/// So that a data folder is copied quickly.
const SMALL_FILES: [&str; 4] = [
    "--innodb-log-file-size=4M",
    "--innodb-autoextend-increment=1",
    "--innodb-undo-tablespaces=0",
    "--innodb-data-file-path=ibdata1:4M:autoextend",
];

/// What every server starts with; what a test sets comes after it and wins.
const SETTINGS: [(&str, &str); 16] = [
    ("bind-address", "127.0.0.1"),
    ("log-bin", "bin"),
    ("server-id", "1"),
    ("binlog-format", "ROW"),
    ("binlog-row-metadata", "FULL"),
    ("character-set-server", "utf8mb4"),
    ("innodb-buffer-pool-size", "16M"),
    ("innodb-flush-log-at-trx-commit", "0"),
    ("innodb-flush-method", "nosync"),
    ("innodb-use-native-aio", "OFF"),
    ("innodb-lock-wait-timeout", "20"),
    ("performance-schema", "OFF"),
    ("skip-name-resolve", "ON"),
    ("sync-binlog", "0"),
    ("max-connections", "100"),
    // Whatever the machine's zone is, nothing may depend on it.
    ("default-time-zone", "+05:30"),
];

/// A server to test against.
pub struct Server {
    account: Account,
    /// The database that the test may do in what it likes.
    database: String,
    private: Option<Private>,
}

/// A running (or stopped) server of one's own; stopped and removed when dropped, and also when the process is killed.
struct Private {
    folder: TempDir,
    settings: Vec<(String, String)>,
    process: Option<Child>,
    guard: Child,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// In order.
    Fast,
    /// As a power cut does.
    Kill,
}

impl Server {
    /// The server of HOTROW_TEST_MYSQL_URL with a new database, or else a private one: for tests that need nothing but SQL.
    #[track_caller]
    pub fn any() -> Self {
        let Some(account) = given::account() else { return Self::start(&[]) };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let database = format!("hotrow_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut server = Self { account, database: String::new(), private: None };
        server.batch(&format!("CREATE DATABASE {database} CHARACTER SET utf8mb4"));
        server.database = database;
        server
    }

    /// Starts a private server with more settings (`name`, value), as on the command line; an empty value is left out.
    #[track_caller]
    pub fn start(settings: &[(&str, &str)]) -> Self {
        let template = programs::template();
        let folder = TempDir::with_prefix("hotrow-my-").expect("a temporary folder");
        programs::give_to_owner(folder.path());
        programs::run(Command::new("cp").arg("-a").arg(&template).arg(folder.path().join("data")));
        let account =
            Account { user: "root".into(), password: String::new(), host: "127.0.0.1".into(), port: free_port() };
        let guard = guard(&folder);
        let all = SETTINGS.iter().chain(settings).map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let private = Private { folder, settings: all, process: None, guard };
        let mut server = Self { account, database: String::new(), private: Some(private) };
        server.restart();
        server.batch(&format!("CREATE DATABASE {DATABASE}"));
        server.database = DATABASE.into();
        server
    }

    // --- how to reach it ----------------------------------------------------------------------------------------------

    /// Whether it is the server of HOTROW_TEST_MYSQL_URL, whose life and settings are not the test's.
    pub fn is_given(&self) -> bool {
        self.private.is_none()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.account.port
    }

    /// The test's database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The superuser's connection string, for the test's database.
    pub fn url(&self) -> String {
        self.account.url(&self.database)
    }

    /// Another user's connection string, for the test's database.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.url_at(user, password, self.account.port)
    }

    /// The same by way of another port of 127.0.0.1: a proxy's.
    pub fn url_at(&self, user: &str, password: &str, port: u16) -> String {
        let account = Account { user: user.into(), password: password.into(), port, ..self.account.clone() };
        account.url(&self.database)
    }

    /// The Unix socket of a private server.
    pub fn socket(&self) -> PathBuf {
        self.private().folder.path().join("socket")
    }

    /// The data folder of a private server.
    pub fn data(&self) -> PathBuf {
        self.private().folder.path().join("data")
    }

    /// Writes a file that a private server may read, and gives its path.
    #[track_caller]
    pub fn write_file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.private().folder.path().join(name);
        std::fs::write(&path, content).expect("write beside the data folder");
        programs::give_to_owner(&path);
        path
    }

    // --- SQL ----------------------------------------------------------------------------------------------------------

    /// Runs statements as the superuser in the test's database, in one session.
    ///
    /// # Panics
    /// When one of them fails.
    #[track_caller]
    pub fn batch(&self, sql: &str) {
        self.query(sql);
    }

    /// Runs statements and gives what they print: fields by tab, rows by line feed, NULL as `NULL`.
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
    /// What the client said.
    #[track_caller]
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        self.begin(sql).outcome()
    }

    /// Runs statements in a session of their own and does not wait for them.
    #[track_caller]
    pub fn begin(&self, sql: &str) -> Running {
        let mut client = programs::client();
        client.args(["--batch", "--raw", "--skip-column-names", "--unbuffered", "--default-character-set=utf8mb4"]);
        client.args(["--protocol=tcp", "--host", &self.account.host, "--port", &self.account.port.to_string()]);
        client.args(["--user", &self.account.user, "--database", &self.database]);
        client.env("MYSQL_PWD", &self.account.password);
        let mut child =
            client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the SQL client");
        let mut input = child.stdin.take().expect("piped");
        // It may end before it has read all.
        let sql = sql.to_owned();
        let writer = std::thread::spawn(move || _ = input.write_all(sql.as_bytes()));
        Running { child, writer }
    }

    /// Sets global variables that need no restart; for sessions that begin after this.
    #[track_caller]
    pub fn set(&self, settings: &[(&str, &str)]) {
        for (name, value) in settings {
            self.batch(&format!("SET GLOBAL {name} = {value}"));
        }
    }

    /// Settings, as on the command line, that take hold at the next [`Self::restart`].
    #[track_caller]
    pub fn set_for_restart(&mut self, settings: &[(&str, &str)]) {
        let private = self.private.as_mut().expect("a private server");
        private.settings.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    }

    // --- the life of a private server -----------------------------------------------------------------------------------

    /// Stops it.
    #[track_caller]
    pub fn stop(&mut self, how: Stop) {
        signal(self.pid(), if how == Stop::Fast { Signal::TERM } else { Signal::KILL });
        let mut child = self.private.as_mut().and_then(|p| p.process.take()).expect("the server runs");
        self.wait("it to end", || child.try_wait().expect("wait").is_some());
    }

    /// Starts it (again) on its port, and waits until it takes connections.
    #[track_caller]
    pub fn restart(&mut self) {
        if self.runs() {
            self.stop(Stop::Fast);
        }
        let log = std::fs::File::options().create(true).append(true).open(self.log_file()).expect("its log");
        let ready = |server: &Self| server.log().matches("ready for connections").count();
        let before = ready(self);
        let mut server = programs::as_owner("mariadbd");
        server.arg(format!("--datadir={}", self.data().display())).arg(format!("--socket={}", self.socket().display()));
        // Not the system's: a server that starts removes the temporary tables that it finds there, whoever made them.
        server.arg(format!("--tmpdir={}", self.data().display()));
        server.arg(format!("--pid-file={}", self.pid_file().display())).arg(format!("--port={}", self.port()));
        server.args(SMALL_FILES);
        server.args(self.private().settings.iter().map(|(name, value)| match value.as_str() {
            "" => format!("--{name}"),
            value => format!("--{name}={value}"),
        }));
        // A group of its own: Ctrl-C at the terminal is for the test, whose end stops the server.
        let child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).spawn();
        self.private.as_mut().expect("a private server").process = Some(child.expect("start mariadbd"));
        self.wait("it to take connections", || {
            assert!(state(self.pid()).is_some_and(|state| state != 'Z'), "mariadbd ended:\n{}", self.log_tail());
            ready(self) > before
        });
    }

    /// Whether it has been started and not been stopped.
    pub fn runs(&self) -> bool {
        self.private.as_ref().is_some_and(|p| p.process.is_some())
    }

    /// Stops its process (SIGSTOP) and waits until it stands still; [`Self::resume`] lets it go on.
    #[track_caller]
    pub fn pause(&self) {
        signal(self.pid(), Signal::STOP);
        self.wait("it to stand still", || matches!(state(self.pid()), None | Some('T' | 'Z')));
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        signal(self.pid(), Signal::CONT);
    }

    /// Its process.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.private().process.as_ref().expect("the server runs").id()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn private(&self) -> &Private {
        self.private.as_ref().expect("a private server (Server::start), for this test does more than SQL")
    }

    fn log_file(&self) -> PathBuf {
        self.private().folder.path().join("server.log")
    }

    fn pid_file(&self) -> PathBuf {
        self.private().folder.path().join("pid")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
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
        let Some(private) = &mut self.private else {
            if !self.database.is_empty() {
                _ = self.try_query(&format!("DROP DATABASE {}", self.database));
            }
            return;
        };
        // Nothing it holds is wanted any more. No panic here: a test may be failing already.
        if let Some(mut child) = private.process.take() {
            signal(child.id(), Signal::KILL);
            _ = child.wait();
        }
        _ = private.guard.kill();
        _ = private.guard.wait();
        if std::thread::panicking() {
            eprintln!("--- log of MariaDB ---\n{}", self.log_tail());
        }
    }
}

/// Statements on their way, in a session of their own; the session ends when this is dropped.
pub struct Running {
    child: Child,
    writer: std::thread::JoinHandle<()>,
}

impl Running {
    /// Waits for their end.
    ///
    /// # Errors
    /// What the client said.
    pub fn outcome(self) -> Result<String, String> {
        let output = self.child.wait_with_output().expect("the SQL client ends");
        self.writer.join().expect("no panics there");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Whether they are not done.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    /// Ends the client.
    pub fn kill(mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Ends the server and removes its folder if this process dies without a chance to: its end closes the pipe.
fn guard(folder: &TempDir) -> Child {
    const SCRIPT: &str = r#"
        read -r _
        pid=$(cat "$0/pid" 2>/dev/null)
        if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$0/data" ]; then
          kill -KILL "$pid"
          while [ -d "/proc/$pid" ]; do sleep 0.1; done
        fi
        rm -rf "$0""#;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(SCRIPT).arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.process_group(0).spawn().expect("sh")
}

/// A port that nobody listens on, below those that outgoing connections get: a restarted server finds it free.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let seed = std::process::id().wrapping_mul(89);
    for _ in 0..1000 {
        let step = seed.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 26_000 + (step % 6_000) as u16;
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
