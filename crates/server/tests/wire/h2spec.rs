//! Conformance of HTTP/2, by h2spec. It needs Go, which fetches it.
//!
//! The service reads each body to its end before it answers. One that answers earlier, as the
//! standard allows, ends a stream before h2spec has broken it.

use std::process::Command;

use crate::common::{Server, limits};
use hotrow_config::transport::{ClientCertificates, Tls, Transport};
use rcgen::{CertificateParams, KeyPair};

const H2SPEC: &str = "github.com/summerwind/h2spec/cmd/h2spec@latest";

#[test]
#[ignore = "long: Go fetches and builds h2spec"]
fn h2spec_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let pair = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&certificate, params.self_signed(&pair).unwrap().pem()).unwrap();
    std::fs::write(&key, pair.serialize_pem()).unwrap();
    let tls = Some(Tls { certificate, key, clients: ClientCertificates::Ignored });
    let transport = Transport { tls, http2: true, ..Transport::default() };
    let server = Server::start_over(limits(), 1, transport);
    let go = std::env::var("HOTROW_GO").unwrap_or_else(|_| "/usr/local/go/bin/go".to_owned());
    let port = server.address.port().to_string();
    // Over TLS: in cleartext the address speaks HTTP/1.1 too, and a wrong preface is answered.
    let output = Command::new(go)
        .args(["run", H2SPEC, "--tls", "--insecure", "--host", "127.0.0.1", "--port", &port])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains(", 0 skipped, 0 failed"), "{printed}");
}
