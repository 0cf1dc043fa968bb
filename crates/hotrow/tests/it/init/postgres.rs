//! PostgreSQL.

use super::{RUN_WITHIN, Written, assert_has, run};
use hotrow_testkit::harness::{Ended, SOON, await_until};
use hotrow_testkit::postgres::{ROLE, Server as Postgres, Stop};

const TABLES: &str = r#"
    CREATE TABLE users(id bigint PRIMARY KEY, email text NOT NULL UNIQUE, "passwordHash" text);
    CREATE TABLE "Users"("Id" uuid PRIMARY KEY);
    CREATE TABLE pairs(a int, b text, note text, PRIMARY KEY (a, b));
    CREATE TABLE by_code(id float8 PRIMARY KEY, code text NOT NULL UNIQUE);
    ALTER TABLE by_code REPLICA IDENTITY USING INDEX by_code_code_key;
    CREATE TABLE "select"("from" int PRIMARY KEY, "$x" text);
    CREATE TABLE "We ""quoted"" it. [x]"("k""ey" text PRIMARY KEY);
    CREATE TABLE parted(id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
    CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
    CREATE SCHEMA "odd.schema";
    GRANT USAGE ON SCHEMA "odd.schema" TO hotrow;
    CREATE TABLE "odd.schema"."商品"(id int PRIMARY KEY);
    CREATE TABLE "odd.schema".users(id int PRIMARY KEY);
    CREATE TABLE bare(name text, n int);
    CREATE TABLE ratios(id float8 PRIMARY KEY);
    CREATE TABLE computed(n int, id int GENERATED ALWAYS AS (n * 2) STORED PRIMARY KEY);
    CREATE UNLOGGED TABLE fleeting(id int PRIMARY KEY);
    CREATE TABLE mute(id int PRIMARY KEY); ALTER TABLE mute REPLICA IDENTITY NOTHING;
    CREATE MATERIALIZED VIEW summed AS SELECT b AS id, a FROM pairs;
    CREATE UNIQUE INDEX ON summed (id); GRANT SELECT ON summed TO hotrow;
    CREATE VIEW seen AS SELECT * FROM users;
    CREATE VIEW counted AS SELECT count(*) AS id FROM users;
    CREATE TABLE forbidden(id int PRIMARY KEY); ALTER TABLE forbidden OWNER TO postgres;
    CREATE TABLE lent(id int PRIMARY KEY); ALTER TABLE lent OWNER TO postgres;
    GRANT SELECT ON lent TO hotrow; INSERT INTO lent VALUES (1);
    INSERT INTO users VALUES (1, 'a@example.org', 'h');
    INSERT INTO "Users" VALUES ('00000000-0000-0000-0000-000000000001');
    INSERT INTO pairs VALUES (1, 'x', 'y');
    INSERT INTO by_code VALUES (1, 'c');
    INSERT INTO "select" VALUES (1, 'y');
    INSERT INTO "We ""quoted"" it. [x]" VALUES ('k');
    INSERT INTO parted VALUES (1, 1);
    INSERT INTO "odd.schema"."商品" VALUES (1);
    INSERT INTO "odd.schema".users VALUES (1);
    INSERT INTO bare VALUES ('a', 1); INSERT INTO mute VALUES (1); INSERT INTO fleeting VALUES (1);
    INSERT INTO computed VALUES (1); REFRESH MATERIALIZED VIEW summed;
    ANALYZE;"#;

fn start(settings: &[(&str, &str)], sql: &str) -> (Postgres, String) {
    let server = Postgres::start(settings);
    server.make_owner_role();
    server.batch(sql);
    let url = server.url_for(ROLE, "postgres");
    (server, url)
}

#[test]
fn every_table_is_served_or_a_comment_with_its_reason() {
    let (server, url) = start(&[], TABLES);
    let written = Written::lacking(&url, &[]);
    let publications = "SELECT count(*) FROM pg_publication";
    assert_eq!(server.query(publications), "0", "init changes nothing");
    // A table of another owner: the role may not publish it.
    let create = "CREATE PUBLICATION \"hotrow\" FOR TABLE \"odd.schema\".\"users\", ";
    assert_has(&written.setup, &[create, "\"public\".\"lent\""]);
    assert_has(
        &written.text,
        &[
            "11 of 19 tables can be served",
            "# public.users: table, about 1 row, ",
            "; key id (bigint)\n",
            "exclude = [\"passwordHash\"]",
            "# public.parted: partitioned table, about 1 row",
            "table = \"odd.schema.users\"",
            "key = \"code\"",
        ],
    );
    for (collection, parts) in [
        ("bare", &["no columns of `bare` are known to be unique"][..]),
        ("ratios", &["is of type float8"][..]),
        ("computed", &["is generated"][..]),
        ("fleeting", &["ALTER TABLE \"public\".\"fleeting\" SET LOGGED;"][..]),
        ("summed", &["is a materialized view"][..]),
        ("mute", &["ALTER TABLE \"public\".\"mute\" REPLICA IDENTITY DEFAULT;"][..]),
        ("counted", &["does not select from one table alone"][..]),
        ("forbidden", &["GRANT SELECT ON \"public\".\"forbidden\" TO \"hotrow\";"][..]),
    ] {
        assert_has(written.refusal(collection), parts);
    }
    assert_eq!(written.text, Written::lacking(&url, &[]).text, "the same again");
    server.batch(&written.setup);
    let written = Written::of(&url, &[]);
    written.assert_serves(&[
        "/users/1",
        "/public_users/00000000-0000-0000-0000-000000000001",
        "/pairs/1,x",
        "/by_code/c",
        "/seen/1",
        "/select/1",
        "/we_quoted_it_x/k",
        "/parted/1",
        "/table/1",
        "/odd_schema_users/1",
        "/lent/1",
    ]);
    let unfollowed =
        ["fleeting", "mute", "summed", "computed"].map(|name| format!("[collections.{name}]"));
    let offers: Vec<&str> = unfollowed.iter().map(String::as_str).collect();
    let offered = written.with_offers(&[&["[sources."], &offers[..]].concat());
    std::fs::write(written.file(), &offered).expect("written");
    let served = written.serve();
    for path in ["/fleeting/1", "/mute/1", "/summed/x", "/computed/2", "/users/1"] {
        assert_eq!(served.get(path).status, 200, "{path}: {offered}");
    }
    server.batch("INSERT INTO fleeting VALUES (2); UPDATE pairs SET a = 2");
    server.batch("REFRESH MATERIALIZED VIEW summed");
    await_until("the end of a lifetime", SOON, || served.get("/summed/x").json()["a"] == 2);
    assert_eq!(served.get("/fleeting/2").status, 200);
    // With the publication of the block, and with the printed remedies.
    server.batch(
        r#"ALTER TABLE "public"."bare" ADD PRIMARY KEY ("name");
        ALTER TABLE "public"."fleeting" SET LOGGED;
        ALTER TABLE "public"."mute" REPLICA IDENTITY DEFAULT"#,
    );
    let more = Written::lacking(&url, &["--tables", "bare,fleeting,mute,lent"]);
    let tables = "\"public\".\"bare\", \"public\".\"fleeting\", \"public\".\"mute\";";
    assert_eq!(more.setup, format!("ALTER PUBLICATION \"hotrow\" ADD TABLE {tables}\n"));
    server.batch(&more.setup);
    let own = Written::of(&url, &["--tables", "bare,users,public.parted", "--schema", "public"]);
    own.assert_serves(&["/bare/a", "/parted/1", "/users/1"]);
}

#[test]
fn a_column_that_the_role_may_not_read_is_excluded() {
    let (server, url) = start(&[], "");
    server.batch(
        "CREATE TABLE staff(id int PRIMARY KEY, name text, pay int);
         INSERT INTO staff VALUES (1, 'a', 9); ALTER TABLE staff OWNER TO postgres;
         GRANT SELECT (id, name) ON staff TO hotrow; CREATE PUBLICATION hotrow FOR TABLE staff",
    );
    let written = Written::of(&url, &[]);
    assert_has(&written.text, &["may not read pay.\nexclude = [\"pay\"]"]);
    assert_eq!(written.serve().get("/staff/1").text(), r#"{"id":1,"name":"a"}"#);
}

#[test]
fn what_the_server_lacks_is_at_the_head_of_the_file() {
    let (server, _) = start(&[("wal_level", "replica")], "");
    server.batch(
        "CREATE TABLE t(id int PRIMARY KEY); ALTER TABLE t OWNER TO postgres;
         CREATE ROLE reader LOGIN; GRANT SELECT ON t TO reader",
    );
    let written = Written::lacking(&server.url_for("reader", "postgres"), &[]);
    let parts = [
        "Before hotrow serve can start",
        "ALTER SYSTEM SET wal_level = 'logical';",
        "REPLICATION",
        "CREATE PUBLICATION \"hotrow\" FOR TABLE \"public\".\"t\"",
        "1 of 1 tables",
    ];
    assert_has(&written.text, &parts);
    assert_has(&written.log, &["before hotrow serve can start", "wal_level"]);
    let checked = written.check();
    assert_eq!(checked.code(), 1, "{checked:?}");
    assert_has(&checked.log, &["the file is fine; the database is not ready", "wal_level"]);
}

const ODD: &str = r#"
    CREATE SCHEMA "It's ""odd""";
    CREATE TABLE "It's ""odd"""."Upper Case"(id int PRIMARY KEY);
    CREATE TABLE "line
; DROP TABLE plain; --"(id int PRIMARY KEY);
    CREATE TABLE plain(id int PRIMARY KEY);
    CREATE TABLE bare(a int); INSERT INTO plain VALUES (1);"#;

/// The documented grants; one of them less is one block with it, and one round.
#[test]
fn a_role_is_set_up_in_one_round() {
    let server = Postgres::start(&[]);
    server.batch(ODD);
    let schemas = "\"public\", \"It's \"\"odd\"\"\"";
    for (i, withheld) in ["", "REPLICATION", "USAGE", "SELECT", "PUBLICATION"].iter().enumerate() {
        let replication = if *withheld == "REPLICATION" { "" } else { "REPLICATION" };
        server.batch(&format!("CREATE ROLE r{i} LOGIN {replication}"));
        if *withheld != "USAGE" {
            server.batch(&format!("GRANT USAGE ON SCHEMA {schemas} TO r{i}"));
        }
        if *withheld != "SELECT" {
            server.batch(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA {schemas} TO r{i}"));
        }
        if *withheld == "PUBLICATION" {
            server.batch("DROP PUBLICATION hotrow");
        } else if i == 0 {
            let tables = r#""It's ""odd"""."Upper Case", plain, "line
; DROP TABLE plain; --""#;
            server.batch(&format!("CREATE PUBLICATION hotrow FOR TABLE {tables}"));
        }
        let url = server.url_for(&format!("r{i}"), "postgres");
        if withheld.is_empty() {
            Written::of(&url, &[]);
            continue;
        }
        let applied = Written::lacking(&url, &["--apply", &server.url(), "--yes"]);
        if *withheld == "USAGE" {
            // A role that reads other tables may be meant not to read this one.
            assert_has(applied.refusal("upper_case"), &["GRANT USAGE ON SCHEMA", "GRANT SELECT"]);
        } else {
            assert_has(&applied.log, &[withheld]);
        }
        assert_eq!(applied.setup, "", "{withheld}: {}", applied.log);
        let checked = applied.check();
        assert_eq!(checked.code(), 0, "{withheld}: {checked:?}");
    }
}

/// A fresh database of five hundred tables, from an administrator's connection: the block creates
/// the role, and what is written is served by it.
#[test]
fn an_administrator_sets_up_a_role_for_five_hundred_tables() {
    let server = Postgres::start(&[("max_locks_per_transaction", "600")]);
    server.batch(ODD);
    server.batch(
        "DO $$ BEGIN FOR i IN 0..496 LOOP EXECUTE format('CREATE TABLE t%s(id int PRIMARY KEY)', \
         i); END LOOP; END $$; INSERT INTO t496 VALUES (1)",
    );
    let url = server.url();
    let asked = run(&url, &["--role", "new one", "--apply"]);
    assert_eq!(asked.code(), 1, "{asked:?}");
    let create = "CREATE ROLE \"new one\" LOGIN REPLICATION;\n-- then set its password";
    assert_has(&asked.log, &[create, "standard input is no terminal; add --yes"]);
    let roles = "SELECT count(*) FROM pg_roles WHERE rolname = 'new one'";
    assert_eq!(server.query(roles), "0", "nothing is written without a yes");
    let written = Written::lacking(&url, &["--role", "new one", "--apply", "--yes"]);
    assert_eq!(written.log.matches("GRANT SELECT ON ").count(), 1, "{}", written.log);
    assert_has(&written.text, &["500 of 501 tables can be served"]);
    assert!(!written.text.contains("# key = "), "{}", written.text);
    let own = Written { url: server.url_for("new%20one", "postgres"), ..written };
    let checked = own.check();
    assert_eq!(checked.code(), 0, "{checked:?}");
    let served = own.serve();
    assert_eq!((served.get("/t496/1").status, served.get("/plain/1").status), (200, 200));
}

#[test]
fn what_is_offered_is_ready_to_use() {
    let (server, url) = start(
        &[],
        "CREATE TABLE orders(id int PRIMARY KEY, number text NOT NULL UNIQUE, at interval);
         CREATE TABLE lines(id int PRIMARY KEY, \"order\" int REFERENCES orders, pin text);
         INSERT INTO orders VALUES (1, 'n1'); INSERT INTO lines VALUES (7, 1, 'secret')",
    );
    let written = Written::of(&url, &[]);
    let offered = written.with_offers(&[".by.", ".embed."]);
    std::fs::write(written.file(), &offered).expect("written");
    let served = written.serve();
    assert_eq!(served.get("/orders/by/number/n1").json()["id"], 1, "{offered}");
    let record = served.get("/orders/1");
    assert_eq!(record.json()["lines"], serde_json::json!([{"id": 7, "order": 1}]), "{offered}");
    server.batch("INSERT INTO orders VALUES (2, 'n2')");
    let at = record.header("hotrow-position").expect("a position").to_owned();
    let again = served.client().get_with("/orders/1", &[("Hotrow-Min-Position", &at)]);
    assert_eq!(again.status, 200, "allow_min_position is on");
}

/// A table without `key` is served by its primary key, of one or several columns.
#[test]
fn the_primary_key_is_the_default_key() {
    let (server, url) = start(
        &[],
        "CREATE TABLE stock(place text, item int, n int, PRIMARY KEY (place, item));
         CREATE TABLE odd(id int, code text PRIMARY KEY);
         CREATE TABLE mute(id int PRIMARY KEY, code text NOT NULL UNIQUE);
         ALTER TABLE mute REPLICA IDENTITY USING INDEX mute_code_key;
         INSERT INTO stock VALUES ('BER', 1, 4)",
    );
    let write = |collections: &str| {
        let written = Written::of(&url, &["--tables", "stock"]);
        let source = "[source]\nurl = \"${DATABASE_URL}\"\n";
        std::fs::write(written.file(), format!("{source}{collections}")).expect("written");
        written
    };
    assert_eq!(write("[collections.stock]\n").serve().get("/stock/BER,1").json()["n"], 4);
    server.batch("ALTER PUBLICATION hotrow ADD TABLE odd, mute");
    for (collections, part) in [
        ("[collections.odd]\n", "key = [\"code\"] or key = [\"id\"]"),
        ("[collections.mute]\n", "ALTER TABLE \"public\".\"mute\" REPLICA IDENTITY DEFAULT;"),
    ] {
        let refused = write(collections).check();
        assert_eq!(refused.code(), 1, "{refused:?}");
        assert_has(&refused.log, &[part]);
    }
}

/// The database accepts a connection and is silent, or is not there.
#[test]
fn a_database_that_is_not_reached_is_status_3_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hotrow.toml");
    for (scheme, port) in [
        ("postgres", silent.local_addr().expect("an address").port()),
        ("mysql", silent.local_addr().expect("an address").port()),
        ("mongodb", silent.local_addr().expect("an address").port()),
        ("postgres", 1),
        ("mysql", 1),
    ] {
        let url = format!("{scheme}://u:s3cr3t@127.0.0.1:{port}/shop");
        let text =
            format!("[source]\nurl = \"{url}\"\nconnect_timeout = \"1s\"\n[collections.a]\n");
        std::fs::write(&file, text).expect("written");
        let check = |more: &[&str]| {
            let file = file.to_str().expect("UTF-8");
            Ended::run(&[&["check", "--config", file], more].concat(), RUN_WITHIN)
        };
        let checked = check(&[]);
        assert_eq!(checked.code(), 3, "{checked:?}");
        assert_has(&checked.log, &["the file is fine; the database was not reached: "]);
        assert!(!checked.log.contains("s3cr3t"), "{checked:?}");
        let offline = check(&["--offline"]);
        assert_eq!(offline.code(), 0, "{offline:?}");
        assert_has(&offline.output, &["the database was not asked"]);
    }
}

#[test]
fn an_unreachable_server_and_a_wrong_password() {
    let (mut server, _) = start(&[], "CREATE ROLE guarded LOGIN PASSWORD 'right'");
    server.set_hba("host all all 127.0.0.1/32 scram-sha-256\n");
    let port = server.port();
    let url = format!("postgres://guarded:wr0ng-pw@127.0.0.1:{port}/postgres");
    let refused = run(&url, &[]);
    assert_eq!((refused.code(), refused.output.as_str()), (1, ""), "{refused:?}");
    assert_has(&refused.log, &["password of user `guarded`"]);
    assert!(!refused.log.contains("wr0ng-pw"), "{}", refused.log);
    // An argument can be read by other users.
    let argument = Ended::run(&["init", "--from", &url], RUN_WITHIN);
    assert_has(&argument.log, &["list of processes", "--from env:NAME"]);
    assert!(!argument.log.contains("wr0ng-pw"), "{}", argument.log);
    server.stop(Stop::Fast);
    let unreachable = run(&url, &[]);
    assert_eq!(unreachable.code(), 1, "{unreachable:?}");
    assert_has(&unreachable.log, &["cannot connect to 127.0.0.1"]);
    assert!(!unreachable.log.contains("wr0ng-pw"), "{}", unreachable.log);
}
