use hotrow_supervisor::Supervisor;

use super::harness::*;
use crate::config::{Config, KeyTypeName, Watch};
use crate::{Hooks, OpenError, open, uninstall_triggers};

fn refused(config: Config) -> String {
    match open(config, Hooks::default(), &Supervisor::default()) {
        Ok(_) => panic!("it should have been refused"),
        Err(e) => e.to_string(),
    }
}

/// Checks that opening `table(key)` of a database with this content fails with a message that
/// contains all of `parts`.
#[track_caller]
fn check(sql: &str, collection: &str, change: impl FnOnce(&mut Config), parts: &[&str]) {
    let db = Db::new(sql);
    let mut config = db.config(vec![spec(collection)]);
    change(&mut config);
    let message = refused(config);
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'"),
        0,
        "no trigger is left behind"
    );
}

#[test]
fn a_missing_file_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::new("");
    for name in ["none.db", "no/dir/none.db"] {
        let config = Config { path: dir.path().join(name), ..db.config(vec![spec("t(id)")]) };
        let message = refused(config.clone());
        assert!(message.contains("does not exist") && message.contains("none.db"), "{message}");
        assert!(!config.path.exists());
        assert!(matches!(uninstall_triggers(&config.path), Err(OpenError::Missing { .. })));
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_unchanged() {
    let db = Db::new("");
    let file = db.dir.path().join("file");
    for content in [&b""[..], b"hello", &[0; 4096], &[b'x'; 8192]] {
        std::fs::write(&file, content).unwrap();
        let message = refused(Config { path: file.clone(), ..db.config(vec![spec("t(id)")]) });
        assert!(message.contains("is not an SQLite database"), "{message}");
        assert!(matches!(uninstall_triggers(&file), Err(OpenError::NotADatabase { .. })));
        assert_eq!(std::fs::read(&file).unwrap(), content);
    }
    let message = refused(Config { path: db.dir.path().into(), ..db.config(vec![spec("t(id)")]) });
    assert!(message.contains("not a regular file"), "{message}");
}

#[test]
fn tables_and_columns_of_the_configuration_must_exist() {
    const T: &str =
        "CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE \"Other One\"(x);";
    check(
        T,
        "product(id)",
        |_| (),
        &["collection `product`", "no table `product`", "`Other One`, `products`"],
    );
    check(T, "products(uid)", |_| (), &["no column `uid`", "setting `key`", "`id`, `name`"]);
    check(
        T,
        "products(id)",
        |c| c.collections[0].columns = Some(vec!["nme".into()]),
        &["`nme`", "`columns`", "`name`"],
    );
    check(
        T,
        "products(id)",
        |c| c.collections[0].exclude = vec!["x".into()],
        &["no column `x`", "`exclude`"],
    );
    check(
        T,
        "products(id)",
        |c| c.collections[0].tenant = Some("org".into()),
        &["no column `org`", "`tenant`"],
    );
    check(
        T,
        "products(id)",
        |c| c.collections[0].exclude = vec!["ID".into(), "name".into()],
        &["no column", "to serve"],
    );
    check(T, "products(id, id)", |_| (), &["`id` twice"]);
    check(
        T,
        "products(id)",
        |c| c.collections[0].key.clear(),
        &["are known to be unique together", "in `key`"],
    );
    check(
        T,
        "products(id)",
        |c| c.collections[0].key_types = vec![KeyTypeName::Text; 2],
        &["`key_type` has 2 entries"],
    );
    check("", "t(id)", |_| (), &["no table `t`", "the database has none"]);
    let many: String = (0..30).map(|i| format!("CREATE TABLE t{i:02}(x);")).collect();
    check(&many, "t(id)", |_| (), &["`t00`", "`t19` and 10 more"]);
}

#[test]
fn a_key_must_be_unique() {
    const T: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b TEXT, c TEXT UNIQUE); \
                     CREATE UNIQUE INDEX p ON t(a) WHERE b IS NULL; \
                     CREATE UNIQUE INDEX ab ON t(a, b); CREATE INDEX plain ON t(b);";
    for key in ["a", "b", "id, a", "a, b, c"] {
        check(
            T,
            &format!("t({key})"),
            |_| (),
            &["is not unique", key, "PRIMARY KEY or a UNIQUE index", "`id`, `a, b`, `c`"],
        );
    }
    let db = Db::new(T);
    db.start(&["t(id)", "t(b, a)", "t(c)"]);
    // DESC keeps a single INTEGER key from being the rowid; it has an index then.
    let db =
        Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY DESC, v); INSERT INTO t VALUES (5, 'x')");
    assert!(db.start(&["t(id)"]).row(0, "5").is_some());
}

