//! Reload of the configuration by the signal, the admin API and a change of the file.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use hotrow_testkit::harness::server::binary;
use hotrow_testkit::harness::{Answer, Client, Config, Database, Ended, SOON, Server, await_until};

/// A service whose configuration file the test can replace.
struct Place {
    database: Database,
    file: PathBuf,
    _folder: TempDir,
}

impl Place {
    fn start(config: impl FnOnce(Config) -> Config) -> (Self, Server) {
        let database = Database::with_products(100);
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("hotrow.toml");
        let place = Self { database, file, _folder: folder };
        place.write(&config(place.config()));
        let server = Server::start_command(place.command());
        server.await_ready();
        (place, server)
    }

    /// Returns the configuration with the collections `products` and `goods`, of one table.
    fn config(&self) -> Config {
        Config::new(self.database.path())
            .collection("products")
            .set("collections.goods.table", "\"products\"")
    }

    fn command(&self) -> Command {
        // Under nohup the tests would pass on that SIGHUP is ignored.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP")
            .arg(binary())
            .args(["serve", "--config"])
            .arg(&self.file)
            .stdin(Stdio::null());
        command
    }

    /// Replaces the file in one step.
    fn write(&self, config: &Config) {
        self.write_text(&config.text());
    }

    fn write_text(&self, text: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, text).expect("write the configuration");
        std::fs::rename(new, &self.file).expect("replace the configuration");
    }

    fn hash(&self) -> String {
        let output = Command::new("sha256sum").arg(&self.file).output().expect("sha256sum");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.split(' ').next().unwrap_or_default().to_owned()
    }
}

fn post_reload(server: &Server) -> Answer {
    server.admin_client().change("/reload", "")
}

