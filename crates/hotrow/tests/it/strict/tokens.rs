//! Tokens that databases give their writers, as a minimal position.

use mongodb::bson::doc;

use crate::alias::{self, Users};
use crate::backend::Backend as _;
use crate::backend::maria::Maria;
use crate::backend::mongo::Mongo;
use crate::backend::postgres::Postgres;
use crate::shop::cached;
use hotrow_testkit::harness::{Answer, Client, Config, Database, Server};
use hotrow_testkit::mysql::Flavor;

/// The feed is not waited for, so that answers come from memory and from the database.
fn serve(config: Config) -> Server {
    Server::start(&alias::aliased(config).set("limits.position_wait", "\"2ms\""))
}

fn at_least(client: &mut Client, token: &str) -> Answer {
    client.get_with("/users/1", &[("Hotrow-Min-Position", token)])
}

/// Changes the record again and again, and asks with the token of each change.
fn each_change_is_seen<U: Users>(database: &U, token: impl Fn() -> String) {
    let server = serve(database.service());
    let mut client = server.client();
    cached(&mut client, "/users/1");
    for round in 0..50 {
        database.execute(&format!("UPDATE users SET note = 'n{round}' WHERE id = 1"));
        let token = token();
        let answer = at_least(&mut client, &token);
        assert_eq!(answer.json()["note"], *format!("n{round}"), "{token}: {answer:?}");
    }
}

/// A token past the log's end gets 504, and those of other databases, or none, 400.
fn others_are_refused(config: Config, beyond: &str, others: &[&str]) {
    let server = serve(config.set("limits.request_timeout", "\"300ms\""));
    let mut client = server.client();
    assert_eq!(at_least(&mut client, beyond).status, 504);
    for (tokens, reason) in [(others, "another kind"), (&["lsn:x", "gtid:1"], "not a token")] {
        for token in tokens {
            let (_, detail) = at_least(&mut client, token).problem(400);
            assert!(detail.contains(reason), "{token}: {detail}");
        }
    }
}

#[test]
fn a_point_of_postgresqls_log_is_one() {
    let database = Postgres::with_users();
    let end = || format!("lsn:{}", database.server.query("SELECT pg_current_wal_insert_lsn()"));
    each_change_is_seen(&database, end);
    others_are_refused(database.service(), "lsn:FFFF/0", &["gtid:0-1-1", "optime:1.1"]);
}

#[test]
fn a_transaction_of_mariadb_or_mysql_is_one() {
    let database = Maria::with_users();
    let of_mariadb = "gtid:0-1-99999999";
    let of_mysql = "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:9";
    let (sql, beyond, other) = match database.server.flavor() {
        Flavor::MariaDb => ("SELECT @@GLOBAL.gtid_current_pos", of_mariadb, of_mysql),
        Flavor::MySql => ("SELECT @@GLOBAL.gtid_executed", of_mysql, of_mariadb),
    };
    each_change_is_seen(&database, || {
        let position = database.server.query(sql);
        let own = position.split(',').next().expect("a transaction");
        match (own.rsplit_once(':'), own.rsplit_once('-')) {
            // The last of an interval.
            (Some((server, _)), Some((_, last))) => format!("gtid:{server}:{last}"),
            _ => format!("gtid:{own}"),
        }
    });
    others_are_refused(database.service(), beyond, &["lsn:0/1", "optime:1.1", other]);
}

#[test]
fn a_time_of_mongodbs_is_one() {
    let database = Mongo::private(1);
    database.mongo.insert("users", [doc! { "_id": 1, "note": "" }]);
    let config = database
        .config()
        .set("collections.users.key_type", "\"integer\"")
        .set("collections.users.allow_min_position", "true")
        .set("collections.users.allow_no_cache", "true")
        .set("limits.request_timeout", "\"2s\"");
    let server = Server::start(&config);
    let mut client = server.client();
    for round in 0..20 {
        let note = format!("n{round}");
        database.mongo.update("users", 1, doc! { "$set": { "note": &note } });
        let strict = client.get_with("/users/1", &super::NOW);
        assert_eq!(strict.json()["note"], *note, "{strict:?}");
        let at = strict.position().at;
        let token = format!("optime:{}.{}", at >> 32, at & 0xffff_ffff);
        assert_eq!(at_least(&mut client, &token).json()["note"], *note);
    }
    assert_eq!(at_least(&mut client, "lsn:0/1").status, 400);
}

#[test]
fn sqlite_gives_its_writers_none() {
    let database = Database::with_users();
    let server = serve(database.service());
    assert_eq!(at_least(&mut server.client(), "lsn:0/1").status, 400);
}
