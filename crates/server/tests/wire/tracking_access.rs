//! Credentials of clients that keep copies: what ends their copies, and who may broadcast.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::changes_access::apply;
use crate::common::events::followed;
use crate::common::redis::{RedisClient, Reply, with_redis};
use crate::common::service::{Running, access, config, policy};
use crate::common::shelf::{all_invalidated, assert_quiet, invalidated, record, start_lasting};
use crate::common::tenants::{Options, TenantService};
use crate::common::wait_until;
use hotrow_access::jwks::KeySet;
use hotrow_access::verify::TokenPolicy;
use hotrow_config::access::{TokenKeys, Tokens};
use hotrow_config::{Config, Tenancy};
use hotrow_testkit::tokens::SigningKey;
use hotrow_types::key::CollectionId;
use serde_json::json;

fn connect(server: &Running, credential: &str, options: &str) -> RedisClient {
    let mut client = RedisClient::connect(server.redis);
    client.ask(&format!("HELLO 3 AUTH default {credential}"));
    let command = format!("CLIENT TRACKING ON {options}");
    assert_eq!(client.ask(command.trim_end()), Reply::ok());
    client
}

#[test]
fn copies_end_with_a_reload_and_with_the_grant() {
    let (granted, key) = access();
    let mut config = Config { access: Some(granted), ..with_redis(followed()) };
    config.follow.collections.push(CollectionId(1));
    let (server, _shelf) = start_lasting(&config);
    let mut client = connect(&server, &key, "");
    let mut all = connect(&server, &key, "BCAST PREFIX products:");
    assert_eq!(
        all.ask("CLIENT TRACKING ON BCAST PREFIX prices:").error(),
        "NOPERM no role of this credential may read 'prices'"
    );
    client.ask("GET products:1");
    // The same grants: what the client may read is the same, and its copies could be others.
    apply(&server, &config, access().0);
    assert_eq!(client.reply(), all_invalidated());
    assert_eq!(all.reply(), all_invalidated());
    server.commit(7, 200, &[1]);
    assert_eq!(all.reply(), invalidated(&["products:1"]));
    assert_eq!(client.ask("GET products:1"), Reply::text(&record(1, 0)));
    let mut revoked = access().0;
    revoked.granted.keys.clear();
    apply(&server, &config, revoked);
    assert_eq!(client.reply(), all_invalidated());
    assert_eq!(client.ask("GET products:1").word(), "NOAUTH");
    assert_eq!(all.rest(), ">2\r\n$10\r\ninvalidate\r\n_\r\n", "it is closed");
    assert!(server.metric("hotrow_redis_invalidate_alls_total{reason=\"access\"} ") >= 4);
}

/// As in Redis: a command that is refused since `MULTI` aborts all of them.
#[test]
fn a_transaction_without_a_credential_is_aborted() {
    let (granted, key) = access();
    let config = Config { access: Some(granted), ..with_redis(config()) };
    let (server, _shelf) = start_lasting(&config);
    let mut revoked = access().0;
    revoked.granted.keys.clear();
    let mut client = RedisClient::connect(server.redis);
    assert_eq!(client.ask(&format!("AUTH {key}")), Reply::ok());
    for is_back_at_exec in [true, false] {
        assert_eq!(client.ask("MULTI"), Reply::ok());
        assert_eq!(client.ask("GET products:1"), Reply::Status("QUEUED".to_owned()));
        apply(&server, &config, revoked.clone());
        wait_until(|| client.ask("GET products:2").word() == "NOAUTH");
        if is_back_at_exec {
            apply(&server, &config, access().0);
            // Refused as long as the worker has not taken the grants.
            wait_until(|| client.ask("GET products:2").word() != "NOAUTH");
        }
        let aborted = if is_back_at_exec {
            "EXECABORT Transaction discarded because of previous errors."
        } else {
            "EXECABORT Transaction discarded because of: NOAUTH Authentication required."
        };
        assert_eq!(client.ask("EXEC").error(), aborted);
    }
    apply(&server, &config, access().0);
    wait_until(|| client.ask("GET products:1") == Reply::text(&record(1, 0)));
    assert_eq!(client.ask("EXEC").error(), "ERR EXEC without MULTI");
}

