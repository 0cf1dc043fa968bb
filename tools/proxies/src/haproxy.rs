//! HAProxy in front of services, with the settings of `examples/routing`. Pure except for [`find`]
//! and [`write`].
//!
//! Unlike nginx it checks its servers, so that one that is down or not started yet has no share of
//! the requests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::nginx::Balance;
use crate::tool::{self, ToolError};

/// Oldest supported version, the first with `balance hash`.
pub const VERSION_MIN: &str = "2.6.0";
/// Largest weight of a server.
pub const WEIGHT_MAX: u32 = 256;
/// Points of a server on the ring of a consistent hash, as a multiple of HAProxy's 16. With few of
/// them the shares are unequal.
const RING_WEIGHT: u32 = 100;

/// A HAProxy on the loopback interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Haproxy {
    /// Its port, on 127.0.0.1.
    pub listen: u16,
    /// Port at which [`READY_PATH`] answers 200 once exactly `ready_servers` servers are up.
    pub ready_port: u16,
    /// See `ready_port`.
    pub ready_servers: usize,
    /// Its servers.
    pub servers: Vec<Server>,
    /// Balancing policy.
    pub balance: Balance,
    /// Most open requests of a server, in percent of the average; with a consistent hash only.
    pub load_bound: Option<u32>,
    /// True if a failed attempt is repeated, at another server at once.
    pub retry: bool,
    /// Path that a server must answer with success; `None`: its port must accept connections.
    pub check: Option<String>,
    /// Absolute folder of its configuration.
    pub folder: PathBuf,
}

/// Path of [`Haproxy::ready_port`].
pub const READY_PATH: &str = "/";

/// A server behind HAProxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address.
    pub address: SocketAddr,
    /// Address at which it is checked.
    pub check: SocketAddr,
    /// Its relative share of the requests, with [`Balance::Weights`]; 1 to [`WEIGHT_MAX`].
    pub weight: u32,
}

/// Error of HAProxy.
#[derive(Debug, thiserror::Error)]
pub enum HaproxyError {
    /// It is not installed.
    #[error(
        "HAProxy is missing: it is neither in PATH nor in {0}; install it (Debian, Ubuntu: apt-get \
         install haproxy)"
    )]
    Missing(String),
    /// It cannot be started.
    #[error("{binary} cannot be started: {why}")]
    Start {
        /// The program.
        binary: PathBuf,
        /// The reason.
        why: String,
    },
    /// Its version is unknown or too old.
    #[error(
        "{binary} -v says {output:?}, and {VERSION_MIN} is the oldest supported version of \
         HAProxy; install a newer one"
    )]
    Version {
        /// The program.
        binary: PathBuf,
        /// Its output.
        output: String,
    },
    /// It rejects its configuration.
    #[error("HAProxy rejects {file}:\n{output}")]
    Refused {
        /// The configuration.
        file: PathBuf,
        /// Its messages.
        output: String,
    },
    /// A file cannot be written.
    #[error("{path} cannot be written: {why}")]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
}

/// Finds HAProxy on this machine, with its version.
///
/// # Errors
/// It is missing, cannot be started, or is older than [`VERSION_MIN`].
pub fn find() -> Result<(PathBuf, String), HaproxyError> {
    find_in(tool::folders())
}

fn find_in(folders: Vec<PathBuf>) -> Result<(PathBuf, String), HaproxyError> {
    let binary = tool::find("haproxy", folders);
    let binary = binary.ok_or_else(|| HaproxyError::Missing(tool::FOLDERS.join(", ")))?;
    let output = output(&binary, &["-v"])?.1;
    // "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/"
    let version = output.split_once("version ").map(|(_, rest)| rest);
    let version = version.and_then(|rest| rest.split([' ', '-', '\n']).next());
    let known = version.filter(|version| {
        tool::version(version).is_some_and(|number| Some(number) >= tool::version(VERSION_MIN))
    });
    match known.map(str::to_owned) {
        Some(version) => Ok((binary, version)),
        None => {
            let output = output.lines().next().unwrap_or_default().to_owned();
            Err(HaproxyError::Version { binary, output })
        }
    }
}

fn output(binary: &Path, arguments: &[&str]) -> Result<(bool, String), HaproxyError> {
    tool::output(binary, arguments).map_err(|error| {
        let why = match error {
            ToolError::Start(why) => why.to_string(),
            ToolError::Slow => format!("it did not end within {:?}", tool::TIME_MAX),
        };
        HaproxyError::Start { binary: binary.to_owned(), why }
    })
}

/// Writes the configuration into its folder, lets HAProxy check it, and returns the command line
/// that serves it in the foreground.
///
/// # Errors
/// It cannot be written, or HAProxy rejects it.
pub fn write(binary: &Path, proxy: &Haproxy) -> Result<Vec<String>, HaproxyError> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |why| HaproxyError::Unwritable { path, why }
    };
    std::fs::create_dir_all(&proxy.folder).map_err(unwritable(&proxy.folder))?;
    let file = proxy.folder.join("haproxy.cfg");
    std::fs::write(&file, proxy.configuration()).map_err(unwritable(&file))?;
    let name = file.to_string_lossy().into_owned();
    let (good, output) = output(binary, &["-c", "-f", &name])?;
    if !good {
        return Err(HaproxyError::Refused { file, output: output.trim_end().to_owned() });
    }
    let binary = binary.to_string_lossy().into_owned();
    Ok(vec![binary, "-db".to_owned(), "-f".to_owned(), name])
}

