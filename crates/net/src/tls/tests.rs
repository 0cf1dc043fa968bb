use std::path::Path;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::file_watch::Watch;

/// Writes a certificate for `name` that ends at `end`, and its key.
fn write_pair(folder: &Path, name: &str, end: SystemTime) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_after = end.into();
    let certificate = params.self_signed(&key).unwrap();
    replace(&folder.join("cert.pem"), &certificate.pem());
    replace(&folder.join("key.pem"), &key.serialize_pem());
}

/// Replaces a file as a whole, as tools that renew certificates do.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

fn settings(folder: &Path) -> Tls {
    Tls {
        certificate: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        clients: ClientCertificates::Ignored,
    }
}

/// 2100-01-01.
const LATE_S: u64 = 4_102_444_800;

fn late() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(LATE_S)
}

#[test]
fn the_end_of_the_certificate_is_known() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), "a.test", late());
    let certificates = files::check(&settings(folder.path())).unwrap();
    assert_eq!(certificates.expires_unix_s(), LATE_S);
    assert_eq!(certificates.expires(), "2100-01-01T00:00:00Z");
    assert_eq!(certificates.days_left(LATE_S - 86_400), 1);
    assert_eq!(certificates.days_left(LATE_S - 1), 0);
    assert_eq!(certificates.days_left(LATE_S + 1), -1);
}

#[test]
fn the_log_warns_before_the_end_and_after_it_once_each() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), "a.test", late());
    let endpoint = TlsEndpoint::load(&settings(folder.path()), false).unwrap();
    let warned_at = |now_s| {
        endpoint.warn_of_expiry(now_s);
        endpoint.warned.load(Ordering::Relaxed)
    };
    let ends = [LATE_S - EXPIRES_SOON_S - 1, LATE_S - EXPIRES_SOON_S, LATE_S, LATE_S + 1];
    assert_eq!(ends.map(warned_at), [0, 1, 1, 2]);
    write_pair(folder.path(), "a.test", SystemTime::UNIX_EPOCH + Duration::from_secs(1));
    endpoint.take_over(stamps(&settings(folder.path()))).unwrap();
    assert_eq!(warned_at(1), 1, "another certificate");
}

#[test]
fn files_that_do_not_fit_are_named_with_the_rule() {
    let folder = tempfile::tempdir().unwrap();
    let tls = settings(folder.path());
    let error = || files::check(&tls).unwrap_err().to_string();
    assert!(error().contains("cert.pem: No such file"), "{}", error());
    write_pair(folder.path(), "a.test", late());
    let certificate = std::fs::read_to_string(&tls.certificate).unwrap();
    let key = std::fs::read_to_string(&tls.key).unwrap();
    for (bad_certificate, bad_key, rule) in [
        (&*key, &*key, "cert.pem must have a certificate in PEM form"),
        ("", &*key, "cert.pem must have a certificate in PEM form"),
        ("-----BEGIN CERTIFICATE-----\n*\n", &*key, "cert.pem is not in PEM form"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &*key,
            "cert.pem has a malformed certificate",
        ),
        (&*certificate, &*certificate, "key.pem must have a private key in PEM form"),
        (&*certificate, &"x".repeat((1 << 20) + 1), "key.pem is larger than 1 MiB"),
    ] {
        replace(&tls.certificate, bad_certificate);
        replace(&tls.key, bad_key);
        assert!(error().contains(rule), "{}", error());
    }
    write_pair(folder.path(), "b.test", late());
    replace(&tls.certificate, &certificate);
    assert!(error().contains("does not belong to the first certificate"), "{}", error());
    let with_clients = Tls { clients: ClientCertificates::Required(tls.key.clone()), ..tls };
    write_pair(folder.path(), "a.test", late());
    let error = files::check(&with_clients).unwrap_err().to_string();
    assert!(error.contains("key.pem must have a certificate"), "{error}");
}

#[test]
fn a_pair_is_replaced_as_one_and_a_broken_one_never() {
    let folder = tempfile::tempdir().unwrap();
    let tls = settings(folder.path());
    write_pair(folder.path(), "a.test", late());
    let endpoint = TlsEndpoint::load(&tls, true).unwrap();
    let mut watch = Watch::new(stamps(&tls));
    let mut look = || (0..2).for_each(|_| watch.look(&*endpoint));
    let first = endpoint.config();
    look();
    assert!(Arc::ptr_eq(&first, &endpoint.config()) && endpoint.reloads() == (0, 0));
    let key = std::fs::read_to_string(&tls.key).unwrap();
    write_pair(folder.path(), "b.test", late() + Duration::from_secs(86_400));
    let new_key = std::fs::read_to_string(&tls.key).unwrap();
    replace(&tls.key, &key);
    look();
    assert!(Arc::ptr_eq(&first, &endpoint.config()), "another key");
    assert_eq!((endpoint.reloads(), endpoint.expires_unix_s()), ((0, 1), LATE_S));
    replace(&tls.key, &new_key);
    look();
    assert_eq!((endpoint.reloads(), endpoint.expires_unix_s()), ((1, 1), LATE_S + 86_400));
    assert!(
        Arc::ptr_eq(&first.ticketer, &endpoint.config().ticketer),
        "sessions outlive a renewed certificate"
    );
}

#[test]
fn sessions_end_when_other_client_certificates_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), "a.test", late());
    let ca = folder.path().join("ca.pem");
    let set_ca = || assert!(std::fs::copy(folder.path().join("cert.pem"), &ca).unwrap() > 0);
    set_ca();
    let clients = ClientCertificates::Required(ca.clone());
    let tls = Tls { clients, ..settings(folder.path()) };
    let endpoint = TlsEndpoint::load(&tls, true).unwrap();
    let first = endpoint.config();
    write_pair(folder.path(), "b.test", late());
    set_ca();
    endpoint.take_over(stamps(&tls)).unwrap();
    assert!(!Arc::ptr_eq(&first.ticketer, &endpoint.config().ticketer));
}

#[test]
fn the_subject_of_a_certificate_is_text() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "Shop, Ltd");
    params.distinguished_name.push(rcgen::DnType::CommonName, "billing");
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    assert_eq!(files::subject(certificate.der()).as_deref(), Some("CN=billing,O=Shop\\, Ltd"));
    assert_eq!(files::subject(&vec![0; 10].into()), None);
}
