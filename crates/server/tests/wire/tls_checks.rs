//! What a scanner of TLS servers tries, with OpenSSL: versions, suites, groups, compression,
//! renegotiation, resumption, names, and certificates of clients that are not good.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::common::authority::{self, Authority};
use crate::common::service::{Running, config};
use hotrow_config::Config;
use hotrow_config::transport::{ClientCertificates, Transport};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose};

const REQUEST: &str = "GET /products/1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const SERVED: &str = "HTTP/1.1 200 OK";

fn start(authority: &Authority, clients: ClientCertificates) -> Running {
    Running::start(&served_with(authority, clients))
}

fn served_with(authority: &Authority, clients: ClientCertificates) -> Config {
    let tls = Some(authority.tls(clients));
    let transport = Transport { tls, http2: true, ..Transport::default() };
    Config { transport, ..config() }
}

fn openssl(authority: &Authority, address: SocketAddr, input: &str, arguments: &[&str]) -> String {
    authority::openssl(&authority.path("ca.pem"), address, input, arguments)
}

/// Sends a request, and returns what OpenSSL printed until the server closed.
fn ask(authority: &Authority, server: &Running, arguments: &[&str]) -> String {
    openssl(authority, server.address, REQUEST, &[&["-ign_eof"], arguments].concat())
}

/// Names of all suites that OpenSSL can offer, for TLS 1.2 and older.
fn known_suites() -> Vec<String> {
    let listed =
        Command::new("openssl").args(["ciphers", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]).output();
    let text = String::from_utf8(listed.unwrap().stdout).unwrap();
    text.trim().split(':').filter(|name| !name.starts_with("TLS_")).map(str::to_owned).collect()
}

#[test]
fn of_all_suites_and_groups_only_the_documented_are_accepted() {
    let authority = Authority::new();
    let server = start(&authority, ClientCertificates::Ignored);
    let is_served = |arguments: &[&str]| ask(&authority, &server, arguments).contains(SERVED);
    let known = known_suites();
    assert!(known.len() > 50, "{known:?}");
    let accepted: BTreeSet<&str> = known
        .iter()
        .filter(|suite| is_served(&["-tls1_2", "-cipher", &format!("{suite}:@SECLEVEL=0")]))
        .map(String::as_str)
        .collect();
    // The certificate has an ECDSA key.
    let documented = [
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ];
    assert_eq!(accepted, documented.into());
    let of_1_3 = [
        ("TLS_AES_128_GCM_SHA256", true),
        ("TLS_AES_256_GCM_SHA384", true),
        ("TLS_CHACHA20_POLY1305_SHA256", true),
        ("TLS_AES_128_CCM_SHA256", false),
        ("TLS_AES_128_CCM_8_SHA256", false),
    ];
    for (suite, expected) in of_1_3 {
        assert_eq!(is_served(&["-tls1_3", "-ciphersuites", suite]), expected, "{suite}");
    }
    let groups = [("X25519", true), ("P-256", true), ("P-384", true), ("P-521", false)];
    for (group, expected) in groups.into_iter().chain([("ffdhe2048", false), ("X448", false)]) {
        assert_eq!(is_served(&["-tls1_3", "-groups", group]), expected, "{group}");
    }
    let sha1 = ["-tls1_2", "-cipher", "DEFAULT@SECLEVEL=0", "-sigalgs", "ECDSA+SHA1"];
    assert!(!is_served(&sha1), "a signature over SHA-1");
}

#[test]
fn there_is_no_compression_no_early_data_and_no_renegotiation() {
    let authority = Authority::new();
    let mut config = served_with(&authority, ClientCertificates::Ignored);
    // The client whose renegotiation is refused stays until this is over.
    config.limits.idle_timeout = Duration::from_secs(1);
    let server = Running::start(&config);
    for version in ["-tls1_2", "-tls1_3"] {
        let printed = ask(&authority, &server, &[version, "-comp"]);
        assert!(printed.contains(SERVED) && printed.contains("Compression: NONE"), "{printed}");
        assert!(printed.contains("Secure Renegotiation IS"), "{printed}");
        assert!(!printed.contains("heartbeat"), "{printed}");
    }
    let printed = ask(&authority, &server, &["-tls1_3"]);
    assert!(printed.contains("Max Early Data: 0"), "{printed}");
    // `R` on a line of its own renegotiates.
    let printed = openssl(&authority, server.address, "R\n", &["-tls1_2"]);
    assert!(printed.contains("RENEGOTIATING"), "{printed}");
    assert!(printed.contains("no renegotiation") || printed.contains(":error:"), "{printed}");
    assert_eq!(printed.matches("Server certificate").count(), 1, "one handshake: {printed}");
}

