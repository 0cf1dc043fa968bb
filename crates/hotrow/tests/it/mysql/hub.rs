//! The change hub over MariaDB: relays find their place in the binary log by what the stream has.

use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::backend::Backend as _;
use crate::backend::maria::Maria;
use crate::mysql::server::{SERVICE_PASSWORD, Stop};
use crate::shop::hub::{
    BOUND, assert_continued, await_leader, behind, only_relay, relay, role, server_with, stop_relay,
};
use crate::shop::{
    Shop as _, assert_contains, await_body, await_readyz, await_started, await_status, cached,
    failed_start, losses, path, price_sql, row, staleness, starts, strictly_from_memory,
};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};
use hotrow_testkit::nats::Nats;

/// A database, NATS, and the configuration of relay and servers.
struct Hub {
    database: Maria,
    nats: Nats,
    config: Config,
}

impl Hub {
    fn new() -> Self {
        let (database, nats) = (Maria::open(), Nats::start(""));
        let config = behind(database.config_of_products(), &nats);
        Self { database, nats, config }
    }

    fn batch(&self, sql: &str) {
        self.database.server.batch(sql);
    }

    fn streams(&self) -> usize {
        let list = "SELECT id FROM information_schema.PROCESSLIST WHERE command = 'Binlog Dump'";
        self.database.server.query(list).lines().count()
    }

    /// Removes all of the log but a new file. No relay runs.
    fn purge(&self) {
        await_until("the streams to end", SOON, || self.streams() == 0);
        let file = self.database.begin_log_file();
        self.batch(&format!("PURGE BINARY LOGS TO '{file}'"));
    }
}

