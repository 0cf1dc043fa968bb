//! Errors for unsupported tables and servers, with their fixes.

use super::harness::{Reader, config, refusal, spec};
use super::recorder::Feed;
use super::server::{Flavor, SERVICE_USER, Server};
use hotrow_source::spec::KeyTypeName;

#[test]
fn every_problem_of_tables_is_reported_at_once_with_its_fix() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE nokey (id int);
         CREATE TABLE other (id int PRIMARY KEY, u int, v int UNIQUE);
         CREATE TABLE isam (id int PRIMARY KEY) ENGINE = MyISAM;
         CREATE TABLE mem (id int PRIMARY KEY) ENGINE = MEMORY;
         CREATE TABLE good (id int PRIMARY KEY);
         CREATE VIEW seen AS SELECT DISTINCT id FROM good;
         CREATE TABLE priced (p decimal(9,2) PRIMARY KEY);
         CREATE TABLE dated (d date PRIMARY KEY);
         CREATE TABLE cut (t text, PRIMARY KEY (t(10)));
         CREATE TABLE greek (g varchar(9) CHARACTER SET greek PRIMARY KEY);
         CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3;",
    );
    let mut tables = vec![
        "nokey(id)",
        "other(u)",
        "isam(id)",
        "mem(id)",
        "seen(id)",
        "priced(p)",
        "dated(d)",
        "cut(t)",
        "greek(g)",
        "absent(id)",
        "good(wrong)",
        "good(id)",
        "mysql.user(User)",
        "parted(id)",
    ];
    let of_mariadb = [
        "no unique index of `hashed` has just these columns; it has the primary key `id`",
        "DROP SYSTEM VERSIONING",
        "`seq` is a sequence",
    ];
    if server.flavor() == Flavor::MariaDb {
        tables.extend(["hashed(u)", "versioned(id)", "seq(id)"]);
        server.batch(
            "CREATE TABLE hashed (id int PRIMARY KEY, u varchar(5000) UNIQUE NOT NULL);
             CREATE TABLE versioned (id int PRIMARY KEY) WITH SYSTEM VERSIONING;
             CREATE SEQUENCE seq",
        );
    }
    // The service's account cannot even see `mysql.user`.
    let mut settings = config(&server.superuser_url(), &tables);
    settings.server.collections[11].columns = Some(vec!["id".into(), "nothing".into()]);
    let text = refusal(settings);
    let database = server.database();
    for expected in [
        "`nokey` has no primary key",
        &format!("ALTER TABLE `{database}`.`nokey` ADD PRIMARY KEY (`id`);"),
        "`key` is `u`, and no unique index of `other` has just these columns; it has the primary \
         key `id`, `v` of `v`",
        &format!("ALTER TABLE `{database}`.`other` ADD UNIQUE (`u`);"),
        "`isam` is kept by the engine MyISAM",
        &format!("ALTER TABLE `{database}`.`isam` ENGINE = InnoDB;"),
        "engine MEMORY",
        "the view `seen` has no accepted expression at character 8 of its text: distinct",
        "`p` of type decimal(9,2) can be written in more than one way",
        "`d` of type date",
        "`t` of type text is not among",
        "character set greek",
        "there is no table `absent`",
        "no column `wrong` (setting `key`)",
        "no column `nothing` (setting `columns`)",
        "`mysql.user` belongs to the server",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    for expected in of_mariadb {
        assert_eq!(text.contains(expected), server.flavor() == Flavor::MariaDb, "{expected}");
    }
    assert!(!text.contains("collection `parted`"), "{text}");
}

