use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::tests::certs::{Certs, restrict};

/// A server's answer to the request for TLS.
#[derive(Clone)]
enum Answer {
    Tls(Arc<rustls::ServerConfig>),
    No,
    Nonsense,
    Nothing,
}

/// Runs a server that answers the request on each connection and echoes one byte.
async fn serve(answer: Answer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut question = [0; 8];
                tcp.read_exact(&mut question).await?;
                assert_eq!(question, SSL_REQUEST);
                match answer {
                    Answer::Nothing => std::future::pending().await,
                    Answer::Nonsense => tcp.write_all(b"H").await,
                    Answer::No => {
                        tcp.write_all(b"N").await?;
                        let byte = tcp.read_u8().await?;
                        tcp.write_u8(byte).await
                    }
                    Answer::Tls(config) => {
                        tcp.write_all(b"S").await?;
                        let mut tls = TlsAcceptor::from(config).accept(tcp).await?;
                        let byte = tls.read_u8().await?;
                        tls.write_u8(byte).await?;
                        tls.flush().await
                    }
                }
            });
        }
    });
    port
}

fn server_config(certs: &Certs, name: &str) -> Arc<rustls::ServerConfig> {
    build(certs, name, None)
}

fn build(
    certs: &Certs,
    name: &str,
    clients: Option<Arc<dyn rustls::server::danger::ClientCertVerifier>>,
) -> Arc<rustls::ServerConfig> {
    let chain = vec![CertificateDer::from_pem_file(certs.path(&format!("{name}.crt"))).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certs.path(&format!("{name}.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

/// Connects as configured, first attempt only, and checks the echo.
async fn connect_and_echo(port: u16, host: &str, more: &str) -> Result<Stream, ConnectError> {
    let target =
        Target::parse(&format!("user=u host={host} hostaddr=127.0.0.1 port={port} {more}"))
            .unwrap();
    let encryption = target.attempts(&target.hosts[0])[0];
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut stream = open(&target, &target.hosts[0], encryption, deadline).await?;
    let echo = async {
        stream.write_u8(7).await?;
        stream.flush().await?;
        stream.read_u8().await
    };
    match echo.await {
        Ok(byte) => assert_eq!(byte, 7),
        Err(e) => return Err(network(&target.hosts[0], &e)),
    }
    Ok(stream)
}

fn error_text(result: Result<Stream, ConnectError>) -> String {
    result.map(|_| ()).unwrap_err().to_string()
}

fn with_root(certs: &Certs, mode: &str) -> String {
    format!("sslmode={mode} sslrootcert={}", certs.path("root.crt").display())
}

#[tokio::test]
async fn each_mode_does_what_libpq_does() {
    let certs = Certs::new();
    certs.signed(
        "server",
        "/CN=wrong.example",
        "subjectAltName=DNS:db.example,IP:127.0.0.1",
        "-sha384",
    );
    let tls = serve(Answer::Tls(server_config(&certs, "server"))).await;
    let plain = serve(Answer::No).await;

    for mode in ["prefer", "require"] {
        let stream =
            connect_and_echo(tls, "any.example", &format!("sslmode={mode}")).await.unwrap();
        assert!(matches!(stream, Stream::Tls(_)), "{mode}");
        // SHA-384, as the certificate is signed.
        assert_eq!(stream.server_end_point().unwrap().len(), 48);
    }
    let stream = connect_and_echo(plain, "any.example", "sslmode=prefer").await.unwrap();
    assert!(matches!(stream, Stream::Tcp(_)) && stream.server_end_point().is_none());
    assert!(
        error_text(connect_and_echo(plain, "h", "sslmode=require").await).contains("h:"),
        "the host is named"
    );
    for mode in ["require", "verify-ca"] {
        connect_and_echo(tls, "other.example", &with_root(&certs, mode)).await.unwrap();
    }
    for host in ["db.example", "127.0.0.1"] {
        connect_and_echo(tls, host, &with_root(&certs, "verify-full")).await.unwrap();
    }
    for host in ["wrong.example", "127.0.0.2"] {
        let message =
            error_text(connect_and_echo(tls, host, &with_root(&certs, "verify-full")).await);
        assert!(message.contains("\"db.example\", not for"), "{message}");
    }
}

#[tokio::test]
async fn another_authority_is_not_trusted() {
    let certs = Certs::new();
    let others = Certs::new();
    certs.signed("server", "/CN=db.example", "subjectAltName=DNS:db.example", "-sha256");
    let port = serve(Answer::Tls(server_config(&certs, "server"))).await;
    for mode in ["require", "verify-ca", "verify-full"] {
        let message =
            error_text(connect_and_echo(port, "db.example", &with_root(&others, mode)).await);
        assert!(message.contains("no authority in `sslrootcert`"), "{mode}: {message}");
    }
    let missing = "sslmode=verify-ca sslrootcert=/nowhere/root.crt";
    assert!(
        error_text(connect_and_echo(port, "db.example", missing).await)
            .contains("/nowhere/root.crt")
    );
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_as_root() {
    let certs = Certs::new();
    // As made by `openssl req -x509`: authority and server in one, with only a common name.
    certs.self_signed("own", "/CN=db.example", "basicConstraints=critical,CA:TRUE");
    let port = serve(Answer::Tls(server_config(&certs, "own"))).await;
    let own =
        |mode: &str| format!("sslmode={mode} sslrootcert={}", certs.path("own.crt").display());
    connect_and_echo(port, "db.example", &own("verify-full")).await.unwrap();
    connect_and_echo(port, "x.example", &own("verify-ca")).await.unwrap();
    assert!(
        error_text(connect_and_echo(port, "x.example", &own("verify-full")).await)
            .contains("\"db.example\", not for")
    );
    assert!(
        error_text(connect_and_echo(port, "db.example", &with_root(&certs, "verify-ca")).await)
            .contains("TLS with")
    );
}

#[tokio::test]
async fn a_client_certificate_is_sent() {
    let certs = Certs::new();
    certs.signed("server", "/CN=db.example", "subjectAltName=DNS:db.example", "-sha256");
    certs.signed("client", "/CN=u", "extendedKeyUsage=clientAuth", "-sha256");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certs.path("root.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let port = serve(Answer::Tls(build(&certs, "server", Some(verifier)))).await;
    let crt = certs.path("client.crt");
    let key = certs.path("client.key");
    let with = format!("sslmode=require sslcert={} sslkey={}", crt.display(), key.display());
    restrict(&key);
    connect_and_echo(port, "db.example", &with).await.unwrap();
    assert!(connect_and_echo(port, "db.example", "sslmode=require").await.is_err());
    let swapped = format!("sslmode=require sslcert={} sslkey={}", crt.display(), crt.display());
    std::fs::set_permissions(&crt, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(error_text(connect_and_echo(port, "db.example", &swapped).await).contains("chmod 600"));
    restrict(&crt);
    assert!(
        error_text(connect_and_echo(port, "db.example", &swapped).await).contains("no private key")
    );
}

#[tokio::test]
async fn a_wrong_or_missing_answer_is_an_error() {
    let host =
        |port| Target::parse(&format!("user=u host=h hostaddr=127.0.0.1 port={port}")).unwrap();
    let soon = || Instant::now() + Duration::from_millis(200);
    let in_time = || Instant::now() + Duration::from_secs(10);
    let silent = host(serve(Answer::Nothing).await);
    let timeout = open(&silent, &silent.hosts[0], Encryption::IfOffered, soon()).await.unwrap_err();
    assert!(matches!(timeout, ConnectError::Timeout { step: "requesting TLS", .. }), "{timeout}");
    assert!(!timeout.may_be_encryption());
    let other = host(serve(Answer::Nonsense).await);
    let nonsense =
        open(&other, &other.hosts[0], Encryption::IfOffered, in_time()).await.unwrap_err();
    assert!(matches!(nonsense, ConnectError::Tls { .. }) && nonsense.may_be_encryption());
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let closed = host(free);
    let refused = open(&closed, &closed.hosts[0], Encryption::IfOffered, soon()).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Network { .. }), "{refused}");
}
