//! The data API over TLS, HTTP/2 and the Unix socket, by curl; and what `check` says of the files.

use std::path::PathBuf;

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::curl::curl;

/// Certificate and key for 127.0.0.1 in a folder of their own, and a configuration that uses them.
pub(crate) struct Carriers {
    folder: tempfile::TempDir,
    pub(crate) config: Config,
}

impl Carriers {
    pub(crate) fn new(database: &Database) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name| format!("{:?}", folder.path().join(name));
        let config = Config::new(database.path())
            .collection("products")
            .set("listen.unix", &path("data.sock"))
            .set("listen.tls.cert", &path("cert.pem"))
            .set("listen.tls.key", &path("key.pem"));
        let carriers = Self { folder, config };
        carriers.renew("cert.pem", "key.pem");
        carriers
    }

    /// Writes a new pair to these files.
    fn renew(&self, certificate: &str, key: &str) {
        let pair = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let signed = params.self_signed(&pair).expect("a certificate");
        std::fs::write(self.path(certificate), signed.pem()).expect("writable");
        std::fs::write(self.path(key), pair.serialize_pem()).expect("writable");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// Returns a new authority, and a certificate of it for this name with its key.
pub(crate) fn certificate_for(name: &str) -> (String, String, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "test authority");
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    let pair = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let signed = params.signed_by(&pair, &authority).expect("a certificate");
    (authority.pem(), signed.pem(), pair.serialize_pem())
}

#[test]
fn a_record_is_the_same_over_every_carrier() {
    let database = Database::with_products(3);
    let carriers = Carriers::new(&database);
    let server = Server::start(&carriers.config);
    let (secure, local) = (format!("https://{}/products/2", server.data), "http://x/products/2");
    let (ca, socket) = (carriers.text("cert.pem"), carriers.text("data.sock"));
    let mut seen = Vec::new();
    for (arguments, version) in [
        (&["--cacert", &*ca, "--http1.1", &secure][..], "1.1"),
        (&["--cacert", &ca, "--http2", &secure], "2"),
        (&["--unix-socket", &socket, local], "1.1"),
        (&["--unix-socket", &socket, "--http2-prior-knowledge", local], "2"),
    ] {
        let shown = "\n%header{etag} %header{content-type} %header{hotrow-cache} %{http_version}";
        let all = [arguments, &["--write-out", shown]].concat();
        // The first answer may be a miss.
        let Some(_) = curl(&all) else { return };
        let got = curl(&all).expect("curl was available a moment ago");
        let (answer, spoken) = got.rsplit_once(' ').expect("a version");
        assert_eq!(spoken, version, "{arguments:?}");
        seen.push(answer.to_owned());
    }
    assert!(seen[0].contains("application/json hit"), "{seen:?}");
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    assert!(!carriers.path("data.sock").exists());
}

#[test]
fn check_reads_the_certificate_files() {
    let database = Database::with_products(1);
    let carriers = Carriers::new(&database);
    let file = carriers.text("hotrow.toml");
    std::fs::write(&file, carriers.config.text()).expect("writable");
    let check = || Ended::run(&["check", "--config", &file], SOON);
    let fine = check();
    assert_eq!(fine.code(), 0, "{fine:?}");
    assert!(fine.output.contains("listen.tls: valid until 4096-01-01T00:00:00Z"), "{fine:?}");
    carriers.renew("cert.pem", "other.pem");
    let broken = check();
    assert_eq!(broken.code(), 2, "{broken:?}");
    assert!(broken.log.contains("listen.tls: the key in "), "{broken:?}");
    assert!(!carriers.path("data.sock").exists(), "check listens nowhere");
    let refused = Ended::run(&["serve", "--config", &file], SOON);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.log.contains("listen.tls: the key in "), "{refused:?}");
}
