//! PostgreSQL server for a test: own data folder, own port on 127.0.0.1, an unprivileged owner.
//!
//! Tests that stop it, or change or count what belongs to the whole server, own one
//! ([`Server::start`]), which is removed when dropped. The others of a program share one, and each
//! has a database there ([`Server::any`]). Without PostgreSQL a test fails with a message that says
//! so.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{free_port, note_start, run, signal, state};

mod backups;
mod inherited;
mod programs;
mod role;

pub use backups::Backup;
pub use inherited::inherited;
pub use role::ROLE;

/// First port of the servers.
const PORT_FIRST: u16 = 20_000;
/// Time limit of start and stop: generous, for parallel tests on two cores.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for a dropped server to end its own processes, before they are killed.
const QUIT_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Most lines of the server's log that a failing test shows.
const LOG_LINES_MAX: usize = 40;

/// Settings of every server; those of a test follow and take precedence.
const SETTINGS: [(&str, &str); 8] = [
    ("listen_addresses", "127.0.0.1"),
    ("wal_level", "logical"),
    ("fsync", "off"),
    ("shared_buffers", "32MB"),
    // Ordinary files in the data folder: nothing remains in /dev/shm after a kill.
    ("dynamic_shared_memory_type", "mmap"),
    ("log_line_prefix", "%m [%p] %a "),
    ("jit", "off"),
    ("max_wal_senders", "10"),
];

/// Settings of the shared server: any number of tests may run at once.
const SHARED_SETTINGS: [(&str, &str); 3] =
    [("max_connections", "500"), ("max_wal_senders", "100"), ("max_replication_slots", "100")];

/// Kind of stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended, everything is written.
    Fast,
    /// Like a crash, but the server ends its processes itself.
    Immediate,
}

/// Server, running or stopped. A private one is stopped and removed when dropped, a shared one at
/// the end of the test's process; both also when that process is killed.
pub struct Server {
    port: u16,
    /// The test's database.
    database: String,
    folder: Arc<TempDir>,
    postmaster: Option<Child>,
    /// `None` for a share of a server.
    guard: Option<Child>,
}

