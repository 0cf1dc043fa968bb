//! The routing recipes of examples/routing with the real programs: one instance per key, only ready
//! instances, and all of them when none is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

use crate::e2e::carriers::certificate_for;
use crate::overload::fronts::{Running, nginx_command, nginx_places};

const HAPROXY: &str = include_str!("../../../../../examples/routing/haproxy.cfg");
const NGINX: &str = include_str!("../../../../../examples/routing/nginx.conf");
const DOCUMENT: &str = include_str!("../../../../../docs/routing.md");
/// Instances of the recipes.
const PLACES: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];

/// Returns a recipe that listens on `front`, with the addresses of these instances in turn.
fn recipe(text: &str, front: SocketAddr, servers: &[&Server]) -> String {
    let mut text = text
        .replace("bind :8000", &format!("bind {front}"))
        .replace("listen 8000", &format!("listen {front}"));
    for (place, server) in PLACES.into_iter().zip(servers.iter().cycle()) {
        let admin = server.admin.port();
        assert!(text.contains(place), "{place} in {text}");
        text = text
            .replace(&format!("{place}:8080 port 8081"), &format!("{} port {admin}", server.data))
            .replace(&format!("{place}:8080"), &server.data.to_string());
    }
    assert!(!text.contains(":8080") && !text.contains(":8000"), "{text}");
    text
}

pub(crate) fn haproxy(servers: &[&Server]) -> Running {
    haproxy_of(HAPROXY, servers)
}

fn haproxy_of(text: &str, servers: &[&Server]) -> Running {
    Running::start(|folder, address| {
        let file = folder.join("haproxy.cfg");
        // One thread: its bounds on load hold for all requests.
        let text = recipe(text, address, servers).replace("global\n", "global\n  nbthread 1\n");
        std::fs::write(&file, text).expect("write the configuration");
        let mut command = Command::new("haproxy");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin")).arg("-db").arg("-f").arg(file);
        command
    })
}

pub(crate) fn nginx(servers: &[&Server]) -> Running {
    nginx_of(NGINX, servers)
}

fn nginx_of(text: &str, servers: &[&Server]) -> Running {
    Running::start(|folder: &Path, address| {
        let places = nginx_places(folder);
        let recipe = recipe(text, address, servers);
        let folder_name = folder.display();
        let text = format!(
            "daemon off; master_process off; pid {folder_name}/pid; error_log \
             {folder_name}/errors;\nevents {{ worker_connections 256; }}\nhttp {{\naccess_log \
             off;\n{places}{recipe}}}\n"
        );
        nginx_command(folder, &text)
    })
}

fn start(database: &Database) -> Server {
    let config = Config::new(database.path())
        .set("cache.max_staleness", "\"100ms\"")
        .set("cache.when_stale", "\"stale\"")
        .set("admin.ready_when", "\"fresh\"")
        .collection("products");
    let server = Server::start(&config);
    assert_eq!(server.get("/products/1").status, 200);
    server
}

/// Takes the database away, and waits until its instance is not ready.
fn take_away(database: &Database, server: &Server) {
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    std::fs::rename(database.path(), database.folder().join("away.db")).expect("a rename");
    let mut admin = server.admin_client();
    await_until("not ready", SOON, || admin.get("/readyz").status == 503);
}

/// Returns the marks of `count` answers, each on a connection of its own.
fn marks(front: SocketAddr, count: usize) -> Vec<String> {
    let ask = |_| {
        let answer = Client::connect(front).get("/products/1");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.cache().to_owned()
    };
    (0..count).map(ask).collect()
}

fn answers_although_none_is_ready(start_front: impl Fn(&[&Server]) -> Running, checks: bool) {
    let databases = [Database::with_products(3), Database::with_products(3)];
    let servers = [start(&databases[0]), start(&databases[1])];
    let front = start_front(&[&servers[0], &servers[1]]);
    assert_eq!(marks(front.address(), 8), ["hit"; 8]);
    take_away(&databases[0], &servers[0]);
    if checks {
        // The balancer notices: requests go to the other.
        await_until("the unready instance to be left out", SOON, || {
            marks(front.address(), 8) == ["hit"; 8]
        });
    }
    take_away(&databases[1], &servers[1]);
    // For longer than the balancer needs to notice, every request is answered from memory.
    await_until("all answers to be stale", SOON, || marks(front.address(), 8) == ["stale"; 8]);
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_secs(4) {
        assert_eq!(marks(front.address(), 4), ["stale"; 4]);
    }
}

#[test]
fn haproxy_routes_by_readiness_and_to_all_when_none_is_ready() {
    answers_although_none_is_ready(haproxy, true);
}

#[test]
fn nginx_keeps_answering_when_none_is_ready() {
    answers_although_none_is_ready(nginx, false);
}

/// Three instances, each with a database of its own whose records name the instance.
struct Named {
    servers: Vec<Server>,
    _databases: Vec<Database>,
}

/// Records of each instance.
const RECORDS: u32 = 60;

impl Named {
    fn start(settings: impl Fn(Config) -> Config) -> Self {
        let databases: Vec<Database> = (0..3)
            .map(|instance| {
                let database = Database::with_products(RECORDS);
                database.execute(&format!("UPDATE products SET name = 'instance {instance}'"));
                database
            })
            .collect();
        let start = |database: &Database| {
            Server::start(&settings(Config::new(database.path()).collection("products")))
        };
        Self { servers: databases.iter().map(start).collect(), _databases: databases }
    }

    fn all(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }
}

