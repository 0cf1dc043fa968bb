//! Readiness, `/status`, page, changes and advice over TLS and over the Unix socket of the admin
//! API, with and without the token.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server, await_until};

use super::carriers::certificate_for;
use super::curl::curl;

const TOKEN: &str = "0123456789abcdefSECRET";

/// A server with a token, a certificate of a private authority and a Unix socket.
struct Stage {
    folder: tempfile::TempDir,
    server: Server,
    _database: Database,
}

impl Stage {
    fn new() -> Self {
        Self::with(|config, _| config)
    }

    /// Starts with settings that may name files of the folder.
    fn with(settings: impl FnOnce(Config, &Path) -> Config) -> Self {
        let database = Database::with_products(3);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("writable");
        };
        let (authority, certificate, key) = certificate_for("127.0.0.1");
        write("ca.pem", &authority);
        write("certificate.pem", &certificate);
        write("key.pem", &key);
        write("other-ca.pem", &certificate_for("127.0.0.1").0);
        write("token", TOKEN);
        write("wrong-token", "0123456789abcdefWRONG");
        write("curl-token", &format!("Authorization: Bearer {TOKEN}\n"));
        let named = |name: &str| format!("{:?}", folder.path().join(name).display().to_string());
        let config = Config::new(database.path())
            .collection("products")
            .set("admin.token", &format!("{TOKEN:?}"))
            .set("admin.unix", &named("admin.sock"))
            .set("admin.tls.cert", &named("certificate.pem"))
            .set("admin.tls.key", &named("key.pem"));
        let server = Server::start_unready(&settings(config, folder.path()));
        let stage = Self { folder, server, _database: database };
        await_until("a sample of the history", SOON, || {
            let answer = stage.ask_socket("/history", TOKEN);
            answer.starts_with("HTTP/1.1 200") && !answer.contains("\"next\":0,")
        });
        stage
    }

    /// Sends a request over the Unix socket and returns the whole answer.
    fn ask_socket(&self, path: &str, token: &str) -> String {
        let mut stream = UnixStream::connect(self.path("admin.sock")).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let head = format!("{head}Authorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn secure(&self) -> String {
        format!("https://{}", self.server.admin)
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.text("admin.sock"))
    }
}

fn run(arguments: &[&str]) -> Ended {
    Ended::run(arguments, SOON)
}

#[test]
fn the_programs_reach_the_admin_address_over_tls_and_a_unix_socket() {
    let stage = Stage::new();
    let (secure, socket) = (stage.secure(), stage.socket());
    let (ca, token) = (stage.text("ca.pem"), stage.text("token"));
    let trusted = ["--cacert", ca.as_str()];
    for (url, trust) in [(&secure, &trusted[..]), (&socket, &[])] {
        // Health needs no token.
        for (ready, path) in [(&[][..], "/healthz"), (&["--ready"], "/readyz")] {
            let ended = run(&[&["health", url], trust, ready].concat());
            assert_eq!((ended.code(), ended.log.as_str()), (0, ""), "{ended:?}");
            assert!(ended.output.ends_with(&format!("{path} answered 200\n")), "{ended:?}");
        }
        let with_token = [trust, &["--token-file", &token]].concat();
        let top = run(&[&["top", "--once", url], &with_token[..]].concat());
        assert!(top.code() == 0 && top.output.contains("ready"), "{top:?}");
        // The cache is empty: there is no advice yet, and the reason comes from the server.
        let advise = run(&[&["advise", url], &with_token[..]].concat());
        assert_eq!(advise.code(), 1, "{advise:?}");
        assert!(advise.log.contains("does not know: the cache has 0 entries"), "{advise:?}");
    }
    // Several instances, by both ways at once.
    let both = run(&["top", "--once", "--cacert", &ca, "--token-file", &token, &secure, &socket]);
    assert!(both.code() == 0 && both.output.contains("total of 2"), "{both:?}");
}