#[test]
fn sessions_are_resumed_but_never_with_another_servers_tickets() {
    let authority = Authority::new();
    let (server, other) = (
        start(&authority, ClientCertificates::Ignored),
        start(&authority, ClientCertificates::Ignored),
    );
    for version in ["-tls1_3", "-tls1_2"] {
        let session = authority.path("session").display().to_string();
        let first = ask(&authority, &server, &[version, "-sess_out", &session]);
        assert!(first.contains("New, TLSv1.") && first.contains(SERVED), "{first}");
        let again = ask(&authority, &server, &[version, "-sess_in", &session]);
        assert!(again.contains("Reused, TLSv1.") && again.contains(SERVED), "{again}");
        let elsewhere = ask(&authority, &other, &[version, "-sess_in", &session]);
        assert!(elsewhere.contains("New, TLSv1.") && elsewhere.contains(SERVED), "{elsewhere}");
    }
}

#[test]
fn protocols_and_names_that_a_client_asks_for() {
    let authority = Authority::new();
    let server = start(&authority, ClientCertificates::Ignored);
    for (offered, agreed) in [
        ("http/1.1", "ALPN protocol: http/1.1"),
        ("h2,http/1.1", "ALPN protocol: h2"),
        ("ftp,http/1.1", "ALPN protocol: http/1.1"),
        ("ftp", "no application protocol"),
    ] {
        let printed = openssl(&authority, server.address, "", &["-alpn", offered]);
        assert!(printed.contains(agreed), "{offered}: {printed}");
    }
    assert!(ask(&authority, &server, &[]).contains("No ALPN negotiated"), "HTTP/1.1");
    // HTTP/2 that was not chosen is none.
    for chosen in [&["-ign_eof", "-alpn", "http/1.1"][..], &["-ign_eof"]] {
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let printed = openssl(&authority, server.address, preface, chosen);
        assert!(printed.contains("HTTP/1.1 505"), "{printed}");
    }
    // There is one certificate, and the client compares names: another one, and none, are served.
    for name in [&["-servername", "other.test"][..], &["-noservername"]] {
        let printed = ask(&authority, &server, name);
        assert!(printed.contains(SERVED), "{name:?}: {printed}");
        let strict = [name, &["-verify_hostname", "other.test", "-verify_return_error"]].concat();
        let printed = ask(&authority, &server, &strict);
        assert!(printed.to_lowercase().contains("hostname mismatch"), "{name:?}: {printed}");
        assert!(!printed.contains(SERVED), "{name:?}: {printed}");
    }
}

#[test]
fn certificates_of_clients_that_are_not_good_are_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now();
    let params = || CertificateParams::new(vec!["client.test".to_owned()]).unwrap();
    let mut expired = params();
    expired.not_before = (now - 2 * day).into();
    expired.not_after = (now - day).into();
    let mut early = params();
    early.not_before = (now + day).into();
    early.not_after = (now + 2 * day).into();
    let mut of_server = params();
    of_server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for (name, params) in
        [("good", params()), ("expired", expired), ("early", early), ("of-server", of_server)]
    {
        authority.sign(name, &params);
    }
    stranger.sign("good", &params());
    let file = |authority: &Authority, name: &str| authority.path(name).display().to_string();
    let pair = |authority: &Authority, name: &str| {
        [file(authority, &format!("{name}.pem")), file(authority, &format!("{name}.key"))]
    };
    let roots = authority.path("ca.pem");
    for clients in
        [ClientCertificates::Required(roots.clone()), ClientCertificates::Optional(roots)]
    {
        let server = start(&authority, clients);
        for (what, [certificate, key], is_served) in [
            ("good", pair(&authority, "good"), true),
            ("expired", pair(&authority, "expired"), false),
            ("not yet valid", pair(&authority, "early"), false),
            ("for servers alone", pair(&authority, "of-server"), false),
            ("of another authority", pair(&stranger, "good"), false),
        ] {
            for version in ["-tls1_2", "-tls1_3"] {
                let arguments = [version, "-cert", &certificate, "-key", &key];
                let printed = ask(&authority, &server, &arguments);
                assert_eq!(printed.contains(SERVED), is_served, "{what} {version}: {printed}");
                assert!(is_served || printed.contains("alert"), "{what} {version}: {printed}");
            }
        }
    }
}