/// Reloads by the admin API, and returns the report.
#[track_caller]
fn reload(server: &Server) -> Value {
    let answer = post_reload(server);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn reloads(server: &Server, result: &str) -> f64 {
    server.metrics().sum("hotrow_config_reloads_total", &[("result", result)])
}

#[test]
fn the_admin_api_applies_what_can_change_and_names_the_rest() {
    let (place, server) = Place::start(|config| config);
    let mut client = server.client();
    assert_eq!(client.get("/products?ids=1,2,3").status, 200);
    let started = server.status()["configuration"].clone();
    assert_eq!(started["sha256"], place.hash());
    assert_eq!(started["last_reload"], Value::Null);
    let report = reload(&server);
    assert_eq!(
        (&report["result"], &report["applied"]),
        (&"unchanged".into(), &Value::Array(vec![]))
    );

    let changed = place
        .config()
        .set("limits.target_bytes", "\"100B\"")
        .set("limits.max_batch", "2")
        .set("cache.max_staleness", "\"2m\"")
        .set("collections.products.cache_control", "\"max-age=7\"")
        .set("cors.allowed_origins", "\"*\"")
        .collection("more");
    place.write(&changed);
    let report = reload(&server);
    assert_eq!(report["result"], "applied", "{report}");
    let applied = [
        "collections.products.cache_control",
        "cors.allowed_origins",
        "limits.max_batch",
        "limits.target_bytes",
    ];
    assert_eq!(report["applied"], serde_json::json!(applied));
    let left: Vec<_> =
        report["left"].as_array().expect("a list").iter().map(|left| &left["path"]).collect();
    assert_eq!(left, ["collections.more", "cache.max_staleness"]);
    // On the connection that was open.
    let answer = client.get_with("/products/1", &[("Origin", "https://a.example")]);
    assert_eq!(answer.header("cache-control"), Some("max-age=7"));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(client.get("/products?ids=1,2,3").status, 400);
    assert_eq!(client.get(&format!("/products?ids={}", "1,".repeat(60))).status, 414);
    assert_eq!(server.get("/more/1").status, 404);

    let status = server.status()["configuration"].clone();
    assert_eq!(status["sha256"], place.hash());
    assert_eq!(
        (&status["last_reload"]["trigger"], &status["last_reload"]["result"]),
        (&"admin".into(), &"applied".into())
    );
    assert_eq!([reloads(&server, "applied"), reloads(&server, "unchanged")], [1.0, 1.0]);
    server.await_log("restart or hand over");
    server.await_log("collections.more");
    // The file differs only in what is left.
    assert_eq!(reload(&server)["result"], "restart_needed");
}

#[test]
fn a_file_with_a_problem_changes_nothing_and_is_explained_as_by_check() {
    let (place, server) = Place::start(|config| config);
    let good = place.config();
    let bad = good
        .clone()
        .set("limits.target_bytes", "\"100B\"")
        .set("limits.heders", "3")
        .set("log.level", "\"loud\"");
    place.write(&bad);
    let check = Ended::run(&["check", "--config", place.file.to_str().expect("UTF-8")], SOON);
    let expected: Vec<&str> =
        check.log.lines().filter(|line| line.contains("hotrow.toml:")).collect();
    assert!(expected.len() >= 2, "{check:?}");
    let answer = post_reload(&server);
    assert_eq!(answer.status, 422);
    let report = answer.json();
    let problems = report["problems"].as_array().expect("a list");
    assert_eq!(report["result"], "rejected");
    for problem in problems {
        let problem = problem.as_str().expect("a text");
        assert!(check.log.contains(problem), "{problem} is not in {}", check.log);
    }
    assert_eq!(problems.len(), expected.len(), "{report} {expected:?}");
    let long = format!("/products?ids={}1", "1,".repeat(60));
    assert_eq!(server.get(&long).status, 200, "the limit is not in force");
    let ready = server.admin_client().get("/readyz");
    assert_eq!((ready.status, &ready.json()["reload"]), (200, &"failed".into()));
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_config_last_reload_successful", &[]), 0.0);
    place.write_text("[source\n");
    assert_eq!(post_reload(&server).status, 422);
    std::fs::remove_file(&place.file).expect("remove the file");
    assert_eq!(post_reload(&server).status, 422);
    assert_eq!(reloads(&server, "rejected"), 3.0);
    place.write(&good);
    assert_eq!(reload(&server)["result"], "unchanged");
    assert_eq!(server.admin_client().get("/readyz").json()["reload"], "ok");
}

/// The rules between keys hold for what is in force, not only for the file.
#[test]
fn a_sound_file_that_does_not_fit_what_stays_is_rejected() {
    let (place, server) = Place::start(|config| config);
    let other = place.config().set("source.query_keys", "3000").set("limits.max_batch", "2000");
    place.write(&other);
    let report = post_reload(&server);
    assert_eq!(report.status, 422);
    let text = report.text();
    assert!(text.contains("limits.max_batch") && text.contains("source.query_keys"), "{text}");
    assert!(text.contains("without a restart"), "{text}");
}

#[test]
fn the_signal_reloads_and_a_smaller_cache_keeps_its_bound() {
    let (place, server) = Place::start(|config| config.set("cache.capacity", "\"8MiB\""));
    let mut client = server.client();
    (1..=100).for_each(|id| assert_eq!(client.get(&format!("/products/{id}")).status, 200));
    let capacity = || server.metrics().sum("hotrow_cache_capacity_bytes", &[]);
    let before = capacity();
    let smaller = place.config().set("cache.capacity", "\"1MiB\"").set("log.level", "\"debug\"");
    place.write(&smaller);
    server.signal(Signal::HUP);
    await_until("the reload", SOON, || reloads(&server, "applied") == 1.0);
    assert!(before > 7e6 && capacity() <= (1 << 20) as f64, "{before} {}", capacity());
    let status = server.status();
    assert!(status["cache"]["bytes"].as_u64() <= status["cache"]["capacity_bytes"].as_u64());
    assert_eq!(status["configuration"]["last_reload"]["trigger"], "signal");
    assert_eq!(client.get("/products/1").status, 200);
}

#[test]
fn a_changed_file_is_reloaded_if_it_is_watched() {
    let (place, server) = Place::start(|config| config.set("reload.watch_file", "true"));
    let watched = place.config().set("reload.watch_file", "true");
    place.write(&watched.set("collections.goods.cache_control", "\"max-age=9\""));
    await_until("the reload", SOON, || reloads(&server, "applied") == 1.0);
    assert_eq!(server.get("/goods/1").header("cache-control"), Some("max-age=9"));
    assert_eq!(server.status()["configuration"]["last_reload"]["trigger"], "file");
}

#[test]
fn the_level_of_the_log_changes() {
    let (place, server) = Place::start(|config| config.set("log.level", "\"info\""));
    place.write(&place.config().set("log.level", "\"error\""));
    assert_eq!(reload(&server)["result"], "applied");
    let in_force = "the changed configuration is in force";
    assert!(!server.log().contains(in_force), "that is less important than an error");
    place.write(&place.config().set("log.level", "\"info\""));
    assert_eq!(reload(&server)["result"], "applied");
    server.await_log(in_force);
}

#[test]
fn a_collection_leaves_and_returns() {
    let (place, server) = Place::start(|config| config);
    let mut client = server.client();
    assert_eq!(client.get("/goods/1").cache(), "miss");
    let without = Config::new(place.database.path()).collection("products");
    place.write(&without);
    assert_eq!(reload(&server)["applied"], serde_json::json!(["collections.goods"]));
    assert_eq!(client.get("/goods/1").status, 404);
    assert_eq!(server.admin_client().change("/purge/goods", "").status, 404);
    assert_eq!(client.get("/products/1").status, 200);
    place.write(&place.config());
    assert_eq!(reload(&server)["applied"], serde_json::json!(["collections.goods"]));
    assert_eq!(client.get("/goods/1").cache(), "miss", "its entries were dropped");
}

/// An API key, as `hotrow key new` makes it.
struct ApiKey {
    text: String,
    id: String,
    sha256: String,
}

impl ApiKey {
    fn new() -> Self {
        let made = Ended::run(&["key", "new", "--name", "a", "--role", "all", "--json"], SOON);
        let made: Value = serde_json::from_str(&made.output).expect("JSON");
        let text = |key: &str| made[key].as_str().expect(key).to_owned();
        Self { text: text("key"), id: text("id"), sha256: text("sha256") }
    }

    /// Adds the key to a configuration, under a name.
    fn grant(&self, config: Config, name: &str) -> Config {
        config
            .set("access.roles.all.collections", "\"*\"")
            .set(&format!("access.keys.{name}.id"), &format!("{:?}", self.id))
            .set(&format!("access.keys.{name}.sha256"), &format!("{:?}", self.sha256))
            .set(&format!("access.keys.{name}.roles"), "[\"all\"]")
    }
}

/// Each client has a key that is always valid; the other keys come and go.
#[test]
fn no_request_fails_while_keys_rotate() {
    const ROTATIONS: usize = 20;
    let (stays, comes) = (ApiKey::new(), ApiKey::new());
    let (place, server) =
        Place::start(|config| stays.grant(config, "stays").set("listen.workers", "2"));
    let data = server.data;
    let ending = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for first in 1..=3 {
            let (ending, answered, key) = (&ending, &answered, &*stays.text);
            scope.spawn(move || {
                let mut client = Client::connect(data);
                for id in (1..=100).cycle().skip(first * 30) {
                    if ending.load(Ordering::Relaxed) {
                        break;
                    }
                    // One of ten misses and waits for the database.
                    let path = format!("/{}/{id}", if id % 2 == 0 { "goods" } else { "products" });
                    let answer = client.get_with(&path, &[("X-API-Key", key)]);
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut other = server.client();
        for rotation in 0..ROTATIONS {
            let before = answered.load(Ordering::Relaxed);
            let is_valid = rotation % 2 == 0;
            let config = stays.grant(place.config().set("listen.workers", "2"), "stays");
            let config = if is_valid { comes.grant(config, "comes") } else { config };
            place.write(&config);
            assert_eq!(reload(&server)["result"], "applied");
            let status = other.get_with("/products/1", &[("X-API-Key", &comes.text)]).status;
            assert_eq!(status, if is_valid { 200 } else { 401 }, "rotation {rotation}");
            await_until("more answers", SOON, || answered.load(Ordering::Relaxed) > before + 20);
        }
        ending.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_demonstration_has_nothing_to_reload() {
    let folder = TempDir::new().expect("a folder");
    let server = Server::start_demo(folder.path(), &[]);
    assert_eq!(post_reload(&server).problem(404).0, "Not reloaded");
    assert_eq!(server.status()["configuration"], Value::Null);
}

#[test]
fn a_reload_needs_what_every_change_needs() {
    let token = "0123456789abcdefSECRET";
    let (_place, server) = Place::start(|config| config.set("admin.token", &format!("{token:?}")));
    let mut admin = server.admin_client();
    assert_eq!(admin.change("/reload", "").status, 401);
    let bearer = format!("Bearer {token}");
    let authorised = ("Authorization", &*bearer);
    admin.request("POST", "/reload", &[authorised], b"").problem(403);
    let refused = admin.request("GET", "/reload", &[authorised], b"");
    assert_eq!((refused.status, refused.header("allow")), (405, Some("POST")));
    let accepted = admin.request("POST", "/reload", &[authorised, ("Hotrow-Admin", "1")], b"");
    assert_eq!(accepted.status, 200);
}

/// The aliases of the start stay, with the settings of their collection.
#[test]
fn an_alias_is_kept_as_it_was_at_the_start() {
    let with_code = |config: Config| config.set("collections.products.by.code.columns", "\"code\"");
    let database = Database::with_products(3);
    database.execute(
        "ALTER TABLE products ADD COLUMN code TEXT; CREATE UNIQUE INDEX codes ON products(code); \
         UPDATE products SET code = 'c' || id",
    );
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("hotrow.toml");
    let place = Place { database, file, _folder: folder };
    place.write(&with_code(place.config()));
    let server = Server::start_command(place.command());
    server.await_ready();
    let mut client = server.client();
    assert_eq!(client.get("/products/by/code/c1").status, 200);
    let other = place.config().set("collections.products.by.name.columns", "\"name\"");
    place.write(&other.set("collections.products.cache_control", "\"max-age=5\""));
    let left = reload(&server)["left"].to_string();
    for path in ["collections.products.by.code.columns", "collections.products.by.name.columns"] {
        assert!(left.contains(path), "{path}: {left}");
    }
    for path in ["/products/by/code/c1", "/products/by/code/nothing"] {
        assert_eq!(client.get(path).header("cache-control"), Some("max-age=5"), "{path}");
    }
    assert_eq!(client.get("/products/by/name/p1").status, 404);
    place.write(&with_code(Config::new(place.database.path()).collection("products")));
    reload(&server);
    assert_eq!(client.get("/products/by/code/c1").cache(), "hit");
    place.database.execute("UPDATE products SET code = 'd1' WHERE id = 1");
    await_until("the change", SOON, || client.get("/products/by/code/d1").status == 200);
    place.write(&Config::new(place.database.path()).set("collections.goods.table", "\"products\""));
    reload(&server);
    assert_eq!(client.get("/products/by/code/d1").status, 404, "its collection has gone");
}
