//! A real nginx in front, and clients with addresses of their own (all of 127.0.0.0/8 is this
//! machine).

use std::net::SocketAddr;
use std::process::Command;

use crate::overload::fronts::{self, Proxy as _};

/// An nginx that appends to `X-Forwarded-For`.
pub(crate) struct Nginx(fronts::Nginx);

impl Nginx {
    pub(crate) fn start(backend: SocketAddr) -> Self {
        let header = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;";
        Self(fronts::Nginx::start(backend, header))
    }

    /// Returns the status of `GET path` through nginx, sent from the address `from` with a header
    /// line.
    pub(crate) fn status(&self, from: &str, path: &str, header: &str) -> u16 {
        self.status_at(self.0.address(), from, path, header)
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
