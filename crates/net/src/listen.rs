//! Listening sockets: one per worker on the same address (`SO_REUSEPORT`), so that the kernel
//! distributes connections and no worker waits for another. Or those of another process
//! ([`inherited`]).

pub mod inherited;
pub mod offered;
pub mod unix;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use self::inherited::{Holder, ListenerKind, SharedHolder, distribute};
use self::offered::duplicate;
use self::unix::{SocketFile, UnixEndpoint, UnixListenError};
use crate::stream::bound_unsent;
use crate::tls::TlsEndpoint;
use crate::tls::files::TlsError;

/// Connections per worker that may wait to be accepted; the kernel takes the smaller of this and
/// `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// Listening sockets of one address, of a Unix socket, and of clients of the Redis protocol.
#[derive(Debug)]
pub struct Listeners {
    address: SocketAddr,
    sockets: Vec<TcpListener>,
    holder: SharedHolder,
    unix: Option<UnixEndpoint>,
    redis: Option<Box<Self>>,
    tls: Option<Arc<TlsEndpoint>>,
}

/// Listening sockets of one worker; they are non-blocking.
#[derive(Debug)]
pub struct WorkerSockets {
    /// Its own, or shared with other workers if there are fewer than workers.
    pub tcp: Vec<TcpListener>,
    /// Holder of `tcp`.
    pub tcp_holder: SharedHolder,
    /// Shared by all workers: the one that looks first accepts.
    pub unix: Option<UnixListener>,
    /// Holder of `unix`.
    pub unix_holder: SharedHolder,
    /// As `tcp`, for clients of the Redis protocol.
    pub redis: Vec<TcpListener>,
    /// Holder of `redis`.
    pub redis_holder: SharedHolder,
}

