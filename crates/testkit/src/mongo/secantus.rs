//! A private SecantusDB, an independent server of MongoDB's protocol, which `scripts/secantusdb`
//! installs: own folder, own port on 127.0.0.1, ended when dropped.

use std::ffi::OsString;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{free_port, signal};

/// Path of the server's program. If it is set, private deployments of tests are SecantusDB, and
/// not stand-ins.
const PROGRAM_VARIABLE: &str = "HOTROW_TEST_SECANTUSDB";
/// First port of the servers.
const PORT_FIRST: u16 = 8_000;
/// Time limit of a start and of a stop.
const PATIENCE: Duration = Duration::from_secs(60);
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// A private server, running or stopped.
pub struct Secantus {
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl Secantus {
    /// Returns whether this run takes it for private deployments.
    pub fn is_chosen() -> bool {
        program().is_some()
    }

    #[track_caller]
    pub fn start() -> Self {
        let folder = TempDir::with_prefix("hotrow-secantusdb-").expect("a temporary folder");
        let mut server = Self { port: free_port(PORT_FIRST), folder, child: None };
        server.restart();
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns a connection string through this port to its one member. Writers repeat nothing:
    /// once stopped, it has forgotten which writes it has made.
    pub fn url(&self, port: u16, database: &str) -> String {
        format!(
            "mongodb://127.0.0.1:{port}/{database}?replicaSet=secantus&directConnection=true\
             &retryWrites=false"
        )
    }

    /// Starts it (again) on its port with what it has stored.
    #[track_caller]
    pub fn restart(&mut self) {
        self.start_with(&[]);
    }

    /// Like [`Self::restart`], with these options in addition; waits until it accepts connections.
    /// Its clock advances only with writes, unless it writes notes as a mongod does.
    #[track_caller]
    pub fn start_with(&mut self, options: &[&str]) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .expect("its log");
        // It ends with this process, also when that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program().expect("it is chosen"));
        command.args(["--host", "127.0.0.1", "--port", &self.port.to_string()]);
        command.args(["--sync-on-commit", "--noop-heartbeat-seconds", "1", "--storage-path"]);
        command.arg(self.folder.path().join("data")).args(options);
        let output = log.try_clone().expect("its log");
        command.stdin(Stdio::null()).stdout(output).stderr(log);
        self.child = Some(command.spawn().expect("setpriv of util-linux"));
        let port = self.port;
        self.wait("to accept connections", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Stops it in order: it loses acknowledged writes when it is killed.
    #[track_caller]
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        self.wait("to end", |child| child.try_wait().expect("wait").is_some());
        self.child = None;
    }

    /// Stops its process, with its connections open, or continues it.
    pub fn signal(&self, what: Signal) {
        if let Some(child) = &self.child {
            signal(child.id(), what);
        }
    }

    #[track_caller]
    fn wait(&mut self, what: &str, condition: impl Fn(&mut Child) -> bool) {
        let begun = Instant::now();
        while !condition(self.child.as_mut().expect("it runs")) {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "SecantusDB was {what}:\n{log}");
            std::thread::sleep(CHECK_EVERY);
        }
    }
}

fn program() -> Option<OsString> {
    std::env::var_os(PROGRAM_VARIABLE).filter(|path| !path.is_empty())
}

impl Drop for Secantus {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            _ = child.kill();
            _ = child.wait();
        }
    }
}
