//! Listening sockets that another process opened: the service manager, or the instance before this
//! one.
//!
//! The queue of a listening socket lives as long as one process holds the socket. Closing the last
//! one resets every connection that waits in it. So a worker that stops accepting first takes all
//! of them, unless another process holds the socket and will accept them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use hotrow_config::Config;
use hotrow_config::transport::UnixSocket;
use socket2::{Domain, SockRef, Type};

/// Most sockets that are taken over: as many as workers on two addresses, and some more.
pub const INHERITED_SOCKETS_MAX: usize = 2 * 1024 + 8;

/// Use of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// The data API over TCP.
    Data,
    /// The admin API.
    Admin,
    /// The data API on the Unix socket.
    Unix,
    /// The admin API on its Unix socket.
    AdminUnix,
    /// The records over the Redis protocol.
    Redis,
}

impl ListenerKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Data, Self::Admin, Self::Unix, Self::AdminUnix, Self::Redis];

    /// Returns the kind by its name among passed descriptors.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Admin => "admin",
            Self::Unix => "unix",
            Self::AdminUnix => "admin-unix",
            Self::Redis => "redis",
        }
    }

    /// Returns the kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == name)
    }
}

impl fmt::Display for ListenerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Other process that holds a listening socket too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// None: its queue must be taken before it is closed.
    None,
    /// The service manager, which passes it to the next process.
    Manager,
    /// The next process, which accepts from it already.
    Successor,
}

/// Holder of one address's sockets, shared by its workers.
#[derive(Clone, Debug)]
pub struct SharedHolder(Arc<AtomicU8>);

impl SharedHolder {
    /// Creates it with this holder.
    pub fn new(holder: Holder) -> Self {
        Self(Arc::new(AtomicU8::new(holder as u8)))
    }

    pub(crate) fn set(&self, holder: Holder) {
        self.0.store(holder as u8, Ordering::Release);
    }

    /// Returns the holder now.
    pub fn get(&self) -> Holder {
        match self.0.load(Ordering::Acquire) {
            value if value == Holder::Manager as u8 => Holder::Manager,
            value if value == Holder::Successor as u8 => Holder::Successor,
            _ => Holder::None,
        }
    }
}

/// Reason for which a descriptor cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// It is no socket, or another kind of socket.
    #[error("it must be a listening {expected}")]
    NotListening {
        /// What the kind needs.
        expected: &'static str,
    },
    /// There is one already, and only one is served.
    #[error("only one socket of that name can be served")]
    Second,
    /// More than [`INHERITED_SOCKETS_MAX`].
    #[error("at most {INHERITED_SOCKETS_MAX} sockets can be taken over")]
    TooMany,
    /// The kernel refused.
    #[error("{0}")]
    Other(#[from] io::Error),
}

/// Listening sockets of another process. Whatever is missing is opened as configured.
#[derive(Debug)]
pub struct Inherited {
    /// Those of the data API.
    pub data: Vec<TcpListener>,
    /// That of the admin API.
    pub admin: Option<TcpListener>,
    /// The Unix socket of the data API.
    pub unix: Option<UnixListener>,
    /// That of the admin API.
    pub admin_unix: Option<UnixListener>,
    /// Those of the Redis protocol.
    pub redis: Vec<TcpListener>,
    /// The process that keeps them open.
    pub holder: Holder,
    /// Begin of serving them.
    pub start: Start,
}

/// Begin of serving the listeners of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// When this process is ready, or after a while.
    WhenReadyOrLate,
    /// When this process is ready. If it is not in time, it ends, and the other one goes on.
    WhenReady,
}

impl Inherited {
    /// Creates an empty set, whose sockets the holder keeps open.
    #[must_use]
    pub fn new(holder: Holder) -> Self {
        let start = Start::WhenReadyOrLate;
        Self {
            data: Vec::new(),
            admin: None,
            unix: None,
            admin_unix: None,
            redis: Vec::new(),
            holder,
            start,
        }
    }

