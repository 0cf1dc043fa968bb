//! `[listen]`: addresses, and what carries data requests.
//!
//! Reference `configuration`: `[listen]`
//!
//! - `data`: Data API. Port 0: any free port. Overridden by `--data`.
//! - `admin`: [Admin API](http.md#admin-api). Overridden by `--admin`.
//! - `workers`: Serving threads.
//! - `redis`: [Redis protocol](redis.md) on this address too.
//! - `unix`: [Unix socket](http.md#unix-socket) for the data API too.
//! - `unix_mode`: Permissions of its file. `"0660"` without it.
//! - `handover_socket`: Unix socket at which the next process [takes over the
//!   listeners](rollout.md#by-handover).
//! - `http2`: [HTTP/2](http.md#http2), over TLS and in cleartext; `false`: HTTP/1.1 alone.
//! - `openapi`: The [description](http.md#description) of the API on the data address too.
//! - `unknown_parameters`: Parameters of a query that the path does not know: 400, or nothing.
//! - `server_timing`: [`Server-Timing`](logs.md#server-timing) in answers, except for those of
//!   collections with `tenant`.
//! - `proxy_protocol_from`: Peers that name their client with the [PROXY
//!   protocol](http.md#proxy-protocol).
//! - `handshake_timeout`: To the end of that header, and as long again for the TLS handshake.
//!
//! Reference `configuration`: `[listen.tls]`
//!
//! [TLS](http.md#tls) on the TCP addresses of the data API and of the Redis protocol. PEM files.
//!
//! - `cert`: The server's certificate, then the intermediate ones.
//! - `key`: Its private key.
//! - `client_ca`: Roots of the certificates of clients.
//! - `client_auth`: Whether a client without a certificate is refused. `"required"` without it.
//!
//! Reference `configuration`: `[redis]`
//!
//! - `allow_stale`: The [Redis protocol](redis.md#promise) gives answers that HTTP marks as stale,
//!   instead of errors.
//! - `tracking_bytes`: Memory for keys of which clients [keep copies](redis.md#limits-of-tracking).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hotrow_config::transport::{Redis, Transport};

use super::Overrides;
use super::address::{ListenAddress, RULE};
use super::carriers::{check_socket_path, tls, unix};
use super::rate::networks;
use super::reader::Section;
use super::units::{KIB, MIB, ms, s};

/// Settings of `[listen]`.
pub(super) struct Listen {
    pub(super) data: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) workers: usize,
    pub(super) transport: Transport,
    /// The data listener serves `/openapi.json` too.
    pub(super) describes_on_data: bool,
    pub(super) ignores_unknown_parameters: bool,
    /// Answers have `Server-Timing`.
    pub(super) has_server_timing: bool,
}

pub(super) fn listen(mut section: Section<'_>, overrides: &Overrides) -> Listen {
    let fallback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut address = |name, default| {
        section.parsed(name, default, RULE).map_or(fallback, |ListenAddress(address)| address)
    };
    let data = address("data", "127.0.0.1:8080");
    let admin = address("admin", "127.0.0.1:8081");
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(1024);
    let workers = section.count_or("workers", cores, "available cores", 1..=1024);
    let data = overrides.data.unwrap_or(data);
    let admin = overrides.admin.unwrap_or(admin);
    if collide(data, admin) {
        section.refuse(
            "admin",
            format!("{admin} must not be the address of the data listener, which is {data}"),
        );
    }
    let transport = transport(&mut section);
    if let Some(redis) = transport.redis {
        for (name, other) in [("data", data), ("admin", admin)] {
            if collide(redis.address, other) {
                let (address, what) = (redis.address, "must not be the address of the");
                section
                    .refuse("redis", format!("{address} {what} {name} listener, which is {other}"));
            }
        }
    }
    let describes_on_data = section.flag("openapi", false);
    let ignores_unknown_parameters =
        section.choice("unknown_parameters", [("refuse", false), ("ignore", true)]);
    let has_server_timing = section.flag("server_timing", false);
    section.finish();
    Listen {
        data,
        admin,
        workers,
        transport,
        describes_on_data,
        ignores_unknown_parameters,
        has_server_timing,
    }
}

