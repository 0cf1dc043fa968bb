//! Several databases in one process: what each has of its own, and what one that fails leaves of
//! the others.

use serde_json::{Value, json};

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server, await_until};

/// Returns the configuration of two files: `products` and `tags` of the first, `[source]`, and
/// `stock`, which stands between them in the order of names, of the second.
fn config(shop: &Database, stock: &Database) -> Config {
    Config::new(shop.path())
        .set("cache.max_staleness", "\"300ms\"")
        .set("sources.stock.url", &format!("\"sqlite:{}\"", stock.path().display()))
        .set("sources.stock.watch", "\"triggers\"")
        .set("collections.products.source", "\"default\"")
        .set("collections.products.allow_min_position", "true")
        .set("collections.stock.source", "\"stock\"")
        .set("collections.stock.table", "\"products\"")
        .set("collections.stock.allow_min_position", "true")
        .set("collections.tags.source", "\"default\"")
}

fn databases() -> (Database, Database) {
    let (shop, stock) = (Database::with_products(50), Database::with_products(50));
    stock.execute("UPDATE products SET price = id");
    shop.execute(
        "CREATE TABLE tags(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO tags VALUES (1, 'a')",
    );
    (shop, stock)
}

fn price(server: &Server, path: &str) -> Value {
    server.get(path).json()["price"].clone()
}

/// Takes the second file away; returns after the service has noticed.
fn take_away(stock: &Database, server: &Server) {
    stock.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    std::fs::rename(stock.path(), stock.folder().join("away.db")).expect("a rename");
    let mut admin = server.admin_client();
    await_until("the missing database to be noticed", SOON, || {
        let own = admin.get("/readyz").json()["sources"]["stock"].clone();
        own["feed"] == "behind" && own["source"] == "unreachable"
    });
}

#[test]
fn each_collection_is_served_and_followed_from_its_own_database() {
    let (shop, stock) = databases();
    let server = Server::start(&config(&shop, &stock));
    assert_eq!((price(&server, "/products/7"), price(&server, "/stock/7")), (700.into(), 7.into()));
    assert_eq!(server.get("/tags/1").json()["name"], "a");
    let mut client = server.client();
    for path in ["/products/7", "/stock/7", "/tags/1"] {
        assert_eq!(client.get(path).cache(), "hit", "{path}");
    }
    stock.execute("UPDATE products SET price = 8 WHERE id = 7");
    await_until("the change of the second database", SOON, || price(&server, "/stock/7") == 8);
    assert_eq!(client.get("/products/7").cache(), "hit", "another database's affair");
    shop.execute("UPDATE products SET price = 9 WHERE id = 7; UPDATE tags SET name = 'b'");
    await_until("the changes of the first", SOON, || {
        price(&server, "/products/7") == 9 && server.get("/tags/1").json()["name"] == "b"
    });
    let batch = client.get("/stock?ids=1,7,99").json();
    assert_eq!(batch["items"]["7"]["price"], 8);
    assert_eq!(batch["missing"], json!(["99"]));
}

#[test]
fn metrics_and_status_name_each_source() {
    let (shop, stock) = databases();
    let server = Server::start(&config(&shop, &stock));
    stock.execute("UPDATE products SET price = 0 WHERE id < 4");
    let changes = |source| server.metrics().sum("hotrow_feed_changes_total", &[("source", source)]);
    await_until("three changes", SOON, || changes("stock") == 3.0);
    assert_eq!(changes("default"), 0.0);
    let metrics = server.metrics();
    for name in ["hotrow_feed_current", "hotrow_source_reachable", "hotrow_query_limit_used"] {
        for source in ["default", "stock"] {
            metrics.sum(name, &[("source", source)]);
        }
    }
    assert_eq!(metrics.sum("hotrow_breaker_state", &[("source", "stock")]), 1.0);
    let status = server.status();
    let (first, second) = (&status["sources"]["default"], &status["sources"]["stock"]);
    assert_eq!((&first["feed"]["changes"], &second["feed"]["changes"]), (&0.into(), &3.into()));
    assert_eq!(second["concurrency"]["limit"], 4);
    assert_eq!(status["concurrency"]["limit"], 8, "of both");
    assert_eq!(status["collections"]["stock"]["source"], "stock");
    assert_eq!(status["collections"]["tags"]["source"], "default");
    assert_ne!(first["feed"]["position"], second["feed"]["position"]);
}

#[test]
fn a_database_that_is_gone_leaves_the_collections_of_the_other_alone() {
    let (shop, stock) = databases();
    let server = Server::start(&config(&shop, &stock));
    let mut client = server.client();
    ["/products/1", "/stock/1"].iter().for_each(|path| _ = client.get(path));
    take_away(&stock, &server);
    // Hits, misses and writes of the first go on; the second has no answer within the contract.
    assert_eq!(client.get("/products/1").cache(), "hit");
    assert_eq!(client.get("/products/2").cache(), "miss");
    shop.execute("UPDATE products SET price = 5 WHERE id = 1");
    await_until("a change of the first", SOON, || price(&server, "/products/1") == 5);
    assert_eq!(client.get("/stock/1").status, 503);
    let metrics = server.metrics();
    let losses = |source| metrics.sum("hotrow_feed_gaps_total", &[("source", source)]);
    assert_eq!(losses("default"), 0.0, "losses do not cross");
    assert!(losses("stock") >= 1.0);
    let reachable = |source| metrics.sum("hotrow_source_reachable", &[("source", source)]);
    assert_eq!((reachable("default"), reachable("stock")), (1.0, 0.0));
    assert_eq!(server.status()["sources"]["stock"]["reachable"], false);
    // It returns.
    std::fs::rename(stock.folder().join("away.db"), stock.path()).expect("a rename");
    await_until("the second to answer again", SOON, || client.get("/stock/1").status == 200);
    assert_eq!(server.metrics().sum("hotrow_feed_gaps_total", &[("source", "default")]), 0.0);
}

