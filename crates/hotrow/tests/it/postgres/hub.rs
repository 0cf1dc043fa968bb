//! The change hub: relay, NATS and servers as real processes over a real database.

use std::process::{Command, Stdio};

use crate::e2e::carriers::certificate_for;
use crate::postgres::shop::Shop;
use crate::shop::hub::{BOUND, behind, is_publishing, only_relay, relay, role, stop_relay};
use crate::shop::{
    await_body, await_readyz, await_started, await_status, cached, losses, path, price_sql, row,
    staleness, starts, strictly_from_memory, with_options,
};
use hotrow_testkit::harness::{Config, Ended, SOON, Server, await_some, await_until};
use hotrow_testkit::nats::Nats;
use hotrow_testkit::nats::credentials::Credentials;
use rustix::process::Signal;

/// A database, NATS, and the configuration of relay and servers.
pub(super) struct Hub {
    pub(super) shop: Shop,
    pub(super) nats: Nats,
    pub(super) config: Config,
}

impl Hub {
    fn new() -> Self {
        Self::over(Shop::with_products(), Nats::start(""))
    }

    pub(super) fn over(shop: Shop, nats: Nats) -> Self {
        let config = behind(shop.config_of(&["products"]), &nats);
        Self { shop, nats, config }
    }

    /// Starts a relay and waits until it publishes, or stands by.
    #[track_caller]
    pub(super) fn relay(&self) -> Server {
        relay(&self.config)
    }

    #[track_caller]
    pub(super) fn server(&self) -> Server {
        Server::start(&self.config)
    }

    fn slots(&self) -> String {
        self.shop.server.query("SELECT count(*) FROM pg_replication_slots")
    }
}

