//! Ids: every type of key, and every kind of invalid id.

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

fn database() -> Database {
    let database = Database::new();
    database.execute(
        "CREATE TABLE numbers(id INTEGER PRIMARY KEY, v TEXT);
         INSERT INTO numbers VALUES (7,'seven'), (-7,'minus'), (0,'zero'),
             (9223372036854775807,'max'), (-9223372036854775808,'min');
         CREATE TABLE words(id TEXT PRIMARY KEY, v INTEGER);
         INSERT INTO words VALUES ('a',1), ('a/b',2), ('a,b',3), ('a+b',4), ('a b',5), ('ü',6),
             ('100%',7), ('',8), ('7',9),
             ('a''b\"c\\d',10), ('..',11), ('?x=#y&',12);
         CREATE TABLE devices(id BLOB PRIMARY KEY, v INTEGER);
         INSERT INTO devices VALUES (x'0188a1b20000700080000000000000ff', 1);
         CREATE TABLE hashes(id BLOB PRIMARY KEY, v INTEGER);
         INSERT INTO hashes VALUES (x'00ff', 1), (x'', 2);
         CREATE TABLE orders(number INTEGER, line TEXT, v INTEGER, PRIMARY KEY(number, line))
             WITHOUT ROWID;
         INSERT INTO orders VALUES (7,'a',1), (7,'b,c',2), (8,'x/y',3);
         CREATE TABLE logins(name TEXT PRIMARY KEY COLLATE NOCASE, v INTEGER);
         INSERT INTO logins VALUES ('Alice', 1)",
    );
    database
}

