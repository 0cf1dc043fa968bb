//! Configuration of rate limits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hotrow_access::grant::RateClasses;
use hotrow_admission::rate::limit::Setting;
use http::HeaderName;

/// Most units of a burst.
pub const BURST_MAX: u32 = 1_000_000_000;

/// Rules, and the method of identifying clients. The default has no rule and costs nothing.
#[derive(Clone, Debug)]
pub struct RateLimits {
    /// Names of the rate classes, in the order of their numbers.
    pub classes: Vec<String>,
    /// All rules that apply to a request must admit it.
    pub rules: Vec<RateRule>,
    /// Most distinct keys per rule by client or header.
    pub keys_max: usize,
    /// Peers whose header about the client is believed.
    pub trusted_proxies: Vec<Network>,
    /// `true`: so is the header of every peer on the Unix socket.
    pub trusts_unix: bool,
    /// The header in which they name it.
    pub client_header: Option<ClientHeader>,
    /// Leading bits of an IPv6 address that identify one client, 1 to 128.
    pub ipv6_prefix: u8,
    /// `true`: admitted answers carry the `RateLimit` fields too.
    pub headers: bool,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            rules: Vec::new(),
            keys_max: 65_536,
            trusted_proxies: Vec::new(),
            trusts_unix: false,
            client_header: None,
            ipv6_prefix: 64,
            headers: false,
        }
    }
}

/// A rate limit rule.
#[derive(Clone, Debug)]
pub struct RateRule {
    /// Name in metrics, answers and the admin API: letters a to z, digits, `_` and `-`.
    pub name: String,
    /// Key of the budget.
    pub per: Per,
    /// The budget.
    pub setting: Setting,
    /// Cost of a batch.
    pub batch_cost: BatchCost,
    /// Collections that share the budget; all if none are named.
    pub collections: Option<Vec<String>>,
    /// Rate classes of the senders to whom it applies; `None`: it applies to all.
    pub classes: Option<RateClasses>,
}

/// Key of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each client address.
    Client,
    /// Each holder of a credential; requests without one count by client address.
    Identity,
    /// Each value of a request header; requests without it share one.
    Header(HeaderName),
    /// Each collection.
    Collection,
    /// All requests together.
    Global,
}

impl FromStr for Per {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "client" => Ok(Self::Client),
            "identity" => Ok(Self::Identity),
            "collection" => Ok(Self::Collection),
            "global" => Ok(Self::Global),
            _ => text
                .strip_prefix("header:")
                .and_then(|name| name.parse().ok())
                .map(Self::Header)
                .ok_or(()),
        }
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Identity => f.write_str("identity"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Collection => f.write_str("collection"),
            Self::Global => f.write_str("global"),
        }
    }
}

/// Cost of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchCost {
    /// As much as its distinct ids one by one.
    Ids,
    /// As much as one request.
    Request,
}

/// Header in which proxies name their client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientHeader {
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

/// A range of addresses, such as `10.0.0.0/8`. An IPv4 address in IPv6 form is the IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Returns whether the range contains the address; `address` is in its canonical form.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                same_prefix(a.to_bits().into(), b.to_bits().into(), 32, self.prefix)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                same_prefix(a.to_bits(), b.to_bits(), 128, self.prefix)
            }
            _ => false,
        }
    }
}

/// Returns whether the first `prefix` of `width` bits are equal.
fn same_prefix(a: u128, b: u128, width: u8, prefix: u8) -> bool {
    (a ^ b).checked_shr(u32::from(width - prefix)).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| ())?;
        if address.to_canonical() != address {
            return Err(());
        }
        let (bits, width) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let plain = |digits: &str| {
            digits == "0" || (digits.len() <= 3 && digits.starts_with(|c| ('1'..='9').contains(&c)))
        };
        let prefix = match prefix {
            None => width,
            Some(digits) if plain(digits) => {
                digits.parse().ok().filter(|prefix| *prefix <= width).ok_or(())?
            }
            Some(_) => return Err(()),
        };
        // Bits beyond the prefix are an error: the range may be larger than intended.
        let beyond = u128::MAX.checked_shr(u32::from(128 - width + prefix)).unwrap_or(0);
        if bits & beyond == 0 { Ok(Self { address, prefix }) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_the_addresses_of_their_prefix() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.168.7.1", "192.168.7.1", "192.168.7.2"),
            ("192.168.7.1/32", "192.168.7.1", "192.168.7.0"),
            ("172.16.0.0/12", "172.31.255.255", "172.32.0.0"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::1", "::1", "::2"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("::/0", "ffff::", "1.2.3.4"),
        ] {
            let parsed: Network = network.parse().unwrap_or_else(|()| panic!("{network}"));
            assert!(parsed.contains(inside.parse().unwrap()), "{inside} in {network}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{outside} in {network}");
        }
    }

    #[test]
    fn invalid_networks_are_refused() {
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "10.0.0/8",
            "::/129",
            "::1/64",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "::ffff:10.0.0.1",
            "proxy.local",
            "10.0.0.0/8/8",
            " 10.0.0.0/8",
            "fe80::1%eth0",
        ] {
            assert_eq!(text.parse::<Network>(), Err(()), "{text:?}");
        }
    }

    #[test]
    fn the_key_of_a_rule_survives_parsing_and_printing() {
        for text in ["client", "collection", "global", "header:x-api-key"] {
            assert_eq!(text.parse::<Per>().unwrap().to_string(), text);
        }
        assert_eq!(
            "header:X-Api-Key".parse(),
            Ok(Per::Header(HeaderName::from_static("x-api-key")))
        );
        for text in ["", "Client", "header", "header:", "header:a b", "ip"] {
            assert_eq!(text.parse::<Per>(), Err(()), "{text:?}");
        }
    }
}
