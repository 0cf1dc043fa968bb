//! Lookup by alias over MariaDB: what its log leaves out, and collations.

use super::{Users as _, by, settled};
use crate::backend::maria::Maria;
use crate::shop::{assert_contains, await_status, refusal};
use hotrow_testkit::harness::{Client, Config, SOON, Server, await_until};

fn config(database: &Maria) -> Config {
    database.service().set("collections.users.by.email.columns", "\"email\"")
}

/// A session may log rows without the columns that it does not set.
#[test]
fn a_change_that_does_not_show_the_value_removes_what_is_known() {
    let database = Maria::open();
    database.execute(
        "CREATE TABLE users(id integer PRIMARY KEY, \
         email varchar(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT 'usual' UNIQUE)",
    );
    let server = Server::start(&config(&database));
    let mut client = server.client();
    assert_eq!(settled(&mut client, &by("usual")).0, 404);
    database.execute("SET SESSION binlog_row_image = 'MINIMAL'; INSERT INTO users(id) VALUES (1)");
    await_status(&mut client, &by("usual"), 200);
    database.execute("SET GLOBAL binlog_row_image = 'MINIMAL'");
    let text = refusal(&config(&database));
    assert_contains(&text, &["`binlog_row_image` is MINIMAL", "`users/by/email`"]);
}

#[test]
fn another_spelling_of_a_value_is_found_and_not_kept() {
    let database = Maria::open();
    database.execute(
        "CREATE TABLE users(id integer PRIMARY KEY, \
         email varchar(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci UNIQUE); \
         INSERT INTO users VALUES (1, 'Ann@x')",
    );
    let server = Server::start(&config(&database));
    let mut client = server.client();
    let row = r#"{"id":1,"email":"Ann@x"}"#;
    assert_eq!(settled(&mut client, &by("Ann@x")), (200, row.into()));
    let ask = |client: &mut Client, path: &str| {
        let answer = client.get(path);
        (answer.status, answer.cache().to_owned())
    };
    for _ in 0..3 {
        assert_eq!(ask(&mut client, &by("aNN@X")), (200, "miss".into()));
        assert_eq!(ask(&mut client, &by("bob@x")), (404, "miss".into()));
    }
    database.execute("UPDATE users SET email = 'bob@X' WHERE id = 1");
    assert_eq!(client.get(&by("bob@x")).status, 200, "it is read each time");
    await_until("the change", SOON, || client.get(&by("Ann@x")).status == 404);
}
