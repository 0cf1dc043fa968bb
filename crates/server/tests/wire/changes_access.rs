//! Credentials of followers: who may follow, and what ends a follower that may no longer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::DEADLINE;
use crate::common::events::{followed, start};
use crate::common::service::{Running, access, cache_config, policy};
use hotrow_access::key_refresh::RefreshConfig;
use hotrow_access::verify::TokenPolicy;
use hotrow_cache::config::CollectionPolicy;
use hotrow_config::access::{Access, TokenKeys, Tokens};
use hotrow_config::{Config, Tenancy};
use hotrow_service::apply::Change;
use hotrow_testkit::harness::EventStream;
use hotrow_testkit::tokens::{SigningKey, jwks};
use hotrow_types::key::CollectionId;
use serde_json::json;

const ALL: &str = "/_changes/products";

fn guarded(access: Access) -> Config {
    let mut config = Config { access: Some(access), ..followed() };
    config.follow.collections.push(CollectionId(1));
    config
}

fn status(server: &Running, target: &str, fields: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n");
    EventStream::request(server.address, &request).status().to_owned()
}

fn assert_ends_for_access(mut stream: EventStream) {
    let end = stream.next_news();
    assert_eq!((end.name.as_str(), &end.data["reason"]), ("end", &"access".into()), "{end:?}");
    assert_eq!(stream.next_event(), None);
    assert!(stream.has_ended);
}

/// Puts another access in force.
pub(crate) fn apply(server: &Running, config: &Config, access: Access) {
    let day = Duration::from_hours(24);
    let policy =
        CollectionPolicy { ttl: day, negative_ttl: day, has_tenants: false, has_views: false };
    let change = Change {
        config: Config { access: Some(access), ..config.clone() },
        cache: cache_config().settings(),
        policies: vec![policy; 2],
        capacity_bytes: 1 << 20,
        access_changed: true,
    };
    let applied = server.in_force.apply(change, &server.shutdown).unwrap();
    assert_eq!(applied.everywhere, Ok(()));
}

#[test]
fn a_follower_needs_the_grant_and_loses_it_with_a_reload() {
    let (granted, key) = access();
    let config = guarded(granted);
    let server = start(&config);
    server.begin(100);
    let fields = format!("X-API-Key: {key}\r\n");
    assert_eq!(status(&server, ALL, ""), "401");
    assert_eq!(status(&server, "/_changes/prices", &fields), "403");
    let mut stream = EventStream::open(server.address, ALL, &fields);
    assert_eq!(stream.next_news().name, "begin");
    // The same grants under other settings: it goes on.
    apply(&server, &config, access().0);
    server.commit(7, 200, &[1]);
    assert_eq!(stream.next_news().change(), ("1", 201));
    // Long enough for it to be judged by them.
    (0..25).for_each(|_| _ = stream.heartbeat_at(205));
    server.commit(8, 300, &[2]);
    assert_eq!(stream.next_news().change(), ("2", 301));
    let mut revoked = access().0;
    revoked.granted.keys.clear();
    apply(&server, &config, revoked);
    assert_ends_for_access(stream);
    assert_eq!(server.metric("hotrow_followers_ended_total{reason=\"access\"} "), 1);
    assert_eq!(status(&server, ALL, &fields), "401");
}

#[test]
fn a_token_ends_its_follower_when_it_expires_and_when_its_key_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.jwks");
    let publish = |keys: &[&SigningKey]| {
        let new = folder.path().join("new");
        std::fs::write(&new, jwks(keys)).unwrap();
        std::fs::rename(&new, &file).unwrap();
    };
    let (first, second) = (SigningKey::ed25519("a", 1), SigningKey::ed25519("b", 2));
    publish(&[&first]);
    let often = Duration::from_millis(20);
    let refresh = RefreshConfig {
        interval: often,
        retry: often,
        unknown_key_interval: often,
        age_max: DEADLINE,
    };
    let keys = TokenKeys::File { path: file.clone(), refresh };
    let tokens = Tokens { policy: TokenPolicy { leeway_s: 0, ..policy() }, keys };
    let config = guarded(Access { tokens: Some(tokens), ..access().0 });
    let server = start(&config);
    server.begin(100);
    let token = |lives_s: u64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({
            "iss": "issuer", "aud": "hotrow", "exp": now + lives_s, "roles": ["reader"],
        });
        format!("Authorization: Bearer {}\r\n", first.token(&claims))
    };
    let long = token(600);
    crate::common::wait_until(|| status(&server, "/products/1", &long) == "200");
    let expiring = EventStream::open(server.address, ALL, &token(3));
    let mut lasting = EventStream::open(server.address, ALL, &long);
    assert_ends_for_access({
        let mut stream = expiring;
        assert_eq!(stream.next_news().name, "begin");
        stream
    });
    assert_eq!(lasting.next_news().name, "begin");
    server.commit(7, 200, &[1]);
    assert_eq!(lasting.next_news().change(), ("1", 201));
    publish(&[&second]);
    assert_ends_for_access(lasting);
}

#[test]
fn collections_of_tenants_are_not_followed() {
    let (access, key) = access();
    let mut config = guarded(access);
    config.collections[0].tenancy = Some(Tenancy { hides_existence: false });
    let server = start(&config);
    server.begin(100);
    for target in [ALL, "/_changes/products?ids=1"] {
        assert_eq!(status(&server, target, &format!("X-API-Key: {key}\r\n")), "404");
    }
}
