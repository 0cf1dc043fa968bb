//! Where requests go, and what all of them carry.

use hotrow_transport::target::{Address, Url};
use hotrow_transport::tls::{HttpVersion, Tls};

/// Target of requests.
#[derive(Clone, Debug)]
pub struct Target {
    /// The URL as given.
    pub url: String,
    pub(super) host: String,
    pub(super) addresses: Vec<Address>,
    /// Path prefix before the collection; empty, or `/…` without a trailing slash.
    pub(super) prefix: String,
    pub(super) tls: Option<Tls>,
    pub(super) version: HttpVersion,
    pub(super) headers: Vec<Header>,
}

/// A header of every request. Its value may be a secret, so `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) value: String,
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: …", self.name)
    }
}

impl Target {
    /// Resolves the host of `http://HOST[:PORT][/PREFIX]`, `https://…` or `unix:SOCKET[:/PREFIX]`;
    /// `tls` is for `https://`.
    ///
    /// # Errors
    /// A query in the URL, or an unknown host.
    pub fn new(text: &str, url: &Url, tls: Option<Tls>) -> Result<Self, String> {
        if text.contains(['?', '#']) {
            return Err("must have at most a path after the host, without ? and #".to_owned());
        }
        let addresses = url.addresses().map_err(|error| error.to_string())?;
        Ok(Self {
            url: text.to_owned(),
            host: url.host_header(),
            addresses,
            prefix: url.path.trim_end_matches('/').to_owned(),
            tls,
            version: HttpVersion::Http1,
            headers: Vec::new(),
        })
    }

    /// Adds headers to every request; [`crate::http::Target`] checks nothing about them.
    ///
    /// # Errors
    /// A name or value that no request can carry; the text has only the name.
    pub fn with_headers(mut self, headers: &[(String, String)]) -> Result<Self, String> {
        for (name, value) in headers {
            let fits = |byte: u8| byte == b'\t' || (b' '..0x7f).contains(&byte);
            let token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(fits) {
                return Err(format!("the header {name:?} is not valid"));
            }
            self.headers.push(Header { name: name.clone(), value: value.clone() });
        }
        Ok(self)
    }

    /// Creates the target of an address without TLS.
    #[must_use]
    pub fn at(address: std::net::SocketAddr) -> Self {
        Self {
            url: format!("http://{address}"),
            host: address.to_string(),
            addresses: vec![Address::Tcp(address)],
            prefix: String::new(),
            tls: None,
            version: HttpVersion::Http1,
            headers: Vec::new(),
        }
    }

    pub(crate) fn is_http1(&self) -> bool {
        self.version == HttpVersion::Http1
    }

    /// Uses this version of HTTP; `tls` must offer it.
    #[must_use]
    pub fn with_version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
    }
}
