//! `hotrow health` against the real server, and against targets that do not answer well.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server};

use super::carriers::Carriers;

fn health(arguments: &[&str]) -> Ended {
    Ended::run(&[&["health"], arguments].concat(), SOON)
}

#[track_caller]
fn fails(arguments: &[&str], status: i32, fragment: &str) {
    let ended = health(arguments);
    assert_eq!((ended.code(), ended.output.as_str()), (status, ""), "{ended:?}");
    let error = ended.log.strip_prefix("hotrow health: ").unwrap_or_default();
    assert!(error.contains(fragment) && error.lines().count() == 1, "{ended:?}");
}

#[test]
fn a_service_that_runs_is_healthy_and_one_that_has_ended_is_not() {
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products");
    let server = Server::start(&config);
    let admin = format!("http://{}", server.admin);
    // A file with the addresses that the system chose.
    let file = database.folder().join("probe.toml");
    let config = config.set("listen.admin", &format!("\"{}\"", server.admin));
    std::fs::write(&file, config.text()).expect("writable");
    let file = file.to_str().expect("UTF-8").to_owned();
    for (arguments, path) in [
        (&[&*admin][..], "/healthz"),
        (&[&*admin, "--ready"], "/readyz"),
        (&["--config", &*file], "/healthz"),
        (&["--config", &*file, "--ready"], "/readyz"),
    ] {
        let ended = health(arguments);
        assert_eq!((ended.code(), ended.log.as_str()), (0, ""), "{ended:?}");
        assert_eq!(ended.output, format!("{admin}{path} answered 200\n"));
    }
    let record = format!("http://{}/products", server.data);
    assert_eq!(health(&[&format!("{record}/2")]).code(), 0);
    fails(&[&format!("{record}/99")], 1, "/products/99 answered 404: ");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    fails(&[&admin], 1, "refused");
}

#[test]
fn the_unix_socket_and_tls_are_probed_too() {
    let database = Database::with_products(3);
    let carriers = Carriers::new(&database);
    let server = Server::start(&carriers.config);
    let socket = carriers.text("data.sock");
    let local = health(&["--unix", &socket, "http://localhost/products/1"]);
    assert_eq!(local.code(), 0, "{local:?}");
    assert_eq!(local.output, format!("{socket} /products/1 answered 200\n"));
    let secure = format!("https://{}/products/1", server.data);
    assert_eq!(health(&[&secure, "--cacert", &carriers.text("cert.pem")]).code(), 0);
    assert_eq!(health(&[&secure, "--insecure"]).code(), 0);
    fails(&[&secure], 1, "certificate");
}

#[test]
fn the_answer_of_an_unready_service_is_shown() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 1024];
        let length = stream.read(&mut request).expect("a request");
        let answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n\
            {\"ready\":\nfalse}";
        stream.write_all(answer.as_bytes()).expect("an answer");
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    fails(&[&url, "--ready"], 1, "/readyz answered 503: {\"ready\": false}");
    let request = server.join().expect("no panic");
    assert!(request.starts_with("GET /readyz HTTP/1.1\r\n"), "{request}");
}

#[test]
fn a_service_that_does_not_answer_in_time_is_not_healthy() {
    // Both accept connections in their queue and never answer.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    fails(&[&url, "--timeout", "50ms"], 1, "within 50ms");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("silent.sock");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    let socket = socket.to_str().expect("UTF-8");
    fails(&["--unix", socket, "--timeout", "50ms"], 1, "within 50ms");
    fails(&["--unix", "/nowhere/data.sock"], 1, "there is no socket /nowhere/data.sock");
}

#[test]
fn wrong_usage_ends_with_2() {
    fails(&["localhost:8081"], 2, "must begin with http://, https:// or unix:");
    fails(&["--config", "/nowhere/hotrow.toml"], 2, "/nowhere/hotrow.toml: cannot be read");
    fails(&["http://127.0.0.1/{id}"], 2, "{id}");
}