#[test]
fn one_source_suffices_for_readiness_unless_all_are_required() {
    for (rule, status, unmet) in [("any", 200, json!([])), ("all", 503, json!(["feed", "source"]))]
    {
        let (shop, stock) = databases();
        let config = config(&shop, &stock).set("admin.ready_sources", &format!("\"{rule}\""));
        let server = Server::start(&config);
        assert_eq!(server.admin_client().get("/readyz").status, 200);
        take_away(&stock, &server);
        let answer = server.admin_client().get("/readyz");
        let report = answer.json();
        assert_eq!((answer.status, &report["unmet"]), (status, &unmet), "{rule}: {report}");
        assert_eq!(report["ready_sources"], rule);
        assert_eq!(report["sources"]["default"]["source"], "reachable");
        assert_eq!((&report["feed"], &report["source"]), (&"behind".into(), &"unreachable".into()));
    }
}

#[test]
fn a_position_of_another_sources_log_is_refused_and_never_ignored() {
    let (shop, stock) = databases();
    let server = Server::start(&config(&shop, &stock));
    let mut client = server.client();
    let of_shop = client.get("/products/1").position().to_string();
    let of_stock = client.get("/stock/1").position().to_string();
    for (path, own, foreign) in
        [("/products/1", &of_shop, &of_stock), ("/stock/1", &of_stock, &of_shop)]
    {
        assert_eq!(client.get_with(path, &[("Hotrow-Min-Position", own)]).status, 200, "{path}");
        let refused = client.get_with(path, &[("Hotrow-Min-Position", foreign)]);
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        // A record that is not in memory, and a batch.
        let cold = path.replace("/1", "/30");
        assert_eq!(client.get_with(&cold, &[("Hotrow-Min-Position", foreign)]).status, 400);
        let batch = path.replace("/1", "?ids=31,32");
        assert_eq!(client.get_with(&batch, &[("Hotrow-Min-Position", foreign)]).status, 400);
    }
}

/// Runs `hotrow check`; returns its status and all that it prints.
fn check(config: &Config) -> (i32, String) {
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("hotrow.toml");
    std::fs::write(&file, config.text()).expect("a file");
    let ended = Ended::run(&["check", "--config", file.to_str().expect("UTF-8")], SOON);
    (ended.code(), format!("{}{}", ended.output, ended.log))
}

#[test]
fn check_and_serve_name_what_is_wrong_with_sources() {
    let (shop, stock) = databases();
    let (code, output) = check(&config(&shop, &stock));
    assert_eq!(code, 0, "{output}");
    for part in ["2 collections (products, tags) from ", "(default); 1 collection (stock) from "] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let set = |path: &str, value: &str| config(&shop, &stock).set(path, value);
    let url = "\"sqlite:x.db\"";
    for (wrong, rule) in [
        (
            set("collections.tags.source", "\"shop\""),
            "must name a source of this file (\"default\", \"stock\"), not \"shop\"",
        ),
        (set("sources.default.url", url), "sources.default: names the same source as [source]"),
        (set("sources.Other.url", url), "the name of a source must begin"),
        (set("sources.third.uri", url), "sources.third.uri: unknown key"),
    ] {
        let (code, output) = check(&wrong);
        assert_ne!(code, 0, "{rule}");
        assert!(output.contains(rule), "{rule}: {output}");
    }
    // A database that is missing at the start is named.
    let refusal = crate::shop::refusal(&set("sources.stock.url", "\"sqlite:/nonexistent/x.db\""));
    assert!(refusal.contains("source stock: "), "{refusal}");
}

#[test]
fn a_reload_adds_and_removes_no_source() {
    let (shop, stock) = databases();
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("hotrow.toml");
    let write = |config: &Config| std::fs::write(&file, config.text()).expect("a file");
    write(&config(&shop, &stock));
    let mut command = std::process::Command::new(hotrow_testkit::harness::server::binary());
    command.arg("serve").arg("--config").arg(&file).stdin(std::process::Stdio::null());
    let server = Server::start_command(command);
    server.await_ready();
    let other = config(&shop, &stock)
        .set("sources.third.url", &format!("\"sqlite:{}\"", stock.path().display()))
        .set("sources.stock.read_timeout", "\"9s\"")
        .set("collections.tags.source", "\"third\"")
        .set("collections.tags.cache_control", "\"max-age=7\"");
    write(&other);
    let report = server.admin_client().change("/reload", "").json();
    assert_eq!(report["applied"], json!(["collections.tags.cache_control"]), "{report}");
    let left: Vec<_> =
        report["left"].as_array().expect("a list").iter().map(|left| &left["path"]).collect();
    for path in ["collections.tags.source", "sources.stock.read_timeout", "sources.third.url"] {
        assert!(left.iter().any(|left| *left == path), "{path}: {report}");
    }
    assert_eq!(server.get("/tags/1").json()["name"], "a", "read from where it was");
    assert_eq!(price(&server, "/stock/7"), 7);
}