#[test]
fn an_index_that_no_statement_may_use_is_no_key() {
    let server = Server::any();
    let (hide, show) = server.flavor().choose(("IGNORED", "NOT IGNORED"), ("INVISIBLE", "VISIBLE"));
    server.batch(&format!(
        "CREATE TABLE t (pk int PRIMARY KEY, id int NOT NULL, UNIQUE KEY u (id) {hide}); \
         INSERT INTO t VALUES (1, 7)"
    ));
    let text = refusal(config(&server.url(), &["t(id)"]));
    assert!(text.contains("the unique index `u` of `t` is INVISIBLE or IGNORED"), "{text}");
    assert!(text.contains(&format!("ALTER INDEX `u` {show};")), "{text}");
    let mut alias = config(&server.url(), &["t(pk)", "t(id)"]);
    alias.server.collections[1].is_alias = true;
    let text = refusal(alias);
    assert!(text.contains("the unique index `u` of `t` is INVISIBLE or IGNORED"), "{text}");
    server.batch("ALTER TABLE t ADD UNIQUE KEY w (id)");
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.answers(0, &["7"]), [r#"{"pk":1,"id":7}"#], "by the other index");
    server.batch(&format!("ALTER TABLE t ALTER INDEX w {hide}"));
    let why = reader.read(0, &["7"]).unwrap_err().to_string();
    assert!(why.contains("is INVISIBLE or IGNORED"), "{why}");
    server.batch(&format!("ALTER TABLE t ALTER INDEX u {show}"));
    let feed = Feed::start(&server, &["t(id)"]);
    server.batch(&format!("ALTER TABLE t ALTER INDEX u {hide}"));
    feed.sink.wait("the index to be missed", |_| {
        let plan = feed.source.shared.published.plan().unwrap();
        plan.collections[0].as_ref().is_err_and(|why| why.contains("IGNORED")).then_some(())
    });
}

#[test]
fn key_types_must_fit() {
    let server = Server::any();
    server
        .batch("CREATE TABLE t (b binary(8) PRIMARY KEY); CREATE TABLE u (c char(36) PRIMARY KEY)");
    let mut settings = config(&server.url(), &["t(b)", "u(c)"]);
    for spec in &mut settings.server.collections {
        spec.key_types = vec![KeyTypeName::Uuid];
    }
    let text = refusal(settings);
    assert!(
        text.contains("cannot hold a UUID, which has 16 bytes")
            && text.contains("does not match its type in `key_type`"),
        "{text}"
    );
}

#[test]
fn missing_privileges_come_with_the_grant() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY, s int); CREATE TABLE b (id int PRIMARY KEY);
         CREATE USER reader@'%' IDENTIFIED BY 'secret'; GRANT SELECT (id) ON a TO reader@'%';
         GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO reader@'%'",
    );
    let url = server.url_for("reader", "secret");
    let text = refusal(config(&url, &["a(id)", "b(id)"]));
    let database = server.database();
    for expected in [
        "'reader'@'%' may not read all columns of `a`",
        &format!("GRANT SELECT ON `{database}`.`a` TO 'reader'@'%';"),
        "there is no table `b`",
        &format!("GRANT SELECT ON `{database}`.`b` TO 'reader'@'%';"),
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    let mut settings = config(&url, &[]);
    let mut a = spec("a(id)");
    a.columns = Some(vec!["id".into()]);
    settings.server.collections.push(a);
    server.batch("INSERT INTO a VALUES (1, 2); GRANT SELECT ON a TO reader@'%'");
    assert_eq!(Reader::open(settings).answers(0, &["1"]), [r#"{"id":1}"#]);
    let wrong = refusal(config(&server.url_for("reader", "guess"), &["a(id)"]));
    assert!(wrong.contains("the password of user `reader`") && !wrong.contains("guess"), "{wrong}");
}

#[test]
fn replicas_and_unknown_databases_are_refused() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY)");
    let nowhere = server.url().replace(&format!("/{}", server.database()), "/nowhere");
    let text = refusal(config(&nowhere, &["t(id)"]));
    assert!(text.contains("correct the name of the database, `nowhere`"), "{text}");
    server.set(&[("read_only", "ON")]);
    let text = refusal(config(&server.url(), &["t(id)"]));
    assert!(text.contains("`read_only`"), "{text}");
    server.set(&[("read_only", "OFF")]);
    // Only an account with this privilege can see the settings of a replica.
    server.batch(&format!("GRANT SLAVE MONITOR ON *.* TO {SERVICE_USER}@'%'"));
    server.batch("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'x'");
    let text = refusal(config(&server.url(), &["t(id)"]));
    assert!(text.contains("it is a replica") && text.contains("RESET REPLICA ALL"), "{text}");
    server.batch("RESET SLAVE ALL");
}

#[test]
fn accounts_log_in_with_and_without_tls() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY)");
    let by = |mode: &str| config(&format!("{}?ssl-mode={mode}", server.url()), &["t(id)"]);
    for mode in ["disabled", "preferred", "required"] {
        // MySQL forgets the passwords that it has seen, and asks for the whole exchange.
        server.batch("FLUSH PRIVILEGES");
        if mode == "required" && server.flavor() == Flavor::MariaDb {
            let text = refusal(by(mode));
            assert!(text.contains("it has no TLS"), "{text}");
        } else {
            Reader::open(by(mode));
        }
    }
    if server.flavor() == Flavor::MariaDb {
        return;
    }
    server.batch(&format!("ALTER USER {SERVICE_USER}@'%' REQUIRE SSL"));
    assert!(refusal(by("disabled")).contains("(error 1045)"));
    Reader::open(by("required"));
    // MySQL's own certificate names no host.
    let by_name = format!("verify-identity&ssl-ca={}", server.data().join("ca.pem").display());
    let text = refusal(by(&by_name));
    assert!(text.contains("certificate"), "{text}");
}
