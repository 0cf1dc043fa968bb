//! Load shedding: a process short of resources refuses low-priority and costly requests first, and
//! the admin side always answers.

#[cfg(feature = "failpoints")]
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

#[cfg(feature = "failpoints")]
use hotrow_testkit::harness::config::read_delay;
use hotrow_testkit::harness::{Answer, Config, Database, SOON, Server, await_until};

const LOW: (&str, &str) = ("Hotrow-Priority", "low");
const HIGH: (&str, &str) = ("Hotrow-Priority", "high");
const NO_CACHE: (&str, &str) = ("Cache-Control", "no-cache");

fn config(database: &Database) -> Config {
    Config::new(database.path())
        .collection("products")
        .set("collections.products.allow_no_cache", "true")
        .set("collections.products.allow_high_priority", "true")
        .set("limits.shed.priority_header", "true")
}

#[track_caller]
fn assert_shed(answer: &Answer) {
    let (title, detail) = answer.problem(503);
    assert!(title == "Overloaded" && detail.contains("is overloaded"), "{detail}");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

fn shed(server: &Server, labels: &[(&str, &str)]) -> f64 {
    server.metrics().sum("hotrow_shed_total", labels)
}

fn pressure(server: &Server, source: &str) -> f64 {
    server.metrics().sum("hotrow_pressure", &[("source", source)])
}

/// Asserts that the admin side works as without load.
#[track_caller]
fn assert_admin_answers(server: &Server, level: &str) {
    for path in ["/healthz", "/readyz", "/metrics", "/status", "/"] {
        let answer = server.admin_client().get_with(path, &[LOW]);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    assert_eq!(server.admin_client().change("/purge/products/20", "").status, 200);
    assert_eq!(server.status()["overload"]["level"], level);
}

/// Returns the memory of the process just after its start.
fn resident_mib(database: &Database) -> f64 {
    let server = Server::start(&config(database));
    server.get("/products/1");
    server.metrics().sum("process_resident_memory_bytes", &[]) / f64::from(1 << 20)
}

#[test]
fn with_memory_nearly_gone_reads_of_low_priority_go_first() {
    let database = Database::with_products(20);
    let limit = format!("\"{}MiB\"", (resident_mib(&database) / 0.65) as u64);
    // Busy from 50 % on, hard from 83 %.
    let server = Server::start(
        &config(&database)
            .set("limits.shed.memory_limit", &limit)
            .set("limits.shed.memory_share", "0.5"),
    );
    await_until("pressure", SOON, || pressure(&server, "memory") == 1.0);
    let mut client = server.client();
    assert_shed(&client.get_with("/products/1", &[LOW]));
    assert_eq!(client.get("/products/1").cache(), "miss", "of normal priority");
    assert_eq!(client.get_with("/products/1", &[LOW]).cache(), "hit", "from the cache");
    assert_shed(&client.get_with("/products?ids=1", &[LOW]));
    assert_eq!(client.get("/products?ids=1,2").status, 200);
    assert_shed(&client.get_with("/products/1", &[NO_CACHE]));
    assert_eq!(client.get_with("/products/1", &[NO_CACHE, HIGH]).cache(), "bypass");
    let refused = client.request("POST", "/products", &[LOW], br#"{"ids":[1]}"#);
    assert_shed(&refused);
    assert_admin_answers(&server, "elevated");
    assert_eq!(shed(&server, &[("level", "critical")]), 0.0);
    assert_eq!(shed(&server, &[("level", "elevated"), ("kind", "miss"), ("priority", "low")]), 1.0);
    assert_eq!(shed(&server, &[("kind", "batch"), ("priority", "low")]), 2.0);
    assert_eq!(shed(&server, &[]), 4.0);
    let messages = || server.log().lines().filter(|line| line.contains("overload:")).count();
    await_until("the message", SOON, || messages() > 0);
    assert_eq!(messages(), 1, "once, not per request: {}", server.log());
}

#[test]
fn with_no_memory_left_only_hits_are_answered() {
    let database = Database::with_products(20);
    let server = Server::start(&config(&database).set("limits.shed.memory_limit", "\"1MiB\""));
    await_until("pressure", SOON, || pressure(&server, "memory") == 2.0);
    let mut client = server.client();
    assert_shed(&client.get("/products/1"));
    assert_eq!(client.get_with("/products/1", &[HIGH]).cache(), "miss");
    assert_eq!(client.get("/products/1").cache(), "hit");
    assert_shed(&client.get_with("/products/1", &[LOW]));
    assert_shed(&client.get("/products?ids=1"));
    assert_eq!(client.get_with("/products?ids=1", &[HIGH]).cache(), "hit");
    assert_shed(&client.get_with("/products/1", &[NO_CACHE, HIGH]));
    assert_admin_answers(&server, "critical");
    assert_eq!(
        shed(&server, &[("level", "critical"), ("kind", "miss"), ("priority", "normal")]),
        1.0
    );
}

#[test]
fn a_priority_counts_only_if_the_configuration_allows_it() {
    let database = Database::with_products(20);
    let tight = |config: Config| Server::start(&config.set("limits.shed.memory_limit", "\"1MiB\""));
    let own = |config: Config| config.set("collections.products.allow_high_priority", "false");
    // The header is ignored.
    let server = tight(config(&database).set("limits.shed.priority_header", "false"));
    await_until("pressure", SOON, || pressure(&server, "memory") == 2.0);
    assert_shed(&server.client().get_with("/products/1", &[HIGH]));
    // The header may lower the priority but not raise it.
    let server = tight(own(config(&database)));
    await_until("pressure", SOON, || pressure(&server, "memory") == 2.0);
    assert_shed(&server.client().get_with("/products/1", &[HIGH]));
    // The collection itself has high priority, and any client may lower that.
    let server = tight(own(config(&database)).set("collections.products.priority", "\"high\""));
    await_until("pressure", SOON, || pressure(&server, "memory") == 2.0);
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    assert_shed(&client.get_with("/products/1", &[LOW]));
    // Nothing is shed.
    let server = tight(config(&database).set("limits.shed.enabled", "false"));
    let mut client = server.client();
    assert_eq!(client.get_with("/products/1", &[LOW]).status, 200);
    assert_eq!(server.status()["overload"]["shedding"], false);
}

#[test]
fn with_few_descriptors_left_refused_connections_are_closed_and_the_level_returns_to_normal() {
    let database = Database::with_products(20);
    // Busy from 40 % on, hard from 80 %.
    let server = Server::start(&config(&database).set("limits.shed.open_files_threshold", "0.4"));
    let pid = Pid::from_raw(i32::try_from(server.pid()).expect("a pid"));
    let set = |current: Option<u64>| {
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).expect("a limit").current
    };
    let open =
        std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("its descriptors").count();
    let before = set(Some((open as f64 / 0.6) as u64));
    await_until("pressure", SOON, || pressure(&server, "open_files") == 1.0);
    let refused = server.client().get_with("/products/1", &[LOW]);
    assert_shed(&refused);
    assert_eq!(refused.header("connection"), Some("close"));
    let fine = server.client().get("/products/1");
    assert_eq!((fine.status, fine.header("connection")), (200, None));
    assert_admin_answers(&server, "elevated");
    set(before);
    await_until("no pressure", SOON, || pressure(&server, "open_files") == 0.0);
    assert_eq!(server.get("/products/1").status, 200);
    assert_eq!(server.metrics().sum("hotrow_pressure_changes_total", &[]), 2.0);
}

#[cfg(feature = "failpoints")]
#[test]
fn a_standing_queue_for_the_database_refuses_low_priority_alone() {
    const REQUEST: &str = "GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n";
    let database = Database::with_products(3);
    database.add_table("slow", 1);
    let config = Config::new(database.path())
        .collection("slow")
        // Each request is a read of its own, one after the other.
        .set("cache.enabled", "false")
        .set("source.merge", "false")
        .set("source.reads_in_flight", "1")
        // This test covers pressure by waiting times; the adaptive queue itself is tested in
        // `concurrency`.
        .set("limits.concurrency.queue", "\"fifo\"")
        .set("limits.shed.priority_header", "true")
        .set("limits.shed.queue_delay_target", "\"20ms\"")
        .set("limits.shed.queue_delay_interval", "\"200ms\"")
        .failpoint(read_delay("slow", Duration::from_millis(30)));
    let server = Server::start(&config);
    let mut crowd: Vec<hotrow_testkit::harness::Client> = (0..8).map(|_| server.client()).collect();
    crowd.iter_mut().for_each(|client| client.send(REQUEST));
    // Each client repeats its request after the answer: seven requests always wait.
    await_until("pressure", SOON, || {
        for client in &mut crowd {
            assert_eq!(client.answer().status, 200, "of normal priority");
            client.send(REQUEST);
        }
        pressure(&server, "database_wait") == 1.0
    });
    let mut client = server.client();
    assert_shed(&client.get_with("/slow/1", &[LOW]));
    assert!(crowd.iter_mut().all(|client| client.answer().status == 200));
    await_until("no pressure", SOON, || pressure(&server, "database_wait") == 0.0);
    assert_eq!(client.get_with("/slow/1", &[LOW]).status, 200);
}
