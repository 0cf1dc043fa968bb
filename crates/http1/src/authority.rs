//! Host with an optional port, as in `Host`, request targets and `Origin` (RFC 3986 section 3.2,
//! RFC 9110 section 7.2). A value outside this grammar may name one host to a proxy and another one
//! here, so it is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::search::table;

/// Largest port number.
const PORT_MAX: u32 = 65_535;

/// A host and its port, both as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// A name or an address; an IPv6 address with its brackets. May be empty.
    pub host: &'a [u8],
    /// Decimal digits, possibly none.
    pub port: Option<&'a [u8]>,
}

impl<'a> Authority<'a> {
    /// Parses `host [":" port]`, without user information. `None`: invalid.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let host_bytes = match text {
            [b'[', literal @ ..] => literal.iter().position(|byte| *byte == b']')? + 2,
            _ => text.iter().position(|byte| *byte == b':').unwrap_or(text.len()),
        };
        let (host, after) = text.split_at_checked(host_bytes)?;
        let port = match after {
            [] => None,
            [b':', digits @ ..] => Some(digits),
            _ => return None,
        };
        let sound = match host {
            [b'[', literal @ .., b']'] => is_ipv6(literal) || is_future_address(literal),
            _ => is_registered_name(host),
        };
        (sound && port.is_none_or(is_port)).then_some(Self { host, port })
    }

    /// Returns the IP address if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        let text = std::str::from_utf8(self.host).ok()?;
        match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            Some(literal) => literal.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        }
    }

    /// Returns the port number, or `default` without a port.
    pub fn port_or(&self, default: u32) -> u32 {
        self.port.filter(|digits| !digits.is_empty()).map_or(default, number)
    }
}

fn is_ipv6(literal: &[u8]) -> bool {
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Accepts `IPvFuture` of RFC 3986: `v`, hexadecimal digits, a dot, and at least one more
/// character.
fn is_future_address(literal: &[u8]) -> bool {
    let [b'v' | b'V', rest @ ..] = literal else { return false };
    let Some(dot) = rest.iter().position(|byte| *byte == b'.') else { return false };
    let (version, address) = (&rest[..dot], &rest[dot + 1..]);
    let in_address = |byte: &u8| *byte == b':' || NAME[usize::from(*byte)];
    !version.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && !address.is_empty()
        && address.iter().all(in_address)
}

/// Accepts letters, digits and the marks of a name; `%` only before two hexadecimal digits.
fn is_registered_name(name: &[u8]) -> bool {
    let mut rest = name;
    loop {
        let plain = rest.iter().position(|byte| !NAME[usize::from(*byte)]).unwrap_or(rest.len());
        match &rest[plain..] {
            [] => return true,
            [b'%', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                rest = after
            }
            _ => return false,
        }
    }
}

fn is_port(digits: &[u8]) -> bool {
    digits.iter().all(u8::is_ascii_digit) && number(digits) <= PORT_MAX
}

/// Parses digits. Saturates: leading zeros are allowed, and a number above every port stays so.
fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0u32, |sum, digit| {
        sum.saturating_mul(10).saturating_add(u32::from(digit.wrapping_sub(b'0')))
    })
}

/// `unreserved` and `sub-delims` of RFC 3986.
const NAME: [bool; 256] = table(b"-._~!$&'()*+,;=");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_follow_the_grammar() {
        for (text, host, port) in [
            ("a", "a", None),
            ("", "", None),
            (":80", "", Some("80")),
            ("shop.example:8080", "shop.example", Some("8080")),
            ("a:", "a", Some("")),
            ("a:00080", "a", Some("00080")),
            ("a%2Db", "a%2Db", None),
            ("127.0.0.1:65535", "127.0.0.1", Some("65535")),
            ("[::1]", "[::1]", None),
            ("[::ffff:1.2.3.4]:1", "[::ffff:1.2.3.4]", Some("1")),
            ("[v1.a:b]", "[v1.a:b]", None),
        ] {
            let expected = Authority { host: host.as_bytes(), port: port.map(str::as_bytes) };
            assert_eq!(Authority::parse(text.as_bytes()), Some(expected), "{text}");
        }
        for text in [
            "a:b",
            "[::1",
            "::1",
            "a:1:2",
            "[::1]x",
            "[::1]80",
            "[]",
            "[a]",
            "[::1%25eth0]",
            "[v1]",
            "[v.a]",
            "a:65536",
            "a:-1",
            "a:99999999999999999999",
            "a b",
            "a/b",
            "a@b",
            "a%",
            "a%2",
            "a%zz",
            "]",
            "a]",
            "é",
        ] {
            assert_eq!(Authority::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn only_literals_are_addresses() {
        let ip = |text: &'static str| {
            Authority::parse(text.as_bytes()).and_then(|authority| authority.ip())
        };
        assert_eq!(ip("127.0.0.1:80"), Some([127, 0, 0, 1].into()));
        assert_eq!(ip("[::1]:80"), Some(Ipv6Addr::LOCALHOST.into()));
        for name in ["localhost", "1.2.3", "1.2.3.4.example", "2130706433", "0x7f.1", "[v1.a]", ""]
        {
            assert_eq!(ip(name), None, "{name}");
        }
    }

    #[test]
    fn a_missing_port_is_the_default() {
        let port = |text: &'static str| {
            Authority::parse(text.as_bytes()).map(|authority| authority.port_or(80))
        };
        assert_eq!((port("a"), port("a:"), port("a:0081")), (Some(80), Some(80), Some(81)));
    }
}