#[test]
fn a_key_must_have_a_type_that_ids_can_name() {
    let t = |ty: &str| format!("CREATE TABLE t(id {ty} PRIMARY KEY) WITHOUT ROWID");
    let typed = |name| move |c: &mut Config| c.collections[0].key_types = vec![name];
    check(&t("REAL"), "t(id)", |_| (), &["key column `id`", "`REAL`", "floating-point"]);
    check(&t("DECIMAL"), "t(id)", |_| (), &["`DECIMAL`", "key_type = [\"integer\"]"]);
    check(&t("BLOB"), "t(id)", |_| (), &["`BLOB`", "`key_type`", "\"uuid\""]);
    check(&t("INT"), "t(id)", typed(KeyTypeName::Text), &["`INT`", "cannot be a text id"]);
    check(&t("TEXT"), "t(id)", typed(KeyTypeName::Integer), &["`TEXT`", "cannot be an integer id"]);
    check(
        "CREATE TABLE t(id ANY PRIMARY KEY) STRICT",
        "t(id)",
        |_| (),
        &["`ANY`", "can be of any type"],
    );
    for (ty, name) in [
        ("DECIMAL", KeyTypeName::Integer),
        ("UUID", KeyTypeName::Uuid),
        ("BLOB", KeyTypeName::Bytes),
    ] {
        let db = Db::new(&t(ty));
        let mut config = db.config(vec![spec("t(id)")]);
        config.collections[0].key_types = vec![name];
        assert!(open(config, Hooks::default(), &Supervisor::default()).is_ok(), "{ty}");
    }
}

#[test]
fn tables_that_triggers_cannot_watch_are_refused_with_triggers_only() {
    let db = Db::new("");
    // The sqlite3 program defines a collation of its own.
    program(
        "sqlite3",
        &[db.path.to_str().unwrap(), "CREATE TABLE t(id TEXT COLLATE uint PRIMARY KEY)"],
    );
    let message = refused(db.config(vec![spec("t(id)")]));
    assert!(message.contains("collation `UINT`") && message.contains("NOCASE"), "{message}");

    const T: &str =
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT); CREATE UNIQUE INDEX low ON t(lower(a));";
    check(T, "t(id)", |_| (), &["unique index `low`", "expression", "watch = \"none\""]);
    let db = Db::new(T);
    let none = Config { watch: Watch::None, ..db.config(vec![spec("t(id)")]) };
    assert!(open(none, Hooks::default(), &Supervisor::default()).is_ok());

    const V: &str = "CREATE VIEW v AS SELECT 1 AS id; CREATE VIRTUAL TABLE f USING fts5(id);";
    check(V, "v(id)", |_| (), &["the view `v` has something other than FROM"]);
    check(V, "f(id)", |_| (), &["`f` is a virtual table"]);
    check(
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "sqlite_sequence(name)",
        |_| (),
        &["table of the system"],
    );

    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    db.writer.pragma_update(None, "journal_mode", "DELETE").unwrap();
    let message = refused(db.config(vec![spec("t(id)")]));
    assert!(
        message.contains("journal mode `delete`") && message.contains("`PRAGMA journal_mode=WAL;`"),
        "{message}"
    );
}

#[test]
fn a_lock_is_named() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    db.run("PRAGMA locking_mode = EXCLUSIVE; INSERT INTO t VALUES (1)");
    let tuning =
        crate::config::Tuning { install_busy: std::time::Duration::ZERO, ..Default::default() };
    let error = crate::open_with(
        db.config(vec![spec("t(id)")]),
        Hooks::default(),
        tuning,
        &Supervisor::default(),
    )
    .unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
}

#[test]
fn a_log_of_a_newer_format_is_refused() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    drop(db.start(&["t(id)"]));
    // The format is checked only if something has to be installed: a complete log of this format is
    // used as it is.
    db.run("UPDATE _hotrow_meta SET format = 2; DROP TRIGGER _hotrow_guard_log");
    let message = refused(db.config(vec![spec("t(id)")]));
    assert!(message.contains("format 2") && message.contains("knows 1"), "{message}");
}

#[test]
fn triggers_that_would_break_writes_are_not_kept() {
    // In an index, a text in double quotes may be parsed as a column that does not exist.
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b TEXT);");
    db.writer.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DQS_DDL, true).unwrap();
    db.run("CREATE UNIQUE INDEX live ON t(a) WHERE b = \"yes\"");
    let message = refused(db.config(vec![spec("t(id)")]));
    assert!(
        message.contains("triggers for `t` do not work") && message.contains("yes"),
        "{message}"
    );
    db.run("INSERT INTO t VALUES (1, 'a', 'yes'); UPDATE t SET a = 'b'; DELETE FROM t");
}

#[test]
fn removing_leaves_the_database_as_it_was() {
    let db = Db::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT UNIQUE); \
         CREATE TABLE own(id INTEGER PRIMARY KEY AUTOINCREMENT);",
    );
    let schema = |db: &Db| {
        db.one::<String>("SELECT group_concat(coalesce(sql, name), ';') FROM sqlite_schema")
    };
    let before = schema(&db);
    let engine = db.start(&["t(id)", "t(a)"]);
    engine.during(|| db.run("INSERT INTO t VALUES (1, 'x')")).only(&["0:1", "1:x"]);
    drop(engine);
    let removed = uninstall_triggers(&db.path).unwrap();
    assert_eq!(removed.tables, ["_hotrow_log", "_hotrow_meta"]);
    assert_eq!(removed.triggers.len(), 12, "{removed:?}");
    assert_eq!(schema(&db), before);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM sqlite_sequence"), 0);
    db.run("INSERT INTO t VALUES (2, 'y')");
    assert_eq!(uninstall_triggers(&db.path).unwrap(), crate::Removed::default());
}
