//! Client certificates as credentials, and grants that change while connections are open.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::authority::Authority;
use crate::common::http2::Http2Connection;
use crate::common::load::{Ask, under_load};
use crate::common::service::{Running, access, config};
use crate::common::{Client, wait_until};
use hotrow_access::certificate::CertificateHolder;
use hotrow_access::grant::Roles;
use hotrow_access::key::{NewKey, StoredKey};
use hotrow_config::Config;
use hotrow_config::access::{Access, Granted, GrantsFile};
use hotrow_config::transport::{ClientCertificates, Transport};
use hotrow_types::tenant::Tenants;

fn key(number: u8) -> NewKey {
    NewKey::new([number; 8], &[number; 32])
}

/// Parses a file in a form of this test: digits, each an API key that may read `products`.
fn parse(text: &[u8]) -> Result<Granted, String> {
    let stored = |digit: &u8| {
        let key = key(*digit);
        let (roles, tenants) = (Roles::single(0), Tenants::NONE);
        StoredKey { id: key.id, hash: key.hash, roles, tenants }
    };
    if !text.iter().all(u8::is_ascii_digit) {
        return Err("must be digits".to_owned());
    }
    let roles = access().0.granted.roles;
    Ok(Granted { roles, keys: text.iter().map(stored).collect(), ..Granted::default() })
}

/// A file of grants in a folder of its own.
struct File(tempfile::TempDir);

impl File {
    fn new(text: &str) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("grants")
    }

    fn write(&self, text: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    fn access(&self) -> Access {
        let text = std::fs::read(self.path()).unwrap();
        let granted = parse(&text).unwrap();
        let grants_file = Some(GrantsFile { path: self.path(), text, parse: Arc::new(parse) });
        Access { granted, grants_file, ..access().0 }
    }
}

fn start(access: Access, transport: Transport) -> Running {
    Running::start(&Config { access: Some(access), transport, workers: 2, ..config() })
}

fn http2() -> Transport {
    Transport { http2: true, ..Transport::default() }
}

fn credential(number: u8) -> String {
    format!("X-API-Key: {}\r\n", key(number).reveal())
}

