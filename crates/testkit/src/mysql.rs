//! MariaDB server for a test: a private one, or a new database on the server of
//! HOTROW_TEST_MYSQL_URL, which may be MySQL.
//!
//! A private server has its own data folder, its own port on 127.0.0.1 and an unprivileged owner.
//! It is removed when dropped. A missing MariaDB fails the test with a message.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{free_port, run, signal, state};

mod given;
mod lifecycle;
mod programs;

use given::Account;
pub use programs::Running;

/// First port of the servers.
const PORT_FIRST: u16 = 26_000;
/// Time limit for start and stop, generous because tests run in parallel on two cores.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Interval between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(2);
/// Maximum lines of the server's log that a failing test shows.
const LOG_LINES_MAX: usize = 40;
/// Database of tests on a private server.
const DATABASE: &str = "test";
/// Account of the service.
pub const SERVICE_USER: &str = "hotrow";
pub const SERVICE_PASSWORD: &str = "hotrow";

/// Start of the server's process, in seconds since 1970.
const STARTED_SQL: &str = "UNIX_TIMESTAMP() - (SELECT CAST(VARIABLE_VALUE AS SIGNED) \
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME')";
/// Incarnation number of the server's positions. docs/mysql.md has the same statement.
const INCARNATION_SQL: &str = "SELECT LEFT(SHA2(CONCAT_WS('|', \
    @@server_id, @@hostname, @@port, @@datadir, @@server_uid, \
    UNIX_TIMESTAMP() - (SELECT CAST(VARIABLE_VALUE AS SIGNED) \
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME')), 256), 16)";

/// Small files, because every test copies the data folder.
const SMALL_FILES: [&str; 4] = [
    "--innodb-log-file-size=4M",
    "--innodb-autoextend-increment=1",
    "--innodb-undo-tablespaces=0",
    "--innodb-data-file-path=ibdata1:4M:autoextend",
];

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
    ("max-connections", "100"),
    // Nothing may depend on the machine's time zone.
    ("default-time-zone", "+05:30"),
];

/// Server to test against.
pub struct Server {
    account: Account,
    database: String,
    private: Option<Private>,
}

/// Private server, running or stopped. It is stopped and removed when dropped, and also when the
/// test's process is killed.
struct Private {
    folder: TempDir,
    settings: Vec<(String, String)>,
    process: Option<Child>,
    guard: Child,
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
    /// Returns the server of HOTROW_TEST_MYSQL_URL with a new database, or else a private one. For
    /// tests that need only SQL.
    #[track_caller]
    pub fn any() -> Self {
        let Some(account) = given::account() else { return Self::start(&[]) };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let database =
            format!("hotrow_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut server = Self { account, database: String::new(), private: None };
        server.batch(&format!("CREATE DATABASE {database} CHARACTER SET utf8mb4"));
        server.database = database;
        server.create_service_account();
        server
    }

    /// Starts a private server with further command line settings: name and value. An empty value
    /// is omitted.
    #[track_caller]
    pub fn start(settings: &[(&str, &str)]) -> Self {
        let template = programs::template();
        let folder = TempDir::with_prefix("hotrow-my-").expect("a temporary folder");
        programs::give_to_owner(folder.path());
        run(Command::new("cp").arg("-a").arg(&template).arg(folder.path().join("data")));
        let account = Account {
            user: "root".into(),
            password: String::new(),
            host: "127.0.0.1".into(),
            port: free_port(PORT_FIRST),
        };
        let guard = guard(&folder);
        let all = SETTINGS
            .iter()
            .chain(settings)
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let private = Private { folder, settings: all, process: None, guard };
        let mut server = Self { account, database: String::new(), private: Some(private) };
        server.restart();
        server.batch(&format!("CREATE DATABASE {DATABASE}"));
        server.database = DATABASE.into();
        server.create_service_account();
        server
    }

    /// Grants only the privileges of docs/mysql.md, so that code that needs more fails in the
    /// tests.
    fn create_service_account(&self) {
        let is_mariadb = self.query("SELECT VERSION()").contains("MariaDB");
        let monitor = if is_mariadb { "BINLOG MONITOR" } else { "REPLICATION CLIENT" };
        self.batch(&format!(
            "CREATE USER IF NOT EXISTS {SERVICE_USER}@'%' IDENTIFIED BY '{SERVICE_PASSWORD}';
             GRANT SELECT ON {}.* TO {SERVICE_USER}@'%';
             GRANT REPLICATION SLAVE, {monitor} ON *.* TO {SERVICE_USER}@'%'",
            self.database
        ));
    }

    // --- Access -------------------------------------------------------------------------------

    /// Returns true for the server of HOTROW_TEST_MYSQL_URL, whose process and settings the test
    /// must not change.
    pub fn is_given(&self) -> bool {
        self.private.is_none()
    }

    /// Returns the server's port.
    pub fn port(&self) -> u16 {
        self.account.port
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
        self.account.url(&self.database)
    }

    /// Returns another user's connection string for the test's database.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.url_at(user, password, self.account.port)
    }

    /// Returns the connection string with another port of 127.0.0.1, such as a proxy's.
    pub fn url_at(&self, user: &str, password: &str, port: u16) -> String {
        let account =
            Account { user: user.into(), password: password.into(), port, ..self.account.clone() };
        account.url(&self.database)
    }

    /// Returns the Unix socket of a private server.
    pub fn socket(&self) -> PathBuf {
        self.private().folder.path().join("socket")
    }

    /// Returns the data folder of a private server.
    pub fn data(&self) -> PathBuf {
        self.private().folder.path().join("data")
    }

    /// Writes a file that a private server can read. Returns its path.
    #[track_caller]
    pub fn write_file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.private().folder.path().join(name);
        std::fs::write(&path, content).expect("write beside the data folder");
        programs::give_to_owner(&path);
        path
    }

    // --- SQL ----------------------------------------------------------------------------------

    /// Runs statements as the superuser in the test's database, in one session.
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
            "--host",
            &self.account.host,
            "--port",
            &self.account.port.to_string(),
        ]);
        client.args(["--user", &self.account.user, "--database", &self.database]);
        client.env("MYSQL_PWD", &self.account.password);
        let mut child = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the SQL client");
        let mut input = child.stdin.take().expect("piped");
        // The client may end before it has read everything.
        let sql = sql.to_owned();
        let writer = std::thread::spawn(move || _ = input.write_all(sql.as_bytes()));
        Running { child, writer }
    }

    /// Returns the server's log so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn private(&self) -> &Private {
        self.private
            .as_ref()
            .expect("a private server (Server::start), because this test does more than SQL")
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
        let end = Instant::now() + WAIT_MAX;
        while !condition() {
            assert!(Instant::now() < end, "not within {WAIT_MAX:?}: {what}\n{}", self.log_tail());
            std::thread::sleep(CHECK_EVERY);
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
        // SIGKILL, because the data is not needed. No panic, because a test may be failing already.
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
