//! Handshakes with servers that accept and refuse, and what the user reads about it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hotrow_transport::explain;
use hotrow_transport::stream::BlockingStream;
use hotrow_transport::target::Address;
use hotrow_transport::tls::{ClientIdentity, HttpVersion, Tls, TlsError, TlsOptions, Trust};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

const LIMIT: Duration = Duration::from_secs(20);

/// An authority, and files of what it signs.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A signed certificate and its key, in files.
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
    parts: (rustls::pki_types::CertificateDer<'static>, Vec<u8>),
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = Self {
            folder: tempfile::tempdir().expect("a folder"),
            issuer: issuer.expect("a certificate"),
        };
        std::fs::write(authority.file(), authority.issuer.pem()).expect("writable");
        authority
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    fn sign(&self, name: &str, host: &str, until: i32) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        params.not_after = date_time_ymd(until, 1, 1);
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        std::fs::write(path("pem"), signed.pem()).expect("writable");
        std::fs::write(path("key"), key.serialize_pem()).expect("writable");
        let parts = (signed.der().clone(), key.serialize_der());
        Pair { certificate: path("pem"), key: path("key"), parts }
    }
}

/// Starts a server that sends one byte after the handshake; `clients` signs those it accepts.
fn serve(pair: Pair, clients: Option<&Authority>) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.issuer.der().clone()).expect("a root");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    let (certificate, key) = pair.parts;
    let key = rustls::pki_types::PrivateKeyDer::try_from(key).expect("a key");
    let config = Arc::new(builder.with_single_cert(vec![certificate], key).expect("they fit"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = StreamOwned::new(connection, stream);
            // A client that refuses the server, or is refused, ends here.
            if stream.write_all(b"x").and_then(|()| stream.flush()).is_ok() {
                let _ = stream.read(&mut [0]);
            }
        }
    });
    address
}

/// Returns what went wrong, in words, until the first byte.
fn connect(address: SocketAddr, host: &str, options: &TlsOptions) -> Result<(), String> {
    let tls = Tls::new(host, options).map_err(|error| error.to_string())?;
    let address = Address::Tcp(address);
    let exchange = || {
        let mut stream = BlockingStream::connect(&address, Some(&tls), LIMIT)?;
        stream.handshake(LIMIT)?;
        // With TLS 1.3 a refused client learns it only now.
        stream.read_exact(&mut [0])
    };
    exchange().map_err(|error| explain::socket(&error, &address))
}

fn trusting(authority: &Authority) -> TlsOptions {
    TlsOptions { trust: Trust::Authority(authority.file()), ..TlsOptions::default() }
}

#[test]
fn a_refused_server_is_explained() {
    let (authority, other) = (Authority::new(), Authority::new());
    let good = serve(authority.sign("good", "localhost", 4000), None);
    let expired = serve(authority.sign("expired", "localhost", 2020), None);
    let options = trusting(&authority);
    assert_eq!(connect(good, "localhost", &options), Ok(()));
    let any = TlsOptions { trust: Trust::Anyone, ..TlsOptions::default() };
    assert_eq!(connect(expired, "localhost", &any), Ok(()));
    for (address, host, options, words) in [
        (expired, "localhost", &options, "has expired"),
        (good, "other.example", &options, "for another name"),
        (good, "localhost", &trusting(&other), "not signed by a trusted authority"),
    ] {
        let why = connect(address, host, options).expect_err("refused");
        assert!(why.contains(words), "{words:?} in {why}");
    }
}

#[test]
fn a_client_certificate_is_shown_and_its_refusal_explained() {
    let (authority, other) = (Authority::new(), Authority::new());
    let address = serve(authority.sign("server", "localhost", 4000), Some(&authority));
    let (own, foreign) = (authority.sign("own", "me", 4000), other.sign("foreign", "me", 4000));
    let with = |certificate: &PathBuf, key: &PathBuf| TlsOptions {
        identity: Some(ClientIdentity { certificate: certificate.clone(), key: key.clone() }),
        ..trusting(&authority)
    };
    assert_eq!(connect(address, "localhost", &with(&own.certificate, &own.key)), Ok(()));
    let without = connect(address, "localhost", &trusting(&authority)).expect_err("refused");
    assert!(without.contains("requires a client certificate"), "{without}");
    let refused = connect(address, "localhost", &with(&foreign.certificate, &foreign.key));
    let refused = refused.expect_err("refused");
    assert!(refused.contains("does not accept the client's certificate"), "{refused}");
    let tls = |certificate, key| Tls::new("localhost", &with(certificate, key)).map(|_| ());
    let missing = own.key.with_extension("missing");
    for (certificate, key, what, words) in [
        (&own.certificate, &foreign.key, "key", "does not belong to"),
        (&own.certificate, &missing, "key", "missing"),
        (&missing, &own.key, "certificate", "missing"),
        (&own.key, &own.key, "certificate", "holds none"),
    ] {
        let error = tls(certificate, key).expect_err("refused");
        assert!(
            matches!(&error, TlsError::Identity { what: said, .. } if *said == what),
            "{error}"
        );
        assert!(error.to_string().contains(words), "{words:?} in {error}");
    }
}

#[test]
fn other_protocols_are_recognized() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client ends the connection.
            let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let any = TlsOptions { trust: Trust::Anyone, ..TlsOptions::default() };
    let why = connect(address, "localhost", &any).expect_err("no TLS");
    assert!(why.contains("does not speak TLS"), "{why}");
    assert_eq!(HttpVersion::Http2.alpn(), b"h2");
}
