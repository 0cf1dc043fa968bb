//! Access to the admin API: hosts, origins, and the header of a change, as browsers and tools send
//! them.

use std::process::{Command, Stdio};

use hotrow_testkit::harness::{Answer, Client, Config, Database, SOON, Server};

const TOKEN: &str = "0123456789abcdefSECRET";
/// Paths of requests that change the process.
const CHANGES: [&str; 3] = ["/purge/products", "/purge/products/1", "/limits/rate/clients"];
const BODY: &str = r#"{"burst":10}"#;

fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::with_products(3);
    let config = Config::new(database.path())
        .collection("products")
        .set("limits.rate.clients.rate", "\"1000000/s\"");
    let server = Server::start(&config.with(settings));
    (database, server)
}

/// Sends a request with this Host and these header lines, each with its line end.
fn ask(client: &mut Client, method: &str, path: &str, host: &str, fields: &str) -> Answer {
    let body = if method == "POST" { BODY } else { "" };
    let length = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    ));
    client.answer_to(method)
}

#[test]
fn an_unknown_host_is_refused_with_the_setting_that_would_allow_it() {
    let (_database, server) = start(&[("admin.hosts", r#"["hotrow.internal", "Shop_1.example"]"#)]);
    let mut client = server.admin_client();
    let known = [
        "127.0.0.1",
        "127.0.0.1:8081",
        "10.1.2.3:1",
        "[::1]",
        "[2001:db8::1]:8081",
        "localhost",
        "LocalHost:8081",
        "localhost.",
        "hotrow.internal",
        "HOTROW.internal:443",
        "shop_1.EXAMPLE",
    ];
    let unknown = [
        "evil.example",
        "evil.example:8081",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "xhotrow.internal",
        "hotrow.internal.evil.example",
        "hotrow",
        "2130706433",
        "0x7f.0.0.1",
        "",
    ];
    for path in ["/", "/page.js", "/uplot.js", "/status", "/history", "/hot-keys", "/nothing"] {
        for host in known {
            assert_ne!(ask(&mut client, "GET", path, host, "").status, 403, "{host} {path}");
        }
        for host in unknown {
            let (title, detail) = ask(&mut client, "GET", path, host, "").problem(403);
            assert!(
                title == "Forbidden" && detail.contains("admin.hosts"),
                "{host} {path}: {detail}"
            );
        }
    }
    for path in CHANGES {
        for host in unknown {
            ask(&mut client, "POST", path, host, "Hotrow-Admin: 1\r\n").problem(403);
        }
    }
    // Probes and scrapers use any name of the service.
    for path in ["/healthz", "/readyz", "/metrics"] {
        for host in known.into_iter().chain(unknown) {
            assert_eq!(ask(&mut client, "GET", path, host, "").status, 200, "{host} {path}");
        }
    }
    // The target's host has priority over Host, and HTTP/1.0 needs none.
    client.send("GET http://evil.example/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.answer().problem(403);
    client.send("GET http://localhost/status HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    client.send("GET /status HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_change_needs_what_a_foreign_page_cannot_send() {
    for token in [None, Some(TOKEN)] {
        let quoted = format!("\"{TOKEN}\"");
        let settings: Vec<(&str, &str)> =
            token.iter().map(|_| ("admin.token", quoted.as_str())).collect();
        let (_database, server) = start(&settings);
        let mut client = server.client();
        let mut admin = server.admin_client();
        let host = server.admin.to_string();
        // Credentials that a browser stores and sends by itself.
        let credentials = if token.is_some() {
            "Authorization: Basic OjAxMjM0NTY3ODlhYmNkZWZTRUNSRVQ=\r\n"
        } else {
            ""
        };
        let mut change = |path: &str, fields: &str| {
            ask(&mut admin, "POST", path, &host, &format!("{credentials}{fields}")).status
        };
        client.get("/products/1");
        for path in CHANGES {
            for fields in [
                "".to_owned(),
                "Content-Type: text/plain\r\n".to_owned(),
                "Content-Type: application/x-www-form-urlencoded\r\n".to_owned(),
                "Content-Type: multipart/form-data; boundary=application/json\r\n".to_owned(),
                "Content-Type: text/plain\r\nOrigin: http://evil.example\r\n\
                 Sec-Fetch-Site: cross-site\r\n"
                    .to_owned(),
                // Requests with a header that only a permitted page can send.
                "Hotrow-Admin: 1\r\nOrigin: http://evil.example\r\n".to_owned(),
                "Hotrow-Admin: 1\r\nOrigin: null\r\n".to_owned(),
                "Hotrow-Admin: 1\r\nOrigin: http://127.0.0.1:1\r\n".to_owned(),
                "Content-Type: application/json\r\nOrigin: http://evil.example\r\n".to_owned(),
                "Hotrow-Admin: 1\r\nSec-Fetch-Site: cross-site\r\n".to_owned(),
                "Hotrow-Admin: 1\r\nSec-Fetch-Site: same-site\r\n".to_owned(),
                format!(
                    "Hotrow-Admin: 1\r\nOrigin: http://{host}\r\nSec-Fetch-Site: cross-site\r\n"
                ),
                format!(
                    "Hotrow-Admin: 1\r\nOrigin: http://{host}\r\nOrigin: http://evil.example\r\n"
                ),
            ] {
                assert_eq!(change(path, &fields), 403, "{path} {fields}");
            }
            assert_eq!(client.get("/products/1").cache(), "hit", "{path}: nothing was purged");
        }
        for path in CHANGES {
            for fields in [
                "Hotrow-Admin: 1\r\n".to_owned(),
                "hotrow-admin: yes\r\n".to_owned(),
                "Content-Type: application/json\r\n".to_owned(),
                "Content-Type: application/json; charset=utf-8\r\n".to_owned(),
                format!(
                    "Hotrow-Admin: 1\r\nOrigin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n"
                ),
                "Hotrow-Admin: 1\r\nSec-Fetch-Site: none\r\n".to_owned(),
            ] {
                assert_eq!(change(path, &fields), 200, "{path} {fields}");
            }
        }
        assert_eq!(client.get("/products/1").cache(), "miss", "purged");
    }
}

#[test]
fn foreign_pages_get_no_permission() {
    let (_database, server) = start(&[]);
    let mut admin = server.admin_client();
    let host = server.admin.to_string();
    for path in CHANGES {
        let fields = "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\
                      Access-Control-Request-Headers: hotrow-admin\r\n";
        let answer = ask(&mut admin, "OPTIONS", path, &host, fields);
        assert_eq!(answer.status, 405, "{path}");
        let permits = |(name, _): &(String, String)| name.starts_with("access-control-");
        assert!(!answer.headers.iter().any(permits), "{answer:?}");
    }
}

#[test]
fn every_answer_restricts_its_use_in_browsers() {
    let (_database, server) = start(&[("admin.token", &format!("\"{TOKEN}\""))]);
    let mut admin = server.admin_client();
    let bearer = format!("Bearer {TOKEN}");
    for path in [
        "/",
        "/page.js",
        "/page.css",
        "/status",
        "/history",
        "/hot-keys",
        "/metrics",
        "/healthz",
        "/readyz",
        "/nothing",
        "/purge/products",
    ] {
        for fields in [&[][..], &[("Authorization", bearer.as_str())]] {
            let answer = admin.get_with(path, fields);
            let policy = answer.header("content-security-policy").unwrap_or_default();
            assert!(policy.starts_with("default-src 'none';"), "{path}: {policy}");
            assert!(
                policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
                "{path}: {policy}"
            );
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "no-referrer"),
                ("cross-origin-resource-policy", "same-origin"),
                ("cache-control", "no-store"),
            ] {
                assert_eq!(answer.header(name), Some(value), "{path}");
            }
        }
    }
}

#[test]
fn the_scheme_of_the_credentials_is_case_insensitive() {
    let (_database, server) = start(&[("admin.token", &format!("\"{TOKEN}\""))]);
    let mut admin = server.admin_client();
    for scheme in ["Bearer", "bearer", "BEARER", "bearer  "] {
        let value = format!("{scheme} {TOKEN}");
        assert_eq!(admin.get_with("/status", &[("Authorization", &value)]).status, 200, "{value}");
    }
    for scheme in ["Basic", "basic", "BASIC"] {
        let value = format!("{scheme} OjAxMjM0NTY3ODlhYmNkZWZTRUNSRVQ=");
        assert_eq!(admin.get_with("/status", &[("Authorization", &value)]).status, 200, "{value}");
    }
    for value in [format!("bearer{TOKEN}"), format!("token {TOKEN}"), format!("bearer\t{TOKEN}")] {
        admin.get_with("/status", &[("Authorization", &value)]).problem(401);
    }
}

/// Runs the commands of the documentation in a shell, with the addresses replaced.
#[test]
fn the_documented_commands_work_as_they_are_written() {
    let (_database, server) = start(&[("admin.token", &format!("\"{TOKEN}\""))]);
    let mut tried = 0;
    for page in [
        include_str!("../../../../../docs/http.md"),
        include_str!("../../../../../docs/rate-limits.md"),
    ] {
        let text = page.replace("\\\n", " ");
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("curl ") && line.contains("POST"))
        {
            let command = line.replace("127.0.0.1:8081", &server.admin.to_string()).replacen(
                "curl",
                "curl -sS --fail",
                1,
            );
            let mut shell = Command::new("sh");
            let done = shell
                .args(["-c", &command])
                .env("TOKEN", TOKEN)
                .stdin(Stdio::null())
                .output()
                .expect("a shell");
            let out = String::from_utf8_lossy(&done.stdout);
            let err = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{command}: {err}{out}");
            tried += 1;
        }
    }
    assert!(tried >= 2, "{tried} commands that change something are documented");
}

#[test]
fn targets_without_a_path_are_answered_on_both_sides() {
    let (_database, server) = start(&[]);
    for address in [server.data, server.admin] {
        let mut client = Client::connect(address);
        client.send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("allow")), (204, Some("GET, HEAD, POST")));
        assert_eq!((answer.header("content-length"), answer.body.len()), (None, 0));
        client.send("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n");
        let answer = client.answer();
        answer.problem(405);
        assert_eq!(answer.header("allow"), Some("GET, HEAD, POST"));
        client.send("GET x:80 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(client.answer().problem(400).1.contains("target"));
        client.closed(SOON);
    }
}
