//! Address of an HTTP resource that the program requests.

use std::fmt;
use std::str::FromStr;

use http::Uri;

/// Address of an HTTP resource, over TLS or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// `true`: over TLS.
    pub is_tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// 443 or 80 where the URL has none.
    pub port: u16,
    /// Host, and port where the URL has one.
    pub authority: String,
    /// Path and query.
    pub target: String,
}

/// Text that is no such address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpUrlError {
    /// No URL with a host.
    #[error("must be a URL such as \"https://host.example/path\"")]
    Malformed,
    /// With a user or a password.
    #[error("must have no user and no password")]
    Credentials,
}

impl HttpUrl {
    /// Returns whether its requests stay on this machine.
    pub fn is_local(&self) -> bool {
        matches!(&*self.host, "localhost" | "127.0.0.1" | "::1")
    }
}

impl FromStr for HttpUrl {
    type Err = HttpUrlError;

    fn from_str(text: &str) -> Result<Self, HttpUrlError> {
        let url: Uri = text.parse().map_err(|_| HttpUrlError::Malformed)?;
        let authority = url.authority().ok_or(HttpUrlError::Malformed)?;
        let is_tls = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(HttpUrlError::Malformed),
        };
        if authority.as_str().contains('@') {
            return Err(HttpUrlError::Credentials);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(HttpUrlError::Malformed);
        }
        Ok(Self {
            is_tls,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            target: url.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        })
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_its_parts() {
        let parse = |text: &str| text.parse::<HttpUrl>();
        let url = parse("https://id.example/a/jwks.json?x=1").unwrap();
        assert_eq!((url.is_tls, &*url.host, url.port), (true, "id.example", 443));
        assert_eq!(url.to_string(), "https://id.example/a/jwks.json?x=1");
        assert!(!url.is_local());
        let url = parse("http://[::1]:8000").unwrap();
        assert_eq!((url.is_tls, &*url.host, url.port, &*url.target), (false, "::1", 8000, "/"));
        assert!(url.is_local());
        assert_eq!(url.authority, "[::1]:8000");
        for (text, error) in [
            ("", HttpUrlError::Malformed),
            ("/jwks.json", HttpUrlError::Malformed),
            ("id.example", HttpUrlError::Malformed),
            ("ftp://id.example/", HttpUrlError::Malformed),
            ("https:///x", HttpUrlError::Malformed),
            ("https://a b/", HttpUrlError::Malformed),
            ("https://a:b@id.example/", HttpUrlError::Credentials),
            ("http://localhost@id.example/", HttpUrlError::Credentials),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
