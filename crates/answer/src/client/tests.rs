use hotrow_http1::fields::FieldsBuf;

use crate::client::*;

const PROXY: &str = "10.0.0.1";

impl Clients {
    /// Returns the client of a peer with an address.
    fn address(&self, peer: IpAddr, headers: Fields<'_>) -> IpAddr {
        match self.client(peer.into(), headers) {
            Peer::Address(address) => address,
            Peer::User(user) => panic!("a user: {user}"),
        }
    }
}

fn clients(header: Option<ClientHeader>) -> Clients {
    let trusted_proxies =
        ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()).to_vec();
    Clients::new(&RateLimits { trusted_proxies, client_header: header, ..RateLimits::default() })
}

fn headers(name: &str, lines: &[&str]) -> FieldsBuf {
    lines.iter().map(|line| (name, line)).collect()
}

fn check(header: ClientHeader, name: &str, cases: &[(&[&str], &str)]) {
    for (lines, client) in cases {
        let headers = headers(name, lines);
        let address = clients(Some(header)).address(PROXY.parse().unwrap(), headers.as_fields());
        assert_eq!(address.to_string(), *client, "{lines:?}");
    }
}

#[test]
fn x_forwarded_for_is_read_from_the_right() {
    check(
        ClientHeader::XForwardedFor,
        X_FORWARDED_FOR,
        &[
            (&[], PROXY),
            (&["192.0.2.7"], "192.0.2.7"),
            (&["1.1.1.1, 192.0.2.7"], "192.0.2.7"),
            (&["1.1.1.1,192.0.2.7 ,\t10.0.0.9"], "192.0.2.7"),
            (&["1.1.1.1", "192.0.2.7", "10.0.0.9"], "192.0.2.7"),
            (&["192.0.2.7:443"], "192.0.2.7"),
            (&["2001:db8::7"], "2001:db8::7"),
            (&["[2001:db8::7]"], "2001:db8::7"),
            (&["[2001:db8::7]:80"], "2001:db8::7"),
            (&["::ffff:192.0.2.7"], "192.0.2.7"),
            (&["192.0.2.7, ::ffff:10.0.0.9"], "192.0.2.7"),
            // All trusted: an internal client.
            (&["10.0.0.7, 10.0.0.8"], "10.0.0.7"),
            // Nonsense: the last proxy reached.
            (&[""], PROXY),
            (&["192.0.2.7,"], PROXY),
            (&["192.0.2.7, unknown"], PROXY),
            (&["192.0.2.7, x, 10.0.0.9"], "10.0.0.9"),
            (&["192.0.2.7, 10.0.0.9:"], PROXY),
            (&["192.0.2.7:port"], PROXY),
            (&["0300.0.2.7"], PROXY),
            (&["fe80::1%eth0"], PROXY),
            (&["192.0.2.7\u{e9}"], PROXY),
            (&["192.0.2.7", "\u{e9}"], PROXY),
        ],
    );
}

