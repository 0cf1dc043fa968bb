//! Protocols of the service manager: passed sockets, notifications, watchdog.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use hotrow_testkit::harness::server::binary;
use hotrow_testkit::harness::{Client, Config, Database, Ended, SOON, Server, await_until};

/// A manager's socket for notifications.
struct Receiver {
    socket: UnixDatagram,
    path: PathBuf,
    received: String,
}

impl Receiver {
    fn bind(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(SOON)).expect("a time-out");
        Self { socket, path, received: String::new() }
    }

    /// Waits until `line` has been received since the last call that found its line.
    #[track_caller]
    fn await_line(&mut self, line: &str) {
        self.await_message(line);
    }

    /// Does as [`Self::await_line`], and returns everything that has been received since.
    #[track_caller]
    fn await_message(&mut self, line: &str) -> String {
        let mut message = [0; 4096];
        while !self.received.lines().any(|received| received == line) {
            let length = self.socket.recv(&mut message);
            let length = length.unwrap_or_else(|_| panic!("no {line:?} in {:?}", self.received));
            self.received.push_str(&String::from_utf8_lossy(&message[..length]));
        }
        std::mem::take(&mut self.received)
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}

struct Place {
    folder: TempDir,
    database: Database,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        Self { folder, database: Database::with_products(3) }
    }

    /// Writes the configuration, and returns its file.
    fn file(&self, more: &[(&str, &str)]) -> PathBuf {
        let config = Config::new(self.database.path()).collection("products").with(more);
        let file = self.folder.path().join("hotrow.toml");
        std::fs::write(&file, config.text()).expect("write the configuration");
        file
    }
}

#[test]
fn a_real_manager_passes_sockets_and_receives_notifications() {
    let Some(activate) = ["/usr/bin", "/bin"]
        .map(|folder| Path::new(folder).join("systemd-socket-activate"))
        .into_iter()
        .find(|program| program.exists())
    else {
        eprintln!("not tested: systemd-socket-activate is not installed");
        return;
    };
    let place = Place::new();
    let mut receiver = Receiver::bind(place.folder.path());
    let (data, admin) = (free_address(), free_address());
    let unix = place.folder.path().join("data.sock");
    let mut command = Command::new(activate);
    command
        .arg(format!("--listen={data}"))
        .arg(format!("--listen={admin}"))
        .arg(format!("--listen={}", unix.display()))
        .arg("--fdname=data:admin:unix")
        .arg(format!("--setenv=NOTIFY_SOCKET={}", receiver.path.display()))
        .arg("--setenv=WATCHDOG_USEC=300000")
        .arg(binary())
        .args(["serve", "--config"])
        .arg(place.file(&[("limits.drain_delay", "\"100ms\"")]))
        .stdin(Stdio::null());
    // The first connection starts the service, and waits for it.
    let first = std::thread::spawn(move || {
        let mut client = None;
        await_until("the manager to listen", SOON, || {
            client = Client::try_connect(data).ok();
            client.is_some()
        });
        client.map(|mut client| client.get("/products/1").status)
    });
    let server = Server::start_command(command);
    receiver.await_line("READY=1");
    assert_eq!((server.data, server.admin), (data, admin));
    assert_eq!(first.join().expect("no panic"), Some(200));
    assert_eq!(server.admin_client().get("/readyz").status, 200);
    let stream = std::os::unix::net::UnixStream::connect(&unix);
    assert!(stream.is_ok(), "the Unix socket too: {stream:?}");
    receiver.await_line("WATCHDOG=1");
    receiver.await_line("WATCHDOG=1");
    server.signal(Signal::TERM);
    receiver.await_line("STOPPING=1");
    assert_eq!(server.ended(SOON).code(), 0);
    assert!(unix.exists(), "the manager removes its socket's file");
}

/// Starts with `socket` as the descriptor of that name, as a service manager does.
fn passing(socket: &TcpListener, name: &str, file: &Path, notify: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve --config \"$1\" 3<&0 </dev/null";
    command.args(["-c", script]).arg(binary()).arg(file);
    command.env("LISTEN_FDNAMES", name).env("NOTIFY_SOCKET", notify);
    let socket: OwnedFd = socket.try_clone().expect("a duplicate").into();
    command.stdin(Stdio::from(socket));
    command
}

/// Both kinds of a reload end with the report that the process serves.
#[test]
fn a_reload_is_announced_and_its_end_reported() {
    let place = Place::new();
    let mut receiver = Receiver::bind(place.folder.path());
    // Under nohup the tests would pass on that SIGHUP is ignored.
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(binary()).args(["serve", "--config"]);
    command.arg(place.file(&[])).stdin(Stdio::null());
    command.env("NOTIFY_SOCKET", &receiver.path);
    let server = Server::start_command(command);
    receiver.await_line("READY=1");
    for settings in [&[("limits.headers", "9")][..], &[("limits.heders", "9")]] {
        place.file(settings);
        server.signal(Signal::HUP);
        let announced = receiver.await_message("RELOADING=1");
        let time = announced.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(time.is_some_and(|time| time.parse::<u64>().is_ok()), "{announced}");
        receiver.await_line("READY=1");
    }
    let totals = server.metrics();
    let reloads = |result| totals.sum("hotrow_config_reloads_total", &[("result", result)]);
    assert_eq!((reloads("applied"), reloads("rejected")), (1.0, 1.0));
}

#[test]
fn no_request_fails_while_the_manager_restarts_the_service() {
    let place = Place::new();
    let mut receiver = Receiver::bind(place.folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let data = listener.local_addr().expect("an address");
    let file = place.file(&[("limits.drain_delay", "\"100ms\"")]);
    let notify = receiver.path.clone();
    let start = || Server::start_command(passing(&listener, "data", &file, &notify));
    let mut server = start();
    assert_eq!(server.data, data);
    for _ in 0..2 {
        // The kernel keeps few messages; more would block the service.
        receiver.await_line("READY=1");
        assert_eq!(server.get("/products/1").status, 200);
        server.signal(Signal::TERM);
        receiver.await_line("STOPPING=1");
        assert_eq!(server.ended(SOON).code(), 0);
        // No process accepts; the manager's socket holds the connection.
        let mut waiting = Client::connect(data);
        waiting.send("GET /products/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        server = start();
        assert_eq!(waiting.answer().status, 200);
    }
    receiver.await_line("READY=1");
}

#[test]
fn sockets_that_cannot_be_served_are_named() {
    let place = Place::new();
    let receiver = Receiver::bind(place.folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let file = place.file(&[]);
    for (name, reason) in [
        ("hotrow.socket", "must be \"data\", \"admin\", \"unix\", \"admin-unix\" or \"redis\""),
        ("unix", "unix stream"),
    ] {
        let ended = Ended::run_command(passing(&listener, name, &file, &receiver.path), SOON);
        assert_eq!(ended.code(), 1, "{ended:?}");
        assert!(ended.log.contains(reason) && ended.log.contains("descriptor 3"), "{ended:?}");
    }
}
