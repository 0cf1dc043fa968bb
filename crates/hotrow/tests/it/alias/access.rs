//! Lookup by alias over SQLite: who may look records up by a value, the Redis protocol, and what
//! operators see and are refused.

use serde_json::Value;

use super::{ANN, Users as _, aliased, by, serve, settled};
use crate::e2e::redis::{redis_cli, with_redis};
use crate::shop::{assert_contains, await_status, cached, refusal};
use hotrow_testkit::harness::{Answer, Client, Config, Database, Ended, SOON, Server, await_until};

/// Adds an API key with one role, and returns it.
pub(crate) fn with_key(config: Config, name: &str, role: &str) -> (Config, String) {
    let made = Ended::run(&["key", "new", "--name", name, "--role", role, "--json"], SOON);
    let made: Value = serde_json::from_str(&made.output).expect("a key");
    let setting = |key: &str| format!("access.keys.{name}.{key}");
    let config = config.with(&[
        (&setting("id"), &made["id"].to_string()),
        (&setting("sha256"), &made["sha256"].to_string()),
        (&setting("roles"), &format!("\"{role}\"")),
    ]);
    (config, made["key"].as_str().expect("a text").to_owned())
}

fn get(client: &mut Client, path: &str, key: &str) -> Answer {
    client.get_with(path, &[("Authorization", &format!("Bearer {key}"))])
}

