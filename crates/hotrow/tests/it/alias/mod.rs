//! Lookup by another unique value than the key, over each engine.
//!
//! Reading order: this (tables, and the tests that run over all engines with SQL), then [`access`]
//! (grants, tenants, operation), [`postgres`], [`mariadb`] and [`mongodb`] (what one engine alone
//! refuses, delays or leaves out) and [`checked`] (writers and readers at once).

pub(crate) mod access;
mod checked;
mod mariadb;
mod mongodb;
mod postgres;

use crate::backend::Backend as _;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::shop::{assert_contains, await_body, await_status, cached, refusal};
use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

/// A database with `users(id, email, first, last, note)`, of which `email` is unique, and `first`
/// and `last` are together.
pub(crate) trait Users: Sized {
    /// Type of a text that is compared byte by byte.
    const TEXT: &str;

    /// Opens a database that the test may stop, or whose commits it may hide.
    fn open() -> Self;

    /// Opens a database for statements alone.
    fn shared() -> Self {
        Self::open()
    }

    /// Returns the configuration of a service, without collections.
    fn service(&self) -> Config;

    fn execute(&self, sql: &str);

    /// Opens a database for statements alone with the users 1, Ann, and 2, Bob.
    fn with_users() -> Self {
        Self::shared().and_users()
    }

    /// Creates their table.
    fn and_users(self) -> Self {
        let database = self;
        let text = Self::TEXT;
        database.execute(&format!(
            "CREATE TABLE users(id integer PRIMARY KEY, email {text} UNIQUE, \
             first {text} NOT NULL, last {text} NOT NULL, note {text}, UNIQUE (first, last))"
        ));
        database.execute(
            "INSERT INTO users VALUES (1, 'ann@x.org', 'Ann', 'Lee', NULL), \
             (2, 'bob@x.org', 'Bob', 'O''Hara, jr.', 'a \"quoted\" one')",
        );
        database
    }
}

impl Users for Database {
    const TEXT: &str = "text";

    fn open() -> Self {
        Self::new()
    }

    fn service(&self) -> Config {
        Config::new(self.path())
    }

    fn execute(&self, sql: &str) {
        Self::execute(self, sql);
    }
}

impl Users for Postgres {
    const TEXT: &str = "text";

    fn open() -> Self {
        Self::start()
    }

    fn shared() -> Self {
        Self::shared()
    }

    fn service(&self) -> Config {
        self.config()
    }

    fn execute(&self, sql: &str) {
        self.server.batch(sql);
    }
}

impl Users for Maria {
    const TEXT: &str = "varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

    fn open() -> Self {
        Self::start()
    }

    fn shared() -> Self {
        Self::shared()
    }

    fn service(&self) -> Config {
        self.config()
    }

    fn execute(&self, sql: &str) {
        self.server.batch(sql);
    }
}

/// Path of the user with an e-mail address.
pub(crate) fn by(email: &str) -> String {
    format!("/users/by/email/{email}")
}

/// Path of several users, by their addresses with commas between.
pub(crate) fn by_batch(emails: &str) -> String {
    format!("/users/by/email?ids={emails}")
}

