//! Reads from an independent server: mongo-java-server, in memory.
//!
//! It confirms that the wire format and `find` are not only our own interpretation. Its change
//! streams send no tokens.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mongodb::bson::doc;

use crate::mongodb::mongo::MongoDatabase;
use crate::shop::{assert_contains, refusal};
use hotrow_testkit::harness::{Config, Server};

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
fn a_foreign_server_without_resume_tokens_is_read_and_not_followed() {
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
        .set("collections.products.key_type", "\"integer\"");
    let text = refusal(&config);
    assert_contains(&text, &["without a resume token", "feed = \"none\""]);
    let config = config.set("source.feed", "\"none\"").set("cache.ttl", "\"1m\"");
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(client.get("/products/7").text(), r#"{"_id":7,"name":"p7","price":700}"#);
    assert_eq!(client.get("/products?ids=1,2,99").json()["missing"], serde_json::json!(["99"]));
}
