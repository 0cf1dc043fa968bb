//! TLS configuration: trusted certificates and the server name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

/// The trusted certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those that the system trusts.
    System,
    /// Those signed by a certificate of this PEM file, and the certificates in the file themselves.
    Authority(PathBuf),
    /// Any: nothing is verified.
    Anyone,
}

/// Reasons why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The system's certificates cannot be found.
    #[error(
        "no trusted certificates were found on this system ({0}); name them with --cacert, or use \
         --insecure"
    )]
    NoSystemRoots(String),
    /// The certificate file is missing or invalid.
    #[error("{path} has no certificates that can be used: {why}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// The host is no valid TLS server name.
    #[error("{0:?} is no host name that TLS can ask for")]
    Name(String),
    /// The library reported an error.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

/// Starts TLS on connections.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Configures TLS for a host; ALPN offers only `http/1.1`.
    ///
    /// # Errors
    /// Fails when certificates cannot be read or the host is no valid name.
    pub fn new(host: &str, trust: &Trust) -> Result<Self, TlsError> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let mut config = match trust {
            Trust::System => builder.with_root_certificates(system_roots()?).with_no_client_auth(),
            Trust::Authority(path) => {
                let verifier = Arc::new(CaFileVerifier::new(path, provider)?);
                builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
            }
            Trust::Anyone => {
                let verifier = Arc::new(NoVerification(provider));
                builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), name })
    }

    pub(crate) fn connect(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(self.config.clone(), self.name.clone())
    }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why =
            found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
        return Err(TlsError::NoSystemRoots(why));
    }
    Ok(roots)
}

/// The verifier of `--cacert`: the standard verification, which also accepts a certificate of the
/// file itself as a server's. Self-signed certificates usually declare themselves an authority's,
/// which the standard verification rejects for a server.
#[derive(Debug)]
struct CaFileVerifier {
    usual: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl CaFileVerifier {
    fn new(path: &Path, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let wrong = |why: String| TlsError::Authority { path: path.to_owned(), why };
        let (mut roots, mut certificates) = (RootCertStore::empty(), Vec::new());
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))? {
            let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
            roots.add(certificate.clone()).map_err(|e| wrong(e.to_string()))?;
            certificates.push(certificate);
        }
        if roots.is_empty() {
            return Err(wrong("it holds none in PEM form".to_owned()));
        }
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self { usual: builder.build().map_err(|e| wrong(e.to_string()))?, certificates })
    }
}

impl ServerCertVerifier for CaFileVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let usual = self.usual.verify_server_cert(shown, between, name, ocsp, now);
        // Validity in time is checked before the usage: an expired certificate is reported as
        // expired.
        let used_as_server =
            matches!(&usual, Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))));
        if used_as_server && self.certificates.iter().any(|certificate| certificate == shown) {
            verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        usual
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// The verifier of `--insecure`: signatures are checked, so that the handshake is realistic, but
/// not the signer.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
