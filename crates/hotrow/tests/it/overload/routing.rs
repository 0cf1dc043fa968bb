//! The routing recipes of docs/rollout.md with the real programs: requests go to instances that
//! are ready, and to all of them when none is.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

use crate::overload::fronts::{Running, nginx_command, nginx_places};

const DOCUMENT: &str = include_str!("../../../../../docs/rollout.md");

/// Returns the recipe of the document in this language, with the addresses of two instances.
fn recipe(language: &str, front: SocketAddr, servers: [&Server; 2]) -> String {
    let begin = format!("```{language}\n");
    let (_, rest) = DOCUMENT.split_once(&begin).expect("a recipe");
    let (text, _) = rest.split_once("```").expect("its end");
    let mut text = text
        .replace("bind :8000", &format!("bind {front}"))
        .replace("listen 8000", &format!("listen {front}"));
    for (place, server) in ["10.0.0.1", "10.0.0.2"].into_iter().zip(servers) {
        let admin = server.admin.port();
        assert!(text.contains(place), "{place} in {text}");
        text = text
            .replace(&format!("{place}:8080 port 8081"), &format!("{} port {admin}", server.data))
            .replace(&format!("{place}:8080"), &server.data.to_string());
    }
    text
}

pub(crate) fn haproxy(servers: [&Server; 2]) -> Running {
    Running::start(|folder, address| {
        let file = folder.join("haproxy.cfg");
        let text = format!(
            "global\n  nbthread 1\n  maxconn 256\ndefaults\n  mode http\n  timeout connect 2s\n  \
             timeout client 30s\n  timeout server 30s\n{}",
            recipe("haproxy", address, servers)
        );
        std::fs::write(&file, text).expect("write the configuration");
        let mut command = Command::new("haproxy");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin")).arg("-db").arg("-f").arg(file);
        command
    })
}

pub(crate) fn nginx(servers: [&Server; 2]) -> Running {
    Running::start(|folder: &Path, address| {
        let places = nginx_places(folder);
        let recipe = recipe("nginx", address, servers);
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

fn answers_although_none_is_ready(start_front: impl Fn([&Server; 2]) -> Running, checks: bool) {
    let databases = [Database::with_products(3), Database::with_products(3)];
    let servers = [start(&databases[0]), start(&databases[1])];
    let front = start_front([&servers[0], &servers[1]]);
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
