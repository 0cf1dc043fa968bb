//! Open connections of each client, where they are limited.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use hotrow_access::caller::Peer;

/// Connections of all workers by client. Touched when a connection opens and closes, never by a
/// request.
///
/// One entry per client with an open connection, so `limits.connections` bounds it.
#[derive(Debug)]
pub struct Clients {
    most: usize,
    open: Mutex<HashMap<Peer, usize>>,
}

/// A connection counted for its client; returned when dropped.
#[derive(Debug)]
pub struct CountedConnection {
    clients: Arc<Clients>,
    client: Peer,
}

impl Clients {
    /// Allows `most` connections to each client; returns `None` for 0, which limits nothing.
    pub fn new(most: usize) -> Option<Arc<Self>> {
        (most > 0).then(|| Arc::new(Self { most, open: Mutex::default() }))
    }

    /// Counts one more connection from `peer`, unless its client has reached its limit.
    pub fn enter(self: &Arc<Self>, peer: Peer) -> Option<CountedConnection> {
        let client = client_of(peer);
        let mut open = self.open.lock();
        let count = open.entry(client).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(CountedConnection { clients: self.clone(), client })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.clients.open.lock();
        if let Some(count) = open.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.client);
            }
        }
    }
}

/// Returns the client behind a peer: of IPv6 the first 64 bits, because a site has all addresses
/// behind them (RFC 4291 section 2.5.4); an IPv4 address mapped into IPv6 is itself, and so is a
/// user.
fn client_of(peer: Peer) -> Peer {
    let Peer::Address(address) = peer else { return peer };
    Peer::Address(match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 @ IpAddr::V4(_) => v4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Peer {
        Peer::Address(text.parse().unwrap())
    }

    #[test]
    fn connections_are_counted_per_client_and_returned() {
        let clients = Clients::new(2).unwrap();
        let mut places: Vec<_> = (0..2).map(|_| clients.enter(ip("192.0.2.1")).unwrap()).collect();
        assert!(clients.enter(ip("192.0.2.1")).is_none());
        assert!(clients.enter(ip("::ffff:192.0.2.1")).is_none(), "the same, mapped into IPv6");
        let _other = clients.enter(ip("192.0.2.2")).unwrap();
        places.pop();
        places.push(clients.enter(ip("192.0.2.1")).unwrap());
        assert!(clients.enter(ip("192.0.2.1")).is_none());
        places.clear();
        assert_eq!(clients.open.lock().len(), 1, "nothing is kept of a client that has left");
    }

    #[test]
    fn an_ipv6_site_is_one_client() {
        let clients = Clients::new(1).unwrap();
        let _place = clients.enter(ip("2001:db8::1")).unwrap();
        assert!(clients.enter(ip("2001:db8::ffff:1")).is_none());
        assert!(clients.enter(ip("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn a_user_of_the_unix_socket_is_one_client() {
        let clients = Clients::new(1).unwrap();
        let _place = clients.enter(Peer::User(1000)).unwrap();
        assert!(clients.enter(Peer::User(1000)).is_none());
        assert!(clients.enter(Peer::User(1001)).is_some());
    }

    #[test]
    fn zero_means_unlimited() {
        assert!(Clients::new(0).is_none());
    }
}
