//! Through TLS, HTTP/2 and a Unix socket, with API keys and tokens, with tenants and compressed
//! answers: a sound service passes, faults are found, and a way that is closed is explained without
//! a secret.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotrow_testkit::harness::{Config, Database, Ended as Finished, SOON, Server};
use hotrow_testkit::tokens::SigningKey;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::verify::checker::{
    ALL_RULES, Checker, MODEST, NAME, assert_all_rules, with_all_capabilities,
};

/// A column whose value takes long to make: changes happen during reads.
const SLOW: &str = "slow INTEGER GENERATED ALWAYS AS \
                    (length(replace(hex(zeroblob(100000 + id % 2)), '00', 'abc'))) VIRTUAL";
const SECRET: &[u8] = b"a secret of more than thirty-two bytes for tokens";

/// A service with TLS, HTTP/2, a Unix socket and credentials, and the files that clients need.
struct Fixture {
    folder: tempfile::TempDir,
    _database: Database,
    config: Config,
    key: String,
}

impl Fixture {
    fn new() -> Self {
        Self::with_columns("")
    }

    /// `columns`: definitions of further columns of the table; none: the checker creates it.
    fn with_columns(columns: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let database = Database::new();
        if !columns.is_empty() {
            database.execute(&format!(
                "CREATE TABLE {NAME}(id INTEGER PRIMARY KEY, version INTEGER NOT NULL,
                 payload TEXT NOT NULL, {columns})"
            ));
        }
        let path = |name: &str| format!("{:?}", folder.path().join(name));
        let made =
            Finished::run(&["key", "new", "--name", "checker", "--role", "all", "--json"], SOON);
        let made: Value = serde_json::from_str(&made.output).expect("a key");
        let text = |name: &str| made[name].to_string();
        let config = with_all_capabilities(Config::new(database.path()))
            .set("listen.unix", &path("data.sock"))
            .set("listen.tls.cert", &path("cert.pem"))
            .set("listen.tls.key", &path("key.pem"))
            .set("access.roles.all.collections", "\"*\"")
            .set("access.roles.all.allow_no_cache", "true")
            .set("access.roles.all.allow_min_position", "true")
            .set("access.keys.checker.id", &text("id"))
            .set("access.keys.checker.sha256", &text("sha256"))
            .set("access.keys.checker.roles", "[\"all\"]")
            .set("access.jwt.hs256_secret", &format!("{:?}", String::from_utf8_lossy(SECRET)));
        let key = made["key"].as_str().expect("a text").to_owned();
        let fixture = Self { folder, _database: database, config, key };
        fixture.certificate("cert", "127.0.0.1", 4096);
        fixture.certificate("foreign", "127.0.0.1", 4096);
        fixture.write("api-key", &fixture.key);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let claims = json!({ "exp": now + 3600, "roles": ["all"] });
        fixture.write("token", &SigningKey::secret(SECRET).token(&claims));
        let created = Checker::start(&fixture.config, &["--create"]).ended(Duration::ZERO);
        assert_eq!(created.status, Some(0), "{created:?}");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("writable");
    }

    /// Writes a certificate to `NAME.pem`, and its key to `key.pem` if it is the service's.
    fn certificate(&self, name: &str, host: &str, until: i32) {
        let pair = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        params.not_after = date_time_ymd(until, 1, 1);
        let signed = params.self_signed(&pair).expect("a certificate");
        self.write(&format!("{name}.pem"), &signed.pem());
        if name == "cert" {
            self.write("key.pem", &pair.serialize_pem());
        }
    }

    fn check(&self, arguments: &[&str]) -> Checker {
        let common = ["--json", "--keys", "60", "--rate", "200"];
        Checker::start(&self.config, &[&common[..], arguments].concat())
    }

    fn unix(&self) -> String {
        format!("unix:{}", self.text("data.sock"))
    }
}