/// Reads the address of the Redis protocol. `[redis]` follows.
fn redis(section: &mut Section<'_>) -> Option<Redis> {
    let text = section.text("redis", "none", RULE)?;
    match text.value.parse() {
        Ok(ListenAddress(address)) => {
            Some(Redis { address, allow_stale: false, tracking_bytes: Redis::TRACKING_BYTES })
        }
        Err(_) => {
            section.refuse("redis", format!("must be {RULE}, not {}", text.shown));
            None
        }
    }
}

/// Reads `[redis]`.
pub(super) fn redis_settings(mut section: Section<'_>, transport: &mut Transport) {
    let allow_stale = section.flag("allow_stale", false);
    let tracking_bytes = section.size_in_memory("tracking_bytes", 64 * MIB, 64 * KIB..=1 << 40);
    match &mut transport.redis {
        Some(redis) => (redis.allow_stale, redis.tracking_bytes) = (allow_stale, tracking_bytes),
        None if allow_stale => {
            section.refuse("allow_stale", "has no meaning without listen.redis; name an address");
        }
        None if tracking_bytes != Redis::TRACKING_BYTES => {
            section
                .refuse("tracking_bytes", "has no meaning without listen.redis; name an address");
        }
        None => {}
    }
    section.finish();
}

/// Returns whether two listeners need the same port. Port 0 means any free port and never collides.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || any(a.ip()) || any(b.ip()))
}

fn transport(section: &mut Section<'_>) -> Transport {
    let unix = unix(section);
    let handover = handover(section);
    if handover.as_ref().is_some_and(|at| unix.as_ref().is_some_and(|unix| unix.path == *at)) {
        section.refuse("handover_socket", "must not be the path of the data API's socket, unix");
    }
    const RANGE: &str = "a list of up to 64 addresses and networks";
    let proxies = section.texts("proxy_protocol_from", "none", RANGE).unwrap_or_default();
    let tls = tls(section.section("tls"));
    Transport {
        unix,
        redis: redis(section),
        handover,
        tls,
        http2: section.flag("http2", true),
        proxies: networks(section, "proxy_protocol_from", &proxies),
        handshake_timeout: section.duration("handshake_timeout", s(10), ms(10)..=HANDSHAKE_MAX),
    }
}

/// Longest `handshake_timeout`: as for a head.
const HANDSHAKE_MAX: Duration = Duration::from_hours(1);

/// Reads the path at which the next process takes over.
fn handover(section: &mut Section<'_>) -> Option<PathBuf> {
    let path = section.text("handover_socket", "none", "an absolute path")?;
    let path = PathBuf::from(path.value);
    check_socket_path(section, "handover_socket", &path);
    Some(path)
}

#[cfg(test)]
mod tests {
    use hotrow_config::transport::{ClientCertificates, Tls, UnixSocket};
    use hotrow_net::listen::unix::PATH_BYTES_MAX;

    use super::super::{Overrides, Resolved, parse};
    use super::*;

    fn resolved(listen: &str) -> Result<Resolved, String> {
        let text = format!("{listen}\n[source]\nurl = \"sqlite:x\"\n[collections.a]\n");
        let unset = |_: &str| Err(std::env::VarError::NotPresent);
        parse(&text, "f.toml", &unset, &Overrides::default()).map_err(|error| error.to_string())
    }

    fn transport_of(listen: &str) -> Transport {
        resolved(&format!("[listen]\n{listen}")).unwrap().server.transport
    }

    #[test]
    fn the_default_is_plain_tcp() {
        let transport = resolved("").unwrap().server.transport;
        assert!(transport.unix.is_none() && transport.proxies.is_empty());
        assert!(transport.tls.is_none() && transport.http2);
        assert!(!transport_of("http2 = false").http2);
    }

    #[test]
    fn a_unix_socket_has_a_path_and_permissions() {
        let path = PathBuf::from("/run/hotrow/data.sock");
        let of = |mode| Some(UnixSocket { path: path.clone(), mode });
        let unix = "unix = \"/run/hotrow/data.sock\"";
        assert_eq!(transport_of(unix).unix, of(0o660));
        assert_eq!(transport_of(&format!("{unix}\nunix_mode = \"0600\"")).unix, of(0o600));
        let long = format!("unix = \"/{}\"", "x".repeat(PATH_BYTES_MAX));
        for (bad, rule) in [
            ("unix = \"data.sock\"", "must be an absolute path"),
            ("unix = \"/\"", "must be an absolute path"),
            (&long, "must have at most 99 bytes"),
            ("unix_mode = \"0600\"", "has no meaning without unix"),
            ("handover_socket = \"x\"", "must be an absolute path"),
            ("unix = \"/x\"\nhandover_socket = \"/x\"", "must not be the path of the data API's"),
            ("unix = \"/x\"\nunix_mode = \"0680\"", "octal digits such as"),
            ("unix = \"/x\"\nunix_mode = \"1777\"", "octal digits such as"),
        ] {
            let error = resolved(&format!("[listen]\n{bad}")).unwrap_err();
            assert!(error.contains(rule), "{error}");
        }
    }

