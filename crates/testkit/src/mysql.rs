//! MariaDB or MySQL server for a test.
//!
//! A server has its own data folder, its own port on 127.0.0.1 and an unprivileged owner. Tests
//! that stop it, or change what all sessions see, own a server ([`Server::start`]), which is
//! removed when dropped. The others of a program share one, and each has a database there
//! ([`Server::any`]). A missing program fails the test with a message.
//!
//! Tests of both get a server of the [`Flavor`] of their run.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{free_port, note_start, run, signal, state};

mod flavor;
mod globals;
mod lifecycle;
mod programs;

pub use flavor::Flavor;
pub use globals::globals;
pub use programs::Running;

/// First port of the servers.
const PORT_FIRST: u16 = 26_000;
/// Time limit for start and stop, generous because tests run in parallel on two cores.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Interval between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(2);
/// Maximum lines of the server's log that a failing test shows.
const LOG_LINES_MAX: usize = 40;
/// Database of tests on a private server; on a shared one it is followed by a number.
const DATABASE: &str = "test";
/// Account of the service.
pub const SERVICE_USER: &str = "hotrow";
pub const SERVICE_PASSWORD: &str = "hotrow";

/// Settings of every server. Those of a test follow and take precedence.
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
    ("max-connections", "500"),
    // Nothing may depend on the machine's time zone.
    ("default-time-zone", "+05:30"),
];

/// Server, running or stopped. A private one is stopped and removed when dropped, a shared one at
/// the end of the test's process; both also when that process is killed.
pub struct Server {
    flavor: Flavor,
    port: u16,
    /// Empty before it is created.
    database: String,
    folder: Arc<TempDir>,
    settings: Vec<(String, String)>,
    process: Option<Child>,
    /// `None` for a share of a server.
    guard: Option<Child>,
}

/// Direction to stop a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Orderly shutdown.
    Fast,
    /// SIGKILL, like a power failure.
    Kill,
}

impl Server {
    /// Returns a share of the program's server of the run's flavor, with a database for the test.
    /// For tests that need only SQL.
    #[track_caller]
    pub fn any() -> Self {
        Self::any_as(Flavor::of_run())
    }

    /// Returns a share of the program's server of this flavor, as [`Self::any`] does.
    #[track_caller]
    pub fn any_as(flavor: Flavor) -> Self {
        static SERVERS: [OnceLock<Server>; 2] = [const { OnceLock::new() }; 2];
        static DATABASES: AtomicU32 = AtomicU32::new(0);
        let server = SERVERS[flavor as usize].get_or_init(|| Self::start_as(flavor, &[]));
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let database = format!("{DATABASE}_{number}");
        server.batch(&format!("CREATE DATABASE {database}"));
        let share = Self {
            flavor,
            port: server.port,
            database,
            folder: server.folder.clone(),
            settings: Vec::new(),
            process: None,
            guard: None,
        };
        share.create_service_account();
        share
    }