#[test]
fn a_sound_service_passes_through_every_transport() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture.config);
    let (secure, unix) = (format!("https://{}", server.data), fixture.unix());
    let admin = format!("http://{}", server.admin);
    let (ca, key, token) =
        (fixture.text("cert.pem"), fixture.text("api-key"), fixture.text("token"));
    fixture.write("header", &format!("X-API-Key: {}\n", fixture.key));
    let header = format!("@{}", fixture.text("header"));
    for way in [
        &["--url", &*secure, "--cacert", &ca, "--token-file", &key][..],
        &["--url", &secure, "--cacert", &ca, "--token-file", &token, "--http2"],
        &["--url", &secure, "--insecure", "--header", &header, "--http2"],
        &["--url", &unix, "--token-file", &token],
        &["--url", &unix, "--token-file", &key, "--http2"],
    ] {
        let ended = fixture
            .check(&[way, &["--admin", &admin, "-d", "1500ms"], &MODEST].concat())
            .ended(Duration::from_secs(2));
        let report = ended.assert_passed(50, 10);
        assert_all_rules(&report, &ALL_RULES);
        for text in [&ended.output, &ended.log] {
            assert!(!text.contains(&fixture.key) && !text.contains("Bearer"), "{text}");
        }
    }
}

#[test]
fn compressed_answers_keep_the_contract() {
    let mut fixture = Fixture::new();
    let setting = |name: &str| format!("collections.{NAME}.{name}");
    fixture.config = fixture
        .config
        .set(&setting("compression"), "[\"gzip\"]")
        .set(&setting("compression_min"), "64");
    let server = Server::start(&fixture.config);
    let url = format!("https://{}", server.data);
    let (ca, key) = (fixture.text("cert.pem"), fixture.text("api-key"));
    let admin = format!("http://{}", server.admin);
    let way = ["--url", &url, "--admin", &admin, "--cacert", &ca, "--token-file", &key];
    for version in [&[][..], &["--http2"]] {
        let accepts = ["-H", "Accept-Encoding: gzip", "-d", "1500ms"];
        let before = made(&server);
        let ended = fixture.check(&[&way[..], version, &accepts].concat());
        let report = ended.ended(Duration::from_secs(2)).assert_passed(50, 10);
        assert_all_rules(&report, &ALL_RULES);
        assert!(made(&server) > before, "compressed forms are made for those who accept them");
    }
}

fn made(server: &Server) -> f64 {
    server.metrics().sum("hotrow_compressions_total", &[("outcome", "stored")])
}

/// With tenants, over both versions of HTTP: the key and the token of the rows' tenant, and those
/// of another one.
#[test]
fn an_own_tenants_rows_keep_the_contract_and_anothers_are_absent() {
    let mut fixture = Fixture::with_columns("tenant TEXT GENERATED ALWAYS AS ('acme') VIRTUAL");
    let collection = format!("collections.{NAME}.tenant");
    let set = |config: Config, tenant: &str| config.set("access.keys.checker.tenant", tenant);
    let config = fixture
        .config
        .clone()
        .set(&collection, "\"tenant\"")
        .set("access.jwt.tenant_claim", "\"org\"");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    for (tenant, is_own) in [("acme", true), ("other", false)] {
        fixture.config = set(config.clone(), &format!("{tenant:?}"));
        let claims = json!({ "exp": now + 3600, "roles": ["all"], "org": [tenant, "x"] });
        fixture.write("token", &SigningKey::secret(SECRET).token(&claims));
        let server = Server::start(&fixture.config);
        let url = format!("https://{}", server.data);
        let admin = format!("http://{}", server.admin);
        let ca = fixture.text("cert.pem");
        for (credential, version) in [("api-key", &[][..]), ("token", &["--http2"])] {
            let credential = fixture.text(credential);
            let way =
                ["--url", &url, "--admin", &admin, "--cacert", &ca, "--token-file", &credential];
            let checker = fixture.check(&[&way[..], version, &["-d", "1500ms"], &MODEST].concat());
            let ended = checker.ended(Duration::from_secs(20));
            if is_own {
                assert_all_rules(&ended.assert_passed(50, 10), &ALL_RULES);
            } else {
                // Before anything is checked: what it has just written is not there.
                assert_eq!(ended.status, Some(1), "{ended:?}");
                assert!(ended.log.contains("it returned 404 for the row 1"), "{ended:?}");
            }
        }
    }
}

