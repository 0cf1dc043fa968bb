//! Connections of writers: by the parameters of `source.url`, as `hotrow serve` understands them.

use crate::database::{Database, Table, Tables};
use crate::row::KeyType;
use hotrow_testkit::{mysql, postgres};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// Files of an authority, and of a server's certificate for 127.0.0.1.
struct Files {
    folder: TempDir,
    certificate: String,
    key: String,
}

impl Files {
    fn new() -> Self {
        Self::made().expect("certificates in a temporary folder")
    }

    fn made() -> Result<Self, Box<dyn std::error::Error>> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        let certificate = own.signed_by(&key, &issuer)?.pem();
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("ca.pem"), issuer.pem())?;
        Ok(Self { folder, certificate, key: key.serialize_pem() })
    }

    fn authority(&self) -> String {
        self.folder.path().join("ca.pem").display().to_string()
    }
}

/// Returns the error of creating the table over a connection.
fn error(url: &str) -> Option<String> {
    let records = Table {
        name: "verified".to_owned(),
        key: "id".to_owned(),
        key_type: KeyType::Integer,
        reference: None,
    };
    let writer =
        Database::parse(url).expect("an engine").writer(&Tables { records, children: None });
    writer.and_then(|mut writer| writer.create()).err().map(|error| error.to_string())
}

/// Asserts that a connection works, or fails with a text.
#[track_caller]
fn assert_connects(url: &str, refusal: Option<&str>) {
    let error = error(url);
    let is_expected = match (&error, refusal) {
        (None, None) => true,
        (Some(error), Some(refusal)) => error.contains(refusal),
        _ => false,
    };
    assert!(is_expected, "{url}: {error:?}, not {refusal:?}");
}

#[test]
fn mariadb_by_tls_and_socket() {
    let (files, other) = (Files::new(), Files::new());
    let plain = mysql::Server::start(&[]);
    let certificate = plain.write_file("cert.pem", files.certificate.as_bytes());
    let key = plain.write_file("key.pem", files.key.as_bytes());
    let paths = [certificate, key].map(|path| path.display().to_string());
    let server = mysql::Server::start(&[("ssl-cert", &paths[0]), ("ssl-key", &paths[1])]);
    server.batch("SET GLOBAL require_secure_transport = ON");
    let url = server.superuser_url();
    let (trusted, foreign) = (files.authority(), other.authority());
    let verified = |ca: &str| format!("{url}?ssl-mode=verify-identity&ssl-ca={ca}");
    let (address, database) = url.rsplit_once('/').unwrap();
    let user = address.rsplit_once('@').unwrap().0;
    let socket = server.socket().display().to_string();
    for (url, refusal) in [
        (url.clone(), None),
        (format!("{url}?ssl-mode=disabled"), Some("Access denied")),
        (format!("{url}?ssl-mode=PREFERRED&connect-timeout=3"), None),
        (format!("{url}?ssl-mode=required"), None),
        (verified(&trusted), None),
        (verified(&foreign), Some("invalid peer certificate")),
        (format!("{url}?ssl-mode=verify-ca"), Some("`ssl-mode=verify-ca`")),
        (format!("{url}?pool_max=3"), Some("`pool_max=3`")),
        (format!("{user}@/{database}?socket={socket}"), None),
        (format!("{user}@localhost/{database}?ssl-mode=required&socket={socket}"), None),
    ] {
        assert_connects(&url, refusal);
    }
    let url = plain.superuser_url();
    assert_connects(&url, None);
    assert_connects(&format!("{url}?ssl-mode=required"), Some("SSL"));
}

#[test]
fn postgresql_by_tls_and_socket() {
    let (files, other) = (Files::new(), Files::new());
    let mut server = postgres::Server::start(&[]);
    server.write_file("server.crt", files.certificate.as_bytes());
    server.write_file("server.key", files.key.as_bytes());
    server.set_for_restart(&[("ssl", "on")]);
    server.restart();
    server.batch("CREATE ROLE u LOGIN; GRANT ALL ON SCHEMA public TO u");
    let own = "host all postgres all trust\nlocal all all trust\n";
    server.set_hba(&format!("{own}hostssl all u all trust\n"));
    let url = server.url_for("u", "postgres");
    let (trusted, foreign) = (files.authority(), other.authority());
    let folder = server.socket_folder().display().to_string().replace('/', "%2F");
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let with =
        |url: &str, mode: &str, root: &str| format!("{url}?sslmode={mode}&sslrootcert={root}");
    for (url, refusal) in [
        (url.clone(), None),
        (format!("{url}?sslmode=disable"), Some("no encryption")),
        (format!("{url}?sslmode=allow&gssencmode=disable&application_name=x"), None),
        (format!("{url}?sslmode=require"), None),
        (with(&url, "verify-full", &trusted), None),
        (with(&url, "verify-full", &foreign), Some("invalid peer certificate")),
        (with(&url, "verify-ca", &foreign), Some("invalid peer certificate")),
        (with(&elsewhere, "verify-ca", &trusted), None),
        (with(&elsewhere, "verify-full", &trusted), Some("invalid peer certificate")),
        (format!("{url}?sslmode=on"), Some("`sslmode=on`")),
        (format!("postgres://u@{folder}:{}/postgres?sslmode=require", server.port()), None),
    ] {
        assert_connects(&url, refusal);
    }
}