    /// Starts a server of the run's flavor with further command line settings: name and value. An
    /// empty value is omitted.
    #[track_caller]
    pub fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_as(Flavor::of_run(), settings)
    }

    /// Starts a server of this flavor, as [`Self::start`] does.
    #[track_caller]
    pub fn start_as(flavor: Flavor, settings: &[(&str, &str)]) -> Self {
        let template = programs::template(flavor);
        let folder = TempDir::with_prefix("hotrow-my-").expect("a temporary folder");
        programs::give_to_owner(folder.path());
        run(Command::new("cp").arg("-a").arg(&template).arg(folder.path().join("data")));
        let guard = Some(guard(&folder));
        let all = SETTINGS
            .iter()
            .chain(flavor.settings())
            .chain(settings)
            .map(|(name, value)| (flavor.dialect(name), flavor.dialect(value)))
            .collect();
        let mut server = Self {
            flavor,
            port: free_port(PORT_FIRST),
            database: String::new(),
            folder: Arc::new(folder),
            settings: all,
            process: None,
            guard,
        };
        server.restart();
        server.batch(&format!("CREATE DATABASE {DATABASE}"));
        DATABASE.clone_into(&mut server.database);
        server.create_service_account();
        server
    }

    /// Grants only the privileges of docs/mysql.md, so that code that needs more fails in the
    /// tests.
    fn create_service_account(&self) {
        self.batch(&format!(
            "CREATE USER IF NOT EXISTS {SERVICE_USER}@'%' IDENTIFIED BY '{SERVICE_PASSWORD}';
             GRANT SELECT ON {}.* TO {SERVICE_USER}@'%';
             GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {SERVICE_USER}@'%'",
            self.database
        ));
    }

    // --- Access -------------------------------------------------------------------------------

    /// Returns which of the two it is.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Returns the server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the test's database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the connection string of the service's account. It has exactly the privileges of
    /// docs/mysql.md, on all tables of the test's database.
    pub fn url(&self) -> String {
        self.url_for(SERVICE_USER, SERVICE_PASSWORD)
    }

    /// Returns the superuser's connection string for the test's database.
    pub fn superuser_url(&self) -> String {
        self.url_for("root", "")
    }

    /// Returns another user's connection string for the test's database.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.url_at(user, password, self.port)
    }

    /// Returns the connection string with another port of 127.0.0.1, such as a proxy's.
    pub fn url_at(&self, user: &str, password: &str, port: u16) -> String {
        let colon = if password.is_empty() { "" } else { ":" };
        format!("mysql://{user}{colon}{password}@127.0.0.1:{port}/{}", self.database)
    }

    /// Returns the Unix socket of the server.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Returns the data folder of the server.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file that the server can read. Returns its path.
    #[track_caller]
    pub fn write_file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("write beside the data folder");
        programs::give_to_owner(&path);
        path
    }

    // --- SQL ----------------------------------------------------------------------------------

    /// Runs statements as the superuser in the test's database, in one session. They are
    /// MariaDB's, and translated for MySQL.
    ///
    /// # Panics
    /// Panics if a statement fails.
    #[track_caller]
    pub fn batch(&self, sql: &str) {
        self.query(sql);
    }

    /// Runs statements and returns their output: tab-separated fields, one line per row, NULL as
    /// `NULL`.
    ///
    /// # Panics
    /// Panics if a statement fails.
    #[track_caller]
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Same as [`Self::query`], with an error instead of a panic.
    ///
    /// # Errors
    /// Error output of the client.
    #[track_caller]
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        self.begin(sql).outcome()
    }

    /// Starts statements in a new session and does not wait for them.
    #[track_caller]
    pub fn begin(&self, sql: &str) -> Running {
        let mut client = programs::client();
        client.args([
            "--batch",
            "--raw",
            "--skip-column-names",
            "--unbuffered",
            "--default-character-set=utf8mb4",
        ]);
        client.args([
            "--protocol=tcp",
            "--host=127.0.0.1",
            &format!("--port={}", self.port),
            "--user=root",
            &format!("--database={}", self.database),
        ]);
        let mut child = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the SQL client");
        let mut input = child.stdin.take().expect("piped");
        // The client may end before it has read everything.
        let sql = globals::of_session(self.flavor) + &self.flavor.dialect(sql);
        let writer = std::thread::spawn(move || _ = input.write_all(sql.as_bytes()));
        Running { child, writer }
    }

    /// Returns the server's log so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.path().join("pid")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }

    #[track_caller]
    fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + WAIT_MAX;
        while !condition() {
            assert!(Instant::now() < end, "not within {WAIT_MAX:?}: {what}\n{}", self.log_tail());
            std::thread::sleep(CHECK_EVERY);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL, because the data is not needed. No panic, because a test may be failing already.
        if let Some(mut child) = self.process.take() {
            signal(child.id(), Signal::KILL);
            _ = child.wait();
        }
        if let Some(mut guard) = self.guard.take() {
            _ = guard.kill();
            _ = guard.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- log of the server ---\n{}", self.log_tail());
        }
    }
}

/// Starts a shell that kills the server and removes its folder after this process has died: its end
/// closes the shell's input.
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
    shell
        .arg("-c")
        .arg(SCRIPT)
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.process_group(0).spawn().expect("sh")
}
