//! Compressed answers: when they come, their tags, conditions and changes, over HTTP/1.1 and
//! HTTP/2, to curl and Python.

use std::process::Command;

use hotrow_testkit::harness::{Answer, Client, Config, Database, SOON, Server, await_some};

use crate::programs::{filter, succeed};

/// Ids of `texts`: a compressible record, a small one, a large one.
const LONG: u32 = 1;
const SMALL: u32 = 2;
const LARGE: u32 = 3;

pub(crate) fn database() -> Database {
    let database = Database::new();
    database.execute(
        "CREATE TABLE texts(id INTEGER PRIMARY KEY, text TEXT NOT NULL);
         INSERT INTO texts VALUES (1, replace(hex(zeroblob(1000)), '00', 'one ')),
           (2, 'short'), (3, replace(hex(zeroblob(100000)), '00', 'large '))",
    );
    database
}

pub(crate) fn config(database: &Database) -> Config {
    Config::new(database.path()).collection("texts")
}

fn path(id: u32) -> String {
    format!("/texts/{id}")
}

fn get(client: &mut Client, id: u32, accept: &str) -> Answer {
    client.get_with(&path(id), &[("Accept-Encoding", accept)])
}

/// Requests a record until the answer has this coding.
pub(crate) fn await_coding(server: &Server, id: u32, coding: &str) -> Answer {
    let mut client = server.client();
    await_some("a compressed answer", SOON, || {
        let answer = get(&mut client, id, coding);
        assert_eq!(answer.status, 200);
        (answer.header("content-encoding") == Some(coding)).then_some(answer)
    })
}

