//! Opens the listening sockets: one per worker on the same address (`SO_REUSEPORT`), so that the kernel spreads connections and
//! no worker waits for another.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted, per worker; the kernel takes the smaller of this and `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// The listening sockets of one address.
#[derive(Debug)]
pub struct Listeners {
    address: SocketAddr,
    sockets: Vec<TcpListener>,
}

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process, maybe another Hotrow, has it.
    #[error(
        "cannot listen on {address}: the address is in use; stop the process that has it (`ss -ltnp` shows which), or \
         choose another address (port 0 takes any free one)"
    )]
    InUse {
        /// As configured.
        address: SocketAddr,
    },
    /// The port is reserved.
    #[error(
        "cannot listen on {address}: not permitted; ports below net.ipv4.ip_unprivileged_port_start (1024) need the \
             capability CAP_NET_BIND_SERVICE"
    )]
    NotPermitted {
        /// As configured.
        address: SocketAddr,
    },
    /// No interface of this machine has it.
    #[error("cannot listen on {address}: this machine has no such address; 0.0.0.0 or [::] listens on all")]
    NotHere {
        /// As configured.
        address: SocketAddr,
    },
    /// Anything else that the kernel says.
    #[error("cannot listen on {address}: {source}")]
    Other {
        /// As configured.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Listeners {
    /// Opens `count` (at least 1) sockets on `address` and begins to listen; connections wait in the kernel until the workers run.
    /// Port 0 takes a free port, the same for all.
    pub fn bind(address: SocketAddr, count: usize) -> Result<Self, ListenError> {
        let failed = |error| explain(address, error);
        if address.port() != 0 {
            // With SO_REUSEPORT a second Hotrow of the same user would share the port in silence, and each would get
            // some of the requests. Without it the kernel tells.
            open(address, Sharing::Alone).map_err(failed)?;
        }
        let first = open(address, Sharing::Workers).and_then(listen).map_err(failed)?;
        let bound = first.local_addr().map_err(failed)?;
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(open(bound, Sharing::Workers).and_then(listen).map_err(failed)?);
        }
        Ok(Self { address: bound, sockets })
    }

    /// The address, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sockets, one per worker; they do not block.
    #[must_use]
    pub fn into_sockets(self) -> Vec<TcpListener> {
        self.sockets
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    Workers,
}

/// A socket that is bound and does not listen.
fn open(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // Connections of a process before us that wait out their last minute must not keep the port.
    socket.set_reuse_address(true)?;
    if sharing == Sharing::Workers {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn explain(address: SocketAddr, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address },
        io::ErrorKind::PermissionDenied => ListenError::NotPermitted { address },
        io::ErrorKind::AddrNotAvailable => ListenError::NotHere { address },
        _ => ListenError::Other { address, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), 0)
    }

    #[test]
    fn all_sockets_share_the_port_that_the_first_got() {
        for ip in ["127.0.0.1", "::1"] {
            let listeners = Listeners::bind(any(ip), 3).unwrap();
            let address = listeners.address();
            assert_ne!(address.port(), 0);
            let sockets = listeners.into_sockets();
            assert_eq!(sockets.len(), 3);
            assert!(sockets.iter().all(|s| s.local_addr().unwrap() == address));
        }
    }

    #[test]
    fn a_port_that_another_has_is_refused_even_if_it_would_share() {
        let sharing = Listeners::bind(any("127.0.0.1"), 2).unwrap();
        let plain = TcpListener::bind("127.0.0.1:0").unwrap();
        for taken in [sharing.address(), plain.local_addr().unwrap()] {
            let error = Listeners::bind(taken, 2).unwrap_err();
            assert!(matches!(error, ListenError::InUse { address } if address == taken), "{error}");
            let text = error.to_string();
            assert!(text.contains(&taken.to_string()) && text.contains("choose another"), "{text}");
        }
    }

    #[test]
    fn a_port_is_free_again_after_its_listeners_are_gone() {
        let first = Listeners::bind(any("127.0.0.1"), 2).unwrap();
        let address = first.address();
        // A connection that we closed first leaves the port waiting; that must not keep us from taking it.
        let client = std::net::TcpStream::connect(address).unwrap();
        let accepted = first.into_sockets().iter().find_map(|s| s.accept().ok());
        drop(accepted);
        drop(client);
        assert_eq!(Listeners::bind(address, 2).unwrap().address(), address);
    }

    #[test]
    fn an_address_of_another_machine_is_named() {
        let error = Listeners::bind("192.0.2.1:0".parse().unwrap(), 1).unwrap_err();
        assert!(matches!(error, ListenError::NotHere { .. }), "{error}");
    }
}
