//! Configuration of requests that browsers send from pages of other origins.

use std::str::FromStr;
use std::time::Duration;

use http::Uri;

/// Origins whose pages may read answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Which.
    pub origins: Origins,
    /// `true`: pages may send the user's own credentials, such as a client certificate.
    pub allow_credentials: bool,
    /// Time for which a browser may keep the answer to a preflight request.
    pub max_age: Duration,
}

/// Allowed origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// All.
    Any,
    /// These.
    Listed(Vec<Origin>),
}

/// An origin as browsers write it: `https://shop.example`, with a port if it is not the usual one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// Text that no browser writes as an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be origins as browsers write them, such as \"https://shop.example\": in lower case, \
     without a path, and with a port only if it is not 443 (https) or 80 (http)"
)]
pub struct OriginError;

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let url: Uri = text.parse().map_err(|_| OriginError)?;
        let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
            return Err(OriginError);
        };
        let usual_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(OriginError),
        };
        let written = match authority.port_u16() {
            Some(port) if port == usual_port => return Err(OriginError),
            Some(port) => format!("{scheme}://{}:{port}", authority.host()),
            None => format!("{scheme}://{}", authority.host()),
        };
        let is_lower_case = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let is_host = !authority.host().is_empty() && !authority.host().contains('*');
        // The same text: no path, no user, no empty port.
        (written == text && is_lower_case && is_host).then_some(Self(written)).ok_or(OriginError)
    }
}

impl Origin {
    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_do() {
        for good in ["https://shop.example", "http://localhost:3000", "http://[::1]:8080"] {
            assert_eq!(good.parse::<Origin>().as_ref().map(Origin::as_str), Ok(good));
        }
        for bad in [
            "",
            "*",
            "null",
            "shop.example",
            "https://shop.example/",
            "https://Shop.example",
            "HTTPS://shop.example",
            "https://shop.example:443",
            "http://shop.example:80",
            "https://shop.example:",
            "https://*.example",
            "https://a@shop.example",
            "https://shop.example?x",
            "ftp://shop.example",
        ] {
            assert_eq!(bad.parse::<Origin>(), Err(OriginError), "{bad}");
        }
    }
}
