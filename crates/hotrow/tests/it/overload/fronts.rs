//! Real proxies in front of Hotrow: one process each, one thread, one connection to Hotrow that all
//! clients share.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use hotrow_testkit::harness::{SOON, await_some};

/// Counts of a proxy's requests to Hotrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Upstream {
    /// Requests sent, some possibly in part.
    pub(crate) sent: u64,
    /// Requests answered. Interim answers do not count.
    pub(crate) answered: u64,
}

pub(crate) trait Proxy {
    fn address(&self) -> SocketAddr;
    fn upstream(&self) -> Upstream;
}

/// A process in a folder of its own; killed when dropped.
pub(crate) struct Running {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

/// Most attempts to find a port that no other process takes before the proxy.
const ATTEMPTS: usize = 5;

impl Running {
    /// Starts the proxy of a command that `command` builds from a folder and the address to listen
    /// on.
    pub(crate) fn start(command: impl Fn(&Path, SocketAddr) -> Command) -> Self {
        for _ in 0..ATTEMPTS {
            let folder = TempDir::new().expect("a temporary folder");
            let address =
                TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
            let errors = std::fs::File::create(folder.path().join("errors")).expect("a file");
            let mut command = command(folder.path(), address);
            let mut child = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(errors)
                .spawn()
                .expect("start a proxy");
            let listens = await_some("the proxy to listen or to end", SOON, || {
                if child.try_wait().expect("a child").is_some() {
                    return Some(false);
                }
                TcpStream::connect(address).is_ok().then_some(true)
            });
            if listens {
                return Self { child, address, folder };
            }
            let errors = std::fs::read_to_string(folder.path().join("errors")).unwrap_or_default();
            assert!(
                errors.to_lowercase().contains("address"),
                "the proxy does not start: {errors}"
            );
        }
        panic!("no free port in {ATTEMPTS} attempts");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// nginx as a single process without a master.
pub(crate) struct Nginx {
    running: Running,
    log: PathBuf,
}

impl Nginx {
    /// Starts nginx in front of `hotrow`, with more directives for the server.
    pub(crate) fn start(hotrow: SocketAddr, more: &str) -> Self {
        let running = Running::start(|folder, address| {
            nginx_command(folder, &configuration(folder, address, hotrow, more))
        });
        let log = running.folder.path().join("access");
        Self { running, log }
    }
}

/// Builds the command that runs nginx in `folder` with this configuration.
pub(crate) fn nginx_command(folder: &Path, configuration: &str) -> Command {
    let file = folder.join("nginx.conf");
    std::fs::write(&file, configuration).expect("write the configuration");
    let mut command = Command::new("nginx");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin")).arg("-p").arg(folder).arg("-c").arg(file);
    command
}

/// Returns directives for `http` that put all temporary files into `folder`.
pub(crate) fn nginx_places(folder: &Path) -> String {
    let folder = folder.display();
    let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    places.map(|place| format!("  {place}_temp_path {folder}/{place};\n")).concat()
}

fn configuration(folder: &Path, address: SocketAddr, hotrow: SocketAddr, more: &str) -> String {
    let places = nginx_places(folder);
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n{places}  log_format counts '$upstream_addr $upstream_bytes_received';\n  \
         access_log {folder}/access counts;\n  \
         client_header_timeout 2s; client_body_timeout 2s; send_timeout 2s;\n  \
         proxy_read_timeout 5s;\n  \
         upstream hotrow {{ server {hotrow}; keepalive 1; }}\n  \
         server {{\n    \
         listen {address};\n    \
         large_client_header_buffers 4 32k;\n    \
         proxy_http_version 1.1; proxy_next_upstream off; proxy_ignore_client_abort on;\n    \
         proxy_set_header Connection \"\"; proxy_set_header Host $http_host;\n    \
         {more}\n    \
         location / {{ proxy_pass http://hotrow; }}\n  \
         }}\n\
         }}\n"
    )
}

impl Proxy for Nginx {
    fn address(&self) -> SocketAddr {
        self.running.address
    }

    fn upstream(&self) -> Upstream {
        let log = std::fs::read_to_string(&self.log).expect("a log");
        let mut counts = Upstream::default();
        for (upstream, bytes) in log.lines().filter_map(|line| line.split_once(' ')) {
            counts.sent += u64::from(upstream != "-");
            counts.answered += u64::from(bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0));
        }
        counts
    }
}

pub(crate) struct Haproxy {
    running: Running,
}

impl Haproxy {
    /// Starts HAProxy in front of `hotrow`, with one more line for the defaults.
    pub(crate) fn start(hotrow: SocketAddr, more: &str) -> Self {
        let running = Running::start(|folder, address| {
            let file = folder.join("haproxy.cfg");
            let text = format!(
                "global\n  nbthread 1\n  maxconn 256\n  stats socket {}/stats mode 600 level \
                 user\n\
                 defaults\n  mode http\n  retries 0\n  http-reuse always\n  timeout connect 5s\n  \
                 timeout client 5s\n  \
                 timeout server 5s\n  timeout http-request 2s\n  timeout http-keep-alive 5s\n  \
                 {more}\n\
                 frontend clients\n  bind {address}\n  default_backend hotrow\n\
                 backend hotrow\n  server hotrow {hotrow} maxconn 1 pool-max-conn 1\n",
                folder.display()
            );
            std::fs::write(&file, text).expect("write the configuration");
            let mut command = Command::new("haproxy");
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{path}:/usr/sbin")).arg("-db").arg("-f").arg(file);
            command
        });
        Self { running }
    }

    /// Returns the statistics of the only server, by column.
    fn statistics(&self) -> impl Fn(&str) -> u64 {
        let mut socket = UnixStream::connect(self.running.folder.path().join("stats"))
            .expect("a statistics socket");
        socket.write_all(b"show stat\n").expect("a command sent");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("statistics");
        let row = |line: &str| {
            line.trim_start_matches("# ").split(',').map(str::to_owned).collect::<Vec<_>>()
        };
        let names = row(text.lines().next().unwrap_or_default());
        let values =
            text.lines().map(row).find(|row| row.get(1).is_some_and(|name| name == "hotrow"));
        let values = values.unwrap_or_else(|| panic!("no such server: {text}"));
        move |name| {
            let at = names
                .iter()
                .position(|other| other == name)
                .unwrap_or_else(|| panic!("no column {name}"));
            values[at].parse().unwrap_or_else(|_| panic!("{name} is {:?}", values[at]))
        }
    }
}

impl Proxy for Haproxy {
    fn address(&self) -> SocketAddr {
        self.running.address
    }

    fn upstream(&self) -> Upstream {
        let statistics = self.statistics();
        let answers = ["hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx", "hrsp_other"];
        Upstream {
            sent: statistics("stot"),
            answered: answers.iter().map(|name| statistics(name)).sum(),
        }
    }
}