impl Haproxy {
    /// Returns the text of its configuration.
    pub fn configuration(&self) -> String {
        let Self { listen, ready_port, ready_servers, .. } = self;
        let mut text = format!(
            "defaults\n  mode http\n  timeout connect 1s\n  timeout client 30s\n  timeout server \
             30s\n\n\
             frontend clients\n  bind 127.0.0.1:{listen}\n  default_backend services\n\n\
             frontend ready\n  bind 127.0.0.1:{ready_port}\n  \
             http-request return status 200 if {{ nbsrv(services) eq {ready_servers} }}\n  \
             http-request return status 503\n\n\
             backend services\n"
        );
        let mut line = |words: &str| text.push_str(&format!("  {words}\n"));
        match self.balance {
            Balance::RoundRobin | Balance::Weights => line("balance roundrobin"),
            Balance::LeastConnections => line("balance leastconn"),
            // The path, which is collection and id.
            Balance::HashOnId | Balance::ModuloOnId => line("balance uri"),
            Balance::IpHash => line("balance source"),
        }
        match self.balance {
            Balance::HashOnId => line("hash-type consistent sdbm avalanche"),
            Balance::ModuloOnId | Balance::IpHash => line("hash-type map-based sdbm avalanche"),
            Balance::RoundRobin | Balance::Weights | Balance::LeastConnections => {}
        }
        if let Some(percent) = self.load_bound {
            line(&format!("hash-balance-factor {percent}"));
        }
        if let Some(path) = &self.check {
            line(&format!("option httpchk GET {path}"));
        }
        if self.retry {
            line("option redispatch 1");
            line("retry-on conn-failure empty-response");
            line("retries 2");
        } else {
            line("retries 0");
        }
        // Redispatched requests do not go where the ring sends them without the server, so it must
        // leave the ring at once, not after two failed checks.
        line(
            "default-server check inter 1s fall 2 rise 1 observe layer4 error-limit 10 \
             on-error mark-down",
        );
        for (number, server) in (1..).zip(&self.servers) {
            let weight = match self.balance {
                Balance::Weights => server.weight,
                Balance::HashOnId => RING_WEIGHT,
                _ => 1,
            };
            let Server { address, check, .. } = server;
            line(&format!("server s{number} {address} port {} weight {weight}", check.port()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hotrow_testkit::process::write_script;

    use super::*;

    fn proxy(balance: Balance) -> Haproxy {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Haproxy {
            listen: 1,
            ready_port: 2,
            ready_servers: 1,
            servers: vec![
                Server { address: at(3), check: at(4), weight: 7 },
                Server { address: at(5), check: at(5), weight: 1 },
            ],
            balance,
            load_bound: None,
            retry: true,
            check: Some("/readyz".to_owned()),
            folder: PathBuf::from("/nowhere"),
        }
    }

    #[test]
    fn every_balance_is_accepted_by_haproxy() {
        let (binary, _) = find().unwrap();
        for balance in [
            Balance::RoundRobin,
            Balance::Weights,
            Balance::LeastConnections,
            Balance::HashOnId,
            Balance::ModuloOnId,
            Balance::IpHash,
        ] {
            let folder = tempfile::tempdir().unwrap();
            let mut proxy = Haproxy { folder: folder.path().to_owned(), ..proxy(balance) };
            proxy.load_bound = (balance == Balance::HashOnId).then_some(150);
            let argv = write(&binary, &proxy).unwrap();
            assert_eq!(argv[1], "-db");
            proxy.check = Some("no path\nnonsense".to_owned());
            let refused = write(&binary, &proxy).unwrap_err().to_string();
            assert!(refused.contains("nonsense"), "{refused}");
        }
    }

    #[test]
    fn the_configuration_follows_the_recipe() {
        let recipe = include_str!("../../../examples/routing/haproxy.cfg");
        let bounded = Haproxy { load_bound: Some(150), ..proxy(Balance::HashOnId) };
        let text = bounded.configuration();
        for line in [
            "balance uri",
            "hash-type consistent sdbm avalanche",
            "hash-balance-factor 150",
            "option httpchk GET /readyz",
            "option redispatch 1",
            "retry-on conn-failure empty-response",
            "retries 2",
            "check inter 1s fall 2 rise 1",
            "observe layer4 error-limit 10 on-error mark-down",
            "weight 100",
        ] {
            assert!(recipe.contains(line) && text.contains(line), "{line}: {text}");
        }
        let weighed = proxy(Balance::Weights).configuration();
        assert!(weighed.contains("server s1 127.0.0.1:3 port 4 weight 7\n"), "{weighed}");
        let once = Haproxy { retry: false, ..proxy(Balance::ModuloOnId) }.configuration();
        assert!(once.contains("retries 0") && !once.contains("redispatch"), "{once}");
    }

    #[test]
    fn unusable_binaries_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let found = |script: &str| {
            write_script(&folder.path().join("haproxy"), &format!("#!/bin/sh\n{script}\n"));
            find_in(vec![PathBuf::from("/nonexistent"), folder.path().to_owned()])
                .map(|(_, version)| version)
                .map_err(|e| e.to_string())
        };
        assert_eq!(found("echo 'HAProxy version 2.8.1-1 2026/01/01'"), Ok("2.8.1".to_owned()));
        for (script, why) in [
            ("echo 'HAProxy version 2.4.22 2024/01/01'", "2.6.0 is the oldest"),
            ("echo apache", "says \"apache\""),
        ] {
            let error = found(script).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let missing = find_in(vec![PathBuf::from("/nonexistent")]).unwrap_err().to_string();
        assert!(missing.contains("apt-get install haproxy"), "{missing}");
    }
}
