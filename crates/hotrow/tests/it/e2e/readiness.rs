//! `/readyz`: each rule with each policy, over a real database that goes away.

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

fn config(database: &Database, when_stale: &str) -> Config {
    Config::new(database.path())
        .set("cache.max_staleness", "\"100ms\"")
        .set("cache.when_stale", &format!("\"{when_stale}\""))
        .collection("products")
}

/// Moves the database to another name; returns after the service has noticed.
fn take_away(database: &Database, server: &Server) {
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    std::fs::rename(database.path(), database.folder().join("away.db")).expect("a rename");
    let mut admin = server.admin_client();
    await_until("the missing database to be noticed", SOON, || {
        let report = admin.get("/readyz").json();
        report["feed"] == "behind" && report["source"] == "unreachable"
    });
}

#[test]
fn by_default_only_the_policy_stale_stays_ready_without_its_database() {
    for (when_stale, rule, ready, unmet) in [
        ("stale", "serving", true, serde_json::json!([])),
        ("bypass", "fresh", false, serde_json::json!(["feed", "source"])),
        ("refuse", "fresh", false, serde_json::json!(["feed", "source"])),
    ] {
        let database = Database::with_products(3);
        let server = Server::start(&config(&database, when_stale));
        assert_eq!(server.get("/products/1").status, 200);
        take_away(&database, &server);
        let answer = server.admin_client().get("/readyz");
        let report = answer.json();
        assert_eq!(answer.status == 200, ready, "{when_stale}: {report}");
        assert_eq!((&report["ready"], &report["ready_when"]), (&ready.into(), &rule.into()));
        assert_eq!((&report["unmet"], &report["process"]), (&unmet, &"running".into()));
        // What readiness promises.
        let served = server.get("/products/1");
        assert_eq!(served.status == 200, ready, "{when_stale}: {served:?}");
    }
}

#[test]
fn the_rule_can_be_chosen() {
    for (when_stale, rule, ready) in
        [("stale", "fresh", false), ("bypass", "serving", false), ("refuse", "serving", false)]
    {
        let database = Database::with_products(3);
        let config = config(&database, when_stale).set("admin.ready_when", &format!("\"{rule}\""));
        let server = Server::start(&config);
        take_away(&database, &server);
        let answer = server.admin_client().get("/readyz");
        assert_eq!(answer.status == 200, ready, "{when_stale}, {rule}: {}", answer.json());
    }
}
