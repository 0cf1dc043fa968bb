//! `Server-Timing`: off by default, over both versions of HTTP, and never where records belong to
//! tenants.

use std::net::SocketAddr;
use std::process::Command;

use crate::common::service::{Running, config};
use crate::common::tenants::{Options, TenantService};
use hotrow_config::Config;
use hotrow_config::observability::Observability;
use hotrow_config::transport::Transport;

fn timed(config: Config) -> Config {
    let observability = Observability { has_server_timing: true, ..Observability::default() };
    let transport = Transport { http2: true, ..Transport::default() };
    Config { observability, transport, ..config }
}

/// Returns the names of the parts in the order of the field, with their durations; `None` without
/// a field.
fn parts(address: SocketAddr, target: &str, arguments: &[&str]) -> Option<Vec<(String, f64)>> {
    let got = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-D", "-", "-o", "/dev/null"])
        .args(arguments)
        .arg(format!("http://{address}{target}"))
        .output()
        .unwrap();
    assert!(got.status.success(), "{got:?}");
    let head = String::from_utf8(got.stdout).unwrap().to_lowercase();
    let field = head.lines().find_map(|line| line.strip_prefix("server-timing: "))?;
    let part = |part: &str| match part.split_once(";dur=") {
        Some((name, ms)) => (name.to_owned(), ms.parse().unwrap()),
        None => (part.to_owned(), 0.0),
    };
    Some(field.split(", ").map(part).collect())
}

fn names(parts: Option<Vec<(String, f64)>>) -> Vec<String> {
    let parts = parts.unwrap();
    assert!(parts.iter().all(|(_, ms)| (0.0..20_000.0).contains(ms)), "{parts:?}");
    parts.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn answers_have_no_timing_by_default() {
    let server = Running::start(&config());
    assert_eq!(parts(server.address, "/products/1", &[]), None);
    assert_eq!(parts(server.address, "/products/1", &[]), None);
}

#[test]
fn answers_have_the_parts_of_their_time() {
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let server = Running::start(&timed(config()));
        let of = |target: &str, arguments: &[&str]| {
            let arguments = [&[version][..], arguments].concat();
            names(parts(server.address, target, &arguments))
        };
        let no_cache = ["-H", "Cache-Control: no-cache"];
        assert_eq!(of("/products/1", &[]), ["cache;desc=miss", "queue", "db"]);
        assert_eq!(of("/products/1", &[]), ["cache;desc=hit"]);
        assert_eq!(of("/products/1", &no_cache), ["cache;desc=bypass", "queue", "db"]);
        assert_eq!(of("/products?ids=1,3", &[]), ["cache;desc=miss", "queue", "db"]);
        assert_eq!(of("/products?ids=1,3", &[]), ["cache;desc=hit"]);
        assert_eq!(of("/products/1x", &[]), ["cache;desc=none"]);
        assert_eq!(of("/nothing", &[]), ["cache;desc=none"]);
    }
}

#[test]
fn answers_of_collections_with_tenants_have_none() {
    let rows = [(1, r#""acme"{"id":1}"#), (2, r#""other"{"id":2}"#)];
    let service = TenantService::start(&rows, Options::default());
    for target in ["/accounts/1", "/accounts/2", "/accounts/3", "/accounts?ids=1,2,3"] {
        for _ in 0..2 {
            let answer = service.ask("acme", "GET", target, "");
            assert_eq!(answer.field("server-timing"), None, "{target}");
        }
    }
    let other = service.ask("acme", "GET", "/prices/1", "");
    assert!(other.field("server-timing").is_some(), "the setting is on: {}", other.head);
}
