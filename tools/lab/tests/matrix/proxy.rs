//! Proxy plant: nginx with one process that does all the work and compresses each response.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::stage::Process;

/// Longest wait until nginx listens.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// Starts nginx before the backends. The kernel kills it if this process dies.
///
/// # Errors
/// Returns the reason for a failure.
pub(crate) fn start(folder: &Path, backends: &[SocketAddr]) -> Result<Process, String> {
    let address = free_address().map_err(|e| format!("no port is free: {e}"))?;
    let file = folder.join("nginx.conf");
    std::fs::write(&file, configuration(folder, address, backends)).map_err(|e| e.to_string())?;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "nginx", "-e", "stderr", "-p"])
        .arg(folder)
        .arg("-c")
        .arg(&file);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.map_err(|e| format!("setpriv, which starts nginx, does not start: {e}"))?;
    let mut process = Process::of(child, address);
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        if process.has_ended() || begun.elapsed() > LISTENS_WITHIN {
            return Err("nginx does not listen; is it installed?".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(process)
}

/// Returns a port that is free now; if another process takes it before nginx, this run fails.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn configuration(folder: &Path, address: SocketAddr, backends: &[SocketAddr]) -> String {
    let servers: String = backends.iter().map(|backend| format!("server {backend}; ")).collect();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = kinds
        .map(|kind| format!("{kind}_temp_path \"{}/{kind}\";", folder.display()))
        .join("\n    ");
    format!(
        "daemon off;
master_process off;
pid \"{}/nginx.pid\";
error_log stderr;
events {{}}
http {{
    access_log off;
    {folders}
    keepalive_requests 1000000;
    gzip on;
    gzip_types *;
    gzip_comp_level 9;
    upstream backends {{ {servers}keepalive 32; keepalive_requests 1000000; }}
    server {{
        listen {address};
        proxy_http_version 1.1;
        proxy_set_header Connection \"\";
        proxy_buffers 16 16k;
        location / {{ proxy_pass http://backends; }}
    }}
}}
",
        folder.display()
    )
}
