//! The destination of requests: the parts of a URL, and the address of its host.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

/// Longest host name, RFC 1035 section 2.3.4.
const HOST_BYTES_MAX: usize = 255;

/// Hosts of `unix:` URLs, for the `Host` header.
const UNIX_HOST: &str = "localhost";

/// The parts of a URL that a tool needs: `http`, `https`, or `unix:SOCKET:/PATH`; no user
/// information; a fragment is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// True if the connection is encrypted.
    pub secure: bool,
    /// The host: a name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The port; the scheme's default when the URL names none.
    pub port: u16,
    /// The Unix socket to connect to instead of host and port.
    pub socket: Option<PathBuf>,
    /// Path and query, beginning with `/`.
    pub path: String,
}

/// The destination of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Reasons why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The URL is invalid.
    #[error("{url:?} is not a URL that can be used: {why}")]
    Url {
        /// The text.
        url: String,
        /// The defect.
        why: &'static str,
    },
    /// The name does not resolve.
    #[error("the host {host} is unknown: {error}")]
    UnknownHost {
        /// The name.
        host: String,
        /// The resolver's message.
        error: io::Error,
    },
    /// It resolves to no address.
    #[error("the host {0} has no address")]
    NoAddress(String),
    /// None of several addresses accepts a connection.
    #[error("no connection to {host} port {port}: {tried}")]
    Unreachable {
        /// The name.
        host: String,
        /// The port.
        port: u16,
        /// Every address tried, with the result.
        tried: String,
    },
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// Fails unless it is `http://` or `https://` with a host and a valid port, or `unix:` with the
    /// path of a socket.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let wrong = |why| TargetError::Url { url: text.to_owned(), why };
        if let Some(rest) = text.strip_prefix("unix:") {
            return Self::parse_unix(rest).map_err(wrong);
        }
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("it must begin with http://, https:// or unix:"))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("only http://, https:// and unix: are possible")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(wrong(
                "a user name in it is not supported; send credentials with --token-file or \
                 --header @FILE",
            ));
        }
        let (host, port) =
            split_authority(authority).ok_or_else(|| wrong("its host or port is not valid"))?;
        let port = match port {
            None => {
                if secure {
                    443
                } else {
                    80
                }
            }
            Some(port) => port
                .parse()
                .ok()
                .filter(|p| *p != 0)
                .ok_or_else(|| wrong("its port must be between 1 and 65535"))?,
        };
        let path = path.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = format!("{slash}{path}");
        Ok(Self { secure, host: host.to_owned(), port, socket: None, path })
    }

    /// Parses `SOCKET[:/PATH]`. The socket's own path ends at the first colon.
    fn parse_unix(rest: &str) -> Result<Self, &'static str> {
        let (socket, path) = rest.split_once(':').unwrap_or((rest, "/"));
        if !socket.starts_with('/') {
            return Err(
                "the socket must be an absolute path, as in unix:/run/hotrow/data.sock:/a/1",
            );
        }
        if !path.starts_with('/') {
            return Err("after the socket and a colon the path must begin with /");
        }
        let path = path.split('#').next().unwrap_or_default().to_owned();
        let socket = Some(PathBuf::from(socket));
        Ok(Self { secure: false, host: UNIX_HOST.to_owned(), port: 80, socket, path })
    }

    /// Returns the value of the `Host` header: without the port when it is the scheme's default.
    pub fn host_header(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.secure { 443 } else { 80 } {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Returns whether connections to one URL serve the other.
    pub fn same_origin(&self, other: &Self) -> bool {
        (self.secure, self.port, &self.socket) == (other.secure, other.port, &other.socket)
            && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// Resolves the host, once for the whole run. Of several addresses, the first that accepts a
    /// connection within `timeout` is used: `localhost` often includes `::1` without a listener.
    /// That connection is closed unused. A single address is not tested here.
    /// # Errors
    /// Fails when the name is unknown, or none of several addresses accepts a connection.
    pub fn resolve(&self, timeout: Duration) -> Result<Address, TargetError> {
        let addresses = self.addresses()?;
        match addresses.as_slice() {
            [only] => Ok(only.clone()),
            several => self.first_reachable(several, timeout),
        }
    }

    /// Returns the socket, or all addresses of the host: at least one.
    ///
    /// # Errors
    /// Fails when the name is unknown or has no address.
    pub fn addresses(&self) -> Result<Vec<Address>, TargetError> {
        if let Some(socket) = &self.socket {
            return Ok(vec![Address::Unix(socket.clone())]);
        }
        let unknown = |error| TargetError::UnknownHost { host: self.host.clone(), error };
        let found = (self.host.as_str(), self.port).to_socket_addrs().map_err(unknown)?;
        let mut addresses: Vec<Address> = found.map(Address::Tcp).collect();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(TargetError::NoAddress(self.host.clone()));
        }
        Ok(addresses)
    }

    fn first_reachable(
        &self,
        addresses: &[Address],
        timeout: Duration,
    ) -> Result<Address, TargetError> {
        let mut tried = Vec::new();
        for address in addresses {
            let Address::Tcp(tcp) = address else { continue };
            match TcpStream::connect_timeout(tcp, timeout) {
                Ok(_) => return Ok(address.clone()),
                Err(error) => tried.push(format!("{}: {error}", tcp.ip())),
            }
        }
        Err(TargetError::Unreachable {
            host: self.host.clone(),
            port: self.port,
            tried: tried.join("; "),
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(socket) = &self.socket {
            return write!(f, "unix:{}:{}", socket.display(), self.path);
        }
        write!(
            f,
            "{}://{}{}",
            if self.secure { "https" } else { "http" },
            self.host_header(),
            self.path
        )
    }
}

impl Address {
    /// Returns whether it belongs to this machine, as far as this network namespace shows: only its
    /// own addresses can be bound.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => {
                address.ip().is_loopback() || UdpSocket::bind((address.ip(), 0)).is_ok()
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Returns host and port; `None` when either is invalid.
fn split_authority(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match rest {
            "" => Some((host, None)),
            _ => Some((host, Some(rest.strip_prefix(':')?))),
        };
    }
    let (host, port) =
        authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let valid = !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(fits);
    valid.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(bool, String, u16, String)> {
        Url::parse(text).ok().map(|url| (url.secure, url.host, url.port, url.path))
    }

    #[test]
    fn urls_fall_into_parts() {
        let is = |secure, host: &str, port, path: &str| {
            Some((secure, host.to_owned(), port, path.to_owned()))
        };
        assert_eq!(parts("http://a"), is(false, "a", 80, "/"));
        assert_eq!(parts("HTTPS://a.b?x=1#y"), is(true, "a.b", 443, "/?x=1"));
        assert_eq!(parts("http://127.0.0.1:8080/p/{id}"), is(false, "127.0.0.1", 8080, "/p/{id}"));
        assert_eq!(parts("http://[::1]:1/"), is(false, "::1", 1, "/"));
        for bad in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:0",
            "http://a:x",
            "http://a:70000",
            "http://u@a",
        ] {
            assert_eq!(parts(bad), None, "{bad}");
        }
        for bad in ["http://[::1", "http://[x]", "http://[::1]8", "http://a b/", "http://ä/"] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn unix_sockets_have_a_path_of_their_own() {
        for (text, socket, path) in [
            ("unix:/run/a.sock:/p/{id}?x=1#y", "/run/a.sock", "/p/{id}?x=1"),
            ("unix:/run/a.sock", "/run/a.sock", "/"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.socket.as_deref(), url.path.as_str()), (Some(socket.as_ref()), path));
            assert_eq!(url.host_header(), "localhost");
            assert_eq!(url.addresses().unwrap(), [Address::Unix(socket.into())]);
            assert_eq!(Url::parse(&url.to_string()).unwrap(), url);
        }
        for bad in ["unix:", "unix:a.sock:/", "unix://run/a:b", "unix:/run/a.sock:p"] {
            assert_eq!(parts(bad), None, "{bad}");
        }
        let same = |a, b| Url::parse(a).unwrap().same_origin(&Url::parse(b).unwrap());
        assert!(same("unix:/a:/x", "unix:/a:/y") && !same("unix:/a:/x", "unix:/b:/x"));
        assert!(!same("unix:/a:/x", "http://localhost/x"));
    }

    #[test]
    fn the_host_header_omits_the_usual_port() {
        for (url, host) in
            [("http://a:80", "a"), ("http://a:81", "a:81"), ("https://[::1]:443/", "[::1]")]
        {
            assert_eq!(Url::parse(url).unwrap().host_header(), host);
        }
        let same = |a, b| Url::parse(a).unwrap().same_origin(&Url::parse(b).unwrap());
        assert!(
            same("http://a/x", "http://A:80/y")
                && !same("http://a", "https://a")
                && !same("http://a", "http://a:1")
        );
    }

    #[test]
    fn this_machines_own_addresses_are_local() {
        let local = |text: &str| Address::Tcp(text.parse().unwrap()).is_local();
        assert!(
            local("127.0.0.1:80")
                && local("127.9.9.9:80")
                && local("[::1]:80")
                && local("0.0.0.0:80")
        );
        // Reserved for documentation (RFC 5737).
        assert!(!local("198.51.100.1:80"));
        assert!(Address::Unix("/a".into()).is_local());
    }

    #[test]
    fn names_resolve_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = Url::parse(&format!("http://localhost:{port}/")).unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        assert_eq!(url.resolve(Duration::from_secs(5)).unwrap(), address);
        let unknown =
            Url::parse("http://unknown.invalid/").unwrap().resolve(Duration::from_secs(5));
        assert!(matches!(unknown, Err(TargetError::UnknownHost { .. })), "{unknown:?}");
    }
}