#[test]
fn changes_of_children_follow_the_hub_as_changes_of_their_parents() {
    let mut hub = Hub::new();
    hub.batch(
        "CREATE TABLE offers(id INT PRIMARY KEY, product_id INT, price INT, INDEX (product_id)); \
         INSERT INTO offers VALUES (1, 1, 7)",
    );
    let without = hub.config.clone();
    hub.config = hub.config.with(&[
        ("collections.products.columns", r#"["id"]"#),
        ("collections.products.embed.offers.on", "\"product_id\""),
        ("collections.products.embed.offers.columns", "\"price\""),
    ]);
    let relay = only_relay(&hub.config);
    let server = server_with(&hub.config, &[]);
    let mut client = server.client();
    let body = |id: u32, offers: &str| format!(r#"{{"id":{id},"offers":[{offers}]}}"#);
    let seven = r#"{"price":7}"#;
    assert_eq!(cached(&mut client, &path(1)).text(), body(1, seven));
    assert_eq!(cached(&mut client, &path(2)).text(), body(2, ""));
    for (session, from, to) in [("FULL", 1, 2), ("MINIMAL", 2, 1)] {
        cached(&mut client, &path(1));
        cached(&mut client, &path(2));
        hub.batch(&format!(
            "SET SESSION binlog_row_image = {session}; UPDATE offers SET product_id = {to}"
        ));
        await_body(&mut client, &path(from), &body(from, ""));
        await_body(&mut client, &path(to), &body(to, seven));
    }
    cached(&mut client, &path(1));
    hub.batch("ALTER TABLE offers RENAME COLUMN price TO cost");
    await_status(&mut client, &path(1), 503);
    hub.batch("ALTER TABLE offers RENAME COLUMN cost TO price");
    await_body(&mut client, &path(1), &body(1, seven));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
    // A relay whose file lacks the children does not publish their changes.
    stop_relay(relay);
    let _relay = Server::start_relay(&without);
    server.await_log("does not publish collection `products`");
}

#[test]
fn changes_reach_every_server_through_one_stream() {
    let hub = Hub::new();
    let relay = only_relay(&hub.config);
    let servers = [server_with(&hub.config, &[]), server_with(&hub.config, &[])];
    let mut clients = servers.each_ref().map(Server::client);
    for (price, id) in [(1, 1), (2, 2), (3, 1)] {
        for client in &mut clients {
            cached(client, &path(id));
        }
        hub.batch(&price_sql(id, price));
        for client in &mut clients {
            await_body(client, &path(id), &row(id, price));
        }
    }
    assert_eq!(hub.streams(), 1);
    // A writer's position is one of the servers.
    hub.batch(&price_sql(3, 9));
    let server = &hub.database.server;
    let position = format!("{:016x}-{}", server.incarnation(), server.log_end());
    for client in &mut clients {
        let answer = client.get_with(&path(3), &[("Hotrow-Min-Position", &position)]);
        assert_eq!((answer.status, answer.text()), (200, row(3, 9)));
    }
    for (client, server) in clients.iter_mut().zip(&servers) {
        strictly_from_memory(client, server, |price| {
            hub.batch(&price_sql(3, price));
            row(3, price)
        });
    }
    // 10,000 keys of a transaction are listed, more are a flush.
    hub.batch(
        "INSERT INTO products SELECT seq, CONCAT('p', seq), 0 FROM seq_1000_to_30999; \
         UPDATE products SET price = 5 WHERE id < 1000",
    );
    for client in &mut clients {
        await_body(client, &path(1), &row(1, 5));
        await_body(client, &path(30_999), &row(30_999, 0));
    }
    let status = relay.status();
    assert_eq!((&status["role"], &status["instances"]), (&"leader".into(), &2.into()), "{status}");
    for server in &servers {
        assert_eq!(losses(server, None), 0.0, "{}", server.log());
        await_until("freshness", SOON, || staleness(server) < BOUND);
    }
    hub.batch("ALTER TABLE products ADD COLUMN more INT DEFAULT 7 FIRST");
    for client in &mut clients {
        await_body(client, &path(1), r#"{"more":7,"id":1,"name":"p1","price":5}"#);
    }
    hub.batch(&price_sql(1, 6));
    for client in &mut clients {
        await_body(client, &path(1), r#"{"more":7,"id":1,"name":"p1","price":6}"#);
    }
}

#[test]
fn a_relay_that_is_killed_is_continued_without_a_loss() {
    let hub = Hub::new();
    let first = relay(&hub.config);
    let second = relay(&hub.config);
    assert_eq!((role(&first), role(&second)), ("leader".into(), "standby".into()));
    let server = server_with(&hub.config, &[1, 2]);
    let started = starts(&server);
    first.signal(Signal::KILL);
    // No relay sees this change when it is made.
    hub.batch(&price_sql(1, 7));
    await_leader(&second);
    assert_continued(&server, started, 2, 200);
    await_body(&mut server.client(), &path(1), &row(1, 7));
    // MySQL puts the events of a compressed commit after the one that has its end.
    let compressed = "SET binlog_transaction_compression = ON; ";
    let session = hub.database.server.flavor().choose("", compressed);
    hub.batch(&format!("{session}{}", price_sql(2, 8)));
    await_body(&mut server.client(), &path(2), &row(2, 8));
    let status = second.status();
    assert_eq!((&status["chains_begun"], &status["chains_continued"]), (&1.into(), &1.into()));
    // A third relay goes on behind a commit, in an older file of the log.
    cached(&mut server.client(), &path(2));
    second.signal(Signal::KILL);
    hub.database.begin_log_file();
    hub.batch(&price_sql(1, 9));
    hub.database.begin_log_file();
    let third = relay(&hub.config);
    await_leader(&third);
    // What the second relay published is not delivered again.
    await_body(&mut server.client(), &path(1), &row(1, 9));
    assert_continued(&server, started, 2, 8);
    // A server that joins after the take-over.
    let other = server_with(&hub.config, &[1]);
    hub.batch(&price_sql(1, 10));
    await_body(&mut other.client(), &path(1), &row(1, 10));
    assert_eq!((losses(&server, None), losses(&other, None)), (0.0, 0.0));
}

#[test]
fn a_relay_that_is_paused_and_wakes_is_ignored() {
    let hub = Hub::new();
    let relays = [relay(&hub.config), relay(&hub.config)];
    let server = server_with(&hub.config, &[1, 2]);
    let started = starts(&server);
    relays[0].stop();
    hub.batch(&price_sql(1, 1));
    await_leader(&relays[1]);
    await_body(&mut server.client(), &path(1), &row(1, 1));
    assert_continued(&server, started, 2, 200);
    relays[0].signal(Signal::CONT);
    await_until("the old leader to stand by", SOON, || role(&relays[0]) == "standby");
    hub.batch(&price_sql(1, 2));
    await_body(&mut server.client(), &path(1), &row(1, 2));
    assert_continued(&server, started, 2, 200);
    assert_eq!(role(&relays[1]), "leader");
}

#[test]
fn streams_and_nats_may_end() {
    let mut hub = Hub::new();
    let _relay = relay(&hub.config);
    let server = server_with(&hub.config, &[1, 2]);
    let started = starts(&server);
    for price in 1..4 {
        hub.database.kill_streams();
        hub.batch(&price_sql(1, price));
        await_body(&mut server.client(), &path(1), &row(1, price));
    }
    assert_continued(&server, started, 2, 200);
    hub.nats.kill();
    hub.batch(&price_sql(1, 5));
    hub.nats.restart();
    await_body(&mut server.client(), &path(1), &row(1, 5));
    assert_continued(&server, started, 2, 200);
}

#[test]
fn a_log_that_was_purged_is_a_loud_loss() {
    let hub = Hub::new();
    let first = relay(&hub.config);
    let server = server_with(&hub.config, &[1]);
    let started = starts(&server);
    first.signal(Signal::KILL);
    hub.batch(&price_sql(1, 1));
    hub.purge();
    let second = relay(&hub.config);
    await_started(&server, started);
    assert!(losses(&server, Some("hub")) >= 1.0, "{}", server.log());
    second.await_log("the binary log does not have the place");
    second.await_log("does not continue the one before it");
    await_body(&mut server.client(), &path(1), &row(1, 1));
    hub.batch(&price_sql(1, 2));
    await_body(&mut server.client(), &path(1), &row(1, 2));
}

/// Files and offsets of the log are given again.
#[test]
fn a_log_that_was_begun_anew_is_a_loud_loss() {
    let hub = Hub::new();
    hub.batch("RESET MASTER");
    hub.batch(&price_sql(1, 111));
    let first = relay(&hub.config);
    let server = server_with(&hub.config, &[1]);
    hub.batch(&price_sql(2, 222));
    await_body(&mut server.client(), &path(2), &row(2, 222));
    let started = starts(&server);
    let end = hub.database.server.log_end();
    first.signal(Signal::KILL);
    await_until("the stream to end", SOON, || hub.streams() == 0);
    // The same commits, at the same places, and one more that no relay sees.
    hub.batch("RESET MASTER");
    for (id, price) in [(1, 333), (2, 444), (1, 555)] {
        hub.batch(&price_sql(id, price));
    }
    assert!(hub.database.server.log_end() > end);
    let second = relay(&hub.config);
    await_started(&server, started);
    second.await_log("the binary log does not have the place");
    await_body(&mut server.client(), &path(1), &row(1, 555));
    hub.batch(&price_sql(1, 1));
    await_body(&mut server.client(), &path(1), &row(1, 1));
    // While a relay follows it.
    let started = starts(&server);
    hub.batch("RESET MASTER");
    await_started(&server, started);
    hub.batch(&price_sql(1, 2));
    await_body(&mut server.client(), &path(1), &row(1, 2));
}

#[test]
fn a_table_of_another_shape_between_two_relays_is_a_loud_loss() {
    let hub = Hub::new();
    let first = relay(&hub.config);
    let server = server_with(&hub.config, &[1]);
    let started = starts(&server);
    first.signal(Signal::KILL);
    hub.batch(&price_sql(1, 1));
    hub.batch("ALTER TABLE products ADD COLUMN before_all INT NOT NULL DEFAULT 3 FIRST");
    hub.batch(&price_sql(1, 2));
    let _second = relay(&hub.config);
    await_started(&server, started);
    assert!(losses(&server, Some("hub")) >= 1.0, "{}", server.log());
    let changed = |price| format!(r#"{{"before_all":3,"id":1,"name":"p1","price":{price}}}"#);
    await_body(&mut server.client(), &path(1), &changed(2));
    hub.batch(&price_sql(1, 3));
    await_body(&mut server.client(), &path(1), &changed(3));
}

#[test]
fn a_restart_of_the_database_is_a_loss_all_the_same() {
    let mut hub = Hub::new();
    let _relay = relay(&hub.config);
    let server = server_with(&hub.config, &[1]);
    let started = starts(&server);
    hub.database.server.await_next_second();
    hub.database.server.stop(Stop::Fast);
    hub.database.server.restart();
    await_started(&server, started);
    hub.batch(&price_sql(1, 1));
    await_body(&mut server.client(), &path(1), &row(1, 1));
    assert_eq!(cached(&mut server.client(), &path(1)).text(), row(1, 1));
}

/// A commit that waits for a replica: it is in the log, and readers do not see it.
struct Hidden {
    writer: Child,
}

impl Hidden {
    #[track_caller]
    fn begin(hub: &Hub, sql: &str) -> Self {
        let server = &hub.database.server;
        let before = server.log_end();
        hub.database.hide_commits();
        let writer = Command::new("mariadb")
            .args(["--protocol=tcp", "--host=127.0.0.1", "--user=root"])
            .arg(format!("--port={}", server.port()))
            .arg(format!("--database={}", server.database()))
            .args(["--execute", sql])
            .stdin(Stdio::null())
            .spawn()
            .expect("the SQL client");
        await_until("the commit in the log", SOON, || server.log_end() > before);
        Self { writer }
    }

    fn end(mut self, hub: &Hub) {
        hub.database.show_commits();
        self.writer.wait().expect("the client ends");
    }
}

#[test]
fn a_server_that_joins_does_not_keep_what_is_hidden() {
    let hub = Hub::new();
    let _relay = relay(&hub.config);
    let first = server_with(&hub.config, &[1]);
    let hidden = Hidden::begin(&hub, &price_sql(1, 1));
    await_until("its delivery", SOON, || first.get(&path(1)).cache() != "hit");
    // It was delivered before this server joined.
    let second = server_with(&hub.config, &[]);
    let mut client = second.client();
    for _ in 0..20 {
        let answer = client.get(&path(1));
        assert_eq!(answer.text(), row(1, 100), "not visible yet");
        assert_ne!(answer.cache(), "hit", "an answer that may be old is not kept");
    }
    hidden.end(&hub);
    await_body(&mut client, &path(1), &row(1, 1));
    assert_eq!(cached(&mut client, &path(1)).text(), row(1, 1));
}

#[test]
fn no_server_joins_after_a_take_over_until_earlier_commits_are_visible() {
    let hub = Hub::new();
    let relays = [relay(&hub.config), relay(&hub.config)];
    let first = server_with(&hub.config, &[1, 2]);
    let started = starts(&first);
    let hidden = Hidden::begin(&hub, &price_sql(1, 1));
    await_until("its delivery", SOON, || first.get(&path(1)).cache() != "hit");
    relays[0].signal(Signal::KILL);
    await_leader(&relays[1]);
    assert_continued(&first, started, 2, 200);
    let second = Server::start_unready(&hub.config);
    second.await_log("cannot list the changes that are not visible yet");
    assert_eq!(second.get(&path(1)).text(), row(1, 100), "not visible yet");
    assert_eq!(second.admin_client().get("/readyz").status, 503);
    hidden.end(&hub);
    for server in [&first, &second] {
        await_readyz(server, 200);
        await_body(&mut server.client(), &path(1), &row(1, 1));
        assert_eq!(cached(&mut server.client(), &path(1)).text(), row(1, 1));
    }
    assert_continued(&first, started, 2, 200);
}

#[test]
fn a_server_needs_the_right_to_query_the_logs_end_and_no_other() {
    let hub = Hub::new();
    let _relay = only_relay(&hub.config);
    let database = hub.database.server.database();
    hub.batch(&format!(
        "CREATE USER reader@'%' IDENTIFIED BY '{SERVICE_PASSWORD}'; \
         GRANT SELECT ON {database}.* TO reader@'%'"
    ));
    let url = hub.database.server.url_for("reader", SERVICE_PASSWORD);
    let config = hub.config.clone().set("source.url", &format!("{url:?}"));
    let config = config.set("source.feed_url", &format!("{url:?}"));
    let (_, refused) = failed_start(&config);
    let grant = hub.database.server.flavor().dialect("GRANT BINLOG MONITOR ON *.* TO");
    assert_contains(&refused, &[&grant]);
    hub.batch("GRANT BINLOG MONITOR ON *.* TO reader@'%'");
    let server = server_with(&config, &[1]);
    hub.batch(&price_sql(1, 1));
    await_body(&mut server.client(), &path(1), &row(1, 1));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
}