    /// Creates an empty set for the sockets of the process before this one, which closes its own.
    #[must_use]
    pub fn of_predecessor() -> Self {
        Self { start: Start::WhenReady, ..Self::new(Holder::None) }
    }

    /// Returns the kinds of which there are sockets.
    pub fn kinds(&self) -> Vec<ListenerKind> {
        let has = |kind: &ListenerKind| match kind {
            ListenerKind::Data => !self.data.is_empty(),
            ListenerKind::Admin => self.admin.is_some(),
            ListenerKind::Unix => self.unix.is_some(),
            ListenerKind::AdminUnix => self.admin_unix.is_some(),
            ListenerKind::Redis => !self.redis.is_empty(),
        };
        ListenerKind::ALL.into_iter().filter(has).collect()
    }

    /// Drops the sockets that this configuration does not listen on; their process goes on with
    /// them until it ends.
    pub fn keep_configured(&mut self, config: &Config) {
        let fits = |listener: &TcpListener, configured: SocketAddr| {
            let is_any_port = configured.port() == 0;
            listener.local_addr().is_ok_and(|at| {
                at.ip() == configured.ip() && (is_any_port || at.port() == configured.port())
            })
        };
        self.data.retain(|listener| fits(listener, config.data));
        self.admin = self.admin.take().filter(|listener| fits(listener, config.admin));
        let Config { transport, admin_transport, .. } = config;
        let redis = transport.redis.as_ref().map(|redis| redis.address);
        self.redis.retain(|listener| redis.is_some_and(|redis| fits(listener, redis)));
        let is_bound = |listener: &UnixListener, configured: &Option<UnixSocket>| {
            configured.as_ref().is_some_and(|unix| is_bound_as(listener, &unix.path))
        };
        self.unix = self.unix.take().filter(|listener| is_bound(listener, &transport.unix));
        self.admin_unix =
            self.admin_unix.take().filter(|listener| is_bound(listener, &admin_transport.unix));
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kinds().is_empty()
    }

    /// Adds a socket, which must listen.
    ///
    /// # Errors
    /// It cannot serve as that kind.
    pub fn add(&mut self, kind: ListenerKind, socket: OwnedFd) -> Result<(), InheritError> {
        let expected = match kind {
            ListenerKind::Data | ListenerKind::Admin | ListenerKind::Redis => "TCP socket",
            ListenerKind::Unix | ListenerKind::AdminUnix => "Unix socket of type SOCK_STREAM",
        };
        if !listens(&socket, kind).unwrap_or(false) {
            return Err(InheritError::NotListening { expected });
        }
        if self.data.len() + self.redis.len() >= INHERITED_SOCKETS_MAX {
            return Err(InheritError::TooMany);
        }
        match kind {
            ListenerKind::Data | ListenerKind::Redis => {
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                let own = match kind {
                    ListenerKind::Redis => &mut self.redis,
                    _ => &mut self.data,
                };
                own.push(listener);
            }
            ListenerKind::Admin if self.admin.is_some() => return Err(InheritError::Second),
            ListenerKind::Admin => {
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                self.admin = Some(listener);
            }
            ListenerKind::Unix => take_unix(&mut self.unix, socket)?,
            ListenerKind::AdminUnix => take_unix(&mut self.admin_unix, socket)?,
        }
        Ok(())
    }

    /// Returns the addresses of the TCP sockets, the data address first.
    pub fn addresses(&self) -> [Option<SocketAddr>; 2] {
        let of = |listener: Option<&TcpListener>| listener.and_then(|l| l.local_addr().ok());
        [of(self.data.first()), of(self.admin.as_ref())]
    }
}

/// Takes the only Unix socket of its kind.
fn take_unix(taken: &mut Option<UnixListener>, socket: OwnedFd) -> Result<(), InheritError> {
    if taken.is_some() {
        return Err(InheritError::Second);
    }
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    *taken = Some(listener);
    Ok(())
}

