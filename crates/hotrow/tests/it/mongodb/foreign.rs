//! Reads from an independent server: mongo-java-server, in memory.
//!
//! It confirms that the wire format, `find`, and the events of inserts and deletes are not only our
//! own interpretation. It does not support update events that name a document, resuming, tokens of
//! idle streams, or sessions; the stand-in covers those.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mongodb::bson::doc;

use crate::mongodb::mongo::MongoDatabase;
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

/// Running mongo-java-server; killed when dropped.
struct Foreign {
    child: Child,
    address: String,
}

impl Foreign {
    /// Starts a server. Returns `None`, after printing the reason, if Java or Maven is missing.
    fn start() -> Option<Self> {
        for program in ["java", "mvn"] {
            if Command::new(program)
                .arg("-version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_err()
            {
                println!("skipped: there is no {program} to run mongo-java-server with");
                return None;
            }
        }
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/java");
        let mut java = Command::new("java");
        java.arg("-cp").arg(libraries(&sources).join("*")).arg(sources.join("Launcher.java"));
        let mut child = java
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start java");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("its first line");
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("unexpected first line: {line:?}"))
            .to_owned();
        Some(Self { child, address })
    }
}

/// Returns the folder of the launcher's libraries, fetched once by Maven.
fn libraries(sources: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mongo-java-server-1.47");
    let fetched = folder.join("fetched");
    if !fetched.exists() {
        let output = format!("-DoutputDirectory={}", folder.display());
        let mut maven = Command::new("mvn");
        maven
            .args(["-B", "-q", "dependency:copy-dependencies", &output])
            .arg("-f")
            .arg(sources.join("pom.xml"));
        let done = maven.output().expect("run Maven");
        assert!(done.status.success(), "Maven: {}", String::from_utf8_lossy(&done.stdout));
        std::fs::write(fetched, "").expect("note that it is all there");
    }
    folder
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn inserts_and_deletes_of_a_foreign_server_are_seen() {
    let Some(foreign) = Foreign::start() else { return };
    let mongo = MongoDatabase::over(
        &format!("mongodb://{}/shop?replicaSet=rs0&retryWrites=false", foreign.address),
        "shop",
    );
    mongo.insert(
        "products",
        (1..=20).map(|n| doc! { "_id": n, "name": format!("p{n}"), "price": 100 * n }),
    );
    let config = Config::over(mongo.url())
        .set("collections.products.key", "\"_id\"")
        .set("collections.products.key_type", "\"integer\"")
        // Its idle streams send no tokens, so the feed counts as stale.
        .set("cache.when_stale", "\"stale\"");
    let server = Server::start_unready(&config);
    let mut client = server.client();
    await_until("a first answer", SOON, || client.get("/products/7").status == 200);
    assert_eq!(client.get("/products/7").text(), r#"{"_id":7,"name":"p7","price":700}"#);
    assert_eq!(client.get("/products?ids=1,2,99").json()["missing"], serde_json::json!(["99"]));
    // Its events of inserts and deletes lack the collection's name, so they flush instead of naming
    // a record.
    let changes = || {
        let metrics = server.metrics();
        ["hotrow_feed_changes_total", "hotrow_feed_flushes_total"]
            .map(|name| metrics.sum(name, &[]))
            .iter()
            .sum::<f64>()
    };
    let before = changes();
    assert_eq!(client.get("/products/77").status, 404);
    mongo.insert("products", [doc! { "_id": 77, "n": 1 }]);
    await_until("the insert to be seen", SOON, || client.get("/products/77").status == 200);
    mongo.delete("products", 7);
    await_until("the delete to be seen", SOON, || client.get("/products/7").status == 404);
    await_until("both to be counted", Duration::from_secs(5), || changes() >= before + 2.0);
}
