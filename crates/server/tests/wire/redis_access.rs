//! Who may read what over the Redis protocol, and what refuses a command.

use std::time::Duration;

use crate::common::redis::{RedisClient, Reply, array, with_redis};
use crate::common::service::{Running, access, cache_config, config, policy};
use crate::common::tenants::{Options, TenantService};
use crate::common::{Client, wait_until};
use hotrow_access::jwks::KeySet;
use hotrow_admission::rate::limit::{Kind, Setting};
use hotrow_cache::config::{CollectionPolicy, WhenStale};
use hotrow_config::access::{TokenKeys, Tokens};
use hotrow_config::rate::{BatchCost, Per, RateLimits, RateRule};
use hotrow_config::transport::Redis;
use hotrow_config::{Config, Tenancy};
use hotrow_service::apply::Change;
use hotrow_testkit::tokens::SigningKey;
use hotrow_types::source::SourceId;
use serde_json::json;

const ROWS: [(i64, &str); 3] =
    [(1, r#""acme"{"id":1,"price":2}"#), (2, r#""other"{"id":2}"#), (3, r#"null{"id":3}"#)];
const NO_AUTH: &str = "NOAUTH Authentication required.";
const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
/// The feed has passed this point. No test reads so often.
const PASSED: u64 = 50_000;
const POSITION: &str = "0000000000000001-5";

fn start(options: Options, change: impl FnOnce(&mut Config)) -> TenantService {
    TenantService::start_configured(&ROWS, options, |config| {
        *config = with_redis(config.clone());
        change(config);
    })
}

/// Returns the API key of a client.
fn key(service: &TenantService, client: &str) -> String {
    let field = service.credential(client);
    field.trim_end().trim_start_matches("X-API-Key: ").to_owned()
}

/// Returns a connection that has sent its client's key, if it has one.
fn connect(service: &TenantService, client: &str) -> RedisClient {
    let mut connection = RedisClient::connect(service.server.redis);
    match client {
        "none" => {}
        "wrong" => {
            let refused = connection.ask(&format!("AUTH {}", key(service, client)));
            assert_eq!(refused.error(), WRONG_PASS);
        }
        _ => assert_eq!(connection.ask(&format!("AUTH {}", key(service, client))), Reply::ok()),
    }
    connection
}

#[test]
fn each_client_sees_the_records_of_its_tenants_by_every_command() {
    for hides_existence in [false, true] {
        let tenancy = Tenancy { hides_existence };
        let service = start(Options { tenancy, ..Options::default() }, |_| {});
        service.pass(PASSED);
        for (client, own) in [
            ("none", None),
            ("wrong", None),
            ("acme", Some(&[1][..])),
            ("other", Some(&[2])),
            ("both", Some(&[1, 2])),
            ("tenantless", Some(&[])),
        ] {
            let mut connection = connect(&service, client);
            for (id, row) in [(1, r#"{"id":1,"price":2}"#), (2, r#"{"id":2}"#), (3, ""), (4, "")] {
                let sees = own.is_some_and(|own| own.contains(&id));
                let value = if sees { Reply::text(row) } else { Reply::Null };
                for (command, expected) in [
                    (format!("GET accounts:{id}"), value.clone()),
                    (format!("EXISTS accounts:{id}"), Reply::Integer(sees.into())),
                    (format!("MGET accounts:{id}"), Reply::Array(vec![value.clone()])),
                    (
                        format!("EXISTS accounts:{id} accounts:{id}"),
                        Reply::Integer(2 * i64::from(sees)),
                    ),
                    (format!("HOTROW.GET accounts:{id} MINPOS {POSITION}"), value.clone()),
                ] {
                    let reply = connection.ask(&command);
                    let context = format!("{client}, {command}, hidden {hides_existence}");
                    match own {
                        Some(_) => assert_eq!(reply, expected, "{context}"),
                        None => assert_eq!(reply.error(), NO_AUTH, "{context}"),
                    }
                }
            }
            let answers = matches!(connection.ask("PING"), Reply::Status(_));
            assert_eq!(answers, own.is_some(), "{client}");
        }
    }
}

#[test]
fn a_view_has_the_columns_of_its_role() {
    let service = start(Options { columns: &["id"], ..Options::default() }, |_| {});
    let over_http = service.ask("narrow", "GET", "/accounts/1", "").body;
    assert_eq!(over_http, r#"{"id":1}"#);
    let mut narrow = connect(&service, "narrow");
    assert_eq!(narrow.ask("GET accounts:1"), Reply::text(&over_http));
    assert_eq!(
        narrow.ask("MGET accounts:1 accounts:4"),
        Reply::Array(vec![Reply::text(&over_http), Reply::Null,])
    );
    assert_eq!(
        connect(&service, "acme").ask("GET accounts:1"),
        Reply::text(r#"{"id":1,"price":2}"#)
    );
}

#[test]
fn a_credential_is_sent_in_any_of_the_ways_of_clients() {
    let secret = [7; 32];
    let (mut own, key) = access();
    own.tokens = Some(Tokens {
        policy: policy(),
        keys: TokenKeys::Secret(std::sync::Arc::new(KeySet::from_secret(&secret).unwrap())),
    });
    let service = Running::start(&with_redis(Config { access: Some(own), ..config() }));
    let claims = json!({"iss": "issuer", "aud": "hotrow", "exp": 1e12, "roles": "reader"});
    let token = SigningKey::secret(&secret).token(&claims);
    let connect = || RedisClient::connect(service.redis);
    for credential in [&key, &token] {
        for command in [
            format!("AUTH {credential}"),
            format!("AUTH default {credential}"),
            format!("HELLO 3 AUTH default {credential}"),
            format!("HELLO 2 SETNAME a AUTH default {credential}"),
        ] {
            let mut client = connect();
            assert_eq!(client.ask("GET products:1").error(), NO_AUTH);
            assert_eq!(client.ask(&command).error(), "", "{command}");
            assert_eq!(client.ask("GET products:1"), Reply::text(r#"{"id":1}"#), "{command}");
            let denied = client.ask("GET prices:1");
            assert_eq!(denied.word(), "NOPERM", "{denied:?}");
            assert_eq!(client.ask("MGET products:1 prices:1").word(), "NOPERM");
            // A refused one changes nothing.
            assert_eq!(client.ask("AUTH other").error(), WRONG_PASS);
            assert_eq!(client.ask(&format!("AUTH other {credential}")).error(), WRONG_PASS);
            assert_eq!(client.ask("HELLO 2 AUTH default x").error(), WRONG_PASS);
            assert_eq!(client.ask("EXISTS products:1"), Reply::Integer(1));
            assert_eq!(client.ask("RESET"), Reply::Status("RESET".to_owned()));
            assert_eq!(client.ask("GET products:1").error(), NO_AUTH);
        }
    }
    let mut client = connect();
    assert!(client.ask("HELLO 3").error().starts_with("NOAUTH HELLO must be called with"));
    // A command that does not exist reveals nothing about records.
    assert_eq!(client.ask("SET a b").word(), "ERR");
    assert_eq!(client.ask("QUIT"), Reply::ok());
}

fn limited(config: &mut Config) {
    let setting = Setting {
        kind: Kind::TokenBucket,
        rate: "1/h".parse().unwrap(),
        burst: 2,
        warm_up: Duration::ZERO,
    };
    let rule = RateRule {
        name: "each".to_owned(),
        per: Per::Identity,
        setting,
        batch_cost: BatchCost::Ids,
        collections: None,
        classes: None,
    };
    config.rate = RateLimits { rules: vec![rule], ..RateLimits::default() };
}

#[test]
fn a_rate_limit_counts_both_protocols() {
    let service = start(Options::default(), limited);
    let mut acme = connect(&service, "acme");
    assert_eq!(service.ask("acme", "GET", "/accounts/1", "").status, 200);
    assert_eq!(acme.ask("EXISTS accounts:1"), Reply::Integer(1));
    let refused = acme.ask("GET accounts:1");
    let text = "RATELIMIT the limit \"each\" allows 1/h and bursts of 2; try again in 3600 s";
    assert_eq!(refused.error(), text);
    assert_eq!(service.ask("acme", "GET", "/accounts/1", "").status, 429);
    assert_eq!(acme.ask("MGET accounts:1").error(), text);
    let mut other = connect(&service, "other");
    assert!(matches!(other.ask("MGET accounts:1 accounts:2"), Reply::Array(_)));
    assert_eq!(other.ask("MGET accounts:1 accounts:x").word(), "RATELIMIT", "as one id");
    let never = connect(&service, "both").ask("MGET accounts:1 accounts:2 accounts:3");
    assert!(never.error().starts_with("ERR the batch costs 3"), "{never:?}");
}

#[test]
fn reads_are_shared_with_http_and_refused_as_there() {
    let service = start(Options::default(), |config| {
        config.limits.requests_in_flight = 2;
        config.limits.request_timeout = Duration::from_millis(300);
    });
    service.source.gate.send_replace(false);
    let http = service.send("acme", "GET", "/accounts/1", "");
    wait_until(|| service.queries() == 1);
    let mut acme = connect(&service, "acme");
    acme.send(array("GET accounts:1"));
    service.await_coalesced(1);
    let mut third = connect(&service, "acme");
    assert_eq!(
        third.ask("GET accounts:2").error(),
        "BUSY too many requests are waiting for the database"
    );
    assert_eq!(acme.reply().error(), "TIMEOUT the database did not answer in time");
    assert_eq!(http.received().status, 504);
    service.source.gate.send_replace(true);
    wait_until(|| acme.ask("GET accounts:1") == Reply::text(r#"{"id":1,"price":2}"#));
}

#[test]
fn cold_keys_of_each_collection_are_one_query() {
    let service = start(Options::default(), |_| {});
    let mut both = connect(&service, "both");
    let before = service.queries();
    let reply = both.ask("MGET accounts:1 prices:9 accounts:2 prices:8 accounts:1");
    let own = Reply::text(r#"{"id":1,"price":2}"#);
    let expected = vec![own.clone(), Reply::Null, Reply::text(r#"{"id":2}"#), Reply::Null, own];
    assert_eq!(reply, Reply::Array(expected));
    assert_eq!(service.queries() - before, 2);
}

#[test]
fn a_stale_answer_is_an_error_unless_it_is_allowed() {
    for (allow_stale, when_stale) in
        [(false, WhenStale::Stale), (true, WhenStale::Stale), (false, WhenStale::Refuse)]
    {
        let service = start(Options { when_stale, ..Options::default() }, |config| {
            let address = "127.0.0.1:0".parse().unwrap();
            config.transport.redis = Some(Redis { address, allow_stale, tracking_bytes: 1 << 20 });
        });
        let mut acme = connect(&service, "acme");
        let own = Reply::text(r#"{"id":1,"price":2}"#);
        assert_eq!(acme.ask("GET accounts:1"), own);
        service.cache.mark_gap(SourceId::FIRST, None);
        if when_stale == WhenStale::Stale {
            let mut other = connect(&service, "other");
            let of_another = other.ask("GET accounts:1");
            assert_eq!(of_another, Reply::Null, "as if it did not exist, and not in memory");
            assert_eq!(other.ask("GET accounts:4"), Reply::Null);
        }
        for command in ["GET accounts:1", "MGET accounts:1", "EXISTS accounts:1"] {
            let reply = acme.ask(command);
            let context = format!("{command}, {allow_stale}, {when_stale:?}: {reply:?}");
            match (allow_stale, when_stale) {
                (true, _) => assert_eq!(reply.error(), "", "{context}"),
                (false, WhenStale::Stale) => assert_eq!(reply.word(), "MASTERDOWN", "{context}"),
                (false, _) => assert_eq!(reply.word(), "TRYAGAIN", "{context}"),
            }
        }
    }
}

#[test]
fn a_position_is_reached_or_refused() {
    let service = start(Options::default(), |config| {
        config.limits.position_wait = Duration::from_millis(50);
        config.limits.request_timeout = Duration::from_millis(300);
    });
    let mut acme = connect(&service, "acme");
    let mut at = |position: &str| acme.ask(&format!("HOTROW.GET accounts:1 MINPOS {position}"));
    assert_eq!(at("0000000000000001-1"), Reply::text(r#"{"id":1,"price":2}"#));
    assert_eq!(at("x").word(), "ERR");
    assert_eq!(at("0000000000000002-1").word(), "ERR", "of another log");
    let beyond = at("0000000000000001-99999");
    assert_eq!(beyond.error(), "TIMEOUT the database has not reached the requested position");
}

#[test]
fn a_command_that_waits_is_judged_by_the_settings_in_force() {
    let service = start(Options::default(), |_| {});
    service.source.gate.send_replace(false);
    let (mut get, mut mget) = (connect(&service, "acme"), connect(&service, "acme"));
    get.send(array("GET accounts:1"));
    wait_until(|| service.queries() == 1);
    mget.send(array("MGET accounts:2 accounts:3"));
    wait_until(|| service.queries() == 2);
    let mut config = service.server.in_force.config();
    config.access.as_mut().unwrap().granted.keys.clear();
    let day = Duration::from_hours(24);
    let policy =
        CollectionPolicy { ttl: day, negative_ttl: day, has_tenants: true, has_views: true };
    let change = Change {
        config,
        cache: cache_config().settings(),
        policies: vec![policy; 2],
        capacity_bytes: 1 << 20,
        access_changed: true,
    };
    let applied = service.server.in_force.apply(change, &service.server.shutdown).unwrap();
    assert_eq!(applied.everywhere, Ok(()));
    service.source.gate.send_replace(true);
    assert_eq!(get.reply().error(), NO_AUTH, "the row was read for a key that is gone");
    assert_eq!(mget.reply().error(), NO_AUTH);
    assert_eq!(get.ask("PING").error(), NO_AUTH);
}

#[test]
fn an_operator_sees_the_listener() {
    let service = start(Options::default(), |_| {});
    let mut acme = connect(&service, "acme");
    acme.ask("GET accounts:1");
    let status = Client::connect(service.server.admin)
        .send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .answer()
        .body;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let address = service.server.redis.unwrap().to_string();
    assert_eq!(
        status["redis"],
        json!({"address": address, "connections": 1, "allow_stale": false})
    );
}