#[test]
fn a_browser_and_curl_reach_page_and_changes_over_tls_and_a_unix_socket() {
    let stage = Stage::new();
    let (secure, ca) = (stage.secure(), stage.text("ca.pem"));
    let (sock, token) = (stage.text("admin.sock"), format!("@{}", stage.text("curl-token")));
    let ways = [
        (secure.as_str(), ["--cacert", &ca], secure.clone()),
        ("http://localhost", ["--unix-socket", &sock], "http://localhost".to_owned()),
    ];
    for (base, way, origin) in &ways {
        let get = |path: &str, more: &[&str]| {
            let url = format!("{base}{path}");
            let shown = ["--write-out", "\n%{http_code}", &url];
            curl(&[&way[..], &shown, more].concat())
        };
        let Some(ready) = get("/readyz", &[]) else { return };
        assert!(ready.contains("\"ready\":true") && ready.ends_with("\n200"), "{ready}");
        let ask = |path: &str, more: &[&str]| get(path, more).expect("curl ran a moment ago");
        for path in ["/status", "/", "/history", "/hot-keys", "/metrics", "/reload"] {
            assert!(ask(path, &[]).ends_with("\n401"), "{path} without the token");
        }
        let authorised = ["--header", token.as_str()];
        let status = ask("/status", &authorised);
        assert!(status.contains("\"token_required\":true") && status.ends_with("\n200"));
        assert!(ask("/", &authorised).contains("<!doctype html>"));
        for path in ["/page.js", "/charts.js", "/tables.js", "/uplot.js", "/page.css"] {
            assert!(ask(path, &authorised).ends_with("\n200"), "{path}");
        }
        // A change as the page sends it: the browser names the origin that it sees.
        let own = format!("Origin: {origin}");
        let change = ["--header", &own, "--header", "Hotrow-Admin: 1", "--request", "POST"];
        let purged = ask("/purge/products", &[&change[..], &authorised].concat());
        assert!(purged.ends_with("\n200"), "{purged}");
        let foreign = ["--header", "Origin: https://evil.example", "--request", "POST"];
        let foreign = [&foreign[..], &["--header", "Hotrow-Admin: 1"], &authorised].concat();
        assert!(ask("/purge/products", &foreign).ends_with("\n403"));
    }
}

#[test]
fn what_is_wrong_is_named_and_the_status_says_whose_fault_it_is() {
    let stage = Stage::new();
    let (secure, socket) = (stage.secure(), stage.socket());
    let file = |name: &str| stage.text(name);
    let (ca, other, token) = (file("ca.pem"), file("other-ca.pem"), file("token"));
    let (wrong_token, no_socket, no_file) = (file("wrong-token"), file("no.sock"), file("none"));
    let missing = format!("unix:{no_socket}");
    let (secure, socket) = (secure.as_str(), socket.as_str());
    // The command line, the exit status, and what the message names.
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["health", secure], 1, &[secure, "certificate"]),
        (&["health", secure, "--cacert", &other], 1, &[secure, "certificate"]),
        (&["health", secure, "--cacert", &no_file], 2, &[&no_file]),
        (&["health", secure, "--cacert", &token], 2, &[&token, "no certificates"]),
        (&["health", &missing], 1, &[&no_socket, "no socket"]),
        (&["advise", secure, "--token-file", &token], 1, &[secure, "certificate"]),
        (&["advise", secure, "--cacert", &other], 1, &[secure, "certificate"]),
        (&["advise", secure, "--cacert", &no_file], 2, &[&no_file]),
        (&["advise", secure, "--cacert", &ca], 1, &[secure, "401", "--token-file"]),
        (&["advise", socket, "--token-file", &wrong_token], 1, &[socket, "401", "--token-file"]),
        (&["advise", socket, "--token-file", &no_file], 2, &[&no_file]),
        (&["advise", &missing], 1, &[&no_socket, "no socket"]),
        (&["top", "--once", secure], 1, &["certificate"]),
        (&["top", "--once", secure, "--cacert", &other], 1, &["certificate"]),
        (&["top", "--once", secure, "--cacert", &no_file], 2, &[&no_file]),
        (&["top", "--once", secure, "--cacert", &ca], 1, &["401", "--token-file"]),
        (&["top", "--once", socket, "--token-file", &wrong_token], 1, &["401", "--token-file"]),
        (&["top", "--once", socket, "--token-file", &no_file], 2, &[&no_file]),
        (&["top", "--once", &missing], 1, &[&no_socket, "no socket"]),
    ];
    for (arguments, status, named) in cases {
        let ended = run(arguments);
        assert_eq!(ended.code(), *status, "{arguments:?}: {ended:?}");
        // A snapshot is printed in any case, with the reason in the row of the instance.
        let said = if ended.log.is_empty() { &ended.output } else { &ended.log };
        for name in *named {
            assert!(said.contains(name), "{arguments:?}: {name} is not in {said:?}");
        }
        assert!(!said.contains(TOKEN) && !said.contains("WRONG"), "{arguments:?}: {said:?}");
    }
}

