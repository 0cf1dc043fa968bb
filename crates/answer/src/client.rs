//! Identity of the client behind a request.
//!
//! The peer, by its address or, on the Unix socket, by its user id; unless the peer is a trusted
//! proxy. Then the proxies' header is read from
//! its right end, where the nearest proxy wrote, and the first address that is not a trusted
//! proxy's is the client's. Anything to the left of it is the client's own claim and is ignored. An
//! unreadable entry ends the walk: the last proxy reached then represents the client, so that
//! nonsense buys no fresh budget.

mod forwarded;

use std::net::{IpAddr, Ipv6Addr};

use hotrow_config::rate::{ClientHeader, Network, RateLimits};
use hotrow_http1::fields::Fields;

use hotrow_access::caller::Peer;

const FORWARDED: &str = "forwarded";
const X_FORWARDED_FOR: &str = "x-forwarded-for";
/// Most proxies in a row.
const HOPS_MAX: usize = 32;

/// Method of identifying the client.
#[derive(Debug)]
pub struct Clients {
    trusted: Box<[Network]>,
    trusts_unix: bool,
    header: Option<ClientHeader>,
    ipv6_prefix: u8,
}

impl Clients {
    /// Creates it from the rate limits' settings.
    pub fn new(config: &RateLimits) -> Self {
        Self {
            trusted: config.trusted_proxies.as_slice().into(),
            trusts_unix: config.trusts_unix,
            header: config.client_header,
            ipv6_prefix: config.ipv6_prefix,
        }
    }

    /// Returns the client.
    pub fn client(&self, peer: Peer, headers: Fields<'_>) -> Peer {
        let peer = canonical(peer);
        match self.header {
            Some(header) if self.is_trusted(peer) => self.beyond(peer, header, headers),
            _ => peer,
        }
    }

    /// Returns the client as a key: an IPv4 address, the leading bits of an IPv6 address, because
    /// the holder of one address has its whole network, or a user id.
    pub fn key(&self, peer: Peer, headers: Fields<'_>) -> [u8; 17] {
        self.key_of(self.client(peer, headers))
    }

    /// Returns whether requests of the peer may name their client: it is a trusted proxy.
    pub(crate) fn names_clients(&self, peer: Peer) -> bool {
        self.header.is_some() && self.is_trusted(canonical(peer))
    }

    /// Returns the key of the client that a trusted proxy names; `None` without such a name.
    pub(crate) fn forwarded_key(&self, peer: Peer, headers: Fields<'_>) -> Option<[u8; 17]> {
        let client = self.client(peer, headers);
        (client != canonical(peer)).then(|| self.key_of(client))
    }

    fn key_of(&self, client: Peer) -> [u8; 17] {
        let mut key = [0; 17];
        match client {
            Peer::User(user) => {
                key[0] = 1;
                key[1..5].copy_from_slice(&user.to_be_bytes());
            }
            Peer::Address(IpAddr::V4(v4)) => {
                key[0] = 4;
                key[1..5].copy_from_slice(&v4.octets());
            }
            Peer::Address(IpAddr::V6(v6)) => {
                let beyond = u128::MAX.checked_shr(u32::from(self.ipv6_prefix)).unwrap_or(0);
                key[0] = 6;
                key[1..].copy_from_slice(&Ipv6Addr::from_bits(v6.to_bits() & !beyond).octets());
            }
        }
        key
    }

    fn is_trusted(&self, peer: Peer) -> bool {
        match peer {
            Peer::Address(address) => self.trusts(address),
            Peer::User(_) => self.trusts_unix,
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }

    fn beyond(&self, proxy: Peer, header: ClientHeader, headers: Fields<'_>) -> Peer {
        let (name, parse): (_, fn(&str) -> Option<IpAddr>) = match header {
            ClientHeader::Forwarded => (FORWARDED, forwarded::of_element),
            ClientHeader::XForwardedFor => (X_FORWARDED_FOR, of_x_forwarded_for),
        };
        let mut nearest = proxy;
        let mut hops = 0;
        // A proxy appends to the last line or adds a line, so the last is the nearest proxy's.
        for line in headers.get_all(name).rev() {
            // As bytes: the part further left may not be text, and is not examined for its element.
            let mut rest = line;
            loop {
                let cut = match header {
                    ClientHeader::Forwarded => forwarded::last_element(rest),
                    ClientHeader::XForwardedFor => Some(last_of_list(rest)),
                };
                let Some((left, last)) = cut else { return nearest };
                let last = std::str::from_utf8(last).ok();
                let Some(address) = last.and_then(|last| parse(last.trim_matches([' ', '\t'])))
                else {
                    return nearest;
                };
                let address = address.to_canonical();
                nearest = Peer::Address(address);
                hops += 1;
                if !self.trusts(address) || hops >= HOPS_MAX {
                    return nearest;
                }
                let Some(left) = left else { break };
                rest = left;
            }
        }
        nearest
    }
}

/// Returns the peer with an IPv4 address that is mapped into IPv6 as itself.
fn canonical(peer: Peer) -> Peer {
    match peer {
        Peer::Address(address) => Peer::Address(address.to_canonical()),
        Peer::User(_) => peer,
    }
}

/// Splits at the last comma, if there is one.
fn last_of_list(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match line.iter().rposition(|byte| *byte == b',') {
        Some(comma) => (Some(&line[..comma]), &line[comma + 1..]),
        None => (None, line),
    }
}

/// Parses an address, with or without a port; an IPv6 address with a port is in brackets.
fn of_x_forwarded_for(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| forwarded::of_node(text))
}

#[cfg(test)]
mod tests;