/// Configuration with the two aliases, and every client option enabled.
pub(crate) fn aliased(config: Config) -> Config {
    config.with(&[
        ("collections.users.allow_no_cache", "true"),
        ("collections.users.allow_min_position", "true"),
        ("collections.users.by.email.columns", "\"email\""),
        ("collections.users.by.name.columns", r#"["first", "last"]"#),
    ])
}

fn serve(database: &impl Users) -> Server {
    Server::start(&aliased(database.service()))
}

const ANN: &str = r#"{"id":1,"email":"ann@x.org","first":"Ann","last":"Lee","note":null}"#;

pub(crate) fn a_record_is_found_by_each_unique_value<U: Users>() {
    let database = U::with_users();
    let server = serve(&database);
    let mut client = server.client();
    let own = cached(&mut client, "/users/1");
    for path in [by("ann@x.org"), by("ann%40x%2Eorg"), "/users/by/name/Ann,Lee".to_owned()] {
        let answer = cached(&mut client, &path);
        assert_eq!(answer.text(), ANN, "{path}");
        for name in ["etag", "content-type", "cache-control"] {
            assert_eq!(answer.header(name), own.header(name), "{path}: {name}");
        }
        let tag = own.header("etag").expect("a tag");
        assert_eq!(client.get_with(&path, &[("If-None-Match", tag)]).status, 304);
        let head = client.request("HEAD", &path, &[], b"");
        assert_eq!(head.header("content-length"), own.header("content-length"), "{path}");
    }
    let jr = client.get("/users/by/name/Bob,O'Hara%2C%20jr.");
    assert!(jr.text().starts_with(r#"{"id":2,"#), "{jr:?}");
    for absent in [by("zoe"), by("Ann@x.org"), by(""), "/users/by/name/Ann,O'Hara".to_owned()] {
        assert_eq!(client.get(&absent).problem(404), client.get("/users/9").problem(404));
        assert_eq!(client.get(&absent).cache(), "hit", "that there is none is known");
    }
    let before = server.queries();
    for path in [by("ann@x.org"), by("zoe"), "/users/by/name/Ann,Lee".to_owned()] {
        assert_eq!(client.get(&path).cache(), "hit", "{path}");
    }
    assert_eq!(server.queries(), before);
    assert_eq!(client.get("/users/by/name/Ann").status, 400);
    assert_eq!(client.get("/users/by/phone/1").status, 404);
    assert_eq!(client.get("/users/by").status, 400, "an id of the collection, and no integer");
}

pub(crate) fn values_that_move_are_followed<U: Users>() {
    let database = U::with_users();
    let server = serve(&database);
    let mut client = server.client();
    cached(&mut client, &by("ann@x.org"));
    cached(&mut client, &by("bob@x.org"));
    await_status(&mut client, &by("new"), 404);
    database.execute("UPDATE users SET email = 'new' WHERE id = 1");
    let renamed = ANN.replace("ann@x.org", "new");
    await_body(&mut client, &by("new"), &renamed);
    await_status(&mut client, &by("ann@x.org"), 404);
    // A value that another row had a moment ago.
    database.execute("UPDATE users SET email = 'bob2' WHERE id = 2");
    database.execute("UPDATE users SET email = 'bob@x.org' WHERE id = 1");
    await_body(&mut client, &by("bob@x.org"), &ANN.replace("ann@x.org", "bob@x.org"));
    await_until("the other one", SOON, || client.get(&by("bob2")).text().contains("\"id\":2"));
    database.execute("DELETE FROM users WHERE id = 1");
    await_status(&mut client, &by("bob@x.org"), 404);
    database.execute("INSERT INTO users VALUES (7, 'bob@x.org', 'B', 'B', '')");
    await_until("the new row", SOON, || client.get(&by("bob@x.org")).text().contains("\"id\":7"));
    // Other columns change with the row, and NULL has no path.
    database.execute("UPDATE users SET note = 'changed' WHERE id = 7");
    await_until("the note", SOON, || client.get(&by("bob@x.org")).text().contains("changed"));
    database.execute("UPDATE users SET email = NULL WHERE id = 7");
    await_status(&mut client, &by("bob@x.org"), 404);
    database.execute("UPDATE users SET email = NULL WHERE id = 2");
    await_status(&mut client, &by("bob2"), 404);
}

pub(crate) fn batches_name_values<U: Users>() {
    let database = U::with_users();
    let server = serve(&database);
    let mut client = server.client();
    let ann: serde_json::Value = serde_json::from_str(ANN).expect("JSON");
    let before = server.queries();
    for from in ["the database", "memory"] {
        let answer = client.get("/users/by/email?ids=bob@x.org,zoe,ann@x.org");
        let json = answer.json();
        assert_eq!(answer.status, 200, "from {from}: {answer:?}");
        assert_eq!(json["items"]["ann@x.org"], ann, "from {from}");
        assert_eq!(json["items"]["bob@x.org"]["id"], 2, "from {from}");
        assert_eq!(json["missing"].to_string(), r#"["zoe"]"#, "from {from}");
    }
    assert_eq!(server.queries() - before, 2, "the values, and the rows of those that exist");
    let posted = client.post("/users/by/name", r#"{"ids":[["Ann","Lee"],["Ann","Zoe"]]}"#);
    let json = posted.json();
    assert_eq!(json["items"]["Ann,Lee"], ann, "{posted:?}");
    assert_eq!(json["missing"].to_string(), r#"["Ann,Zoe"]"#);
    assert_eq!(client.get("/users/by/name?ids=Ann,Lee").status, 405);
    assert_eq!(client.get("/users/by/email").status, 400);
}

/// The feed is not waited for: the position demands the change that it has not delivered.
pub(crate) fn a_writer_finds_its_own_value<U: Users>() {
    let database = U::with_users();
    let server = serve(&database);
    let mut client = server.client();
    await_status(&mut client, &by("mine"), 404);
    cached(&mut client, &by("ann@x.org"));
    database.execute("UPDATE users SET email = 'mine' WHERE id = 1");
    let new = client.get_with("/users/1", &[("Cache-Control", "no-cache")]);
    let position = new.header("hotrow-position").expect("a position").to_owned();
    let mut at_least = |path: &str| client.get_with(path, &[("Hotrow-Min-Position", &position)]);
    assert_eq!(at_least(&by("mine")).text(), ANN.replace("ann@x.org", "mine"));
    assert_eq!(at_least(&by("ann@x.org")).status, 404);
    let batch = at_least("/users/by/email?ids=mine,ann@x.org").json();
    assert_eq!(batch["items"]["mine"]["id"], 1, "{batch}");
    assert_eq!(batch["missing"].to_string(), r#"["ann@x.org"]"#);
    let mut fresh = |path: &str| client.get_with(path, &[("Cache-Control", "no-cache")]);
    database.execute("UPDATE users SET email = 'again' WHERE id = 1");
    assert_eq!(fresh(&by("again")).status, 200);
    assert_eq!(fresh(&by("mine")).status, 404);
    assert_eq!(fresh("/users/by/email?ids=again,mine").json()["items"]["again"]["id"], 1);
}

/// Columns that are not unique, or whose values have no form of an id, are refused with the reason.
pub(crate) fn unfit_columns_are_refused<U: Users>() {
    let database = U::with_users();
    let config = |columns: &str| {
        database.service().set("collections.users.by.other.columns", &format!("[{columns}]"))
    };
    let text = refusal(&config("\"note\""));
    assert_contains(&text, &["users/by/other", "note", "unique"]);
    let text = refusal(&config("\"nothing\""));
    assert_contains(&text, &["users/by/other", "nothing"]);
}

macro_rules! alias_tests {
    ($engine:ident, $users:ty) => {
        mod $engine {
            use crate::alias::{self, *};

            tests! {
                $users:
                alias::a_record_is_found_by_each_unique_value,
                alias::values_that_move_are_followed,
                alias::batches_name_values,
                alias::a_writer_finds_its_own_value,
                alias::unfit_columns_are_refused,
            }
        }
    };
}

alias_tests!(over_sqlite, Database);
alias_tests!(over_postgresql, Postgres);
alias_tests!(over_mariadb, Maria);

/// Asks until the answer comes from memory, and returns its status and body.
fn settled(client: &mut Client, path: &str) -> (u16, String) {
    let answer = cached(client, path);
    (answer.status, answer.text())
}