fn server(database: &Database) -> Server {
    let config = Config::new(database.path())
        .collection("numbers")
        .collection("words")
        .set("collections.devices.key_type", "\"uuid\"")
        .set("collections.hashes.key_type", "\"bytes\"")
        .set("collections.orders.key", r#"["number", "line"]"#)
        .set("collections.logins.key", "\"name\"");
    Server::start(&config)
}

#[test]
fn every_type_of_key_finds_its_row() {
    let database = database();
    let server = server(&database);
    let mut client = server.client();
    for (path, value) in [
        ("/numbers/7", r#""seven""#),
        ("/numbers/-7", r#""minus""#),
        ("/numbers/0", r#""zero""#),
        ("/numbers/%37", r#""seven""#),
        ("/numbers/9223372036854775807", r#""max""#),
        ("/numbers/-9223372036854775808", r#""min""#),
        ("/words/a", "1"),
        ("/words/%61", "1"),
        ("/words/a%2Fb", "2"),
        ("/words/a%2fb", "2"),
        ("/words/a%2Cb", "3"),
        ("/words/a+b", "4"),
        ("/words/a%2Bb", "4"),
        ("/words/a%20b", "5"),
        ("/words/%C3%BC", "6"),
        ("/words/100%25", "7"),
        ("/words/", "8"),
        ("/words/7", "9"),
        ("/words/a%27b%22c%5Cd", "10"),
        ("/words/%2E%2E", "11"),
        ("/words/..", "11"),
        ("/words/%3Fx%3D%23y%26", "12"),
        ("/devices/0188a1b2-0000-7000-8000-0000000000ff", "1"),
        ("/devices/0188A1B2-0000-7000-8000-0000000000FF", "1"),
        ("/devices/0188a1b20000700080000000000000ff", "1"),
        ("/hashes/00ff", "1"),
        ("/hashes/00FF", "1"),
        ("/hashes/", "2"),
        ("/orders/7,a", "1"),
        ("/orders/7,b%2Cc", "2"),
        ("/orders/8,x%2Fy", "3"),
        ("/logins/Alice", "1"),
        ("/logins/aLiCe", "1"),
    ] {
        let answer = client.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(answer.json()["v"].to_string(), value, "{path}");
    }
}

#[test]
fn spellings_of_one_key_share_one_entry() {
    let database = database();
    let server = server(&database);
    let mut client = server.client();
    for spellings in [
        ["/words/a%2Fb", "/words/%61%2f%62"],
        ["/logins/Alice", "/logins/ALICE"],
        [
            "/devices/0188a1b2-0000-7000-8000-0000000000ff",
            "/devices/0188A1B20000700080000000000000FF",
        ],
        ["/numbers/7", "/numbers/%37"],
        ["/orders/7,a", "/orders/%37,%61"],
    ] {
        assert_eq!(client.get(spellings[0]).cache(), "miss", "{spellings:?}");
        assert_eq!(client.get(spellings[1]).cache(), "hit", "{spellings:?}");
    }
    assert_eq!(client.get("/words/A").status, 404, "text without NOCASE is case-sensitive");
}

#[test]
fn an_invalid_key_is_400_and_never_reaches_the_database() {
    let database = database();
    let server = server(&database);
    let mut client = server.client();
    for (path, says) in [
        ("/numbers/007", "integer"),
        ("/numbers/+7", "integer"),
        ("/numbers/7.0", "integer"),
        ("/numbers/-0", "integer"),
        ("/numbers/-", "integer"),
        ("/numbers/", "integer"),
        ("/numbers/seven", "integer"),
        ("/numbers/0x7", "integer"),
        ("/numbers/7e0", "integer"),
        ("/numbers/%207", "integer"),
        ("/numbers/9223372036854775808", "integer"),
        ("/numbers/-9223372036854775809", "integer"),
        ("/numbers/99999999999999999999999999999999", "integer"),
        ("/numbers/7,8", "integer"),
        ("/words/%", "percent-encoding"),
        ("/words/%2", "percent-encoding"),
        ("/words/%zz", "percent-encoding"),
        ("/words/a%", "percent-encoding"),
        ("/words/%C3", "UTF-8"),
        ("/words/%FF%FE", "UTF-8"),
        ("/words/%ED%A0%80", "UTF-8"),
        ("/words/%C0%AF", "UTF-8"),
        ("/words/a%00", "NUL"),
        ("/devices/7", "UUID"),
        ("/devices/0188a1b2-0000-7000-8000-0000000000f", "UUID"),
        ("/devices/0188a1b2-0000-7000-8000-0000000000fg", "UUID"),
        ("/hashes/0", "hexadecimal"),
        ("/hashes/0g", "hexadecimal"),
        ("/orders/7", "1 part,"),
        ("/orders/7,a,b", "parts"),
        ("/orders/7%2Ca", "1 part,"),
        ("/orders/x,a", "integer"),
        ("/orders/,a", "integer"),
    ] {
        let answer = client.get(path);
        let (title, detail) = answer.problem(400);
        assert_eq!(title, "Bad id", "{path}");
        assert!(detail.contains(says), "{path}: {detail}");
        assert_eq!(client.request("HEAD", path, &[], b"").status, 400, "{path}");
    }
    assert_eq!(server.queries(), 0);
    assert_eq!(client.get("/numbers/7").status, 200, "the connection is still usable");
}

#[test]
fn an_id_may_be_as_long_as_a_target_may() {
    let database = database();
    let long = "x".repeat(2_000);
    let longest = "x".repeat(8_192 - "/words/".len());
    let insert = |id: &str| database.execute(&format!("INSERT INTO words VALUES ('{id}', 1)"));
    insert(&long);
    insert(&longest);
    let server = server(&database);
    let mut client = server.client();
    let encoded = "ü".repeat(300);
    insert(&encoded);
    for id in [&long, &longest, &encoded] {
        let path = format!("/words/{}", id.replace('ü', "%C3%BC"));
        for cache in ["miss", "hit"] {
            let answer = client.get(&path);
            assert_eq!((answer.status, answer.cache()), (200, cache), "{} bytes", path.len());
            assert_eq!(answer.json()["id"], id.as_str());
        }
        database.execute(&format!("UPDATE words SET v = 2 WHERE id = '{id}'"));
        await_until("the change", SOON, || client.get(&path).json()["v"] == 2);
        let batch = client.post("/words", serde_json::json!({"ids": [id]}).to_string());
        assert_eq!(
            batch.json()["items"].as_object().map(serde_json::Map::len),
            Some(1),
            "{} bytes",
            path.len()
        );
    }
    let over = format!("{longest}x");
    let mut other = server.client();
    assert_eq!(other.get(&format!("/words/{over}")).status, 414);
    // In a body an id may be as long as in a target that contains nothing else.
    for (bytes, status) in [(8_192, 200), (8_193, 400)] {
        let answer =
            client.post("/words", serde_json::json!({"ids": ["y".repeat(bytes)]}).to_string());
        assert_eq!(answer.status, status, "{bytes}");
    }
    let umlauts =
        client.post("/words", serde_json::json!({"ids": ["ü".repeat(1_400)]}).to_string());
    assert!(umlauts.problem(400).1.contains("8192 bytes in its URL form"), "{umlauts:?}");
}
