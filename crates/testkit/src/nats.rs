//! A private NATS server with JetStream: own folder, own port on 127.0.0.1, ended when dropped.
//!
//! Without `nats-server` a test fails with a message that says so.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::{free_port, run};

pub mod credentials;

/// First port of the servers.
const PORT_FIRST: u16 = 14_000;
/// Time limit of a start and of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// A private server, running or stopped.
pub struct Nats {
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl Nats {
    /// Starts a server with these lines of configuration in addition.
    #[track_caller]
    pub fn start(more: &str) -> Self {
        let folder = TempDir::with_prefix("hotrow-nats-").expect("a temporary folder");
        let port = free_port(PORT_FIRST);
        let store = folder.path().join("store");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\n\
             jetstream {{ store_dir: \"{}\", max_memory_store: 64MB, max_file_store: 1GB }}\n\
             {more}\n",
            store.display()
        );
        std::fs::write(folder.path().join("nats.conf"), text).expect("write its configuration");
        let mut server = Self { port, folder, child: None };
        server.restart();
        server
    }

    /// Starts a cluster of this many servers, which store streams together.
    #[track_caller]
    pub fn start_cluster(count: usize) -> Vec<Self> {
        let ports: Vec<u16> = (0..count).map(|_| free_port(PORT_FIRST)).collect();
        let routes: Vec<String> =
            ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let routes = routes.join(", ");
        let server = |(index, port): (usize, &u16)| {
            Self::start(&format!(
                "server_name: n{index}\ncluster {{ name: hotrow, listen: \"127.0.0.1:{port}\", \
                 routes: [{routes}] }}"
            ))
        };
        ports.iter().enumerate().map(server).collect()
    }

    /// Returns its address.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it, like a power failure of the process.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }

    /// Returns a copy of what it has stored. It must be stopped.
    #[track_caller]
    pub fn save(&self) -> TempDir {
        let saved = TempDir::with_prefix("hotrow-nats-saved-").expect("a temporary folder");
        run(Command::new("cp").arg("-a").arg(self.store()).arg(saved.path()));
        saved
    }

    /// Replaces what it has stored by a copy of before. It must be stopped.
    #[track_caller]
    pub fn restore(&self, saved: &TempDir) {
        std::fs::remove_dir_all(self.store()).expect("remove its store");
        run(Command::new("cp").arg("-a").arg(saved.path().join("store")).arg(self.folder.path()));
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Starts it (again) on its port, and waits until it answers.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .expect("its log");
        // It ends with this process, also when that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program());
        command.arg("-c").arg(self.folder.path().join("nats.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("setpriv of util-linux"));
        let begun = Instant::now();
        while !self.answers() {
            assert!(begun.elapsed() < PATIENCE, "nats-server does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut start = [0; 4];
        _ = stream.set_read_timeout(Some(PATIENCE));
        stream.read_exact(&mut start).is_ok() && &start == b"INFO"
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Sends a request without credentials and returns the answer; of JetStream it is JSON.
    #[track_caller]
    pub fn request(&self, subject: &str, payload: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connect to NATS");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let length = payload.len();
        let text = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB _INBOX.test 1\r\n\
             PUB {subject} _INBOX.test {length}\r\n{payload}\r\n"
        );
        stream.write_all(text.as_bytes()).expect("send to NATS");
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("an answer of NATS");
            assert!(!line.is_empty() && !line.starts_with("-ERR"), "{line}");
            let Some(head) = line.strip_prefix("MSG ") else { continue };
            let length = head.trim().rsplit(' ').next().and_then(|word| word.parse().ok());
            let mut body = vec![0; length.expect("the length of the answer")];
            reader.read_exact(&mut body).expect("the whole answer");
            return String::from_utf8(body).expect("an answer in UTF-8");
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the program: from PATH, or from where `go install` puts it.
#[track_caller]
fn program() -> PathBuf {
    const NAME: &str = "nats-server";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
    let found = std::env::split_paths(&path).chain(home).map(|folder| folder.join(NAME));
    found.into_iter().find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("{NAME} is missing; ./test installs it with `go install`, see scripts/install.sh")
    })
}