#[test]
fn the_probe_of_a_configuration_uses_its_unix_socket() {
    let stage = Stage::new();
    let file = stage.text("hotrow.toml");
    let text = |unix: &str| {
        format!(
            "[listen]\nadmin = \"{}\"\n[admin]\n{unix}tls = {{ cert = \"c\", key = \"k\" }}\n\
             [source]\nurl = \"sqlite:x\"\n[collections.products]\n",
            stage.server.admin
        )
    };
    let unix = format!("unix = \"{}\"\n", stage.text("admin.sock"));
    std::fs::write(&file, text(&unix)).expect("writable");
    let ended = run(&["health", "--ready", "--config", &file]);
    assert_eq!((ended.code(), ended.log.as_str()), (0, ""), "{ended:?}");
    assert!(ended.output.contains("admin.sock /readyz answered 200"), "{ended:?}");
    // Without one it verifies the certificate.
    std::fs::write(&file, text("")).expect("writable");
    let ended = run(&["health", "--config", &file]);
    assert!(ended.code() == 1 && ended.log.contains("certificate"), "{ended:?}");
    let ended = run(&["health", "--config", &file, "--cacert", &stage.text("ca.pem")]);
    assert_eq!((ended.code(), ended.log.as_str()), (0, ""), "{ended:?}");
}

#[test]
fn client_certificates_may_be_required_and_the_socket_has_its_permissions() {
    let stage = Stage::with(|config, folder| {
        let ca = format!("{:?}", folder.join("ca.pem").display().to_string());
        config.set("admin.tls.client_ca", &ca).set("admin.unix_mode", "\"0600\"")
    });
    let (url, ca, token) = (stage.secure(), stage.text("ca.pem"), stage.text("token"));
    let (cert, key) = (stage.text("certificate.pem"), stage.text("key.pem"));
    let trusted = ["--cacert", ca.as_str()];
    let own = [&trusted[..], &["--cert", &cert, "--key", &key]].concat();
    let with_token = ["--token-file", token.as_str()];
    for command in [&["health"][..], &["top", "--once", "--token-file", &token]] {
        let ended = run(&[command, &[&url], &own].concat());
        assert_eq!(ended.code(), 0, "{command:?}: {ended:?}");
        let refused = run(&[command, &[&url], &trusted].concat());
        assert_eq!(refused.code(), 1, "{command:?}: {refused:?}");
    }
    // The cache is empty: it answers that it does not know.
    let advise = run(&[&["advise", &url], &own[..], &with_token].concat());
    assert!(advise.log.contains("does not know"), "{advise:?}");
    let file = std::fs::metadata(stage.path("admin.sock")).expect("it is there");
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    assert!(stage.ask_socket("/readyz", "").starts_with("HTTP/1.1 200"));
    assert!(stage.ask_socket("/status", "").starts_with("HTTP/1.1 401"), "the token counts there");
}

#[test]
fn new_certificates_are_taken_over_while_it_runs() {
    let stage = Stage::new();
    let (authority, certificate, key) = certificate_for("127.0.0.1");
    let counted = |result: &str| {
        let line =
            format!("hotrow_tls_reloads_total{{listener=\"admin\",result=\"{result}\"}} 1\n");
        stage.ask_socket("/metrics", TOKEN).contains(&line)
    };
    std::fs::write(stage.path("certificate.pem"), &certificate).expect("writable");
    await_until("a certificate without its key to be refused", SOON, || counted("refused"));
    let trusted = ["health", &stage.secure(), "--cacert", &stage.text("ca.pem")].map(str::to_owned);
    let trusted: Vec<&str> = trusted.iter().map(String::as_str).collect();
    assert_eq!(run(&trusted).code(), 0, "the certificate before stays in force");
    std::fs::write(stage.path("key.pem"), &key).expect("writable");
    await_until("the pair to be taken over", SOON, || counted("reloaded"));
    assert_eq!(run(&trusted).code(), 1);
    std::fs::write(stage.path("ca.pem"), &authority).expect("writable");
    assert_eq!(run(&trusted).code(), 0);
}
