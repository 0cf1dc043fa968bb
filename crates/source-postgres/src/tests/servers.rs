//! Connecting to a server: encryption, passwords, several hosts, replicas.

use std::fs;

use super::certs::Certs;
use super::harness::{Reader, config, refusal, wait};
use super::server::{Server, Stop};
use hotrow_source::Source as _;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);";

/// Starts a server with TLS and a certificate for `localhost`.
fn with_tls(certs: &Certs) -> Server {
    let mut server = Server::start(&[]);
    for name in ["server.crt", "server.key", "root.crt"] {
        server.write_file(name, &fs::read(certs.path(name)).unwrap());
    }
    server.set_for_restart(&[
        ("ssl", "on"),
        ("ssl_cert_file", "server.crt"),
        ("ssl_key_file", "server.key"),
        ("ssl_ca_file", "root.crt"),
    ]);
    server.restart();
    server.batch(TABLE);
    server.batch(
        "CREATE ROLE u LOGIN REPLICATION PASSWORD 'p w'; GRANT SELECT ON t TO u;
        CREATE PUBLICATION hotrow FOR TABLE t WITH (publish_via_partition_root = true)",
    );
    server
}

/// Returns whether the readers' session is encrypted.
fn encrypted(server: &Server) -> String {
    server.query(
        "SELECT string_agg(DISTINCT ssl::text, ',') FROM pg_stat_ssl \
         JOIN pg_stat_activity USING (pid) WHERE application_name = 'hotrow'",
    )
}

#[test]
fn each_mode_of_encryption_does_what_libpq_does() {
    let certs = Certs::new();
    certs.signed("server", "/CN=localhost", "subjectAltName=DNS:localhost", "-sha256");
    let server = with_tls(&certs);
    let root = certs.path("root.crt");
    let url = |host: &str, more: &str| {
        format!(
            "host={host} hostaddr=127.0.0.1 port={} user=u dbname=postgres {more}",
            server.port()
        )
    };
    // The helper's own queries use TCP too.
    let own = "host all postgres all trust\n";
    let verify = |mode: &str| format!("sslmode={mode} sslrootcert={}", root.display());
    for (hba, mode, expected) in [
        ("host", "sslmode=disable".to_owned(), "false"),
        ("host", "sslmode=allow".into(), "false"),
        ("hostssl", "sslmode=allow".into(), "true"),
        ("host", "sslmode=prefer".into(), "true"),
        ("hostnossl", "sslmode=prefer".into(), "false"),
        ("hostssl", "sslmode=require".into(), "true"),
        ("hostssl", verify("verify-ca"), "true"),
        ("hostssl", verify("verify-full"), "true"),
    ] {
        server.set_hba(&format!("{own}{hba} all all 127.0.0.1/32 trust\n"));
        let reader = Reader::open(config(&url("localhost", &mode), &["t(id)"]));
        reader.text(0, "1");
        assert_eq!(encrypted(&server), expected, "{hba} {mode}");
        drop(reader);
        wait("the sessions to end", || encrypted(&server).is_empty());
    }
    let refused = refusal(config(&url("other.example", &verify("verify-full")), &["t(id)"]));
    assert!(refused.contains("\"localhost\", not for \"other.example\""), "{refused}");
    server.set_hba(&format!("{own}hostssl all all 127.0.0.1/32 trust\n"));
    let refused = refusal(config(&url("localhost", "sslmode=disable"), &["t(id)"]));
    assert!(refused.contains("pg_hba.conf") && refused.contains("28000"), "{refused}");
}

#[test]
fn passwords_are_proven_and_bound_to_the_channel() {
    let certs = Certs::new();
    certs.signed("server", "/CN=localhost", "subjectAltName=DNS:localhost", "-sha384");
    let server = with_tls(&certs);
    server.batch(
        "SET password_encryption = md5; CREATE ROLE old LOGIN REPLICATION PASSWORD 'p w'; \
         GRANT SELECT ON t TO old",
    );
    server.set_hba(
        "local all all trust\nhost all postgres all trust\nhost all old all md5\nhost all u \
         127.0.0.1/32 scram-sha-256\n",
    );
    let url = |user: &str, password: &str, more: &str| {
        format!("postgres://{user}:{password}@127.0.0.1:{}/postgres?{more}", server.port())
    };
    for (user, more) in [
        ("u", "sslmode=require&channel_binding=require"),
        ("u", "sslmode=require&channel_binding=disable"),
        ("u", "sslmode=disable"),
        ("old", "sslmode=disable"),
    ] {
        Reader::open(config(&url(user, "p%20w", more), &["t(id)"])).text(0, "1");
    }
    let refused = refusal(config(&url("u", "s3cret", "sslmode=prefer"), &["t(id)"]));
    assert!(
        refused.contains("28P01") && refused.contains("user `u`") && !refused.contains("s3cret"),
        "{refused}"
    );
    for (user, more) in [
        ("u", "sslmode=disable&channel_binding=require"),
        ("old", "sslmode=require&channel_binding=require"),
    ] {
        let refused = refusal(config(&url(user, "p%20w", more), &["t(id)"]));
        assert!(refused.contains("channel binding"), "{refused}");
    }
    let missing = format!("postgres://u@127.0.0.1:{}/postgres", server.port());
    assert!(refusal(config(&missing, &["t(id)"])).contains("password missing"));
}

#[test]
fn a_unix_socket_works() {
    let server = Server::start(&[]);
    server.batch(TABLE);
    let url = format!(
        "host={} port={} user=postgres dbname=postgres sslmode=require",
        server.socket_folder().display(),
        server.port()
    );
    assert_eq!(Reader::open(config(&url, &["t(id)"])).text(0, "1"), r#"{"id":1}"#);
}

#[test]
fn a_replica_and_a_dead_host_are_skipped() {
    let server = Server::start(&[]);
    server.batch(TABLE);
    let standby = server.standby(&[]);
    let mut dead = Server::start(&[]);
    dead.stop(Stop::Immediate);
    let hosts = |more: &str| {
        format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}/postgres?{more}",
            dead.port(),
            standby.port(),
            server.port()
        )
    };
    for more in ["target_session_attrs=read-write", "target_session_attrs=any", ""] {
        let reader = Reader::open(config(&hosts(more), &["t(id)"]));
        let position = reader.read(0, &["1"]).unwrap().position.unwrap();
        assert!(position.at > 0 && reader.source.health().is_ok());
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hotrow'";
        let counted = || (server.query(sessions), standby.query(sessions));
        wait("only the primary to have a session", || counted() == ("1".into(), "0".into()));
        drop(reader);
        wait("the session to end", || server.query(sessions) == "0");
    }
    let only_standby = refusal(config(&standby.url(), &["t(id)"]));
    assert!(only_standby.contains("it is a replica (in recovery)"), "{only_standby}");
}

#[test]
fn another_server_than_the_first_is_not_read() {
    let mut server = Server::start(&[]);
    server.batch(TABLE);
    let other = Server::start_other(&[]);
    other.batch(TABLE);
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        server.port(),
        other.port()
    );
    let reader = Reader::open(config(&url, &["t(id)"]));
    reader.text(0, "1");
    server.stop(Stop::Fast);
    let error = reader.read(0, &["1"]).unwrap_err().to_string();
    assert!(error.contains("not the server that the changes come from"), "{error}");
    assert!(reader.source.health().is_err());
    server.restart();
    wait("the first server to be read again", || reader.read(0, &["1"]).is_ok());
    assert!(reader.source.health().is_ok());
}
