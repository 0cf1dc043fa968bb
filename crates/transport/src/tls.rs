//! TLS configuration: trusted certificates, the server name, the client's certificate, and the
//! protocol inside.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct,
    RootCertStore, SignatureScheme,
};

/// An error of TLS, also inside one of a socket.
pub use rustls::Error;

/// The trusted certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those that the system trusts.
    #[default]
    System,
    /// Those signed by a certificate of this PEM file, and the certificates in the file themselves.
    Authority(PathBuf),
    /// The same, for a server of any name.
    AuthorityOfAnyName(PathBuf),
    /// Any: nothing is verified.
    Anyone,
}

/// The client's certificate: PEM files of the chain and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The chain, the client's own certificate first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The protocol on a connection. TLS offers it alone, so that a server without it is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2; without TLS with prior knowledge.
    Http2,
}

/// The user's choices for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Trusted certificates.
    pub trust: Trust,
    /// The certificate for servers that ask for one.
    pub identity: Option<ClientIdentity>,
    /// The protocol that is offered (ALPN).
    pub version: HttpVersion,
}

impl TlsOptions {
    /// Trusts the certificates of a PEM file; the rest is as by default.
    #[must_use]
    pub fn trusting(path: PathBuf) -> Self {
        Self { trust: Trust::Authority(path), ..Self::default() }
    }
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
    /// The client's certificate or key is missing or invalid.
    #[error("{path} cannot be used as the client's {what}: {why}")]
    Identity {
        /// The file.
        path: PathBuf,
        /// `certificate` or `key`.
        what: &'static str,
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

impl TlsError {
    /// Returns whether an option of the command line is the cause: a file that cannot be used, or a
    /// host that TLS cannot name.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Authority { .. } | Self::Identity { .. } | Self::Name(_) => true,
            Self::NoSystemRoots(_) | Self::Library(_) => false,
        }
    }
}

/// Starts TLS on connections.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Configures TLS for a host.
    ///
    /// # Errors
    /// Fails when certificates cannot be read or the host is no valid name.
    pub fn new(host: &str, options: &TlsOptions) -> Result<Self, TlsError> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let builder = match &options.trust {
            Trust::System => builder.with_root_certificates(system_roots()?),
            Trust::Authority(path) | Trust::AuthorityOfAnyName(path) => {
                let checks_name = matches!(&options.trust, Trust::Authority(_));
                let verifier = CaFileVerifier::new(path, provider, checks_name)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            Trust::Anyone => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(NoVerification(provider))),
        };
        let mut config = with_identity(builder, options.identity.as_ref())?;
        config.alpn_protocols = vec![options.version.alpn().to_vec()];
        Ok(Self { config: Arc::new(config), name })
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// Fails when the library cannot begin a handshake.
    pub fn connect(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(self.config.clone(), self.name.clone())
    }

    /// Returns the configuration and the server's name, for asynchronous connections.
    #[must_use]
    pub fn parts(&self) -> (Arc<ClientConfig>, ServerName<'static>) {
        (self.config.clone(), self.name.clone())
    }
}

impl HttpVersion {
    /// Returns the name in ALPN.
    #[must_use]
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

fn with_identity(
    builder: ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>,
    identity: Option<&ClientIdentity>,
) -> Result<ClientConfig, TlsError> {
    let Some(ClientIdentity { certificate, key }) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let wrong = |path: &Path, what, why: String| {
        Err(TlsError::Identity { path: path.to_owned(), what, why })
    };
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = match read {
        Ok(chain) if chain.is_empty() => {
            return wrong(certificate, "certificate", "it holds none in PEM form".to_owned());
        }
        Ok(chain) => chain,
        Err(error) => return wrong(certificate, "certificate", error.to_string()),
    };
    let private = match PrivateKeyDer::from_pem_file(key) {
        Ok(private) => private,
        Err(error) => return wrong(key, "key", error.to_string()),
    };
    match builder.with_client_auth_cert(chain, private) {
        Ok(config) => Ok(config),
        Err(error) => {
            let why = format!("it does not belong to {} ({error})", certificate.display());
            wrong(key, "key", why)
        }
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
    checks_name: bool,
}

impl CaFileVerifier {
    fn new(
        path: &Path,
        provider: Arc<CryptoProvider>,
        checks_name: bool,
    ) -> Result<Self, TlsError> {
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
        let usual = builder.build().map_err(|e| wrong(e.to_string()))?;
        Ok(Self { usual, certificates, checks_name })
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
            if self.checks_name {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        // The name is compared last.
        match usual {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            usual => usual,
        }
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
