//! Configuration of what carries requests besides plain TCP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::rate::Network;

/// Carriers of requests to one address. The default is plain TCP.
#[derive(Clone, Debug)]
pub struct Transport {
    /// Unix socket that is listened on too.
    pub unix: Option<UnixSocket>,
    /// Clients of the Redis protocol; `None`: there are none.
    pub redis: Option<Redis>,
    /// Unix socket at which the next process takes over the listeners; `None`: it cannot.
    pub handover: Option<PathBuf>,
    /// TLS on the TCP listener; `None`: cleartext.
    pub tls: Option<Tls>,
    /// `true`: HTTP/2 may be spoken, over TLS and in cleartext.
    pub http2: bool,
    /// Peers whose connections begin with a header of the PROXY protocol.
    pub proxies: Vec<Network>,
    /// Longest time from a connection's beginning to the end of that header and of the TLS
    /// handshake.
    pub handshake_timeout: Duration,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            unix: None,
            redis: None,
            handover: None,
            tls: None,
            http2: false,
            proxies: Vec::new(),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// Settings of the Redis protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redis {
    /// Address that is listened on for it.
    pub address: SocketAddr,
    /// `true`: answers that HTTP would mark as stale are given; otherwise they are errors, because
    /// a reply has no place for a mark.
    pub allow_stale: bool,
    /// Most bytes of memory for the keys that clients track, of all workers.
    pub tracking_bytes: usize,
}

impl Redis {
    /// Default of `tracking_bytes`.
    pub const TRACKING_BYTES: usize = 64 << 20;
}

/// A Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its path.
    pub path: PathBuf,
    /// Permissions of the file: who may write to it may connect.
    pub mode: u32,
}

/// Files of TLS, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, then those between it and its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of clients.
    pub clients: ClientCertificates,
}

/// Use of client certificates. The path names the roots that they must lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None is asked for.
    Ignored,
    /// One that is sent must be valid.
    Optional(PathBuf),
    /// A client without one is refused.
    Required(PathBuf),
}
