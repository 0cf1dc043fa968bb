//! Passwords and certificates, over SecantusDB alone: the stand-in checks none.

use mongodb::bson::doc;

use crate::e2e::carriers::certificate_for;
use crate::mongodb::mongo::{MongoDatabase, Secantus};
use crate::shop::{assert_contains, await_body, cached, refusal, with_options};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

const DATABASE: &str = "shop";

fn config(url: &str) -> Config {
    with_options(Config::over(url), &["products"])
        .set("collections.products.key", "\"_id\"")
        .set("source.connect_timeout", "\"2s\"")
}

#[ignore = "long: needs SecantusDB"]
#[test]
fn passwords_of_secantusdb_are_checked() {
    let mut server = Secantus::start();
    let open = MongoDatabase::over(&server.url(server.port(), DATABASE), DATABASE);
    open.insert("products", [doc! { "_id": 1, "n": 1 }]);
    for (user, role) in [("reader", "read"), ("writer", "root")] {
        let command = doc! {
            "createUser": user, "pwd": "topsecret",
            "roles": [{ "role": role, "db": if role == "read" { DATABASE } else { "admin" } }],
        };
        open.ask(async |_| open.client().database("admin").run_command(command).await);
    }
    server.stop();
    server.start_with(&["--auth"]);
    let url = |login: &str| {
        let url = server.url(server.port(), DATABASE);
        url.replace("://", &format!("://{login}@")) + "&authSource=admin"
    };
    let config = |login: &str| config(&url(login));
    let text = refusal(&config("reader:anothersecret"));
    assert_contains(&text, &["uthentication"]);
    assert!(!text.contains("secret"), "{text}");
    let writer = MongoDatabase::over(&url("writer:topsecret"), DATABASE);
    let service = Server::start(&config("reader:topsecret"));
    let mut client = service.client();
    cached(&mut client, "/products/1");
    writer.update("products", 1, doc! { "$set": { "n": 2 } });
    await_body(&mut client, "/products/1", r#"{"_id":1,"n":2}"#);
    // A password that changes while the service runs is reported once its connections end.
    let change = doc! { "updateUser": "reader", "pwd": "changedsecret" };
    writer.ask(async |_| writer.client().database("admin").run_command(change).await);
    server.stop();
    server.start_with(&["--auth"]);
    await_until("the refused login in the log", SOON, || {
        _ = client.get("/products/2");
        service.log().contains("uthentication failed")
    });
    assert!(!service.log().contains("secret"), "{}", service.log());
}

#[ignore = "long: needs SecantusDB"]
#[test]
fn certificates_of_secantusdb_are_checked() {
    let mut server = Secantus::start();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let (authority, certificate, key) = certificate_for("127.0.0.1");
    let authority = write("ca.pem", &authority);
    let other = write("other.pem", &certificate_for("127.0.0.1").0);
    let (certificate, key) = (write("cert.pem", &certificate), write("key.pem", &key));
    server.stop();
    server.start_with(&["--tls-cert-file", &certificate, "--tls-key-file", &key]);
    let url = |ca: &str| format!("{}&tls=true&tlsCAFile={ca}", server.url(server.port(), DATABASE));
    let mongo = MongoDatabase::over(&url(&authority), DATABASE);
    mongo.insert("products", [doc! { "_id": 1, "n": 1 }]);
    assert_contains(&refusal(&config(&url(&other))), &["certificate"]);
    let service = Server::start(&config(&url(&authority)));
    let mut client = service.client();
    cached(&mut client, "/products/1");
    mongo.update("products", 1, doc! { "$set": { "n": 2 } });
    await_body(&mut client, "/products/1", r#"{"_id":1,"n":2}"#);
}