fn decoded(answer: &Answer) -> Vec<u8> {
    match answer.header("content-encoding") {
        None => answer.body.clone(),
        Some("gzip") => filter(Command::new("gzip").arg("-dc"), &answer.body),
        Some("zstd") => zstd::stream::decode_all(&answer.body[..]).expect("zstd"),
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn the_second_request_for_a_coding_has_it_made() {
    let database = database();
    let server = Server::start(&config(&database));
    let mut client = server.client();
    let plain = client.get(&path(LONG));
    let tag = plain.header("etag").unwrap().trim_matches('"').to_owned();
    for answer in [&plain, &get(&mut client, LONG, "gzip")] {
        assert_eq!(answer.header("content-encoding"), None, "the worker never compresses");
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
    }
    assert_eq!(server.metrics().sum("hotrow_compressions_total", &[]), 0.0);
    let gzip = await_coding(&server, LONG, "gzip");
    assert!(gzip.body.len() < plain.body.len() / 10);
    assert_eq!(decoded(&gzip), plain.body);
    assert_eq!(gzip.header("etag"), Some(&*format!("\"{tag}-gzip\"")));
    assert_eq!(gzip.header("vary"), Some("accept-encoding"));
    assert_eq!(gzip.header("hotrow-position"), plain.header("hotrow-position"));
    let zstd = await_coding(&server, LONG, "zstd");
    assert_eq!(decoded(&zstd), plain.body);
    assert_eq!(zstd.header("etag"), Some(&*format!("\"{tag}-zstd\"")));
    let coding = |client: &mut Client, accept: &str| {
        get(client, LONG, accept).header("content-encoding").map(str::to_owned)
    };
    for (accept, expected) in [
        ("gzip, zstd", Some("zstd")),
        ("gzip;q=1, zstd;q=0.5", Some("gzip")),
        ("deflate, gzip, br", Some("gzip")),
        ("*", Some("zstd")),
        ("identity", None),
        ("gzip;q=0.5, identity", None),
        ("br", None),
        ("br, identity;q=0", None),
    ] {
        assert_eq!(coding(&mut client, accept).as_deref(), expected, "{accept}");
    }
    assert_eq!(client.get(&path(LONG)).body, plain.body, "without the field");
    let head = client.request("HEAD", &path(LONG), &[("Accept-Encoding", "gzip")], b"");
    let length = gzip.body.len().to_string();
    assert_eq!(head.header("content-length"), Some(&*length));
    assert_eq!(head.header("content-encoding"), Some("gzip"));
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_compressions_total", &[("outcome", "stored")]), 2.0);
    let all = [&plain, &gzip, &zstd].iter().map(|answer| answer.body.len()).sum::<usize>();
    assert!(metrics.sum("hotrow_cache_bytes", &[]) >= all as f64, "the variants are counted");
    assert_eq!(server.queries(), 1, "one read serves all forms");
}

#[test]
fn large_answers_are_compressed_and_small_ones_are_not() {
    let database = database();
    let server = Server::start(&config(&database));
    let plain = server.get(&path(LARGE));
    let zstd = await_coding(&server, LARGE, "zstd");
    assert_eq!(decoded(&zstd), plain.body);
    let small = server.get(&path(SMALL)).body;
    let mut client = server.client();
    for _ in 0..4 {
        let answer = get(&mut client, SMALL, "gzip");
        assert_eq!((answer.header("content-encoding"), &answer.body), (None, &small));
        assert_eq!(answer.header("vary"), Some("accept-encoding"), "it may grow");
    }
    let missing = get(&mut client, 99, "gzip");
    missing.problem(404);
    assert_eq!(missing.header("vary"), Some("accept-encoding"));
    for _ in 0..4 {
        let batch = client.get_with("/texts?ids=1,3", &[("Accept-Encoding", "gzip")]);
        assert_eq!((batch.status, batch.header("content-encoding")), (200, None));
    }
    assert_eq!(server.metrics().sum("hotrow_compressions_total", &[]), 1.0);
}

#[test]
fn a_tag_of_any_form_of_the_record_is_known() {
    let database = database();
    let server = Server::start(&config(&database));
    let plain = server.get(&path(LONG)).header("etag").unwrap().to_owned();
    let gzip = await_coding(&server, LONG, "gzip").header("etag").unwrap().to_owned();
    let zstd = format!("{}-zstd\"", plain.strip_suffix('"').unwrap());
    let mut client = server.client();
    for accept in ["gzip", "identity", "zstd"] {
        for tag in [&plain, &gzip, &zstd, &format!("W/{gzip}")] {
            let fields = [("Accept-Encoding", accept), ("If-None-Match", tag)];
            let answer = client.get_with(&path(LONG), &fields);
            assert_eq!(answer.status, 304, "{accept} {tag}");
            assert_eq!(answer.header("etag"), Some(tag.trim_start_matches("W/")), "{accept}");
            assert_eq!(answer.header("vary"), Some("accept-encoding"));
            assert_eq!(answer.header("content-encoding"), None);
        }
    }
    database.execute("UPDATE texts SET text = replace(text, 'one', 'two') WHERE id = 1");
    await_some("the new record", SOON, || {
        let fields = [("Accept-Encoding", "gzip"), ("If-None-Match", &*gzip)];
        (client.get_with(&path(LONG), &fields).status == 200).then_some(())
    });
    for tag in [&plain, &gzip, &zstd] {
        let answer = client.get_with(&path(LONG), &[("If-None-Match", tag)]);
        assert_eq!(answer.status, 200, "{tag}");
    }
}

#[test]
fn a_variant_ends_with_its_record() {
    let database = database();
    let server = Server::start(&config(&database));
    let mut client = server.client();
    for version in 0..20 {
        database.execute(&format!("UPDATE texts SET text = '{version} ' || text WHERE id = 1"));
        let begin = format!("{{\"id\":1,\"text\":\"{version} ");
        let is_new = |answer: &Answer| decoded(answer).starts_with(begin.as_bytes());
        await_some("the new record", SOON, || {
            is_new(&get(&mut client, LONG, "zstd")).then_some(())
        });
        let compressed = await_coding(&server, LONG, "zstd");
        assert!(is_new(&compressed), "{version}");
        let plain = client.get(&path(LONG));
        assert_eq!(decoded(&compressed), plain.body);
        let tag = plain.header("etag").unwrap().replace('"', "");
        assert_eq!(compressed.header("etag"), Some(&*format!("\"{tag}-zstd\"")));
    }
}

#[test]
fn it_is_off_where_answers_are_private_or_where_it_is_switched_off() {
    let database = database();
    for settings in [
        &[("collections.texts.compression", "[]")][..],
        &[("cache.enabled", "false")],
        &[("access.anonymous_role", "\"all\""), ("access.roles.all.collections", "\"*\"")],
    ] {
        let server = Server::start(&config(&database).with(settings));
        let mut client = server.client();
        for _ in 0..4 {
            let answer = get(&mut client, LONG, "gzip");
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("content-encoding"), None, "{settings:?}");
            assert_eq!(answer.header("vary"), None, "{settings:?}");
        }
        assert_eq!(server.metrics().sum("hotrow_compressions_total", &[]), 0.0);
    }
}

#[test]
fn ten_thousand_keys_at_once_stay_within_the_capacity() {
    const KEYS: u32 = 10_000;
    let database = Database::new();
    database.execute(&format!(
        "CREATE TABLE texts(id INTEGER PRIMARY KEY, text TEXT NOT NULL);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {KEYS})
         INSERT INTO texts SELECT i, replace(hex(zeroblob(2000)), '00', i || ' ') FROM n"
    ));
    let capacity: f64 = f64::from(32 << 20);
    let server = Server::start(&config(&database).set("cache.capacity", "\"32MiB\""));
    let mut client = server.client();
    for _ in 0..3 {
        for id in 1..=KEYS {
            let answer = get(&mut client, id, "gzip");
            assert_eq!(answer.status, 200);
            if id % 500 == 0 {
                let text = format!("\"text\":\"{}", format!("{id} ").repeat(2));
                assert!(String::from_utf8(decoded(&answer)).unwrap().contains(&text), "{id}");
            }
        }
        let bytes = server.metrics().sum("hotrow_cache_bytes", &[]);
        assert!(bytes <= capacity, "{bytes} bytes");
    }
    await_some("the queue is empty", SOON, || {
        (server.metrics().sum("hotrow_compression_queue_bytes", &[]) == 0.0).then_some(())
    });
    assert!(server.metrics().sum("hotrow_cache_bytes", &[]) <= capacity);
}

#[test]
fn curl_and_python_decompress() {
    let database = database();
    let server = Server::start(&config(&database));
    let plain = server.get(&path(LARGE)).body;
    await_coding(&server, LARGE, "gzip");
    let url = format!("http://{}{}", server.data, path(LARGE));
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let fetch = |field: &str| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--noproxy", "*", version, "--header", field]);
            succeed(curl.args(["--compressed", "--write-out", "\n%header{etag}"]).arg(&url))
        };
        let printed = fetch("Accept-Encoding: gzip");
        let (body, tag) = printed.rsplit_once('\n').unwrap();
        assert_eq!(body.as_bytes(), plain, "{version}");
        // Versions of curl before 7.83 print the variable's name.
        assert!(tag.ends_with("-gzip\"") || tag.contains("header"), "{version}: {tag}");
    }
    let script = "import gzip, sys, urllib.request as u\n\
                  u.install_opener(u.build_opener(u.ProxyHandler({})))\n\
                  a = u.urlopen(u.Request(sys.argv[1], headers={'Accept-Encoding': 'gzip'}))\n\
                  assert a.headers['Content-Encoding'] == 'gzip'\n\
                  sys.stdout.write(gzip.decompress(a.read()).decode())";
    let printed = succeed(Command::new("python3").args(["-c", script, &url]));
    assert_eq!(printed.as_bytes(), plain);
}