    #[test]
    fn tls_needs_a_certificate_and_its_key() {
        let tls = |more| transport_of(&format!("tls.cert = \"c\"\ntls.key = \"k\"\n{more}")).tls;
        let with = |clients| {
            Some(Tls { certificate: PathBuf::from("c"), key: PathBuf::from("k"), clients })
        };
        let roots = PathBuf::from("r");
        assert_eq!(tls(""), with(ClientCertificates::Ignored));
        let required = ClientCertificates::Required(roots.clone());
        assert_eq!(tls("tls.client_ca = \"r\""), with(required));
        let optional = "tls.client_ca = \"r\"\ntls.client_auth = \"optional\"";
        assert_eq!(tls(optional), with(ClientCertificates::Optional(roots)));
        for (bad, rule) in [
            ("tls.cert = \"c\"", "listen.tls.key: is required"),
            ("tls.key = \"k\"", "listen.tls.cert: is required"),
            ("[listen.tls]", "listen.tls.cert: is required"),
            (
                "tls.cert = \"c\"\ntls.key = \"k\"\ntls.client_auth = \"required\"",
                "without client_ca",
            ),
            (
                "tls = { cert = \"c\", key = \"k\", client_ca = \"r\", client_auth = \"no\" }",
                "must be \"required\" or \"optional\", not \"no\"",
            ),
            ("tls.certificate = \"c\"", "unknown key"),
        ] {
            let error = resolved(&format!("[listen]\n{bad}")).unwrap_err();
            assert!(error.contains(rule), "{bad}: {error}");
        }
    }

    #[test]
    fn the_redis_protocol_has_an_address_of_its_own() {
        let redis = |listen: &str| transport_of(listen).redis;
        let address = "127.0.0.1:6379".parse().unwrap();
        assert_eq!(redis(""), None);
        let listen = "redis = \"127.0.0.1:6379\"";
        let plain = Redis { address, allow_stale: false, tracking_bytes: 64 << 20 };
        assert_eq!(redis(listen), Some(plain));
        let set = format!("{listen}\n[redis]\nallow_stale = true\ntracking_bytes = \"1MiB\"");
        let expected = Redis { address, allow_stale: true, tracking_bytes: 1 << 20 };
        assert_eq!(redis(&set), Some(expected));
        for (bad, rule) in [
            ("redis = \"a:6379\"", "listen.redis: must be an address and a port such as"),
            ("redis = 6379", "listen.redis: must be a text"),
            ("redis = \"127.0.0.1:8080\"", "must not be the address of the data listener"),
            ("redis = \"0.0.0.0:8081\"", "must not be the address of the admin listener"),
            ("[redis]\nallow_stale = true", "redis.allow_stale: has no meaning without"),
            ("[redis]\ntracking_bytes = \"1MiB\"", "redis.tracking_bytes: has no meaning without"),
            ("redis = \"127.0.0.1:6379\"\n[redis]\nstale = true", "unknown key"),
        ] {
            let error = resolved(&format!("[listen]\n{bad}")).unwrap_err();
            assert!(error.contains(rule), "{bad}: {error}");
        }
    }

    #[test]
    fn proxies_are_networks() {
        let proxies = transport_of("proxy_protocol_from = [\"10.0.0.0/8\", \"::1\"]").proxies;
        assert_eq!(proxies, ["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
        let error = resolved("[listen]\nproxy_protocol_from = \"10.0.0.1/8\"").unwrap_err();
        assert!(error.contains("listen.proxy_protocol_from") && error.contains("10.0.0.1/8"));
    }

    #[test]
    fn the_unix_socket_may_be_a_trusted_proxy() {
        let rate = "[limits.rate]\nclient_header = \"forwarded\"\ntrusted_proxies = [\"unix\"]";
        let rate = resolved(rate).unwrap().server.rate;
        assert!(rate.trusts_unix && rate.trusted_proxies.is_empty());
    }
}
