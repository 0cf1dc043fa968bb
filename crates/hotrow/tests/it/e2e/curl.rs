//! An independent client: curl.

use std::process::{Command, Stdio};

use hotrow_testkit::harness::{Config, Database, Server};

/// Runs curl; `None`, with the reason printed, if it is not installed.
pub(crate) fn curl(arguments: &[&str]) -> Option<String> {
    let base = ["--silent", "--show-error", "--max-time", "15", "--noproxy", "*"];
    match Command::new("curl").args(base).args(arguments).stdin(Stdio::null()).output() {
        Ok(done) => {
            let out = String::from_utf8_lossy(&done.stdout);
            let err = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "curl {arguments:?}: {err}{out}");
            Some(out.into_owned())
        }
        Err(e) => {
            println!("skipped: curl cannot be run: {e}");
            None
        }
    }
}

#[test]
fn curl_gets_the_expected_answers() {
    let database = Database::with_products(5);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let url = |path: &str| format!("http://{}{path}", server.data);
    let one = url("/products/1");
    let two = url("/products/2");
    let body = |id: u32| format!(r#"{{"id":{id},"name":"p{id}","price":{}}}"#, 100 * id);
    let Some(plain) = curl(&[&one]) else { return };
    assert_eq!(plain, body(1));
    let run = |arguments: &[&str]| curl(arguments).expect("curl was available a moment ago");
    let head = run(&["-I", &one]);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(run(&["-i", "--http1.0", &one]).ends_with(&body(1)));
    assert_eq!(run(&["--compressed", &one]), body(1));
    assert_eq!(run(&["--http2", &one]), body(1), "an offer to upgrade is ignored");
    let batch = run(&["-d", r#"{"ids":[1,9]}"#, &url("/products")]);
    assert_eq!(batch, format!(r#"{{"items":{{"1":{}}},"missing":["9"]}}"#, body(1)));
    let chunked =
        run(&["-H", "Transfer-Encoding: chunked", "-d", r#"{"ids":[1,9]}"#, &url("/products")]);
    assert_eq!(chunked, batch);
    assert_eq!(run(&["--globoff", &url("/products?ids=1,9")]), batch);
    let large = format!(
        r#"{{"ids":[{}]}}"#,
        (1..=1000).map(|id| format!("\"{id}\"")).collect::<Vec<_>>().join(",")
    );
    assert!(
        run(&["-H", "Expect: 100-continue", "-d", &large, &url("/products")]).contains(&body(5))
    );
    let twice = run(&["-w", "%{num_connects} ", &one, "--next", "-w", "%{num_connects} ", &two]);
    assert_eq!(twice, format!("{}1 {}0 ", body(1), body(2)), "the connection is reused");
    let status = run(&["-o", "/dev/null", "-w", "%{http_code}", "-X", "DELETE", &one]);
    assert_eq!(status, "405");
    let etag =
        head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("an ETag").to_owned();
    let unchanged = run(&["-w", "%{http_code}", "-H", &format!("If-None-Match: {etag}"), &one]);
    assert_eq!(unchanged, "304");
}