#[test]
fn only_who_may_read_the_columns_may_look_up_by_them() {
    let database = Database::with_users();
    let config = aliased(database.service()).with(&[
        ("access.roles.all.collections", "\"*\""),
        ("access.roles.some.collections", "\"*\""),
        ("access.roles.some.columns.users.names", r#"["id", "email"]"#),
        ("access.roles.none.collections", "[]"),
        ("collections.users.allow_fields", "true"),
    ]);
    let (config, all) = with_key(config, "all", "all");
    let (config, some) = with_key(config, "some", "some");
    let (config, none) = with_key(config, "none", "none");
    let server = Server::start(&with_redis(config));
    let mut client = server.client();
    let by_name = "/users/by/name/Ann,Lee";
    for _ in 0..2 {
        assert_eq!(get(&mut client, &by("ann@x.org"), &all).text(), ANN);
        assert_eq!(get(&mut client, by_name, &all).text(), ANN);
        let own = r#"{"id":1,"email":"ann@x.org"}"#;
        assert_eq!(get(&mut client, &by("ann@x.org"), &some).text(), own);
        for path in [by_name, "/users/by/name/No,One", "/users/by/name/Ann,Lee?fields=id"] {
            assert_eq!(get(&mut client, path, &some).status, 403, "{path}");
        }
        let (_, detail) = get(&mut client, by_name, &some).problem(403);
        assert!(detail.contains("columns by which this path looks records up"), "{detail}");
        let posted = [("Authorization", &*format!("Bearer {some}"))];
        let body = br#"{"ids":[["Ann","Lee"]]}"#;
        assert_eq!(client.request("POST", "/users/by/name", &posted, body).status, 403);
        assert_eq!(get(&mut client, &by("ann@x.org"), &none).status, 403);
        assert_eq!(client.get(&by("ann@x.org")).status, 401);
        // A selection of fields hides the value, and not that the sender may know it.
        let path = format!("{}?fields=id", by("ann@x.org"));
        assert_eq!(get(&mut client, &path, &some).text(), r#"{"id":1}"#);
    }
    let cli = |key: &str, command: &[&str]| {
        redis_cli(&server, &[&["--no-auth-warning", "-a", key][..], command].concat())
    };
    assert_eq!(cli(&all, &["GET", "users/by/name:Ann,Lee"]), ANN);
    assert!(cli(&some, &["GET", "users/by/name:Ann,Lee"]).contains("NOPERM"));
    assert!(cli(&some, &["MGET", "users/by/name:Ann,Lee"]).contains("NOPERM"));
    assert!(cli(&none, &["GET", "users/by/email:ann@x.org"]).contains("NOPERM"));
}

#[test]
fn a_value_of_another_tenants_record_is_as_absent_as_any() {
    let database = Database::open();
    database.execute(
        "CREATE TABLE users(id integer PRIMARY KEY, email text UNIQUE, org text); \
         INSERT INTO users VALUES (1, 'ann', 'acme'), (2, 'bob', 'other'), (3, 'eve', NULL)",
    );
    let config = database.service().with(&[
        ("access.roles.reader.collections", "\"*\""),
        ("collections.users.tenant", "\"org\""),
        ("collections.users.by.email.columns", "\"email\""),
    ]);
    let (config, key) = with_key(config, "acme", "reader");
    let server = Server::start(&config.set("access.keys.acme.tenant", "\"acme\""));
    let mut client = server.client();
    for _ in ["from the database", "from memory"] {
        assert_eq!(get(&mut client, &by("ann"), &key).json()["id"], 1);
        let head = |answer: &Answer| {
            let names = ["hotrow-position", "hotrow-cache", "cache-control", "age", "etag", "vary"];
            let values = names.map(|name| answer.header(name).map(str::to_owned));
            (answer.problem(404), values, answer.header("content-length").map(str::to_owned))
        };
        let absent = get(&mut client, &by("zoe"), &key);
        for path in [by("bob"), by("eve"), "/users/2".to_owned(), "/users/9".to_owned()] {
            let other = get(&mut client, &path, &key);
            assert_eq!(head(&other), head(&absent), "{path}");
        }
        let batch = get(&mut client, "/users/by/email?ids=bob,ann,zoe,eve", &key).json();
        assert_eq!(batch["items"].as_object().map(serde_json::Map::len), Some(1), "{batch}");
        assert_eq!(batch["missing"].to_string(), r#"["bob","zoe","eve"]"#);
    }
    database.execute("UPDATE users SET org = 'other' WHERE id = 1");
    await_until("the move", SOON, || get(&mut client, &by("ann"), &key).status == 404);
}

#[test]
fn redis_commands_name_an_alias_by_its_path() {
    let database = Database::with_users();
    let server = Server::start(&with_redis(aliased(database.service())));
    let cli = |arguments: &[&str]| redis_cli(&server, arguments);
    for _ in ["from the database", "from memory"] {
        assert_eq!(cli(&["GET", "users/by/email:ann@x.org"]), ANN);
        assert_eq!(cli(&["GET", "users/by/name:Ann,Lee"]), ANN);
        assert_eq!(cli(&["GET", "users/by/email:zoe"]), "");
        let keys = ["users/by/email:ann@x.org", "users:9", "users/by/email:no", "users:1"];
        assert_eq!(cli(&[&["MGET"][..], &keys].concat()), format!("{ANN}\n\n\n{ANN}"));
        assert_eq!(cli(&[&["EXISTS"][..], &keys].concat()), "2");
        assert_eq!(cli(&["EXISTS", "users/by/email:no"]), "0");
    }
    assert!(cli(&["GET", "users/by/phone:1"]).starts_with("ERR no such collection"));
    database.execute("UPDATE users SET email = 'new' WHERE id = 1");
    await_until("the change", SOON, || cli(&["GET", "users/by/email:new"]).contains("\"id\":1"));
    assert_eq!(cli(&["GET", "users/by/email:ann@x.org"]), "");
}

#[test]
fn operators_see_an_alias_beside_its_collection() {
    let database = Database::with_users();
    let server = serve(&database);
    let mut client = server.client();
    assert_eq!(settled(&mut client, &by("ann@x.org")).0, 200);
    client.get(&by("ann@x.org"));
    client.get(&by("zoe"));
    let status = server.status();
    let alias = &status["collections"]["users/by/email"];
    assert_eq!(alias["negative"], 0, "{alias}");
    assert_eq!(alias["misses"], 2, "{alias}");
    assert_eq!(alias["hits"], 2, "{alias}");
    let labels = [("collection", "users/by/email"), ("outcome", "hit")];
    assert_eq!(server.metrics().sum("hotrow_lookups_total", &labels), 2.0);
    let rows = [("collection", "users"), ("outcome", "hit")];
    assert_eq!(server.metrics().sum("hotrow_lookups_total", &rows), 2.0, "each takes two lookups");
    let mut admin = server.admin_client();
    let description = admin.get("/openapi.json").json();
    let path = &description["paths"]["/users/by/email/{id}"]["get"];
    assert_eq!(path["operationId"], "get_users_by_email", "{path}");
    let schema = &path["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(schema["$ref"], "#/components/schemas/users");
    assert!(description["paths"]["/users/by/name"]["get"].is_null(), "several columns: by POST");
    assert!(!description["paths"]["/users/by/name"]["post"].is_null());
    assert!(description["components"]["schemas"]["users/by/email"].is_null());
    // A purge of the collection removes what is known of its values.
    assert_eq!(client.get(&by("zoe")).cache(), "hit");
    assert_eq!(admin.change("/purge/users", "").status, 200);
    assert_eq!(client.get(&by("zoe")).cache(), "miss");
    for path in ["/users%2Fby%2Femail/ann@x.org", "/users%2Fby%2Femail?ids=ann@x.org"] {
        assert_eq!(client.get(path).status, 404, "only its own path reaches an alias: {path}");
    }
}

#[test]
fn settings_without_meaning_are_refused() {
    let database = Database::with_users();
    for (settings, words) in [
        (&[("by.email.columns", "[]")][..], "must name 1 to 4 columns, not 0"),
        (&[("by.email.x", "1")], "is required: the unique columns"),
        (&[("by.email.columns", "\"id\"")], "must not be those of the key"),
        (&[("by.Email.columns", "\"email\"")], "the name of an alias must begin"),
        (
            &[("by.email.columns", "\"email\""), ("exclude", "\"email\"")],
            "must name columns that the collection serves",
        ),
        (
            &[("by.email.columns", "\"email\""), ("columns", r#"["id", "note"]"#)],
            "must name columns that the collection serves",
        ),
    ] {
        let config = settings.iter().fold(database.service(), |config, (key, value)| {
            config.set(&format!("collections.users.{key}"), value)
        });
        let ended = Ended::run_config(&config, SOON);
        assert_eq!(ended.code(), 2, "{ended:?}");
        assert_contains(&ended.log, &["collections.users.by", words]);
    }
    database.execute(
        "CREATE TABLE blobs(id integer PRIMARY KEY, code blob UNIQUE); \
         CREATE TABLE words(id text PRIMARY KEY, word text UNIQUE COLLATE nocase)",
    );
    let config = database.service().with(&[
        ("collections.blobs.by.code.columns", "\"code\""),
        ("collections.words.by.word.columns", "\"word\""),
    ]);
    assert_contains(&refusal(&config), &["blobs/by/code"]);
}

#[test]
fn limits_and_log_are_those_of_the_collection() {
    let database = Database::with_users();
    let log = database.folder().join("access.log");
    let config = aliased(database.service()).with(&[
        ("limits.rate.users.rate", "\"2/h\""),
        ("limits.rate.users.burst", "4"),
        ("access_log.output", &format!("{:?}", log.display().to_string())),
        ("access_log.sample", "1"),
    ]);
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(client.get(&by("ann@x.org")).status, 200);
    assert_eq!(client.get("/users/by/email?ids=bob@x.org,zoe").status, 200, "two ids");
    assert_eq!(client.get("/users/1").status, 200);
    assert_eq!(client.get(&by("ann@x.org")).status, 429, "four ids were paid for");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    let text = std::fs::read_to_string(log).expect("a log");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines[0]["path"], by("ann@x.org"), "{text}");
    assert!(lines.iter().all(|line| line["collection"] == "users"), "{text}");
}

/// SQLite's collations are known, so that every spelling of a value is one entry.
#[test]
fn a_collation_of_sqlite_is_followed() {
    let database = Database::open();
    database.execute(
        "CREATE TABLE words(id text PRIMARY KEY, word text UNIQUE COLLATE nocase, n integer); \
         INSERT INTO words VALUES ('k/1', 'Ann', 1)",
    );
    let config = database.service().set("collections.words.by.word.columns", "\"word\"");
    let server = Server::start(&config);
    let mut client = server.client();
    let row = r#"{"id":"k/1","word":"Ann","n":1}"#;
    for spelling in ["Ann", "aNN", "ANN"] {
        assert_eq!(cached(&mut client, &format!("/words/by/word/{spelling}")).text(), row);
    }
    await_status(&mut client, "/words/by/word/bob", 404);
    database.execute("INSERT OR REPLACE INTO words VALUES ('k/2', 'ANN', 2), ('k/3', 'BOB', 3)");
    await_until("the row that evicted it", SOON, || {
        client.get("/words/by/word/ann").text() == r#"{"id":"k/2","word":"ANN","n":2}"#
    });
    await_status(&mut client, "/words/by/word/Bob", 200);
    assert_eq!(client.get("/words/k%2F1").status, 404);
}