#[test]
fn changes_reach_every_server_through_one_slot() {
    let hub = Hub::new();
    let relay = only_relay(&hub.config);
    let servers = [hub.server(), hub.server()];
    let mut clients = servers.each_ref().map(Server::client);
    for (price, id) in [(1, 1), (2, 2), (3, 1)] {
        for client in &mut clients {
            cached(client, &path(id));
        }
        hub.shop.server.batch(&price_sql(id, price));
        for client in &mut clients {
            await_body(client, &path(id), &row(id, price));
        }
    }
    assert_eq!(hub.slots(), "1");
    // A writer's position is one of the servers.
    hub.shop.server.batch(&price_sql(3, 9));
    let position = hub.shop.position();
    for client in &mut clients {
        let answer = client.get_with(&path(3), &[("Hotrow-Min-Position", &position)]);
        assert_eq!((answer.status, answer.text()), (200, row(3, 9)));
    }
    for (client, server) in clients.iter_mut().zip(&servers) {
        strictly_from_memory(client, server, |price| {
            hub.shop.server.batch(&price_sql(3, price));
            row(3, price)
        });
    }
    // 10,000 keys of a transaction are listed, more are a flush.
    hub.shop.server.batch(
        "INSERT INTO products SELECT n, 'p' || n, 0 FROM generate_series(1000, 200999) n; \
         UPDATE products SET price = 5 WHERE id < 1000",
    );
    for client in &mut clients {
        await_body(client, &path(1), &row(1, 5));
        await_body(client, &path(200_999), &row(200_999, 0));
    }
    let status = relay.status();
    assert_eq!((&status["role"], &status["instances"]), (&"leader".into(), &2.into()), "{status}");
    assert!(relay.metrics().sum("hotrow_relay_messages_total", &[]) > 3.0);
    for server in &servers {
        assert_eq!(losses(server, None), 0.0, "{}", server.log());
        await_until("freshness", SOON, || staleness(server) < BOUND);
    }
    let table = "ALTER TABLE products ADD COLUMN more integer DEFAULT 7";
    hub.shop.server.batch(table);
    for client in &mut clients {
        await_body(client, &path(1), r#"{"id":1,"name":"p1","price":5,"more":7}"#);
    }
}

#[test]
fn aliases_follow_the_hub() {
    let mut hub = Hub::over(
        Shop::new(
            "CREATE TABLE products(id integer PRIMARY KEY, name text UNIQUE, price integer); \
             INSERT INTO products VALUES (1, 'p1', 100), (2, 'p2', 200)",
        ),
        Nats::start(""),
    );
    let without = hub.config.clone();
    hub.config = hub.config.set("collections.products.by.name.columns", "\"name\"");
    let relay = only_relay(&hub.config);
    let server = hub.server();
    let mut client = server.client();
    let by = |name: &str| format!("/products/by/name/{name}");
    assert_eq!(cached(&mut client, &by("p1")).text(), row(1, 100));
    assert_eq!(cached(&mut client, &by("new")).status, 404);
    hub.shop.server.batch("UPDATE products SET name = 'new' WHERE id = 1");
    let renamed = row(1, 100).replace("p1", "new");
    await_body(&mut client, &by("new"), &renamed);
    await_status(&mut client, &by("p1"), 404);
    hub.shop.server.batch("UPDATE products SET name = 'p1' WHERE id = 2");
    await_body(&mut client, &by("p1"), &row(2, 200).replace("p2", "p1"));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
    // A relay whose file lacks the alias does not publish its values.
    stop_relay(relay);
    let _relay = Server::start_relay(&without);
    server.await_log("does not publish collection `products/by/name`");
}

#[test]
fn changes_of_children_follow_the_hub_as_changes_of_their_parents() {
    let mut hub = Hub::over(
        Shop::new(
            "CREATE TABLE products(id integer PRIMARY KEY); INSERT INTO products VALUES (1), (2); \
             CREATE TABLE prices(id integer PRIMARY KEY, product_id integer, amount integer); \
             INSERT INTO prices VALUES (1, 1, 100)",
        ),
        Nats::start(""),
    );
    let without = hub.config.clone();
    hub.config = hub.config.with(&[
        ("collections.products.embed.prices.on", "\"product_id\""),
        ("collections.products.embed.prices.columns", "\"amount\""),
    ]);
    let relay = only_relay(&hub.config);
    let server = hub.server();
    let mut client = server.client();
    let body = |id: u32, prices: &str| format!(r#"{{"id":{id},"prices":[{prices}]}}"#);
    let hundred = r#"{"amount":100}"#;
    assert_eq!(cached(&mut client, &path(1)).text(), body(1, hundred));
    assert_eq!(cached(&mut client, &path(2)).text(), body(2, ""));
    // The old parent is not in the log: that is a change of all.
    hub.shop.server.batch("UPDATE prices SET product_id = 2");
    await_body(&mut client, &path(2), &body(2, hundred));
    await_body(&mut client, &path(1), &body(1, ""));
    hub.shop.server.batch("ALTER TABLE prices REPLICA IDENTITY FULL");
    cached(&mut client, &path(2));
    hub.shop.server.batch("UPDATE prices SET product_id = 1");
    await_body(&mut client, &path(2), &body(2, ""));
    await_body(&mut client, &path(1), &body(1, hundred));
    // From memory until the catalogue's look has found the change.
    cached(&mut client, &path(1));
    hub.shop.server.batch("ALTER TABLE prices RENAME amount TO sum");
    await_status(&mut client, &path(1), 503);
    hub.shop.server.batch("ALTER TABLE prices RENAME sum TO amount");
    await_body(&mut client, &path(1), &body(1, hundred));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
    // A relay whose file lacks the children does not publish their changes.
    stop_relay(relay);
    let _relay = Server::start_relay(&without);
    server.await_log("does not publish collection `products`");
}

#[test]
fn a_relay_that_is_gone_is_a_loss_and_another_follows() {
    let hub = Hub::new();
    let relay = hub.relay();
    let server = hub.server();
    let mut client = server.client();
    cached(&mut client, &path(1));
    relay.signal(Signal::KILL);
    hub.shop.server.batch(&price_sql(1, 1));
    // Nothing vouches for the entry: it is read.
    await_readyz(&server, 503);
    await_until("the change", SOON, || client.get(&path(1)).text() == row(1, 1));
    let started = starts(&server);
    let _other = hub.relay();
    await_started(&server, started);
    assert!(losses(&server, Some("hub")) >= 1.0, "{}", server.log());
    cached(&mut client, &path(1));
    hub.shop.server.batch(&price_sql(1, 2));
    await_body(&mut client, &path(1), &row(1, 2));
}

#[test]
fn the_second_relay_takes_over() {
    let hub = Hub::new();
    let relays = [hub.relay(), hub.relay()];
    let server = hub.server();
    let mut client = server.client();

    assert_eq!((role(&relays[0]), role(&relays[1])), ("leader".into(), "standby".into()));
    assert_eq!(hub.slots(), "1");
    // Paused past its lease: the other works.
    relays[0].stop();
    cached(&mut client, &path(1));
    await_until("the take-over", SOON, || role(&relays[1]) == "leader");
    hub.shop.server.batch(&price_sql(1, 1));
    await_body(&mut client, &path(1), &row(1, 1));
    await_readyz(&server, 200);
    cached(&mut client, &path(1));
    // It wakes, cannot write, and stands by.
    relays[0].signal(Signal::CONT);
    await_until("the old leader to stand by", SOON, || role(&relays[0]) == "standby");
    hub.shop.server.batch(&price_sql(1, 2));
    await_body(&mut client, &path(1), &row(1, 2));
    assert_eq!(role(&relays[1]), "leader");
}

#[test]
fn a_restart_of_nats_ends_nothing() {
    let mut hub = Hub::new();
    let relay = hub.relay();
    let server = hub.server();
    let mut client = server.client();
    cached(&mut client, &path(1));
    hub.nats.kill();
    hub.shop.server.batch(&price_sql(1, 1));
    await_readyz(&server, 503);
    // It says that it does not publish.
    await_until("the relay to notice", SOON, || role(&relay) == "standby");
    assert!(!is_publishing(&relay));
    await_until("the change", SOON, || client.get(&path(1)).text() == row(1, 1));
    hub.nats.restart();
    await_readyz(&server, 200);
    assert!(is_publishing(&relay));
    cached(&mut client, &path(1));
    hub.shop.server.batch(&price_sql(1, 2));
    await_body(&mut client, &path(1), &row(1, 2));
}

#[test]
fn a_stream_that_is_emptied_or_deleted_is_no_end() {
    let hub = Hub::new();
    let _relay = hub.relay();
    let server = hub.server();
    let mut client = server.client();
    for (price, what) in [(1, "PURGE"), (2, "DELETE")] {
        cached(&mut client, &path(1));
        let answer = hub.nats.request(&format!("$JS.API.STREAM.{what}.hotrow"), "");
        assert!(answer.contains("\"success\":true"), "{answer}");
        hub.shop.server.batch(&price_sql(1, price));
        await_body(&mut client, &path(1), &row(1, price));
        await_readyz(&server, 200);
    }
}

#[test]
fn a_server_that_joins_does_not_keep_what_is_hidden() {
    // Commits that wait for a standby are in the log, and readers do not see them.
    let settings = [("synchronous_standby_names", "absent"), ("synchronous_commit", "local")];
    let hub = Hub::over(Shop::with_products_and(&settings), Nats::start(""));
    let _relay = hub.relay();
    let first = hub.server();
    let mut writer = Command::new("psql")
        .args(["-X", "-q", "-d", &hub.shop.server.url()])
        .args(["-c", "SET synchronous_commit = on; UPDATE products SET price = 1 WHERE id = 1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql");
    let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let pid = await_some("the commit to wait", SOON, || {
        Some(hub.shop.server.query(waits)).filter(|pid| !pid.is_empty())
    });
    hub.shop.await_delivery(&first);
    // It was delivered before this server joined.
    let second = hub.server();
    let mut client = second.client();
    for _ in 0..20 {
        let answer = client.get(&path(1));
        assert_eq!(answer.text(), row(1, 100), "not visible yet");
        assert_ne!(answer.cache(), "hit", "an answer that may be old is not kept");
    }
    hub.shop.server.batch(&format!("SELECT pg_cancel_backend({pid})"));
    writer.wait().expect("psql ends");
    await_body(&mut client, &path(1), &row(1, 1));
    assert_eq!(cached(&mut client, &path(1)).text(), row(1, 1));
}

#[test]
fn a_restart_of_the_database_is_a_loss() {
    let mut hub = Hub::new();
    let _relay = hub.relay();
    let server = hub.server();
    let mut client = server.client();
    cached(&mut client, &path(1));
    let started = starts(&server);
    hub.shop.server.stop(crate::postgres::server::Stop::Fast);
    hub.shop.server.restart();
    await_started(&server, started);
    cached(&mut client, &path(1));
    hub.shop.server.batch(&price_sql(1, 1));
    await_body(&mut client, &path(1), &row(1, 1));
}

#[test]
fn nats_may_require_a_user() {
    let users = "authorization { users: [ { user: hotrow, password: s3cret } ] }";
    let mut hub = Hub::over(Shop::with_products(), Nats::start(users));
    let wrong = hub.config.clone().set("hub.user", "\"hotrow\"").set("hub.password", "\"no\"");
    let refused = Server::start_relay(&wrong);
    refused.await_log("connecting to NATS");
    assert_eq!(refused.admin_client().get("/readyz").status, 503);
    drop(refused);
    hub.config = hub.config.set("hub.user", "\"hotrow\"").set("hub.password", "\"s3cret\"");
    assert_works_without_showing(&hub, "s3cret");
}

/// Asserts that a change arrives through the hub, and that no log has the secret.
#[track_caller]
fn assert_works_without_showing(hub: &Hub, secret: &str) {
    let relay = hub.relay();
    let server = hub.server();
    let mut client = server.client();
    cached(&mut client, &path(1));
    hub.shop.server.batch(&price_sql(1, 1));
    await_body(&mut client, &path(1), &row(1, 1));
    for log in [relay.log(), server.log()] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn nats_may_require_a_credentials_file() {
    let made = Credentials::new();
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("{path:?}")
    };
    let mut hub = Hub::over(Shop::with_products(), Nats::start(&made.server));
    let other = file("other.creds", &Credentials::new().file);
    let refused = Server::start_relay(&hub.config.clone().set("hub.credentials", &other));
    refused.await_log("connecting to NATS");
    drop(refused);
    hub.config = hub.config.set("hub.credentials", &file("user.creds", &made.file));
    let seed = made.file.lines().find(|line| line.starts_with("SU")).expect("a seed");
    assert_works_without_showing(&hub, seed);
}

#[test]
fn nats_may_require_certificates() {
    let folder = tempfile::TempDir::new().unwrap();
    let (authority, certificate, key) = certificate_for("127.0.0.1");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("{path:?}")
    };
    let authority = file("ca.pem", &authority);
    let (certificate, key) = (file("cert.pem", &certificate), file("key.pem", &key));
    let tls = format!(
        "tls {{ cert_file: {certificate}, key_file: {key}, ca_file: {authority}, verify: true }}"
    );
    let mut hub = Hub::over(Shop::with_products(), Nats::start(&tls));
    let address = hub.nats.url().replace("nats://", "tls://");
    hub.config = hub
        .config
        .set("source.feed", &format!("{address:?}"))
        .set("hub.ca", &authority)
        .set("hub.cert", &certificate)
        .set("hub.key", &key);
    let _relay = hub.relay();
    let server = hub.server();
    let mut client = server.client();
    cached(&mut client, &path(1));
    hub.shop.server.batch(&price_sql(1, 1));
    await_body(&mut client, &path(1), &row(1, 1));
}

/// Servers of a cluster are killed in turn, the leader of the stream among them.
#[ignore = "long: elections of a NATS cluster take seconds"]
#[test]
fn a_server_of_a_cluster_may_die() {
    let mut cluster = Nats::start_cluster(3);
    let urls: Vec<String> = cluster.iter().map(Nats::url).collect();
    let mut hub = Hub::over(Shop::with_products(), Nats::start(""));
    hub.config = hub
        .config
        .set("source.feed", &format!("{:?}", urls.join(",")))
        .set("hub.replicas", "3")
        .set("hub.slot", "\"relays\"")
        .set("hub.lease", "\"5s\"");
    let relays = [hub.relay(), hub.relay()];
    let server = hub.server();
    let mut client = server.client();
    await_readyz(&server, 200);
    for price in 1..7 {
        let victim = price as usize % cluster.len();
        cached(&mut client, &path(1));
        cluster[victim].kill();
        hub.shop.server.batch(&price_sql(1, price));
        await_body(&mut client, &path(1), &row(1, price));
        await_readyz(&server, 200);
        cluster[victim].restart();
        // The next one may be killed once this one has what the others have.
        await_until("all replicas to be current", SOON, || {
            let other = &cluster[(victim + 1) % cluster.len()];
            let answer = other.request("$JS.API.STREAM.INFO.hotrow", "");
            answer.matches("\"current\":true").count() == 2
        });
    }
    assert!(relays.iter().any(|relay| relay.status()["role"] == "leader"));
    assert_eq!(hub.slots(), "1");
}

#[test]
fn a_collection_that_no_relay_publishes_is_named() {
    let hub = Hub::over(
        Shop::new(
            "CREATE TABLE products(id integer PRIMARY KEY, name text, price integer); \
             CREATE TABLE other(id integer PRIMARY KEY)",
        ),
        Nats::start(""),
    );
    let _relay = hub.relay();
    let server = Server::start_unready(&with_options(hub.config, &["other"]));
    server.await_log("does not publish collection");
    assert_eq!(server.admin_client().get("/readyz").status, 503);
    assert_eq!(server.get("/products/1").status, 404, "it is read");
}

#[test]
fn a_relay_needs_a_hub() {
    let shop = Shop::with_products();
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("hotrow.toml");
    std::fs::write(&file, shop.config_of(&["products"]).text()).unwrap();
    let ended = Ended::run(&["relay", "--config", file.to_str().unwrap()], SOON);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(format!("{}{}", ended.output, ended.log).contains("source.feed must be"), "{ended:?}");
}