impl Server {
    /// Returns a share of the program's server, with a database for the test. For tests that need
    /// only SQL there.
    #[track_caller]
    pub fn any() -> Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        static DATABASES: AtomicU32 = AtomicU32::new(0);
        let server = SERVER.get_or_init(|| Self::start(&SHARED_SETTINGS));
        let database = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        server.batch(&format!("CREATE DATABASE {database}"));
        let folder = Arc::clone(&server.folder);
        Self { port: server.port, database, folder, postmaster: None, guard: None }
    }

    /// Starts a server with additional settings. All servers are copies of one cluster and have the
    /// same system identifier; see [`Self::start_other`].
    #[track_caller]
    pub fn start(settings: &[(&str, &str)]) -> Self {
        let template = programs::template();
        Self::launch(settings, |data| run(Command::new("cp").arg("-a").arg(&template).arg(data)))
    }

    /// Like [`Self::start`], with a unique system identifier.
    #[track_caller]
    pub fn start_other(settings: &[(&str, &str)]) -> Self {
        Self::launch(settings, programs::initdb)
    }

    /// Starts a standby that streams from this server; [`Self::promote`] makes it a primary.
    #[track_caller]
    pub fn standby(&self, settings: &[(&str, &str)]) -> Self {
        Self::launch(settings, |data| {
            let mut copy = programs::as_owner("pg_basebackup");
            copy.args([
                "--dbname",
                &self.url(),
                "--write-recovery-conf",
                "--wal-method=stream",
                "--checkpoint=fast",
            ]);
            run(copy.arg("--no-sync").arg("--pgdata").arg(data));
        })
    }

    #[track_caller]
    fn launch(settings: &[(&str, &str)], create: impl FnOnce(&Path)) -> Self {
        let folder = TempDir::with_prefix("hotrow-pg-").expect("a temporary folder");
        programs::give_to_owner(folder.path());
        let data = folder.path().join("data");
        create(&data);
        let port = free_port(PORT_FIRST);
        let sockets = folder.path().to_str().expect("UTF-8").to_owned();
        let own = [("port", port.to_string()), ("unix_socket_directories", sockets)];
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let settings = settings.iter().copied();
        append_settings(
            &data,
            SETTINGS.into_iter().chain(own).chain(inherited::of_run()).chain(settings),
        );
        let guard = Some(guard(&folder));
        let folder = Arc::new(folder);
        let database = "postgres".to_owned();
        let mut server = Self { port, database, folder, postmaster: None, guard };
        server.restart();
        server
    }

    // --- addresses and files ------------------------------------------------------------------

    /// Returns its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the superuser's connection string, for the test's database.
    pub fn url(&self) -> String {
        self.url_for("postgres", &self.database)
    }

    /// Returns a user's connection string for the test's database, through a proxy at this port.
    pub fn url_through(&self, port: u16, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{port}/{}", self.database)
    }

    /// Returns a connection string.
    pub fn url_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the folder of its Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file into the data folder with mode 0600, which the server requires; returns its
    /// path.
    #[track_caller]
    pub fn write_file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.data().join(name);
        std::fs::write(&path, content).expect("write into the data folder");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .expect("the file is ours");
        programs::give_to_owner(&path);
        path
    }

    /// Replaces pg_hba.conf for sessions that begin after this.
    #[track_caller]
    pub fn set_hba(&self, lines: &str) {
        self.write_file("pg_hba.conf", lines.as_bytes());
        // The server's log shows when the file has been loaded.
        let loads = || self.log().matches("received SIGHUP").count();
        let before = loads();
        self.signal_postmaster(Signal::HUP);
        self.wait("pg_hba.conf to be read", || loads() > before);
    }

    // --- SQL -------------------------------------------------------------------------------------

    /// Runs statements as the superuser in the test's database, each in its own transaction.
    ///
    /// # Panics
    /// A statement fails.
    #[track_caller]
    pub fn batch(&self, sql: &str) {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Runs statements and returns their output: fields separated by `|`, rows by line feed.
    ///
    /// # Panics
    /// A statement fails.
    #[track_caller]
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Like [`Self::query`].
    ///
    /// # Errors
    /// The output of psql.
    #[track_caller]
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        let mut psql = programs::as_owner("psql");
        psql.env("PGOPTIONS", inherited::of_session());
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url()]);
        let mut psql = psql
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql");
        let mut input = psql.stdin.take().expect("piped");
        // By standard input, because -c would run everything in one transaction. psql may end
        // before it has read everything.
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

    /// Changes settings that need no restart, and waits until new sessions use them.
    #[track_caller]
    pub fn set(&self, settings: &[(&str, &str)]) {
        assert!(self.guard.is_some(), "other tests share this server: start one");
        append_settings(&self.data(), settings.iter().copied());
        let loaded = self.query("SELECT pg_conf_load_time()");
        self.signal_postmaster(Signal::HUP);
        self.wait("the settings to be read", || self.query("SELECT pg_conf_load_time()") != loaded);
    }

    /// Changes settings for the next [`Self::restart`].
    #[track_caller]
    pub fn set_for_restart(&self, settings: &[(&str, &str)]) {
        append_settings(&self.data(), settings.iter().copied());
    }

    // --- life cycle ------------------------------------------------------------------------------

    /// Stops the server.
    #[track_caller]
    pub fn stop(&mut self, how: Stop) {
        self.signal_postmaster(if how == Stop::Fast { Signal::INT } else { Signal::QUIT });
        self.reap();
    }

    /// Kills all its processes at once, like a power failure.
    #[track_caller]
    pub fn kill9(&mut self) {
        // The postmaster first, so that no process is started after that.
        self.signal_postmaster(Signal::KILL);
        self.reap();
        self.wait("its processes to end", || {
            let left = self.processes();
            left.iter().for_each(|pid| signal(*pid, Signal::KILL));
            left.is_empty()
        });
    }

    /// Starts the server (again) on its port, and waits until it accepts connections.
    #[track_caller]
    pub fn restart(&mut self) {
        if self.postmaster.is_some() {
            self.stop(Stop::Fast);
        }
        note_start("PostgreSQL");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("its log");
        let mut postgres = programs::as_owner("postgres");
        postgres.arg("-D").arg(self.data()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // A process group of its own: Ctrl-C at the terminal ends the test, which stops the server.
        let child = postgres.process_group(0).spawn().expect("start postgres");
        let pid = child.id().to_string();
        self.postmaster = Some(child);
        self.wait("it to take connections", || {
            let child = self.postmaster.as_ref().expect("just started");
            assert!(is_alive(child.id()), "postgres ended:\n{}", self.log_tail());
            let text =
                std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines.first() == Some(&pid.as_str())
                && lines.get(7).is_some_and(|s| matches!(s.trim(), "ready" | "standby"))
        });
    }

    /// Returns whether the server has been started and not stopped.
    pub fn runs(&self) -> bool {
        self.postmaster.is_some()
    }

    /// Promotes a standby, and waits until it is a primary.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.query("SELECT pg_promote(true, 60)"), "t", "{}", self.log_tail());
    }

    /// Stops all its processes (SIGSTOP) and waits until none runs; [`Self::resume`] continues
    /// them.
    #[track_caller]
    pub fn pause(&self) {
        self.signal_postmaster(Signal::STOP);
        let mut stopped = Vec::new();
        self.wait("its processes to stop", || {
            let all = self.processes();
            all.iter().for_each(|pid| signal(*pid, Signal::STOP));
            let stop = all.iter().all(|pid| matches!(state(*pid), None | Some('T' | 'Z')));
            // The postmaster may have started one more before it stopped.
            let before = std::mem::replace(&mut stopped, all);
            stop && stopped == before
        });
    }

    /// Continues a paused server.
    pub fn resume(&self) {
        self.processes().iter().for_each(|pid| signal(*pid, Signal::CONT));
    }

    /// Returns all its processes, including the postmaster.
    pub fn processes(&self) -> Vec<u32> {
        let data = self.data();
        let all = std::fs::read_dir("/proc").expect("/proc");
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        // Every process of a server works in its data folder.
        pids.filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data)
        })
        .collect()
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
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
        signal(self.postmaster.as_ref().expect("a server of this test's own that runs").id(), what);
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
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of PostgreSQL ---\n{}", self.log_tail());
        }
        let Some(mut guard) = self.guard.take() else { return };
        // A quick stop is enough. No panic here: a test may be failing already.
        if let Some(mut child) = self.postmaster.take() {
            signal(child.id(), Signal::QUIT);
            self.resume();
            let end = Instant::now() + QUIT_TIMEOUT;
            while child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < end {
                std::thread::sleep(POLL_INTERVAL);
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
            std::thread::sleep(POLL_INTERVAL);
        }
        programs::remove_shared_memory(&self.data());
        _ = guard.kill();
        _ = guard.wait();
    }
}

/// Starts a process that ends the server and removes its folder if this process dies unexpectedly:
/// its end closes the pipe.
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
    shell
        .arg("-c")
        .arg(SCRIPT)
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.process_group(0).spawn().expect("sh")
}

fn append_settings<'a>(data: &Path, settings: impl Iterator<Item = (&'a str, &'a str)>) {
    let path = data.join("postgresql.conf");
    let mut file = std::fs::File::options().append(true).open(path).expect("postgresql.conf");
    for (name, value) in settings {
        writeln!(file, "{name} = '{}'", value.replace('\'', "''")).expect("write postgresql.conf");
    }
}

fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}
