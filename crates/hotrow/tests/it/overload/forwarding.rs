//! A real nginx in front, and clients with addresses of their own (all of 127.0.0.0/8 is this
//! machine).

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hotrow_testkit::harness::{SOON, await_until};

/// An nginx that appends to `X-Forwarded-For`; stopped when dropped.
pub(crate) struct Nginx {
    address: SocketAddr,
    child: Child,
}

impl Nginx {
    pub(crate) fn start(folder: &Path, backend: SocketAddr) -> Self {
        let address = SocketAddr::from((
            [127, 0, 0, 1],
            hotrow_lab::stage::free_port().expect("a free port"),
        ));
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.display()));
        let text = format!(
            "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
             events {{}}
             http {{ access_log off; {temporary} server {{ listen {address}; location / {{
                 proxy_pass http://{backend};
                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }} }}",
            folder = folder.display(),
            temporary = temporary.join(" "),
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, text).expect("write the configuration");
        let (binary, _) = hotrow_lab::nginx::find().expect("nginx");
        let mut command = Command::new(binary);
        command.arg("-p").arg(folder).arg("-c").arg(file).arg("-e").arg(folder.join("nginx.log"));
        let child = command.stdin(Stdio::null()).spawn().expect("start nginx");
        await_until("nginx to listen", SOON, || TcpStream::connect(address).is_ok());
        Self { address, child }
    }

    /// Returns the status of `GET path` through nginx, sent from the address `from` with a header
    /// line.
    pub(crate) fn status(&self, from: &str, path: &str, header: &str) -> u16 {
        self.status_at(self.address, from, path, header)
    }

    /// Returns the status of `GET path` sent to `target` from the address `from`, with a header
    /// line.
    pub(crate) fn status_at(
        &self,
        target: SocketAddr,
        from: &str,
        path: &str,
        header: &str,
    ) -> u16 {
        let arguments = [
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--max-time",
            "15",
            "--noproxy",
            "*",
            "--interface",
            from,
            "-H",
            header,
        ];
        let output = Command::new("curl")
            .args(arguments)
            .arg(format!("http://{target}{path}"))
            .output()
            .expect("curl");
        String::from_utf8_lossy(&output.stdout)
            .parse()
            .unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
