//! What stands in front of services: nginx, and a relay that delays.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::standing::{Backend, NotStanding, port_free};
use crate::experiment::Proxy;
use crate::nginx::{self, Cache, Front, Life};
use crate::stage::Command;

/// How long nginx and the relay may take until they listen.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(15);

/// Something to be started in front.
pub(super) struct InFront {
    pub(super) command: Command,
    /// Its port on the loopback interface.
    pub(super) listen: u16,
    /// The certificate that it shows, where it speaks TLS.
    pub(super) certificate: Option<PathBuf>,
}

/// nginx, its configuration written and checked by nginx itself.
pub(super) fn nginx(proxy: &Proxy, backends: &[Backend], work: &Path) -> Result<InFront, NotStanding> {
    let (binary, _) = nginx::find()?;
    let folder = work.join("nginx");
    std::fs::create_dir_all(&folder)
        .map_err(|error| NotStanding::File { what: folder.display().to_string(), error })?;
    let listed = backends.iter().map(|b| nginx::Backend { address: b.address, weight: b.weight }).collect();
    let mut front = Front::new(proxy.form, port_free()?, listed, folder.clone());
    front.balance = proxy.balance;
    // The file was refused unless it is whole seconds within nginx's range.
    front.cache = proxy.cache.map(|ttl| Cache { ttl_s: ttl.as_secs() as u32, life: Life::AtMost });
    front.upstream_keepalive = proxy.upstream_keepalive.or(front.upstream_keepalive).filter(|n| *n > 0);
    front.access_log = proxy.access_log;
    front.tls = proxy.tls.then(|| nginx::self_signed(&folder)).transpose()?;
    front.validate()?;
    let text = match &proxy.template {
        None => nginx::configuration(&front),
        Some(path) => {
            let what = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|error| NotStanding::File { what, error })?;
            nginx::from_template(&text, &front)?
        }
    };
    let file = nginx::write(&front, &text)?;
    nginx::check(&binary, &file)?;
    Ok(InFront {
        command: Command {
            name: "nginx".to_owned(),
            argv: nginx::argv(&binary, &front),
            env: Vec::new(),
            dir: folder,
            log: work.join("nginx.log"),
            cores: None,
        },
        listen: front.listen,
        certificate: front.tls.map(|tls| tls.certificate),
    })
}

/// Our relay, which holds everything back for half of `round_trip` in each direction.
pub(super) fn relay(hotrow: &Path, to: SocketAddr, round_trip: Duration, work: &Path) -> Result<InFront, NotStanding> {
    let listen = port_free()?;
    let argv = [
        hotrow.to_string_lossy().into_owned(),
        "lab".to_owned(),
        "delay".to_owned(),
        "--listen".to_owned(),
        format!("127.0.0.1:{listen}"),
        "--to".to_owned(),
        to.to_string(),
        "--rtt".to_owned(),
        format!("{}us", round_trip.as_micros()),
    ];
    std::fs::create_dir_all(work).map_err(|error| NotStanding::File { what: work.display().to_string(), error })?;
    let command = Command {
        name: "delay".to_owned(),
        argv: argv.into(),
        env: Vec::new(),
        dir: work.to_owned(),
        log: work.join("delay.log"),
        cores: None,
    };
    Ok(InFront { command, listen, certificate: None })
}