#[test]
fn copies_end_with_the_token_and_with_another_credential() {
    let secret = [7; 32];
    let (mut granted, key) = access();
    granted.tokens = Some(Tokens {
        policy: TokenPolicy { leeway_s: 0, ..policy() },
        keys: TokenKeys::Secret(KeySet::from_secret(&secret).unwrap().into()),
    });
    let (server, _shelf) = start_lasting(&Config { access: Some(granted), ..with_redis(config()) });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({"iss": "issuer", "aud": "hotrow", "exp": now + 3, "roles": ["reader"]});
    let token = SigningKey::secret(&secret).token(&claims);
    let mut client = connect(&server, &token, "");
    client.ask("GET products:1");
    assert_eq!(client.reply(), all_invalidated());
    assert_eq!(client.ask("GET products:1").word(), "NOAUTH");
    assert_eq!(client.ask(&format!("AUTH {key}")), Reply::ok());
    assert_eq!(client.reply(), all_invalidated());
    client.ask("GET products:1");
    server.commit(7, 200, &[1]);
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    assert_quiet(&mut client);
}

#[test]
fn a_client_learns_nothing_of_other_tenants() {
    let rows = [(1, r#""acme"{"id":1,"price":2}"#), (2, r#""other"{"id":2}"#)];
    for hides_existence in [false, true] {
        let options = Options { tenancy: Tenancy { hides_existence }, ..Options::default() };
        let service =
            TenantService::start_configured(&rows, options, |own| *own = with_redis(own.clone()));
        let field = service.credential("acme");
        let key = field.trim_end().trim_start_matches("X-API-Key: ");
        let mut client = connect(&service.server, key, "");
        client.ask("GET accounts:1");
        assert_quiet(&mut client);
        // What is hidden and what does not exist are alike.
        for id in [2, 3, 2, 3] {
            let key = format!("accounts:{id}");
            assert_eq!(client.ask(&format!("GET {key}")), Reply::Null);
            assert_eq!(client.reply(), invalidated(&[&key]), "{hides_existence}");
            assert_quiet(&mut client);
        }
        assert_eq!(client.ask("CLIENT TRACKING OFF"), Reply::ok());
        for prefix in ["", " PREFIX accounts:", " PREFIX acc", " PREFIX accounts:1"] {
            let refused = client.ask(&format!("CLIENT TRACKING ON BCAST{prefix}"));
            assert!(refused.error().starts_with("NOPERM BCAST is not possible"), "{refused:?}");
        }
    }
}

/// A number says nothing about others, and serves the holder of the same credential alone.
#[test]
fn invalidations_go_to_connections_of_the_same_credential_only() {
    let rows = [(1, r#""acme"{"id":1}"#)];
    let service = TenantService::start_configured(&rows, Options::default(), |own| {
        *own = with_redis(own.clone());
    });
    let key = |client: &str| {
        let field = service.credential(client);
        field.trim_end().trim_start_matches("X-API-Key: ").to_owned()
    };
    let connect = |client: &str| {
        let mut connection = RedisClient::connect(service.server.redis);
        connection.ask(&format!("HELLO 3 AUTH default {}", key(client)));
        let Reply::Integer(id) = connection.ask("CLIENT ID") else { panic!("no number") };
        connection.ask("SUBSCRIBE __redis__:invalidate");
        (connection, id)
    };
    let (mut target, id) = connect("acme");
    let (mut other, _) = connect("other");
    let redirect = format!("CLIENT TRACKING ON REDIRECT {id}");
    let unknown = "ERR The client ID you want redirect to does not exist";
    assert_eq!(other.ask(&redirect).error(), unknown);
    assert_eq!(other.ask("CLIENT TRACKING ON REDIRECT 1").error(), unknown, "it is the same");
    let (mut data, _) = connect("acme");
    assert_eq!(data.ask(&redirect), Reply::ok());
    // What memory does not keep is invalidated at once.
    data.ask("GET accounts:9");
    assert_eq!(target.reply(), invalidated(&["accounts:9"]));
    // The client that tracks becomes another one.
    data.ask(&format!("AUTH {}", key("other")));
    assert_eq!(target.reply(), all_invalidated());
    let broken = Reply::Push(vec![Reply::text("tracking-redir-broken"), Reply::Integer(id)]);
    assert_eq!(data.reply(), broken);
    data.ask("GET accounts:9");
    assert_quiet(&mut target);
    // The connection that gets the invalidations becomes another one, or has no credential.
    for becomes_other in [format!("AUTH {}", key("other")), "RESET".to_owned()] {
        let ((mut data, _), (mut target, id)) = (connect("acme"), connect("acme"));
        assert_eq!(data.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), Reply::ok());
        target.ask(&becomes_other);
        data.ask("GET accounts:9");
        let broken = Reply::Push(vec![Reply::text("tracking-redir-broken"), Reply::Integer(id)]);
        assert_eq!(data.reply(), broken, "{becomes_other}");
        target.ask(&format!("HELLO 3 AUTH default {}", key("other")));
        target.ask("SUBSCRIBE __redis__:invalidate");
        assert_quiet(&mut target);
    }
}