/// Returns the instance that answers each record.
fn instances(front: SocketAddr) -> BTreeMap<u32, String> {
    let mut client = Client::connect(front);
    let mut instance_of = |id| {
        let answer = client.get(&format!("/products/{id}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["name"].as_str().expect("a name").to_owned()
    };
    (1..=RECORDS).map(|id| (id, instance_of(id))).collect()
}

fn an_instance_that_leaves_moves_only_its_own_keys(start_front: impl Fn(&[&Server]) -> Running) {
    let mut named = Named::start(|config| config);
    let front = start_front(&named.all());
    let before = instances(front.address());
    let used: BTreeSet<&String> = before.values().collect();
    assert_eq!(used.len(), 3, "{before:?}");
    assert_eq!(before, instances(front.address()), "the same instance each time");

    // Batches are answered too, whatever the instance.
    let mut client = Client::connect(front.address());
    for _ in 0..6 {
        let answer = client.get("/products?ids=1,2,3");
        assert_eq!(answer.json()["items"].as_object().map(serde_json::Map::len), Some(3));
        let answer = client.post("/products", r#"{"ids":[1,2,3]}"#);
        assert_eq!(answer.json()["items"].as_object().map(serde_json::Map::len), Some(3));
    }

    drop(named.servers.remove(1));
    await_until("only keys of the instance that left to move", SOON, || {
        let after = instances(front.address());
        let stayed = before.iter().filter(|(_, instance)| *instance != "instance 1");
        assert!(after.values().all(|instance| instance != "instance 1"));
        stayed.clone().count() > 0 && stayed.clone().all(|(id, instance)| after[id] == *instance)
    });
    let after = instances(front.address());
    let heirs: BTreeSet<&String> = before
        .iter()
        .filter(|(_, instance)| *instance == "instance 1")
        .map(|(id, _)| &after[id])
        .collect();
    assert_eq!(heirs.len(), 2, "both others take some: {before:?}, {after:?}");
}

#[test]
fn haproxy_moves_only_the_keys_of_an_instance_that_leaves() {
    an_instance_that_leaves_moves_only_its_own_keys(haproxy);
}

#[test]
fn nginx_moves_only_the_keys_of_an_instance_that_leaves() {
    an_instance_that_leaves_moves_only_its_own_keys(nginx);
}

/// A session that moves between instances with each request never goes back in time.
fn positions_hold_at_every_instance(start_front: impl Fn(&[&Server]) -> Running) {
    let database = Database::with_products(RECORDS);
    let config = Config::new(database.path())
        .collection("products")
        .set("collections.products.allow_min_position", "true");
    let servers: Vec<Server> = (0..3).map(|_| Server::start(&config)).collect();
    let front = start_front(&servers.iter().collect::<Vec<_>>());
    let mut client = Client::connect(front.address());
    // Fills all memories: without the position, answers of before could follow.
    (1..=RECORDS).for_each(|id| _ = client.get(&format!("/products/{id}")));
    let log = client.get("/products/1").position();
    for round in 0..20 {
        // A proxy ends connections after some number of requests.
        client = Client::connect(front.address());
        let name = format!("round {round}");
        database.execute(&format!("UPDATE products SET name = '{name}'"));
        let written = log.with(database.log_end()).to_string();
        for id in 1..=RECORDS {
            let fields = [("Hotrow-Min-Position", written.as_str())];
            let answer = client.get_with(&format!("/products/{id}"), &fields);
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.json()["name"].as_str(), Some(name.as_str()), "{answer:?}");
        }
    }
}

#[test]
fn haproxy_leaves_positions_valid_at_every_instance() {
    positions_hold_at_every_instance(haproxy);
}

#[test]
fn nginx_leaves_positions_valid_at_every_instance() {
    positions_hold_at_every_instance(nginx);
}

/// Returns the example of the document in this language.
fn example(language: &str) -> &'static str {
    let (_, rest) = DOCUMENT.split_once(&format!("```{language}\n")).expect("an example");
    rest.split_once("```").expect("its end").0
}

#[test]
fn connections_between_balancer_and_instances_are_encrypted_and_verified() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name).display().to_string();
        std::fs::write(&path, text).expect("writable");
        path
    };
    let (authority, certificate, key) = certificate_for("hotrow.internal");
    let (other, ..) = certificate_for("hotrow.internal");
    let (ca, other_ca) = (write("ca.pem", &authority), write("other.pem", &other));
    let (cert, key) = (write("cert.pem", &certificate), write("key.pem", &key));
    let named = Named::start(|config| {
        config
            .set("listen.tls.cert", &format!("{cert:?}"))
            .set("listen.tls.key", &format!("{key:?}"))
    });
    for (trusted, status) in [(&ca, 200), (&other_ca, 503)] {
        let at = |text: &str| text.replace("/etc/ssl/hotrow-ca.pem", trusted);
        let line = at(example("haproxy"));
        let text = HAPROXY.replace("  mode http\n", &format!("  mode http\n{line}"));
        let front = haproxy_of(&text, &named.all());
        assert_eq!(Client::connect(front.address()).get("/products/1").status, status);
    }
    for (trusted, status) in [(&ca, 200), (&other_ca, 502)] {
        let lines = example("nginx").replace("/etc/ssl/hotrow-ca.pem", trusted);
        let text = NGINX
            .replace("proxy_pass http://", "proxy_pass https://")
            .replace("  proxy_http_version 1.1;\n", &format!("  proxy_http_version 1.1;\n{lines}"));
        let front = nginx_of(&text, &named.all());
        assert_eq!(Client::connect(front.address()).get("/products/1").status, status);
    }
}
