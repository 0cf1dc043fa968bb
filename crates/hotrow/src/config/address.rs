//! Addresses to listen on, in the forms that people write.

use std::net::{Ipv4Addr, SocketAddr};

/// The forms, for messages.
pub(crate) const RULE: &str = "an address and a port such as 127.0.0.1:8080, [::1]:8080, \
    localhost:8080, 8080 (this machine only) or :8080 (every interface)";

/// Address of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl std::str::FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = |text: &str| text.parse::<u16>().ok();
        let on = |ip: Ipv4Addr| move |port| SocketAddr::from((ip, port));
        let address = match text.rsplit_once(':') {
            None => port(text).map(on(Ipv4Addr::LOCALHOST)),
            Some(("", rest)) => port(rest).map(on(Ipv4Addr::UNSPECIFIED)),
            Some(("localhost", rest)) => port(rest).map(on(Ipv4Addr::LOCALHOST)),
            Some(_) => text.parse().ok(),
        };
        address.map(Self).ok_or_else(|| format!("must be {RULE}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_the_forms_that_people_write() {
        for (text, expected) in [
            ("127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("[::1]:8080", Some("[::1]:8080")),
            ("localhost:8080", Some("127.0.0.1:8080")),
            (":8080", Some("0.0.0.0:8080")),
            ("8080", Some("127.0.0.1:8080")),
            ("0", Some("127.0.0.1:0")),
            ("shop.example:8080", None),
            ("127.0.0.1", None),
            ("::1", None),
            ("80800", None),
            (":", None),
            ("", None),
        ] {
            let read = text.parse().ok().map(|ListenAddress(address)| address.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
