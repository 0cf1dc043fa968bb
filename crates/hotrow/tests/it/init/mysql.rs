//! MariaDB, or MySQL in a run over it.

use super::{Written, assert_has, run};
use hotrow_testkit::mysql::{Flavor, SERVICE_USER, Server};

const TABLES: &str = r#"
    CREATE TABLE users(id BIGINT PRIMARY KEY, email VARCHAR(99) NOT NULL UNIQUE, api_token TEXT);
    CREATE TABLE pairs(a INT, b VARCHAR(9) CHARACTER SET utf8mb4, note TEXT, PRIMARY KEY (a, b));
    CREATE TABLE by_code(code VARCHAR(9) NOT NULL UNIQUE, v INT);
    CREATE TABLE `select`(`from` INT PRIMARY KEY, `$x` TEXT);
    CREATE TABLE `We "quoted" ``it``. [x]`(`k``ey` VARCHAR(9) PRIMARY KEY);
    CREATE TABLE `商品`(id INT PRIMARY KEY);
    CREATE TABLE parted(id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2;
    CREATE TABLE bare(name VARCHAR(9), n INT);
    CREATE TABLE ratios(id DOUBLE PRIMARY KEY);
    CREATE TABLE old(id INT PRIMARY KEY) ENGINE = MyISAM;
    CREATE VIEW seen AS SELECT id, email FROM users;
    INSERT INTO users VALUES (1, 'a@example.org', 't');
    INSERT INTO pairs VALUES (1, 'x', 'y');
    INSERT INTO by_code VALUES ('c', 1);
    INSERT INTO `select` VALUES (1, 'y');
    INSERT INTO `We "quoted" ``it``. [x]` VALUES ('k');
    INSERT INTO `商品` VALUES (1);
    INSERT INTO parted VALUES (1);
    INSERT INTO bare VALUES ('a', 1);"#;

#[test]
fn every_table_is_served_or_a_comment_with_its_reason() {
    let server = Server::start(&[]);
    server.batch(TABLES);
    let written = Written::of(&server.url(), &[]);
    let database = server.database();
    assert_has(
        &written.text,
        &[
            "7 of 11 tables can be served",
            "exclude = [\"api_token\"]",
            &format!("# {database}.users: table, about "),
            &format!("table = \"{database}.We \\\"quoted\\\" `it`. [x]\"\nkey = \"k`ey\"\n"),
            "url = \"${DATABASE_URL}\"",
        ],
    );
    assert!(!written.text.contains("hotrow:hotrow"), "{}", written.text);
    assert_has(written.refusal("bare"), &["add a primary key"]);
    assert_has(written.refusal("ratios"), &["can be written in more than one way"]);
    assert_has(written.refusal("old"), &["ENGINE = InnoDB;"]);
    assert_has(
        written.refusal("seen"),
        &["may not see the text of the view `seen`", "SHOW VIEW ON"],
    );
    assert_eq!(written.text, Written::of(&server.url(), &[]).text, "the same again");
    written.assert_serves(&[
        "/users/1",
        "/pairs/1,x",
        "/by_code/c",
        "/select/1",
        "/we_quoted_it_x/k",
        "/table/1",
        "/parted/1",
    ]);
    server.batch(&format!("ALTER TABLE `{database}`.`bare` ADD PRIMARY KEY (`name`)"));
    server.batch(&format!("GRANT SHOW VIEW ON {database}.seen TO {SERVICE_USER}@'%'"));
    let seen = format!("{database}.seen");
    Written::of(&server.url(), &["--tables", &seen]).assert_serves(&["/seen/1"]);
    let bare = format!("{database}.bare");
    Written::of(&server.url(), &["--tables", &bare]).assert_serves(&["/bare/a"]);
}

#[test]
fn tables_of_another_database_have_its_name() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE t(id INT PRIMARY KEY); INSERT INTO t VALUES (1)");
    server.batch(
        "CREATE DATABASE other; CREATE TABLE other.t(id INT PRIMARY KEY);
         INSERT INTO other.t VALUES (2)",
    );
    let both = format!("{},other", server.database());
    let written = Written::of(&server.superuser_url(), &["--schema", &both]);
    assert_has(&written.text, &["table = \"other.t\""]);
    let served = written.serve();
    assert_eq!((served.get("/t/1").status, served.get("/other_t/2").status), (200, 200));
}

