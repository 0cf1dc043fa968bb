//! Fields of a certificate that the TLS library does not expose: names, dates, the hash of its
//! signature.
//!
//! Source: RFC 5280, section 4.1.

use ring::digest;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::{AnyRef, ObjectIdentifier};
use x509_cert::der::oid::db::{rfc4519, rfc5912};
use x509_cert::der::{Decode as _, Tag, TagNumber, Tagged as _};
use x509_cert::spki::{AlgorithmIdentifierOwned, AlgorithmIdentifierRef};

/// `[2]` of a GeneralName.
const DNS_NAME: Tag = Tag::ContextSpecific { constructed: false, number: TagNumber(2) };
/// `[7]` of a GeneralName.
const IP_ADDRESS: Tag = Tag::ContextSpecific { constructed: false, number: TagNumber(7) };
/// `[0]` of the parameters of RSASSA-PSS.
const PSS_HASH: Tag = Tag::ContextSpecific { constructed: true, number: TagNumber(0) };

/// Names and dates in a certificate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The subject's first common name, the one that libpq uses.
    pub(super) common_name: Option<String>,
    /// Alternative names for DNS.
    pub(super) dns: Vec<String>,
    /// Alternative names that are addresses: 4 or 16 bytes.
    pub(super) addresses: Vec<Vec<u8>>,
    /// Seconds since 1970.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
}

/// Parses a certificate; `None` if it is not one.
pub(super) fn facts(der: &[u8]) -> Option<Facts> {
    let certificate = parse(der)?;
    let certificate = certificate.tbs_certificate();
    let mut names =
        certificate.subject().iter().filter(|attribute| attribute.oid == rfc4519::COMMON_NAME);
    let common_name =
        names.next().and_then(|name| String::from_utf8(name.value.value().into()).ok());
    let validity = certificate.validity();
    let seconds =
        |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_secs()).ok();
    let not_before = seconds(validity.not_before)?;
    let not_after = seconds(validity.not_after)?;
    let mut facts = Facts { common_name, not_before, not_after, ..Facts::default() };
    for extension in certificate.extensions().into_iter().flatten() {
        if extension.extn_id == rfc5912::ID_CE_SUBJECT_ALT_NAME {
            facts.alternative_names(extension.extn_value.as_bytes())?;
        }
    }
    Some(facts)
}

/// Parses without the library's rules for serial numbers and the like: trust is decided elsewhere.
fn parse(der: &[u8]) -> Option<CertificateInner<Raw>> {
    CertificateInner::from_der(der).ok()
}

impl Facts {
    fn alternative_names(&mut self, names: &[u8]) -> Option<()> {
        // One by one: the library's own list fails if one name is of an unknown kind.
        for name in Vec::<AnyRef<'_>>::from_der(names).ok()? {
            match name.tag() {
                // A name that is not a text, or contains a NUL, matches nothing. It is kept, so
                // that the common name does not replace it.
                DNS_NAME => {
                    self.dns.push(String::from_utf8(name.value().into()).unwrap_or_default())
                }
                IP_ADDRESS => self.addresses.push(name.value().into()),
                _ => {}
            }
        }
        Some(())
    }
}

/// Returns the hash for `tls-server-end-point`: that of the certificate's signature, with SHA-256
/// instead of MD5 and SHA-1. `None` for signatures without a hash (Ed25519). Source: RFC 5929,
/// section 4.1.
pub(super) fn signature_hash(der: &[u8]) -> Option<&'static digest::Algorithm> {
    let certificate = parse(der)?;
    let algorithm = certificate.signature_algorithm();
    match algorithm.oid {
        rfc5912::MD_5_WITH_RSA_ENCRYPTION
        | rfc5912::SHA_1_WITH_RSA_ENCRYPTION
        | rfc5912::SHA_256_WITH_RSA_ENCRYPTION
        | rfc5912::ECDSA_WITH_SHA_256 => Some(&digest::SHA256),
        rfc5912::SHA_384_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_384 => Some(&digest::SHA384),
        rfc5912::SHA_512_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_512 => Some(&digest::SHA512),
        rfc5912::ID_RSASSA_PSS => pss_hash(algorithm),
        _ => None,
    }
}

/// Source: RFC 4055, section 3.1: `[0] hashAlgorithm`, SHA-1 if absent.
fn pss_hash(algorithm: &AlgorithmIdentifierOwned) -> Option<&'static digest::Algorithm> {
    let parameters: Vec<AnyRef<'_>> = algorithm.parameters.as_ref()?.decode_as().ok()?;
    let Some(hash) = parameters.first().filter(|first| first.tag() == PSS_HASH) else {
        return Some(&digest::SHA256);
    };
    let hash: ObjectIdentifier = AlgorithmIdentifierRef::from_der(hash.value()).ok()?.oid;
    match hash {
        rfc5912::ID_SHA_256 => Some(&digest::SHA256),
        rfc5912::ID_SHA_384 => Some(&digest::SHA384),
        rfc5912::ID_SHA_512 => Some(&digest::SHA512),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::tests::certs::Certs;

    fn der(certs: &Certs, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(certs.path(&format!("{name}.crt"))).unwrap()
    }

    #[test]
    fn names_and_dates_are_found() {
        let certs = Certs::new();
        let names = "subjectAltName=email:a@b.example,DNS:db.example,DNS:*.example,IP:10.0.0.1,\
                     IP:::1,dirName:d\n[d]\nCN=no";
        certs.signed("many", "/CN=one/O=some/CN=two", names, "-sha256");
        let facts = facts(&der(&certs, "many")).unwrap();
        assert_eq!(facts.common_name.as_deref(), Some("one"));
        assert_eq!(facts.dns, ["db.example", "*.example"]);
        assert_eq!(facts.addresses, [vec![10, 0, 0, 1], [&[0; 15][..], &[1]].concat()]);
        assert_eq!(facts.not_after - facts.not_before, 30 * 86_400);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
        assert!((0..600).contains(&(now - facts.not_before)), "{facts:?}");
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let certs = Certs::new();
        for (hash, expected) in [
            ("-sha256", &digest::SHA256),
            ("-sha384", &digest::SHA384),
            ("-sha512", &digest::SHA512),
        ] {
            certs.signed("ec", "/CN=x", "subjectAltName=DNS:x", hash);
            assert_eq!(signature_hash(&der(&certs, "ec")), Some(expected), "{hash}");
            for padding in ["pkcs1", "pss"] {
                certs.rsa("rsa", hash, padding);
                assert_eq!(signature_hash(&der(&certs, "rsa")), Some(expected), "{hash} {padding}");
            }
        }
        certs.rsa("rsa", "-sha1", "pss");
        assert_eq!(signature_hash(&der(&certs, "rsa")), Some(&digest::SHA256));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = facts(&bytes);
            let _ = signature_hash(&bytes);
            let _ = Facts::default().alternative_names(&bytes);
        }
    }

    #[test]
    fn no_damage_makes_it_panic() {
        let certs = Certs::new();
        certs.rsa("rsa", "-sha256", "pss");
        let good = der(&certs, "rsa").to_vec();
        for at in 0..good.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= change;
                let _ = (facts(&bad), signature_hash(&bad));
            }
            assert_eq!(facts(&good[..at]), None);
        }
    }
}
