//! docs/reference/metrics.md and `/metrics` name the same families, with the same types and labels.

use std::collections::{BTreeMap, BTreeSet};

use hotrow_testkit::harness::metrics::Metrics;
use hotrow_testkit::harness::{Config, Database, Server};
use hotrow_testkit::tokens::{SigningKey, jwks};

use super::carriers::Carriers;
use super::redis::{redis_cli, with_redis};

const PAGE: &str = include_str!("../../../../../docs/reference/metrics.md");

/// Kind and labels of a family.
type Shape = (String, BTreeSet<String>);

/// Parses rows of the form "| `name` (`label`, `label`) | meaning |", the labels optional.
fn documented() -> BTreeMap<String, Shape> {
    let mut families = BTreeMap::new();
    for line in PAGE.lines() {
        let Some(row) = line.strip_prefix("| `") else { continue };
        let (head, meaning) = row.split_once(" | ").expect("two cells");
        let meaning = meaning.trim_end_matches(" |");
        let (name, labels) = head.split_once("` (").unwrap_or((head.trim_end_matches('`'), ""));
        assert!(
            meaning.ends_with('.') || meaning.ends_with(')'),
            "a sentence describes it: {line}"
        );
        let labels = labels.split(',').map(|label| label.trim_matches([' ', '`', ')']).to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        let before = families.insert(name.to_owned(), (kind(name, meaning).to_owned(), labels));
        assert!(before.is_none(), "{name} is documented twice");
    }
    families
}

/// Returns the type of a family by the rule at the head of the page.
fn kind(name: &str, meaning: &str) -> &'static str {
    if meaning.starts_with("Histogram") {
        "histogram"
    } else if name.ends_with("_total") {
        "counter"
    } else {
        "gauge"
    }
}

fn exposed(metrics: &Metrics) -> BTreeMap<String, Shape> {
    let shape = |(name, family): (&String, &hotrow_testkit::harness::metrics::Family)| {
        assert!(family.help.len() > 10, "{name}: {}", family.help);
        let labels = family.samples.iter().flat_map(|s| &s.labels).map(|(label, _)| label.clone());
        (name.clone(), (family.kind.clone(), labels.filter(|label| label != "le").collect()))
    };
    metrics.families.iter().map(shape).collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let database = Database::with_products(3);
    // Rules have series of their own; this one affects no request.
    let config = Config::new(database.path())
        .collection("products")
        .set("collections.products.changes", "true")
        .set("collections.products.surrogate_keys", "true")
        .set("collections.products.cache_control", "\"max-age=0, s-maxage=60\"")
        .set("purge.repeat_after", "\"2m\"")
        .set("purge.targets.edge.kind", "\"varnish_xkey\"")
        .set("purge.targets.edge.url", "\"http://127.0.0.1:9\"")
        .set("limits.rate.clients.rate", "\"1000000/s\"");
    let server = Server::start(&with_redis(config));
    redis_cli(&server, &["PING"]);
    assert_eq!(server.get("/products/1").status, 200);
    let documented = documented();
    let mut exposed = exposed(&server.metrics());
    // Some exist only with TLS, credentials from files, traces, or a warm start.
    let carriers = Carriers::new(&database);
    let file = |name: &str, text: &str| {
        let path = carriers.text(name);
        std::fs::write(&path, text).unwrap();
        format!("{path:?}")
    };
    let secure = carriers
        .config
        .clone()
        .set("access_log.output", "\"stderr\"")
        .set("trace.endpoint", "\"http://127.0.0.1:9/v1/traces\"")
        .set("access.grants_file", &file("grants", "[roles.reader]\ncollections = \"*\"\n"))
        .set("access.jwt.jwks_file", &file("jwks", &jwks(&[&SigningKey::ed25519("a", 1)])))
        .set("access.jwt.issuer", "\"https://issuer.test\"")
        .set("access.jwt.audience", "\"hotrow\"")
        .set("warm.file", &format!("{:?}", carriers.text("hot-keys")));
    let secure = Server::start(&secure);
    for (name, shape) in self::exposed(&secure.metrics()) {
        exposed.entry(name).or_insert(shape);
    }
    // Others only with standbys. A primary is none, and is listed all the same.
    let primary = hotrow_testkit::postgres::Server::start(&[]);
    primary.batch("CREATE TABLE products(id int PRIMARY KEY)");
    primary.make_reader_role(&["products"]);
    let url = primary.url_for(hotrow_testkit::postgres::ROLE, "postgres");
    let replicated = Config::over(&url).collection("products");
    let replicated = Server::start(&replicated.set("source.read_urls", &format!("[{url:?}]")));
    for (name, shape) in self::exposed(&replicated.metrics()) {
        exposed.entry(name).or_insert(shape);
    }
    let missing: Vec<&String> =
        exposed.keys().filter(|name| !documented.contains_key(*name)).collect();
    assert!(missing.is_empty(), "exposed and not in docs/reference/metrics.md: {missing:?}");
    let gone: Vec<&String> =
        documented.keys().filter(|name| !exposed.contains_key(*name)).collect();
    assert!(gone.is_empty(), "in docs/reference/metrics.md and not exposed: {gone:?}");
    for (name, shape) in &documented {
        assert_eq!(Some(shape), exposed.get(name), "{name}");
    }
}
