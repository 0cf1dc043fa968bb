//! Privileges of docs/mysql.md: they are sufficient, because the other tests use no more, and the
//! error for a missing one names its GRANT statement.

use super::harness::refusal;
use super::recorder::{Feed, config};
use super::server::Server;

const DOCUMENTATION: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mysql.md"));
const USER: &str = "'u'@'%'";

/// Privilege with its object, its statement in the documentation, and the error without it.
struct Grant {
    privilege: &'static str,
    on: &'static str,
    documented: &'static str,
    expected: &'static str,
}

const GRANTS: [Grant; 3] = [
    Grant {
        privilege: "SELECT",
        on: "`test`.`a`",
        documented: "GRANT SELECT ON shop.products TO hotrow@'%';",
        expected: "there is no table `a` in database `test`, or 'u'@'%' may not see it",
    },
    Grant {
        privilege: "REPLICATION SLAVE",
        on: "*.*",
        documented: "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO hotrow@'%';",
        expected: "the feed's stream cannot start",
    },
    Grant {
        privilege: "BINLOG MONITOR",
        on: "*.*",
        documented: "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO hotrow@'%';",
        expected: "'u'@'%' may not query the binary log's end",
    },
];

impl Grant {
    fn sql(&self, server: &Server) -> String {
        let sql = format!("GRANT {} ON {} TO {USER};", self.privilege, self.on);
        server.flavor().dialect(&sql)
    }
}

/// Starts a server with an account that has all privileges but `missing`.
fn without(missing: Option<usize>) -> Server {
    let server = Server::start(&[]);
    // A second table keeps the account's access to the database if the first is hidden.
    let mut sql = format!(
        "CREATE TABLE a (id INT PRIMARY KEY, n INT); CREATE TABLE seen (id INT PRIMARY KEY);
         CREATE USER {USER} IDENTIFIED BY 'p'; GRANT SELECT ON seen TO {USER};"
    );
    GRANTS
        .iter()
        .enumerate()
        .filter(|(i, _)| Some(*i) != missing)
        .for_each(|(_, grant)| sql += &grant.sql(&server));
    server.batch(&sql);
    server
}

#[test]
fn each_privilege_is_required_and_named_in_the_error() {
    for (i, grant) in GRANTS.iter().enumerate() {
        let server = without(Some(i));
        let url = server.url_for("u", "p");
        let text = refusal(config(url.clone(), &["a(id)"]));
        assert!(
            text.contains(grant.expected) && text.contains(&grant.sql(&server)),
            "{}: {text}",
            grant.privilege
        );
        assert!(
            DOCUMENTATION.contains(&server.flavor().dialect(grant.documented)),
            "{}",
            grant.privilege
        );
        // The GRANT statement of the error is sufficient.
        server.batch(&grant.sql(&server));
        let feed = Feed::launch(config(url, &["a(id)"]), |_| {});
        feed.settle();
        assert_eq!(feed.keys(&server, "INSERT INTO a VALUES (1, 0)"), [feed.int(0, 1)]);
    }
}

#[test]
fn privileges_beyond_the_documented_ones_break_nothing_while_the_feed_runs() {
    let server = without(None);
    let feed = Feed::launch(config(server.url_for("u", "p"), &["a(id)"]), |_| {});
    feed.settle();
    let more = [
        "SELECT ON *.*",
        "INSERT ON test.*",
        "PROCESS ON *.*",
        "UPDATE (n) ON test.a",
        "ALL ON test.*",
        "ALL ON *.*",
    ];
    for (id, more) in (1..).zip(more) {
        server.batch(&format!("GRANT {more} TO {USER}"));
        feed.settle();
        assert_eq!(
            feed.keys(&server, &format!("INSERT INTO a VALUES ({id}, 0)")),
            [feed.int(0, id)],
            "{more}"
        );
    }
}
