//! A certificate authority for one test: certificates of a server and of its clients.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use hotrow_config::transport::{ClientCertificates, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Sends `input` with `openssl s_client`, and returns what it printed. `ca`: the file of the root.
pub(crate) fn openssl(ca: &Path, address: SocketAddr, input: &str, arguments: &[&str]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), "-CAfile"])
        .arg(ca)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended already: a refused handshake.
    let _ = client.stdin.take().unwrap().write_all(input.as_bytes());
    let output = client.wait_with_output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority that has signed a certificate for 127.0.0.1: `server.pem`.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { folder, issuer };
        authority.write("ca.pem", &authority.issuer.pem());
        authority.sign("server", &CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap());
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns its own certificate.
    pub(crate) fn root(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Replaces the server's certificate and its key.
    pub(crate) fn renew_server(&self) {
        self.sign("server", &CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap());
    }

    /// Writes `{name}.pem` and `{name}.key` for a client with the subject `CN={name},O=Shop`.
    pub(crate) fn sign_client(&self, name: &str) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Shop");
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(name, &params);
    }

    /// Writes `{name}.pem` and `{name}.key`.
    pub(crate) fn sign(&self, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// Replaces a file in one step.
    fn write(&self, name: &str, text: &str) {
        let new = self.path(&format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    /// Returns the files of a server.
    pub(crate) fn tls(&self, clients: ClientCertificates) -> Tls {
        Tls { certificate: self.path("server.pem"), key: self.path("server.key"), clients }
    }

    /// Returns the settings of a server of the test's own.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap())
    }

    pub(crate) fn curl(&self, url: &str, arguments: &[&str]) -> Output {
        Command::new("curl")
            .args(["-sS", "--max-time", "20", "--cacert"])
            .arg(self.path("ca.pem"))
            .args(arguments)
            .arg(url)
            .output()
            .unwrap()
    }
}