#[test]
fn forwarded_is_read_from_the_right() {
    check(
        ClientHeader::Forwarded,
        FORWARDED,
        &[
            (&[], PROXY),
            (&["for=192.0.2.7"], "192.0.2.7"),
            (&["For=192.0.2.7; proto=http;by=203.0.113.43"], "192.0.2.7"),
            (&["for=1.1.1.1, for=192.0.2.7"], "192.0.2.7"),
            (&["for=1.1.1.1, for=192.0.2.7, for=10.0.0.9;by=10.0.0.8"], "192.0.2.7"),
            (&["for=1.1.1.1", "for=192.0.2.7"], "192.0.2.7"),
            (&["for=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
            (&["for=\"192.0.2.7:_hidden\""], "192.0.2.7"),
            (&["for=\"1\\92.0.2.7\""], "192.0.2.7"),
            // A comma within quotes does not separate elements.
            (&["for=192.0.2.7;host=\"a, for=6.6.6.6\""], "192.0.2.7"),
            (&["by=\"\\\", for=6.6.6.6\";for=192.0.2.7"], "192.0.2.7"),
            // Hidden, malformed, repeated or missing: the last proxy reached.
            (&["for=unknown"], PROXY),
            (&["for=_gazonk"], PROXY),
            (&["for=1.1.1.1, for=unknown"], PROXY),
            (&["for=192.0.2.7, for=unknown, for=10.0.0.9"], "10.0.0.9"),
            (&["for=1.1.1.1;for=192.0.2.7"], PROXY),
            (&["by=192.0.2.7"], PROXY),
            (&["for=192.0.2.7:80"], PROXY),
            (&["for=[2001:db8::7]"], PROXY),
            (&["for=\"2001:db8::7\""], PROXY),
            (&["for=\"[2001:db8::7\""], PROXY),
            (&["for=\"[2001:db8::7]x\""], PROXY),
            (&["for="], PROXY),
            (&["for"], PROXY),
            (&["for=192.0.2.7;"], PROXY),
            (&["for=192.0.2.7 x"], PROXY),
            (&["for =192.0.2.7"], PROXY),
            (&["=192.0.2.7"], PROXY),
            (&["for=192.0.2.7,"], PROXY),
            // An endless quote to the left of what the proxy appended.
            (&["for=\"1.1.1.1, for=192.0.2.7"], "192.0.2.7"),
            (&["for=\"1.1.1.1\\", "for=192.0.2.7"], "192.0.2.7"),
            (&["for=\"1.1.1.1\\\""], PROXY),
        ],
    );
}

#[test]
fn only_trusted_proxies_are_believed() {
    let claim = headers(X_FORWARDED_FOR, &["1.1.1.1"]);
    let peer: IpAddr = "203.0.113.5".parse().unwrap();
    assert_eq!(clients(Some(ClientHeader::XForwardedFor)).address(peer, claim.as_fields()), peer);
    assert_eq!(clients(None).address(PROXY.parse().unwrap(), claim.as_fields()).to_string(), PROXY);
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!(
        clients(Some(ClientHeader::XForwardedFor)).address(mapped, claim.as_fields()).to_string(),
        "1.1.1.1"
    );
    let other = headers(FORWARDED, &["for=1.1.1.1"]);
    let address = clients(Some(ClientHeader::XForwardedFor))
        .address(PROXY.parse().unwrap(), other.as_fields());
    assert_eq!(address.to_string(), PROXY, "only the field that was named");
}

#[test]
fn the_clients_entries_cannot_corrupt_the_nearest_proxys() {
    let of = |header, name: &str, line: &[u8]| {
        let headers = FieldsBuf::from_iter([(name, line)]);
        clients(Some(header)).address(PROXY.parse().unwrap(), headers.as_fields()).to_string()
    };
    for line in [&b"\xff, 192.0.2.7"[..], b"1.1.1.1 \xe9,192.0.2.7", b"\", 192.0.2.7, 10.0.0.9"] {
        assert_eq!(of(ClientHeader::XForwardedFor, X_FORWARDED_FOR, line), "192.0.2.7", "{line:?}");
    }
    for line in [
        &b"for=\", for=192.0.2.7"[..],
        b"for=\"\\, for=192.0.2.7",
        b"\xff\", for=\"192.0.2.7:80\";by=10.0.0.1",
        b"x=\"\\\", for=192.0.2.7;host=\"a,\\\"b\\\\\", for=10.0.0.9",
    ] {
        assert_eq!(
            of(ClientHeader::Forwarded, FORWARDED, line),
            "192.0.2.7",
            "{}",
            line.escape_ascii()
        );
    }
    // The last element itself is invalid: nonsense has no benefit.
    assert_eq!(of(ClientHeader::XForwardedFor, X_FORWARDED_FOR, b"192.0.2.7, \xff"), PROXY);
    assert_eq!(of(ClientHeader::Forwarded, FORWARDED, b"for=192.0.2.7, for=\"1.1.1.1"), PROXY);
}

#[test]
fn a_chain_of_trusted_addresses_ends() {
    let long = vec![PROXY; 1000].join(",");
    let address = clients(Some(ClientHeader::XForwardedFor))
        .address(PROXY.parse().unwrap(), headers(X_FORWARDED_FOR, &[&long]).as_fields());
    assert_eq!(address.to_string(), PROXY);
}

#[test]
fn an_ipv6_network_is_one_client() {
    let key = |address: &str, ipv6_prefix: u8| {
        let clients = Clients::new(&RateLimits { ipv6_prefix, ..RateLimits::default() });
        clients.key(Peer::Address(address.parse().unwrap()), Fields::default())
    };
    assert_eq!(key("2001:db8::1", 64), key("2001:db8::ffff:1", 64));
    assert_ne!(key("2001:db8::1", 64), key("2001:db8:0:1::1", 64));
    assert_ne!(key("2001:db8::1", 128), key("2001:db8::2", 128));
    assert_eq!(key("2001:db8::1", 1), key("7fff::", 1));
    assert_ne!(key("1.2.3.4", 64), key("1.2.3.5", 64));
    assert_eq!(key("::ffff:1.2.3.4", 64), key("1.2.3.4", 64));
    assert_ne!(key("0.0.0.0", 64), key("::", 64));
}

#[test]
fn a_user_of_the_unix_socket_is_a_client_unless_it_is_trusted() {
    let claim = headers(X_FORWARDED_FOR, &["192.0.2.7"]);
    let header = Some(ClientHeader::XForwardedFor);
    let user = Peer::User(1000);
    assert_eq!(clients(header).client(user, claim.as_fields()), user);
    let trusting = Clients::new(&RateLimits {
        trusts_unix: true,
        client_header: header,
        ..RateLimits::default()
    });
    let named: IpAddr = "192.0.2.7".parse().unwrap();
    assert_eq!(trusting.client(user, claim.as_fields()), Peer::Address(named));
    let none = FieldsBuf::default();
    assert_eq!(trusting.client(user, none.as_fields()), user);
    let keys = [user, Peer::User(1001), Peer::Address(IpAddr::from([0, 0, 3, 232]))]
        .map(|peer| trusting.key(peer, none.as_fields()));
    assert!(keys[0] != keys[1] && keys[0] != keys[2], "{keys:?}");
}
