//! TCP ports for the services of a run.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Range of allocated ports, below the ephemeral ports (32768 and up unless `ip_local_port_range`
/// differs): a generator's many connections would otherwise take a port between its selection and
/// its use.
const PORTS: std::ops::Range<u16> = 10_240..32_000;

/// Returns a free port, never the same twice in a process or in two processes of the lab at the
/// same time. Another program may take it before its use, which is unlikely because the search
/// starts at a random port.
///
/// # Errors
/// None is left, or no socket can be created.
pub fn free_port() -> io::Result<u16> {
    static ALLOCATED: OnceLock<Mutex<HashMap<u16, UnixDatagram>>> = OnceLock::new();
    let mut allocated =
        ALLOCATED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let (count, start) = (u64::from(PORTS.end - PORTS.start), RandomState::new().hash_one(0));
    for step in 0..count {
        let port = PORTS.start + (start.wrapping_add(step) % count) as u16;
        if allocated.contains_key(&port) {
            continue;
        }
        match reserve(port).and_then(|reserved| available(port).map(|()| reserved)) {
            Ok(reserved) => {
                allocated.insert(port, reserved);
                return Ok(port);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    let text = format!("no TCP port between {} and {} is free", PORTS.start, PORTS.end - 1);
    Err(io::Error::new(io::ErrorKind::AddrInUse, text))
}

/// Reserves a name that only one process can own and that disappears with it; the later listener on
/// the port is another process.
fn reserve(port: u16) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("hotrow-lab-port-{port}"))?)
}

/// Checks that a port can be listened on, on all addresses.
///
/// # Errors
/// "port 8080 is in use by nginx (pid 12)", if the process is visible, or the system's error.
pub fn available(port: u16) -> io::Result<()> {
    let Err(error) = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)) else { return Ok(()) };
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => {
            match hotrow_diagnose::listeners::on_port(Path::new("/proc"), port) {
                Some(holder) => {
                    format!("port {port} is in use by {} (pid {})", holder.name, holder.pid)
                }
                None => format!("port {port} is in use; its process is not visible"),
            }
        }
        _ => format!("port {port} cannot be listened on: {error}"),
    };
    Err(io::Error::new(error.kind(), text))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ports_are_free_and_unique() {
        let ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 50);
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        let again = reserve(ports[0]).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse, "it is reserved: {again}");
    }

    #[test]
    fn the_holder_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = available(port).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().starts_with(&format!("port {port} is in use by ")), "{error}");
        // A process just started by another test may hold it too.
        assert!(error.to_string().contains("(pid "), "{error}");
    }
}