fn get(client: &mut Client, fields: &str) -> u16 {
    client.send(format!("GET /products/1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).next_status()
}

#[test]
fn a_removed_key_is_refused_on_open_connections() {
    let file = File::new("12");
    let server = start(file.access(), http2());
    let (mut first, mut second) =
        (Client::connect(server.address), Http2Connection::connect(server.address));
    let mut both = |number: u8| {
        let fields = credential(number);
        [get(&mut first, &fields), second.ask("GET", "/products/1", &fields, "").status]
    };
    assert_eq!((both(b'1'), both(b'2'), both(b'3')), ([200; 2], [200; 2], [401; 2]));
    file.write("23");
    // The other key is accepted all the time, and the new one with the old one's end.
    loop {
        assert_eq!(both(b'2'), [200; 2]);
        let (new, old) = (both(b'3'), both(b'1'));
        if old == [401; 2] {
            assert_eq!(both(b'3'), [200; 2], "it was {new:?} just before");
            break;
        }
    }
    file.write("no grants");
    wait_until(|| metrics(&server).contains("grants_reloads_total{result=\"refused\"} 1"));
    assert_eq!((both(b'1'), both(b'2'), both(b'3')), ([401; 2], [200; 2], [200; 2]));
    assert!(metrics(&server).contains("grants_reloads_total{result=\"reloaded\"} 1"));
}

fn metrics(server: &Running) -> String {
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    Client::connect(server.admin).send(request).rest().answers.pop().unwrap().body
}

fn status_by_curl(authority: &Authority, address: SocketAddr, client: &[&str]) -> String {
    let files: Vec<String> = client
        .iter()
        .flat_map(|name| {
            let path = |end| authority.path(&format!("{name}.{end}")).display().to_string();
            ["--cert".to_owned(), path("pem"), "--key".to_owned(), path("key")]
        })
        .collect();
    let mut arguments = vec!["-o", "/dev/null", "-w", "%{http_code}"];
    arguments.extend(files.iter().map(String::as_str));
    let got = authority.curl(&format!("https://{address}/products/1"), &arguments);
    String::from_utf8_lossy(&got.stdout).into_owned()
}

#[test]
fn a_certificate_is_a_credential_where_no_other_is_sent() {
    let authority = Authority::new();
    for name in ["billing", "other"] {
        authority.sign_client(name);
    }
    let (mut access, key) = access();
    let subject = "CN=billing,O=Shop".to_owned();
    let (roles, tenants) = (Roles::single(0), Tenants::NONE);
    access.granted.certificates.push(CertificateHolder { subject, roles, tenants });
    let clients = ClientCertificates::Optional(authority.path("ca.pem"));
    let tls = Some(authority.tls(clients));
    let server = start(access, Transport { tls, ..http2() });
    let status = |client: &[&str]| status_by_curl(&authority, server.address, client);
    assert_eq!(status(&["billing"]), "200");
    assert_eq!(status(&["other"]), "401", "a good certificate without an entry");
    assert_eq!(status(&[]), "401");
    let with = |fields: &[&str], target: &str| {
        let path = |end: &str| authority.path(&format!("billing.{end}")).display().to_string();
        let (certificate, key) = (path("pem"), path("key"));
        let mut arguments = vec!["-o", "/dev/null", "-w", "%{http_code}", "--cert", &certificate];
        arguments.extend(["--key", &key]);
        arguments.extend(fields.iter().flat_map(|field| ["-H", field]));
        let url = format!("https://{}{target}", server.address);
        String::from_utf8_lossy(&authority.curl(&url, &arguments).stdout).into_owned()
    };
    assert_eq!(with(&["Authorization: Bearer a.b.c"], "/products/1"), "401", "it is not ignored");
    assert_eq!(with(&[&format!("X-API-Key: {key}")], "/products/1"), "200");
    assert_eq!(with(&[], "/prices/1"), "403");
    assert!(metrics(&server).contains("hotrow_access_total{outcome=\"certificate\"} 2"));
}

#[test]
fn keys_are_replaced_under_load_without_a_failed_request() {
    let file = File::new("12");
    let server = start(file.access(), http2());
    let taken = |count: usize| {
        let line = format!("grants_reloads_total{{result=\"reloaded\"}} {count}\n");
        wait_until(|| metrics(&server).contains(&line));
    };
    // The key `2` is in every version: whichever is in force, it may read.
    let http1 = || -> Ask<'_> {
        let mut client = Client::connect(server.address);
        Box::new(move || get(&mut client, &credential(b'2')))
    };
    under_load(http1, || {
        file.write("23");
        taken(1);
    });
    let http2 = || -> Ask<'_> {
        let mut client = Http2Connection::connect(server.address);
        Box::new(move || client.ask("GET", "/products/1", &credential(b'2'), "").status)
    };
    under_load(http2, || {
        file.write("123");
        taken(2);
    });
}

#[test]
fn certificates_are_replaced_under_load_without_a_failed_request() {
    let authority = Authority::new();
    let tls = Some(authority.tls(ClientCertificates::Ignored));
    let (access, key) = access();
    let server = start(access, Transport { tls, ..http2() });
    let field = format!("X-API-Key: {key}");
    let url = format!("https://{}/products/1", server.address);
    // Each request has a connection of its own: a handshake with the old or the new pair.
    let ask = || -> Ask<'_> {
        let (authority, url, field) = (&authority, url.clone(), field.clone());
        let ca = authority.path("ca.pem").display().to_string();
        Box::new(move || {
            let got = std::process::Command::new("curl")
                .args(["-sS", "--max-time", "20", "--cacert", &ca, "-H", &field])
                .args(["-o", "/dev/null", "-w", "%{http_code}", &url])
                .output()
                .unwrap();
            String::from_utf8_lossy(&got.stdout).parse().unwrap()
        })
    };
    under_load(ask, || {
        authority.renew_server();
        let line = "hotrow_tls_reloads_total{listener=\"data\",result=\"reloaded\"} 1\n";
        wait_until(|| metrics(&server).contains(line));
    });
    let none = "hotrow_tls_reloads_total{listener=\"data\",result=\"refused\"} 0";
    assert!(metrics(&server).contains(none));
}