#[test]
fn what_the_server_lacks_is_at_the_head_of_the_file() {
    let server = Server::start(&[("binlog-format", "STATEMENT")]);
    server.batch("CREATE TABLE t(id INT PRIMARY KEY)");
    let written = Written::lacking(&server.url(), &[]);
    let parts =
        ["Before hotrow serve can start", "SET GLOBAL binlog_format = ROW;", "1 of 1 tables"];
    assert_has(&written.text, &parts);
    assert_has(&written.log, &["before hotrow serve can start"]);
    assert_has(&written.setup, &["SET GLOBAL binlog_format = ROW;\n-- and set it in the"]);
    let checked = written.check();
    assert_eq!(checked.code(), 1, "{checked:?}");
    assert_has(&checked.log, &["the file is fine; the database is not ready", "binlog_format"]);
}

/// The documented privileges; one of them less is one block with it, and one round.
#[test]
fn a_role_is_set_up_in_one_round() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE `it's \"odd\"`(id INT PRIMARY KEY); CREATE TABLE t(id INT PRIMARY KEY)",
    );
    let database = server.database();
    let monitor = match server.flavor() {
        Flavor::MariaDb => "BINLOG MONITOR",
        Flavor::MySql => "REPLICATION CLIENT",
    };
    for (i, withheld) in ["", "REPLICATION SLAVE", monitor, "SELECT"].into_iter().enumerate() {
        let user = format!("account{i}");
        server.batch(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'pw'"));
        for (privilege, place) in
            [("REPLICATION SLAVE", "*.*"), (monitor, "*.*"), ("SELECT", &format!("{database}.*"))]
        {
            if privilege != withheld {
                server.batch(&format!("GRANT {privilege} ON {place} TO {user}@'%'"));
            }
        }
        let url = server.url_for(&user, "pw");
        if withheld.is_empty() {
            Written::of(&url, &[]);
            continue;
        }
        let grants = [withheld, &format!("TO '{user}'@'%';")];
        if withheld == "SELECT" {
            // The server refuses an account that may read nothing there.
            let by = ["--role", &user, "--apply", "--yes"];
            let applied = Written::lacking(&server.superuser_url(), &by);
            assert_has(&applied.log, &grants);
            Written::of(&url, &[]);
            continue;
        }
        let applied = Written::lacking(&url, &["--apply", &server.superuser_url(), "--yes"]);
        assert_has(&applied.log, &grants);
        assert_eq!((applied.setup.as_str(), applied.check().code()), ("", 0), "{withheld}");
    }
    // One that does not exist yet gets no password.
    let other = Written::lacking(&server.superuser_url(), &["--role", "new_one"]);
    let parts = ["CREATE USER 'new_one'@'%' ACCOUNT LOCK;", "REPLICATION SLAVE", "SELECT"];
    assert_has(&other.setup, &parts);
}

#[test]
fn five_hundred_tables() {
    let server = Server::start(&[]);
    let tables: String =
        (0..500).map(|i| format!("CREATE TABLE t{i:03}(id INT PRIMARY KEY);")).collect();
    server.batch(&tables);
    server.batch("INSERT INTO t499 VALUES (1)");
    let written = Written::of(&server.url(), &[]);
    assert_has(&written.text, &["500 of 500 tables can be served"]);
    assert_eq!(written.serve().get("/t499/1").status, 200);
}

#[test]
fn a_wrong_password_is_not_repeated() {
    let server = Server::any();
    let url = server.url_for(hotrow_testkit::mysql::SERVICE_USER, "wr0ng-pw");
    let refused = run(&url, &[]);
    assert_eq!((refused.code(), refused.output.as_str()), (1, ""), "{refused:?}");
    assert_has(&refused.log, &["refuses"]);
    assert!(!refused.log.contains("wr0ng-pw"), "{}", refused.log);
}
