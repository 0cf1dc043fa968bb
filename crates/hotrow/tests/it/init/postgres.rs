//! PostgreSQL.

use super::{RUN_WITHIN, Written, assert_has, run};
use hotrow_testkit::harness::Ended;
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
    CREATE VIEW seen AS SELECT * FROM users;
    CREATE VIEW counted AS SELECT count(*) AS id FROM users;
    CREATE TABLE forbidden(id int PRIMARY KEY); ALTER TABLE forbidden OWNER TO postgres;
    CREATE TABLE lent(id int PRIMARY KEY); ALTER TABLE lent OWNER TO postgres;
    GRANT SELECT ON lent TO hotrow;
    INSERT INTO users VALUES (1, 'a@example.org', 'h');
    INSERT INTO "Users" VALUES ('00000000-0000-0000-0000-000000000001');
    INSERT INTO pairs VALUES (1, 'x', 'y');
    INSERT INTO by_code VALUES (1, 'c');
    INSERT INTO "select" VALUES (1, 'y');
    INSERT INTO "We ""quoted"" it. [x]" VALUES ('k');
    INSERT INTO parted VALUES (1, 1);
    INSERT INTO "odd.schema"."商品" VALUES (1);
    INSERT INTO "odd.schema".users VALUES (1);
    INSERT INTO bare VALUES ('a', 1);
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
    let written = Written::of(&url, &[]);
    let publications = "SELECT count(*) FROM pg_publication";
    assert_eq!(server.query(publications), "0", "init changes nothing");
    assert_has(
        &written.text,
        &[
            "10 of 18 tables can be served",
            "# public.users: table, about 1 row, ",
            "; key id (bigint)\n",
            "exclude = [\"passwordHash\"]",
            "# public.parted: partitioned table, about 1 row",
            "table = \"odd.schema.users\"",
            "key = \"code\"",
        ],
    );
    for (collection, parts) in [
        ("bare", &["ALTER TABLE \"public\".\"bare\" ADD PRIMARY KEY (\"name\");"][..]),
        ("ratios", &["is of type float8"][..]),
        ("computed", &["is generated"][..]),
        ("fleeting", &["ALTER TABLE \"public\".\"fleeting\" SET LOGGED;"][..]),
        ("mute", &["ALTER TABLE \"public\".\"mute\" REPLICA IDENTITY DEFAULT;"][..]),
        ("counted", &["does not select from one table alone"][..]),
        ("forbidden", &["GRANT SELECT ON \"public\".\"forbidden\" TO \"hotrow\";"][..]),
        ("lent", &["the publication `hotrow`"][..]),
    ] {
        assert_has(written.refusal(collection), parts);
    }
    assert_eq!(written.text, Written::of(&url, &[]).text, "the same again");
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
    ]);
    // With the publication that the service has created, and with the printed remedies.
    server.batch(
        r#"ALTER TABLE "public"."bare" ADD PRIMARY KEY ("name");
        ALTER TABLE "public"."fleeting" SET LOGGED;
        ALTER TABLE "public"."mute" REPLICA IDENTITY DEFAULT;
        ALTER PUBLICATION "hotrow" ADD TABLE "public"."lent""#,
    );
    let more = Written::of(&url, &["--tables", "bare,fleeting,mute,lent"]);
    assert_has(more.refusal("bare"), &["the publication `hotrow` lacks"]);
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
    let written = Written::of(&server.url_for("reader", "postgres"), &[]);
    let parts = [
        "Before hotrow serve can start",
        "ALTER SYSTEM SET wal_level = 'logical';",
        "REPLICATION",
        "CREATE PUBLICATION \"hotrow\" FOR TABLE \"public\".\"t\"",
        "1 of 1 tables",
    ];
    assert_has(&written.text, &parts);
    assert_has(&written.log, &["before hotrow serve can start", "wal_level"]);
}

#[test]
fn five_hundred_tables() {
    let (_server, url) = start(
        &[("max_locks_per_transaction", "600")],
        "DO $$ BEGIN FOR i IN 0..499 LOOP EXECUTE format('CREATE TABLE t%s(id int PRIMARY KEY)', \
         lpad(i::text, 3, '0')); END LOOP; END $$; INSERT INTO t499 VALUES (1)",
    );
    let written = Written::of(&url, &[]);
    assert_has(&written.text, &["500 of 500 tables can be served"]);
    assert_eq!(written.serve().get("/t499/1").status, 200);
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
