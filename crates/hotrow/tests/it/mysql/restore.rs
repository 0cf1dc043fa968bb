//! Session tokens after the database was restored or its log was reset.

use crate::mysql::server::{Server as Database, Stop};
use crate::mysql::shop::{config, with_products};
use crate::shop::{await_body, await_started, starts};
use hotrow_testkit::harness::answer::Position;
use hotrow_testkit::harness::{Client, SOON, Server, await_until};

const NEW: &str = r#"{"id":1,"name":"p1","price":7}"#;

/// Waits until the token is refused for good, because its history is known to have ended. An answer
/// that misses the token's changes fails the test at any time.
#[track_caller]
fn await_refusal(client: &mut Client, token: &Position) {
    await_until("the token to be refused", SOON, || {
        let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &token.to_string())]);
        assert!([400, 503, 504].contains(&answer.status), "{token}: {answer:?}");
        answer.status == 400
    });
}

#[test]
fn a_token_ends_with_the_restore_of_the_data_folder() {
    let mut database = with_products(Database::start(&[]));
    database.stop(Stop::Fast);
    database.back_up();
    database.restart();
    let server = Server::start(&config(&database, &["products"]));
    let mut client = server.client();
    database.batch("UPDATE products SET price = 7 WHERE id = 1");
    await_body(&mut client, "/products/1", NEW);
    let token = client.get("/products/1").position();
    let before = starts(&server);
    database.await_next_second();
    database.stop(Stop::Fast);
    database.restore();
    database.restart();
    // Other commits take the restored log past the token's point, in a file of the same number.
    while database.log_end() <= token.at {
        database.batch(&"UPDATE products SET price = price + 1 WHERE id = 200;".repeat(20));
    }
    await_started(&server, before);
    await_refusal(&mut client, &token);
    // An instance that never saw the other history refuses it, too.
    let later = Server::start(&config(&database, &["products"]));
    await_refusal(&mut later.client(), &token);
    // Each accepts the other's tokens.
    let fresh = client.get("/products/1").position();
    let answer =
        later.client().get_with("/products/1", &[("Hotrow-Min-Position", &fresh.to_string())]);
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_token_ends_when_a_running_server_resets_its_log() {
    let database = with_products(Database::start(&[]));
    let server = Server::start(&config(&database, &["products"]));
    let mut client = server.client();
    database.batch("UPDATE products SET price = 7 WHERE id = 1");
    await_body(&mut client, "/products/1", NEW);
    let token = client.get("/products/1").position();
    let before = starts(&server);
    database.batch("RESET MASTER");
    await_started(&server, before);
    while database.log_end() <= token.at {
        database.batch(&"UPDATE products SET price = price + 1 WHERE id = 200;".repeat(20));
    }
    await_refusal(&mut client, &token);
}
