//! nginx in front, with a cache: `Vary` keeps the forms of a record apart.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hotrow_testkit::harness::{Answer, Client, SOON, Server, await_some};
use tempfile::TempDir;

use crate::compression::{await_coding, config, database};

/// nginx as a single process without a master; killed when dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Nginx {
    fn start(hotrow: SocketAddr) -> Self {
        let folder = TempDir::new().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).unwrap();
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration(folder.path(), address, hotrow)).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nginx");
        command.env("PATH", format!("{path}:/usr/sbin")).arg("-p").arg(folder.path());
        command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().expect("nginx is installed");
        await_some("nginx listens", SOON, || TcpStream::connect(address).ok());
        Self { child, address, _folder: folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(folder: &Path, address: SocketAddr, hotrow: SocketAddr) -> String {
    let folder = folder.display();
    let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|place| format!("{place}_temp_path {folder}/{place};\n"))
        .concat();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n{places}\
         access_log off;\n\
         proxy_cache_path {folder}/cache keys_zone=records:1m;\n\
         server {{\n\
         listen {address}; keepalive_requests 1000000;\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_cache records;\n\
         proxy_cache_revalidate on;\n\
         add_header X-Cache $upstream_cache_status always;\n\
         location / {{ proxy_pass http://{hotrow}; }}\n\
         }}\n}}\n"
    )
}

fn through(client: &mut Client, accept: Option<&str>) -> Answer {
    let field = accept.map(|accept| ("Accept-Encoding", accept));
    let answer = client.get_with("/texts/1", field.as_slice());
    assert_eq!(answer.status, 200);
    answer
}

#[test]
fn a_cache_in_front_keeps_the_forms_apart() {
    let database = database();
    let hotrow =
        Server::start(&config(&database).set("collections.texts.cache_control", "\"max-age=60\""));
    let plain = hotrow.get("/texts/1");
    let gzip = await_coding(&hotrow, 1, "gzip");
    let zstd = await_coding(&hotrow, 1, "zstd");
    let nginx = Nginx::start(hotrow.data);
    let mut client = Client::connect(nginx.address);
    for expected in ["MISS", "HIT"] {
        for (accept, form) in
            [(Some("gzip"), &gzip), (None, &plain), (Some("zstd"), &zstd), (Some("br"), &plain)]
        {
            let answer = through(&mut client, accept);
            assert_eq!(answer.body, form.body, "{expected} {accept:?}");
            assert_eq!(answer.header("content-encoding"), form.header("content-encoding"));
            assert_eq!(answer.header("etag"), form.header("etag"));
            assert_eq!(answer.header("vary"), Some("accept-encoding"));
            assert_eq!(answer.header("x-cache"), Some(expected), "{accept:?}");
        }
    }
}

#[test]
fn a_cache_in_front_revalidates_each_form() {
    let database = database();
    let hotrow =
        Server::start(&config(&database).set("collections.texts.cache_control", "\"max-age=1\""));
    let plain = hotrow.get("/texts/1");
    let gzip = await_coding(&hotrow, 1, "gzip");
    let nginx = Nginx::start(hotrow.data);
    let mut client = Client::connect(nginx.address);
    for (accept, form) in [(Some("gzip"), &gzip), (None, &plain)] {
        await_some("a revalidated answer", SOON, || {
            let answer = through(&mut client, accept);
            assert_eq!(answer.body, form.body, "{accept:?}");
            assert_eq!(answer.header("etag"), form.header("etag"), "{accept:?}");
            (answer.header("x-cache") == Some("REVALIDATED")).then_some(())
        });
    }
}
