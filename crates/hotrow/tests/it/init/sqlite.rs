//! SQLite files, and what does not depend on the engine.

use std::process::Command;

use super::{RUN_WITHIN, Written, assert_has, run};
use hotrow_testkit::harness::{Account, Database, Ended, program};

const SCHEMA: &str = r#"
    CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT, password_hash TEXT, apiKey TEXT);
    CREATE TABLE pairs(a INTEGER NOT NULL, b TEXT NOT NULL, v TEXT, PRIMARY KEY(a, b)) STRICT;
    CREATE TABLE by_code(code TEXT NOT NULL UNIQUE, v);
    CREATE TABLE "select"("from" INTEGER PRIMARY KEY, "$x" TEXT);
    CREATE TABLE "We ""quoted"" it. [x]"("k""ey" TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID;
    CREATE TABLE "Größe.商品"(id INTEGER PRIMARY KEY);
    CREATE TABLE "line
break"(id INTEGER PRIMARY KEY);
    CREATE TABLE bare(a INTEGER, b TEXT);
    CREATE TABLE ratios(id REAL PRIMARY KEY);
    CREATE TABLE loose(id PRIMARY KEY);
    CREATE VIEW cheap AS SELECT * FROM products LIMIT 3;
    CREATE VIEW shown AS SELECT id, name FROM products;
    CREATE VIRTUAL TABLE words USING fts5(w);
    INSERT INTO products VALUES (1, 'a', 'h', 'k'), (7, 'b', 'h', 'k');
    INSERT INTO pairs VALUES (1, 'x', 'v');
    INSERT INTO by_code VALUES ('c', 1);
    INSERT INTO "select" VALUES (1, 'y');
    INSERT INTO "We ""quoted"" it. [x]" VALUES ('k');
    INSERT INTO "Größe.商品" VALUES (1);
    INSERT INTO "line
break" VALUES (1);"#;

fn url(database: &Database) -> String {
    format!("sqlite:{}", database.path().display())
}

#[test]
fn every_table_is_served_or_a_comment_with_its_reason() {
    let database = Database::new();
    database.execute(SCHEMA);
    let written = Written::of(&url(&database), &[]);
    assert_has(
        &written.text,
        &[
            "8 of 13 tables can be served",
            "exclude = [\"password_hash\", \"apiKey\"]",
            "# products: table, about 7 rows; key id (INTEGER)\n",
            "table = \"We \\\"quoted\\\" it. [x]\"\nkey = \"k\\\"ey\"\n",
            "\nwatch = \"triggers\"\n",
            "\nallow_min_position = true\n",
            "url = \"${DATABASE_URL}\"",
        ],
    );
    let bare = written.refusal("bare");
    assert_has(bare, &["no columns of `bare` are known to be unique", "name its columns in `key`"]);
    assert!(!written.text.contains("[collections.bare]\n# key"), "no guess: {}", written.text);
    assert_has(written.refusal("ratios"), &["floating-point number"]);
    assert_has(written.refusal("loose"), &["values can be of any type", "key_type"]);
    assert_has(
        written.refusal("cheap"),
        &["the view `cheap` has something besides columns, one table and WHERE"],
    );
    assert_has(written.refusal("words"), &["is a virtual table"]);
    assert_has(&written.log, &["8 of 13 tables can be served", "set that variable"]);
    written.assert_serves(&[
        "/products/1",
        "/shown/1",
        "/pairs/1,x",
        "/by_code/c",
        "/select/1",
        "/we_quoted_it_x/k",
        "/gr_e/1",
        "/line_break/1",
    ]);
    // With what the reason asks for.
    database.execute("DROP TABLE bare; CREATE TABLE bare(a INTEGER PRIMARY KEY, b TEXT)");
    database.execute("INSERT INTO bare VALUES (3, 'b')");
    let again = Written::of(&url(&database), &["--tables", "bare"]);
    again.assert_serves(&["/bare/3"]);
    assert_eq!(again.text, Written::of(&url(&database), &["--tables", "bare"]).text);
}

#[test]
fn an_excluded_column_is_not_served() {
    let database = Database::new();
    database.execute(SCHEMA);
    let server = Written::of(&url(&database), &["--tables", "products"]).serve();
    assert_eq!(server.get("/products/1").text(), r#"{"id":1,"name":"a"}"#);
}

#[test]
fn nothing_in_the_database_is_changed() {
    let database = Database::new();
    database.execute(SCHEMA);
    let objects = || {
        let sql = "SELECT group_concat(name || coalesce(sql, '')) FROM sqlite_schema";
        database.connection.query_row(sql, [], |row| row.get::<_, String>(0)).expect("objects")
    };
    let before = objects();
    Written::of(&url(&database), &[]);
    assert_eq!(objects(), before);
}

#[test]
fn the_mode_of_the_file_is_set_only_when_asked() {
    let database = Database::with_products(1);
    let mode = || -> String {
        database.another().query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("a mode")
    };
    database.execute("PRAGMA journal_mode = DELETE");
    let lacking = Written::lacking(&url(&database), &[]);
    assert_eq!(lacking.setup, "PRAGMA journal_mode = WAL;\n");
    let checked = lacking.check();
    assert_eq!(checked.code(), 1, "{checked:?}");
    assert_has(&checked.log, &["the database is not ready", "needs WAL"]);
    assert_eq!(mode(), "delete");
    // On a terminal it asks.
    let hotrow = format!("{} init --from {} --apply", program("hotrow").display(), url(&database));
    for (answer, wanted) in [("n", "delete"), ("y", "wal")] {
        let asked = format!("echo {answer} | script -qefc '{hotrow}' /dev/null");
        let ran = Command::new("sh").args(["-c", &asked]).output().expect("it starts");
        assert_has(&String::from_utf8_lossy(&ran.stdout), &["Run these statements now? [y/N]"]);
        assert_eq!((mode().as_str(), ran.status.success()), (wanted, wanted == "wal"));
    }
    Written::of(&url(&database), &[]);
}

#[test]
fn a_file_that_cannot_be_written_has_no_triggers_and_no_positions() {
    let Some(account) = Account::unprivileged() else { return };
    let database = Database::with_products(1);
    database.execute("PRAGMA journal_mode = DELETE");
    account.own(database.folder(), 0o555, 0o444);
    let written = account.run(&["init", "--from", &url(&database)], RUN_WITHIN);
    assert_eq!(written.code(), 0, "{written:?}");
    assert_has(&written.output, &["\nwatch = \"none\"\n", "cannot be written to"]);
    assert!(!written.output.contains("allow_min_position"), "{written:?}");
}

#[test]
fn a_file_is_not_overwritten_unless_forced() {
    let database = Database::with_products(1);
    let file = database.folder().join("hotrow.toml");
    let path = file.to_str().expect("UTF-8");
    std::fs::write(&file, "mine").expect("written");
    let refused = run(&url(&database), &["--output", path]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert_has(&refused.log, &["hotrow.toml exists", "--force"]);
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "mine");
    assert_eq!(run(&url(&database), &["--output", path, "--force"]).code(), 0);
    let written = std::fs::read_to_string(&file).expect("read");
    let printed = run(&url(&database), &[]);
    assert_eq!((printed.code(), printed.output), (0, written), "the same on standard output");
}

#[test]
fn a_plain_file_is_named_as_it_is() {
    let database = Database::with_products(1);
    let from = url(&database);
    let ended = Ended::run(&["init", "--from", &from], RUN_WITHIN);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_has(&ended.output, &[&format!("url = \"{from}\"")]);
    assert!(!ended.log.contains("list of processes"), "no secret: {}", ended.log);
    let named = Ended::run(&["init", "--from", &from, "--url-env", "SHOP"], RUN_WITHIN);
    assert_has(&named.output, &["url = \"${SHOP}\""]);
}

#[test]
fn the_result_as_json() {
    let database = Database::new();
    database.execute(SCHEMA);
    let ended = run(&url(&database), &["--json", "--tables", "bare,products"]);
    let json: serde_json::Value = serde_json::from_str(&ended.output).expect("JSON");
    assert_eq!(
        (&json["schema"], &json["url_env"]),
        (&"hotrow.init/1".into(), &"DATABASE_URL".into())
    );
    let tables = json["tables"].as_array().expect("a list");
    let served: Vec<(&str, bool)> = tables
        .iter()
        .map(|t| (t["name"].as_str().expect("a name"), t["is_served"].as_bool().expect("a flag")))
        .collect();
    assert_eq!(served, [("bare", false), ("products", true)]);
    assert_eq!((&json["setup"], &tables[0]["key"]), (&"".into(), &serde_json::json!([])));
    assert_has(json["file"].as_str().expect("the file"), &["[collections.products]"]);
    assert_eq!(json["tables"][1]["exclude"], serde_json::json!(["password_hash", "apiKey"]));
}

#[test]
fn what_cannot_work_is_refused_with_its_cause() {
    let database = Database::new();
    let at = |name: &str| format!("sqlite:{}", database.folder().join(name).display());
    std::fs::write(database.folder().join("text"), "no database at all".repeat(100))
        .expect("write");
    for (from, more, code, part) in [
        (at("missing.db"), &[][..], 1, "missing.db does not exist"),
        (at("text"), &[][..], 1, "is not an SQLite database"),
        (at("shop.db"), &[][..], 1, "the database has no table"),
        (at("shop.db"), &["--schema", "x"][..], 1, "no schema `x`"),
        ("ftp://secret:pw@h/db".to_owned(), &[][..], 2, "the scheme \"ftp\" is unknown"),
        (at("shop.db"), &["--role", "x"][..], 2, "--role is for PostgreSQL"),
    ] {
        let ended = run(&from, more);
        assert_eq!((ended.code(), ended.output.as_str()), (code, ""), "{ended:?}");
        assert_has(&ended.log, &[part]);
        assert!(!ended.log.contains("pw"), "{}", ended.log);
    }
    database.execute("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let ended = run(&at("shop.db"), &["--tables", "t,nowhere"]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert_has(&ended.log, &["no table nowhere"]);
    let unset = Ended::run(&["init", "--from", "env:HOTROW_UNSET"], RUN_WITHIN);
    assert_eq!(unset.code(), 2, "{unset:?}");
    assert_has(&unset.log, &["HOTROW_UNSET is not set"]);
}

#[test]
fn without_a_table_to_serve_the_file_says_what_each_needs() {
    let database = Database::new();
    database.execute("CREATE TABLE bare(a INTEGER)");
    let ended = run(&url(&database), &[]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert_has(
        &ended.output,
        &["0 of 1 tables", "name its columns in `key`", "# [collections.bare]"],
    );
    assert_has(&ended.log, &["no table can be served as it is"]);
}

#[test]
fn more_tables_than_a_configuration_can_have() {
    let database = Database::new();
    let tables: String =
        (0..1_001).map(|i| format!("CREATE TABLE t{i:04}(id INTEGER PRIMARY KEY);")).collect();
    database.execute(&format!("BEGIN; {tables} COMMIT"));
    let written = Written::of(&url(&database), &[]);
    assert_has(&written.text, &["only the first 1,000 are here", "[collections.t0999]"]);
    assert!(!written.text.contains("t1000"), "the last one is left out");
    assert_has(&written.log, &["more than 1000 tables"]);
}