/// As in `sqlite`: checked against a tighter bound than its own, a service that is stopped for
/// longer violates the contract.
#[test]
fn a_looser_bound_is_found_through_tls_and_http2() {
    let mut fixture = Fixture::new();
    fixture.config =
        fixture.config.set("cache.max_staleness", "\"60s\"").set("cache.when_stale", "\"stale\"");
    let server = Server::start(&fixture.config);
    fixture.config = fixture.config.set("cache.max_staleness", "\"10ms\"");
    let url = format!("https://{}", server.data);
    let (ca, key) = (fixture.text("cert.pem"), fixture.text("api-key"));
    let way = ["--url", &url, "--cacert", &ca, "--token-file", &key, "--http2", "-d", "60s"];
    let mut checker = fixture.check(&way);
    while checker.runs() {
        server.stop();
        std::thread::sleep(Duration::from_millis(120));
        server.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(200));
    }
    let (rule, counterexample) = checker.ended(Duration::from_secs(60)).assert_violated();
    assert_eq!(rule, "fresh", "{counterexample}");
}

#[cfg(feature = "failpoints")]
#[test]
fn a_missing_lease_is_found_through_tls() {
    let fixture = Fixture::with_columns(SLOW);
    let server = Server::start_with(&fixture.config, &[("HOTROW_FAILPOINTS", "lease")]);
    server.await_ready();
    let url = format!("https://{}", server.data);
    let (ca, key) = (fixture.text("cert.pem"), fixture.text("api-key"));
    let checker =
        fixture.check(&["--url", &url, "--cacert", &ca, "--token-file", &key, "-d", "60s"]);
    checker.ended(Duration::from_secs(60)).assert_violated();
}

#[test]
fn a_closed_way_is_explained_without_a_secret() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture.config);
    let url = format!("https://{}", server.data);
    let named = format!("https://localhost:{}", server.data.port());
    let (ca, foreign, key) =
        (fixture.text("cert.pem"), fixture.text("foreign.pem"), fixture.text("api-key"));
    let (missing, socket) = (fixture.text("missing"), format!("unix:{}", fixture.text("no.sock")));
    fixture.write("wrong", &format!("{}x", fixture.key));
    let wrong = fixture.text("wrong");
    let plain = format!("http://{}", server.data);
    let cases: [(&[&str], i32, &str); 9] = [
        (&["--url", &url, "--cacert", &foreign], 1, "not signed by a trusted authority"),
        (&["--url", &named, "--cacert", &ca], 1, "for another name"),
        (&["--url", &url, "--cacert", &ca], 1, "returned 401"),
        (&["--url", &url, "--cacert", &ca, "--token-file", &wrong], 1, "returned 401"),
        (&["--url", &socket], 1, "there is no socket"),
        (&["--url", &url, "--cacert", &missing], 2, "has no certificates"),
        (&["--url", &url, "--token-file", &missing], 2, "cannot be read"),
        (&["--url", &plain, "--cacert", &ca], 2, "are for https:// URLs"),
        (&["--url", &url, "-H", "Authorization: Bearer hush"], 2, "is a credential"),
    ];
    // The first ones try for ten seconds.
    let started: Vec<_> =
        cases.iter().map(|(way, ..)| fixture.check(&[*way, &["-d", "1s"]].concat())).collect();
    for (checker, (way, status, words)) in started.into_iter().zip(&cases) {
        let ended = checker.ended(Duration::from_secs(20));
        assert_eq!(ended.status, Some(*status), "{way:?}: {ended:?}");
        assert!(ended.log.contains(words), "{words:?} in {ended:?}");
        assert!(!ended.log.contains(&fixture.key) && !ended.log.contains("hush"), "{ended:?}");
    }
    assert!(
        fixture
            .check(&["--url", &url, "--cacert", &ca, "--token-file", &key, "-d", "1s"])
            .ended(Duration::from_secs(2))
            .status
            == Some(0)
    );
}

#[test]
fn an_expired_certificate_is_named() {
    let fixture = Fixture::new();
    fixture.certificate("cert", "127.0.0.1", 2020);
    let server = Server::start(&fixture.config);
    let (url, ca) = (format!("https://{}", server.data), fixture.text("cert.pem"));
    let ways = [&["--http2"][..], &[]];
    let check =
        |more: &&[&str]| fixture.check(&[&["--url", &url, "--cacert", &ca], *more].concat());
    for checker in ways.iter().map(check).collect::<Vec<_>>() {
        let ended = checker.ended(Duration::from_secs(20));
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.log.contains("the server's certificate has expired"), "{ended:?}");
    }
}
