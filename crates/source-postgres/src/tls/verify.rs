//! Verification of the server's certificate.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::certificate::{self, Facts};

/// Trusted certificates.
#[derive(Debug)]
pub(super) enum Trust {
    /// Any certificate: encryption without authentication.
    AnyServer,
    /// Certificates signed by these authorities, and `pinned`.
    Roots { store: Arc<RootCertStore>, pinned: Vec<CertificateDer<'static>> },
}

/// Name that the certificate must contain.
#[derive(Debug)]
pub(super) enum Names {
    Any,
    /// The host as written in the connection string.
    Host(String),
}

/// Checks a server's certificate as libpq does.
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    names: Names,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Fault of a certificate, as a text for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl Verifier {
    pub(super) fn new(trust: Trust, names: Names, provider: &CryptoProvider) -> Self {
        Self { trust, names, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Roots { store, pinned } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let facts = certificate::facts(end_entity).ok_or(CertificateError::BadEncoding)?;
        if pinned.iter().any(|root| root == end_entity) {
            facts.check_dates(now)?;
        } else {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                store,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        if let Names::Host(host) = &self.names {
            facts.check_name(host)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Facts {
    fn check_dates(&self, now: UnixTime) -> Result<(), Error> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        match () {
            () if now < self.not_before => Err(CertificateError::NotValidYet.into()),
            () if now > self.not_after => Err(CertificateError::Expired.into()),
            () => Ok(()),
        }
    }

    /// Checks the host's name. As in libpq, the common name counts only without alternative names.
    /// Source: PostgreSQL documentation, "Client Verification of Server Certificates".
    fn check_name(&self, host: &str) -> Result<(), Error> {
        let host = host.trim_end_matches('.');
        let address: Option<IpAddr> = host.parse().ok();
        let octets = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let by_address = address.is_some_and(|address| self.addresses.contains(&octets(address)));
        let by_name = self.dns.iter().any(|name| matches(name, host));
        let has_alternatives = !self.dns.is_empty() || !self.addresses.is_empty();
        let by_common_name = !has_alternatives
            && self.common_name.as_deref().is_some_and(|name| matches(name, host));
        if by_address || by_name || by_common_name {
            return Ok(());
        }
        let mut names = self.dns.clone();
        names.extend(self.common_name.clone().filter(|_| !has_alternatives));
        let names: Vec<String> = names.iter().take(8).map(|name| format!("{name:?}")).collect();
        let names = if names.is_empty() { "no host name".into() } else { names.join(", ") };
        let refusal = Refusal(format!("the certificate is for {names}, not for {host:?}"));
        Err(CertificateError::Other(OtherError(Arc::new(refusal))).into())
    }
}

/// Matches a name. A `*` replaces exactly the first label.
fn matches(pattern: &str, host: &str) -> bool {
    if pattern.is_empty() || pattern.contains('\0') {
        return false;
    }
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(domain), Some((label, rest))) => {
            !label.is_empty()
                && host.parse::<IpAddr>().is_err()
                && rest.eq_ignore_ascii_case(domain)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(common_name: &str, dns: &[&str], addresses: &[&[u8]]) -> Facts {
        Facts {
            common_name: Some(common_name.into()),
            dns: dns.iter().map(|n| (*n).into()).collect(),
            addresses: addresses.iter().map(|a| a.to_vec()).collect(),
            not_before: 100,
            not_after: 200,
        }
    }

    #[test]
    fn a_name_matches_as_in_libpq() {
        let ok = |facts: &Facts, host| facts.check_name(host).is_ok();
        let plain = facts("db.example.com", &[], &[]);
        assert!(ok(&plain, "DB.example.com") && ok(&plain, "db.example.com."));
        assert!(!ok(&plain, "example.com") && !ok(&plain, "x.db.example.com"));
        let wild = facts("db.example.com", &["*.example.org"], &[]);
        assert!(
            ok(&wild, "a.example.org")
                && !ok(&wild, "a.b.example.org")
                && !ok(&wild, ".example.org")
        );
        // With alternative names the common name is ignored.
        assert!(!ok(&wild, "db.example.com"));
        let address = facts("x", &[], &[&[10, 0, 0, 1]]);
        assert!(ok(&address, "10.0.0.1") && !ok(&address, "10.0.0.2") && !ok(&address, "x"));
        assert!(!ok(&facts("*.0.0.1", &[], &[]), "10.0.0.1"));
        assert!(ok(&facts("10.0.0.1", &[], &[]), "10.0.0.1"));
        assert!(!ok(&facts("", &["a\0.example.com", ""], &[]), "a"));
    }

    #[test]
    fn dates_are_checked() {
        let at = |s| UnixTime::since_unix_epoch(std::time::Duration::from_secs(s));
        let facts = facts("x", &[], &[]);
        assert!(facts.check_dates(at(100)).is_ok() && facts.check_dates(at(200)).is_ok());
        assert!(facts.check_dates(at(99)).is_err() && facts.check_dates(at(201)).is_err());
    }
}