/// Reason for which the process cannot listen on an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process has it; it may be another Hotrow.
    #[error(
        "cannot listen on {address}: the address is in use; stop the process that has it (`ss \
         -ltnp` shows which), or choose another address (port 0 takes any free one)"
    )]
    InUse {
        /// As configured.
        address: SocketAddr,
    },
    /// The port is reserved.
    #[error(
        "cannot listen on {address}: not permitted; ports below \
         net.ipv4.ip_unprivileged_port_start (1024) need the capability CAP_NET_BIND_SERVICE"
    )]
    NotPermitted {
        /// As configured.
        address: SocketAddr,
    },
    /// No interface of this machine has it.
    #[error(
        "cannot listen on {address}: this machine has no such address; 0.0.0.0 or [::] listens on \
         all"
    )]
    NotHere {
        /// As configured.
        address: SocketAddr,
    },
    /// The certificate files cannot be used.
    #[error("listen.tls: {0}")]
    Tls(TlsError),
    /// Those of the admin address cannot be used.
    #[error("admin.tls: {0}")]
    AdminTls(TlsError),
    /// A Unix socket cannot be listened on.
    #[error(transparent)]
    Unix(#[from] UnixListenError),
    /// Any other error of the kernel.
    #[error("cannot listen on {address}: {source}")]
    Other {
        /// As configured.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Listeners {
    /// Opens `count` (at least 1) sockets on `address` and begins to listen; connections wait in
    /// the kernel until the workers run. Port 0 takes a free port, the same for all.
    pub fn bind(address: SocketAddr, count: usize) -> Result<Self, ListenError> {
        let failed = |error| explain(address, error);
        if address.port() != 0 {
            // With SO_REUSEPORT a second Hotrow of the same user would share the port silently, and
            // each would get some of the requests. Without it the kernel reports the conflict.
            open(address, Sharing::Alone).map_err(failed)?;
        }
        let first = open(address, Sharing::Workers).and_then(listen).map_err(failed)?;
        let bound = first.local_addr().map_err(failed)?;
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(open(bound, Sharing::Workers).and_then(listen).map_err(failed)?);
        }
        Ok(Self {
            address: bound,
            sockets,
            holder: SharedHolder::new(Holder::None),
            unix: None,
            redis: None,
            tls: None,
        })
    }

    /// Takes over sockets that listen, at least one, and that `holder` keeps open.
    ///
    /// # Errors
    /// The address of the first is unknown.
    pub fn taken_over(sockets: Vec<TcpListener>, holder: Holder) -> io::Result<Self> {
        let first = sockets.first().ok_or(io::ErrorKind::NotFound)?;
        sockets.iter().for_each(bound_unsent);
        let address = first.local_addr()?;
        let holder = SharedHolder::new(holder);
        Ok(Self { address, sockets, holder, unix: None, redis: None, tls: None })
    }

    /// Listens on a Unix socket too.
    #[must_use]
    pub fn with_unix(self, unix: Option<UnixEndpoint>) -> Self {
        Self { unix, ..self }
    }

    /// Listens for clients of the Redis protocol too.
    #[must_use]
    pub fn with_redis(self, redis: Option<Self>) -> Self {
        Self { redis: redis.map(Box::new), ..self }
    }

    /// Returns the address for clients of the Redis protocol, with the port that was taken.
    pub fn redis(&self) -> Option<SocketAddr> {
        self.redis.as_deref().map(Self::address)
    }

    /// Requires TLS on the TCP sockets.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<TlsEndpoint>>) -> Self {
        Self { tls, ..self }
    }

    /// Returns the holder of the TCP sockets.
    pub fn holder(&self) -> SharedHolder {
        self.holder.clone()
    }

    /// Returns a duplicate of each TCP socket, as `kind`, and their holder.
    ///
    /// # Errors
    /// No more files can be opened.
    pub fn duplicates(
        &self,
        kind: ListenerKind,
    ) -> io::Result<(Vec<(ListenerKind, OwnedFd)>, SharedHolder)> {
        let duplicates = self.sockets.iter().map(|socket| Ok((kind, duplicate(socket)?)));
        Ok((duplicates.collect::<io::Result<_>>()?, self.holder.clone()))
    }

    /// Returns a duplicate of the Unix socket, and its holder.
    ///
    /// # Errors
    /// No more files can be opened.
    pub fn unix_duplicate(&self) -> io::Result<Option<(OwnedFd, SharedHolder)>> {
        self.unix.as_ref().map(UnixEndpoint::duplicate).transpose()
    }

    /// Returns a duplicate of each socket for clients of the Redis protocol, and their holder.
    ///
    /// # Errors
    /// No more files can be opened.
    pub fn redis_duplicates(&self) -> io::Result<(Vec<(ListenerKind, OwnedFd)>, SharedHolder)> {
        match &self.redis {
            Some(redis) => redis.duplicates(ListenerKind::Redis),
            None => Ok((Vec::new(), SharedHolder::new(Holder::None))),
        }
    }

    /// Returns the TLS of the TCP sockets.
    pub fn tls(&self) -> Option<Arc<TlsEndpoint>> {
        self.tls.clone()
    }

    /// Returns the address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the sockets of each of `workers` (at least 1), and the file of the Unix socket.
    ///
    /// # Errors
    /// No more files can be opened.
    pub fn into_parts(
        self,
        workers: usize,
    ) -> io::Result<(Vec<WorkerSockets>, Option<SocketFile>)> {
        let unix = self.unix.map(UnixEndpoint::into_parts);
        let (unix, file, unix_holder) = match unix {
            Some((unix, file, holder)) => (Some(unix), file, holder),
            None => (None, None, SharedHolder::new(Holder::None)),
        };
        let (redis, redis_holder) = match self.redis {
            Some(redis) => (distribute(redis.sockets, workers)?, redis.holder),
            None => (Vec::new(), SharedHolder::new(Holder::None)),
        };
        let redis = redis.into_iter().chain(std::iter::repeat_with(Vec::new));
        let of_worker = |(tcp, redis)| {
            let unix = unix.as_ref().map(UnixListener::try_clone).transpose()?;
            let (tcp_holder, unix_holder) = (self.holder.clone(), unix_holder.clone());
            let redis_holder = redis_holder.clone();
            Ok(WorkerSockets { tcp, tcp_holder, unix, unix_holder, redis, redis_holder })
        };
        let sockets = distribute(self.sockets, workers)?
            .into_iter()
            .zip(redis)
            .map(of_worker)
            .collect::<io::Result<_>>()?;
        Ok((sockets, file))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    Workers,
}

/// Opens a socket that is bound and does not listen.
fn open(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // Connections of a previous process in TIME_WAIT must not block the port.
    socket.set_reuse_address(true)?;
    if sharing == Sharing::Workers {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    bound_unsent(&socket);
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
            let (sockets, _) = listeners.into_parts(3).unwrap();
            assert_eq!(sockets.len(), 3);
            assert!(sockets.iter().all(|s| s.tcp[0].local_addr().unwrap() == address));
        }
    }

    #[test]
    fn a_used_port_is_refused_even_if_its_owner_shares() {
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
    fn a_port_is_free_after_its_listeners_close() {
        let first = Listeners::bind(any("127.0.0.1"), 2).unwrap();
        let address = first.address();
        // A connection closed by us first leaves the port in TIME_WAIT, which must not prevent
        // taking it.
        let client = std::net::TcpStream::connect(address).unwrap();
        let (sockets, _) = first.into_parts(2).unwrap();
        let accepted = sockets.iter().find_map(|s| s.tcp[0].accept().ok());
        drop(sockets);
        drop(accepted);
        drop(client);
        assert_eq!(Listeners::bind(address, 2).unwrap().address(), address);
    }

    #[test]
    fn foreign_addresses_are_reported() {
        let error = Listeners::bind("192.0.2.1:0".parse().unwrap(), 1).unwrap_err();
        assert!(matches!(error, ListenError::NotHere { .. }), "{error}");
    }
}