/// Returns whether the socket was bound as `path`, under the temporary name of
/// [`UnixEndpoint::bind`](super::unix::UnixEndpoint::bind).
fn is_bound_as(listener: &UnixListener, path: &Path) -> bool {
    let Ok(address) = listener.local_addr() else { return false };
    let Some(bound) = address.as_pathname() else { return false };
    bound == path || (bound.extension().is_some() && bound.with_extension("") == path)
}

/// Returns whether the socket listens and has the kind's family.
fn listens(socket: &OwnedFd, kind: ListenerKind) -> io::Result<bool> {
    let socket = SockRef::from(socket);
    let domain = socket.domain()?;
    let fits = match kind {
        ListenerKind::Data | ListenerKind::Admin | ListenerKind::Redis => {
            domain == Domain::IPV4 || domain == Domain::IPV6
        }
        ListenerKind::Unix | ListenerKind::AdminUnix => domain == Domain::UNIX,
    };
    Ok(fits && socket.r#type()? == Type::STREAM && socket.is_listener()?)
}

/// Distributes sockets among workers: each worker has at least one, and each socket has a worker.
/// With fewer sockets than workers, some are shared.
///
/// # Errors
/// No more files can be opened.
pub(super) fn distribute(
    sockets: Vec<TcpListener>,
    workers: usize,
) -> io::Result<Vec<Vec<TcpListener>>> {
    let mut of_workers: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for (worker, own) in of_workers.iter_mut().enumerate().skip(sockets.len()) {
        if let Some(shared) = sockets.get(worker % sockets.len().max(1)) {
            own.push(shared.try_clone()?);
        }
    }
    for (index, socket) in sockets.into_iter().enumerate() {
        of_workers[index % workers.max(1)].push(socket);
    }
    Ok(of_workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn only_listening_sockets_of_the_right_family_are_taken() {
        let mut inherited = Inherited::new(Holder::Manager);
        let folder = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(folder.path().join("s")).unwrap();
        let connected = std::net::TcpStream::connect(listener().local_addr().unwrap());
        let datagram = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        for (kind, socket) in [
            (ListenerKind::Data, OwnedFd::from(unix.try_clone().unwrap())),
            (ListenerKind::Unix, listener().into()),
            (ListenerKind::Data, datagram.into()),
            (ListenerKind::Admin, file.into()),
        ] {
            let error = inherited.add(kind, socket).unwrap_err();
            assert!(matches!(error, InheritError::NotListening { .. }), "{kind}: {error}");
        }
        if let Ok(connected) = connected {
            assert!(inherited.add(ListenerKind::Data, connected.into()).is_err());
        }
        assert!(inherited.is_empty());
        inherited.add(ListenerKind::Unix, unix.into()).unwrap();
        inherited.add(ListenerKind::Data, listener().into()).unwrap();
        inherited.add(ListenerKind::Data, listener().into()).unwrap();
        inherited.add(ListenerKind::Admin, listener().into()).unwrap();
        let second = inherited.add(ListenerKind::Admin, listener().into()).unwrap_err();
        assert!(matches!(second, InheritError::Second), "{second}");
        assert_eq!(inherited.data.len(), 2);
    }

    #[test]
    fn every_worker_has_a_socket_and_every_socket_a_worker() {
        for (sockets, workers, expected) in [
            (1, 1, vec![1]),
            (1, 3, vec![1, 1, 1]),
            (2, 3, vec![1, 1, 1]),
            (3, 3, vec![1, 1, 1]),
            (5, 2, vec![3, 2]),
        ] {
            let sockets: Vec<_> = (0..sockets).map(|_| listener()).collect();
            let mut ports: Vec<u16> =
                sockets.iter().map(|s| s.local_addr().unwrap().port()).collect();
            let of_workers = distribute(sockets, workers).unwrap();
            assert_eq!(of_workers.iter().map(Vec::len).collect::<Vec<_>>(), expected);
            let mut served: Vec<u16> =
                of_workers.iter().flatten().map(|s| s.local_addr().unwrap().port()).collect();
            served.sort_unstable();
            served.dedup();
            ports.sort_unstable();
            assert_eq!(served, ports);
        }
    }
}
