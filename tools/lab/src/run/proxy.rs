//! Processes in front of the services: nginx or HAProxy, and the delaying relay.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::instance::Backend;
use super::start_error::{StartError, port_free};
use crate::experiment::{Proxy, ProxyKind};
use crate::stage::Command;
use hotrow_proxies::haproxy::{self, Haproxy};
use hotrow_proxies::nginx::{self, Cache, CacheLifetime, NginxProxy};

/// Time limit until nginx and the relay listen.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(15);

/// A front process to start.
pub(super) struct FrontProcess {
    pub(super) command: Command,
    /// Its port on the loopback interface.
    pub(super) listen: u16,
    /// Port of its own readiness check.
    pub(super) ready: Option<u16>,
    /// Its certificate, if it serves TLS.
    pub(super) certificate: Option<PathBuf>,
}

/// Returns the proxy. `ready` is the path that its services answer when they are ready.
pub(super) fn process(
    proxy: &Proxy,
    backends: &[Backend],
    ready: Option<&str>,
    work: &Path,
) -> Result<FrontProcess, StartError> {
    match proxy.kind {
        ProxyKind::Nginx => nginx(proxy, backends, work),
        ProxyKind::Haproxy => haproxy(proxy, backends, ready, work),
    }
}

/// Returns HAProxy, with a configuration written and checked by HAProxy itself.
fn haproxy(
    proxy: &Proxy,
    backends: &[Backend],
    ready: Option<&str>,
    work: &Path,
) -> Result<FrontProcess, StartError> {
    let (binary, _) = haproxy::find()?;
    let server = |backend: &Backend| haproxy::Server {
        address: backend.address,
        check: backend.launch.ready,
        weight: backend.weight,
    };
    let config = Haproxy {
        listen: port_free()?,
        ready_port: port_free()?,
        ready_servers: backends.iter().filter(|backend| backend.running).count(),
        servers: backends.iter().map(server).collect(),
        balance: proxy.balance,
        load_bound: proxy.load_bound,
        retry: proxy.failover.retry,
        check: ready.map(str::to_owned),
        folder: work.join("haproxy"),
    };
    let argv = haproxy::write(&binary, &config)?;
    Ok(FrontProcess {
        command: Command {
            name: "haproxy".to_owned(),
            argv,
            env: Vec::new(),
            dir: config.folder,
            log: work.join("haproxy.log"),
            cores: None,
        },
        listen: config.listen,
        ready: Some(config.ready_port),
        certificate: None,
    })
}

/// Returns nginx, with a configuration written and checked by nginx itself.
fn nginx(proxy: &Proxy, backends: &[Backend], work: &Path) -> Result<FrontProcess, StartError> {
    let (binary, _) = nginx::find()?;
    let folder = work.join("nginx");
    std::fs::create_dir_all(&folder)
        .map_err(|error| StartError::File { what: folder.display().to_string(), error })?;
    let listed =
        backends.iter().map(|b| nginx::Backend { address: b.address, weight: b.weight }).collect();
    let mut config = NginxProxy::new(proxy.profile, port_free()?, listed, folder.clone());
    config.balance = proxy.balance;
    config.failover = proxy.failover;
    config.gzip = proxy.gzip;
    config.response_rate = proxy.response_rate;
    // The experiment file was refused unless it is whole seconds within nginx's range.
    config.cache = proxy
        .cache
        .map(|ttl| Cache { ttl_s: ttl.as_secs() as u32, lifetime: CacheLifetime::Fixed });
    config.upstream_keepalive =
        proxy.upstream_keepalive.or(config.upstream_keepalive).filter(|n| *n > 0);
    config.access_log = proxy.access_log;
    config.tls = proxy.tls.then(|| nginx::self_signed(&folder)).transpose()?;
    config.validate()?;
    let text = match &proxy.template {
        None => nginx::configuration(&config),
        Some(path) => {
            let what = path.display().to_string();
            let text =
                std::fs::read_to_string(path).map_err(|error| StartError::File { what, error })?;
            nginx::from_template(&text, &config)?
        }
    };
    let file = nginx::write(&config, &text)?;
    nginx::check(&binary, &file)?;
    Ok(FrontProcess {
        command: Command {
            name: "nginx".to_owned(),
            argv: nginx::argv(&binary, &config),
            env: Vec::new(),
            dir: folder,
            log: work.join("nginx.log"),
            cores: None,
        },
        listen: config.listen,
        ready: None,
        certificate: config.tls.map(|tls| tls.certificate),
    })
}

/// Returns the relay, which delays by half of `round_trip` in each direction.
pub(super) fn relay(
    program: &Path,
    to: SocketAddr,
    round_trip: Duration,
    work: &Path,
) -> Result<FrontProcess, StartError> {
    let listen = port_free()?;
    let argv = [
        program.to_string_lossy().into_owned(),
        "delay".to_owned(),
        "--listen".to_owned(),
        format!("127.0.0.1:{listen}"),
        "--to".to_owned(),
        to.to_string(),
        "--rtt".to_owned(),
        format!("{}us", round_trip.as_micros()),
    ];
    std::fs::create_dir_all(work)
        .map_err(|error| StartError::File { what: work.display().to_string(), error })?;
    let command = Command {
        name: "delay".to_owned(),
        argv: argv.into(),
        env: Vec::new(),
        dir: work.to_owned(),
        log: work.join("delay.log"),
        cores: None,
    };
    Ok(FrontProcess { command, listen, ready: None, certificate: None })
}
