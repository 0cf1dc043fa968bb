//! TCP ports for the services of a run.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Ports that are given out. They lie below those that the kernel takes for outgoing connections (32768 and up unless
/// `ip_local_port_range` says otherwise): a generator's many connections would take a port between our look and its use.
const PORTS: std::ops::Range<u16> = 10_240..32_000;

/// A port that nobody listens on, never the same twice in a process, nor in two of ours that run at the same time. Somebody else may take
/// it before it is used; that is unlikely, for the search begins at a random port.
///
/// # Errors
/// When none is left, or the system gives no socket at all.
pub fn free_port() -> io::Result<u16> {
    static GIVEN: OnceLock<Mutex<HashMap<u16, UnixDatagram>>> = OnceLock::new();
    let mut given = GIVEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let (count, start) = (u64::from(PORTS.end - PORTS.start), RandomState::new().hash_one(0));
    for step in 0..count {
        let port = PORTS.start + (start.wrapping_add(step) % count) as u16;
        if given.contains_key(&port) {
            continue;
        }
        match reserve(port).and_then(|reserved| available(port).map(|()| reserved)) {
            Ok(reserved) => {
                given.insert(port, reserved);
                return Ok(port);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    let text = format!("no TCP port between {} and {} is free", PORTS.start, PORTS.end - 1);
    Err(io::Error::new(io::ErrorKind::AddrInUse, text))
}

/// A name that one process has at a time and that goes with it: what listens on the port comes later, and is not this process.
fn reserve(port: u16) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("hotrow-lab-port-{port}"))?)
}

/// Whether a port can be listened on, on all addresses.
///
/// # Errors
/// "port 8080 is in use by nginx (pid 12)", as far as the process may be seen; or what else the system said.
pub fn available(port: u16) -> io::Result<()> {
    let Err(error) = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)) else { return Ok(()) };
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => match hotrow_diagnose::listeners::on_port(Path::new("/proc"), port) {
            Some(holder) => format!("port {port} is in use by {} (pid {})", holder.name, holder.pid),
            None => format!("port {port} is in use; by whom may not be seen"),
        },
        _ => format!("port {port} cannot be listened on: {error}"),
    };
    Err(io::Error::new(error.kind(), text))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ports_are_free_and_given_once() {
        let ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 50);
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        let again = reserve(ports[0]).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse, "nobody else is given it: {again}");
    }

    #[test]
    fn the_holder_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = available(port).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().starts_with(&format!("port {port} is in use by ")), "{error}");
        // A process that another test is just starting may hold it too.
        assert!(error.to_string().contains("(pid "), "{error}");
    }
}
